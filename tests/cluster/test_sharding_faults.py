"""Bad input and faults of a ring: instances that lie, die or say nothing, and admins that write what is not theirs."""

from __future__ import annotations

from contextlib import AsyncExitStack

import msgspec
import pytest
from tests.cluster.audit_case import Final
from tests.cluster.puppet import Puppet
from tests.cluster.puppet_world import (
    LEASE_S,
    at_rest,
    awaited,
    make_small_world,
    play,
    playing,
    puppet,
    sharding,
)
from tests.cluster.ring_world import RING, owned_map, read_families, wanted_owners
from tests.cluster.world import Cluster, make_namespace, secret, until

from poise import clock
from poise.errors import Conflict
from poise.jobs.sharder.sharder import RingSharder
from poise.kube import LEASES, Client, Lease, Meta, ObjectRef, Partial
from poise.kube.objects import LeaseSpec
from poise.kube.resources import CONFIG_MAPS, SECRETS
from poise.model.sharding import RING_LABEL, TOKENS_LABEL, label_names
from poise.observe.leases import Health

SHARD, EPOCH, DRAIN, UNTIL = label_names(RING)
HOUR_S = 3600
pytestmark = pytest.mark.usefixtures("definitions")


def epochs(finals: tuple[Final, ...]) -> dict[str, int]:
    return {each.object: each.epoch or 0 for each in finals}


def states(sharder: RingSharder) -> dict[str, Health]:
    return {each.name: each.state for each in sharder.report.instances}


def notes(sharder: RingSharder) -> dict[str, str]:
    return {each.name: each.note for each in sharder.report.instances}


async def relabel(client: Client, ref: ObjectRef, **labels: str | None) -> None:
    """Write the labels of a ring as an admin does, whatever is there."""
    names = {"shard": SHARD, "epoch": EPOCH, "drain": DRAIN, "until": UNTIL}
    change = {"metadata": {"labels": {names[name]: value for name, value in labels.items()}}}
    while True:
        try:
            await client.merge(ref, (await client.get(ref, Partial)).metadata, change, Partial)
            return
        except Conflict:
            continue  # Somebody else was faster.


def test_an_instance_that_never_acknowledges_keeps_its_objects_and_is_reported(
    cluster: Cluster, namespace: str
) -> None:
    async def scenario(client: Client) -> None:
        await make_small_world(client, namespace, drainTimeoutSeconds=1)
        deaf, other = puppet(client, namespace, "deaf", "never"), puppet(client, namespace, "other")
        async with playing(deaf), sharding(client, namespace) as sharder:
            before = await at_rest(client, namespace, ["deaf"])
            wanted = await wanted_owners(client, namespace, ["deaf", "other"])
            leaving = {uid for uid, owner in wanted.items() if owner == "other"}
            assert leaving
            async with playing(other):
                await until(lambda: sharder.report.overdue == len(leaving))
                oldest_s = sharder.report.oldest_drain_s
                assert oldest_s is not None
                assert oldest_s >= 1.0
                after = await awaited(client, namespace, lambda _finals: True)
                assert {each.shard for each in after} == {"deaf"}
                assert {each.object for each in after if each.drain == "other"} == leaving
                assert epochs(after) == epochs(before)

    play(cluster, namespace, scenario)


def test_one_that_never_acknowledges_is_forced_out_where_the_ring_says_so(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await make_small_world(client, namespace, drainTimeoutSeconds=1, onDrainTimeout="force")
        deaf, other = puppet(client, namespace, "deaf", "never"), puppet(client, namespace, "other")
        async with playing(deaf), sharding(client, namespace):
            before = epochs(await at_rest(client, namespace, ["deaf"]))
            async with playing(other):
                after = await at_rest(client, namespace, ["deaf", "other"])
                # Once by the removal, which fences who does not answer, and once more by the assignment.
                moved = {each.object for each in after if each.shard == "other"}
                assert moved
                assert {epochs(after)[uid] - before[uid] for uid in moved} == {2}
                assert all(epochs(after)[uid] == before[uid] for uid in before.keys() - moved)

    play(cluster, namespace, scenario)


def test_one_that_dies_in_mid_drain_after_some_children(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await make_small_world(client, namespace, 8)
        dying, heir = puppet(client, namespace, "dying", "never", mortal=True), puppet(client, namespace, "heir")
        wanted = await wanted_owners(client, namespace, ["dying", "heir"])
        families = await read_families(client, namespace)
        name, root = next((name, one) for name, (one, _) in families.items() if wanted[one.metadata.uid] == "heir")
        for number in range(4):
            child = f"{name}-{number}"
            await client.create(ObjectRef(CONFIG_MAPS, child, namespace), owned_map(child, root.metadata), Partial)
        async with sharding(client, namespace), AsyncExitStack() as life:
            await life.enter_async_context(playing(dying))
            before = epochs(await at_rest(client, namespace, ["dying"]))
            async with playing(heir):
                uid = root.metadata.uid
                await awaited(client, namespace, lambda finals: any(_is_asked(each, uid) for each in finals))
                await dying.hand_over(SECRETS, await client.get(secret(name, namespace), Partial), children_max=2)
                await life.aclose()
                after = await at_rest(client, namespace, ["heir"], 2 * LEASE_S + 10)
                assert len([each for each in after if each.family == uid]) == 6
                assert all(epochs(after)[each] == before[each] + 1 for each in before)

    play(cluster, namespace, scenario)


def _is_asked(each: Final, uid: str) -> bool:
    return (each.object, each.drain) == (uid, "heir")


def test_twelve_and_more_instances_whose_names_are_beginnings_of_each_other(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        names = [f"foo-{number}" for number in range(1, 14)]
        await make_small_world(client, namespace, 80)
        async with sharding(client, namespace), AsyncExitStack() as others, AsyncExitStack() as one:
            await one.enter_async_context(playing(puppet(client, namespace, "foo-1", mortal=True)))
            await others.enter_async_context(playing(*(puppet(client, namespace, name) for name in names[1:])))
            before = await at_rest(client, namespace, names)
            # One that dies is one instance, and no other whose name begins like its own.
            await one.aclose()
            after = await at_rest(client, namespace, names[1:], 2 * LEASE_S + 10)
            moved = {each.object for each in before if each.shard == "foo-1"}
            assert {uid for uid in epochs(before) if epochs(after)[uid] != epochs(before)[uid]} == moved

    play(cluster, namespace, scenario)


def test_labels_tampered_with_by_an_admin_come_to_rest_again(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await make_small_world(client, namespace, 10)
        both = [puppet(client, namespace, name) for name in ("a", "b")]
        async with playing(*both), sharding(client, namespace) as sharder:
            before = epochs(await at_rest(client, namespace, ["a", "b"]))
            swapped = {"a": "b", "b": "a"}
            families = await read_families(client, namespace)
            owner = {name: root.metadata.labels[SHARD] for name, (root, _) in families.items()}
            wrong: list[dict[str, str | None]] = [
                {"shard": None},
                {"shard": None, "drain": None, "until": None},
                {"shard": swapped[owner["s002"]]},
                {"shard": "nobody-ever"},
                {"drain": "nobody-ever"},
                {"drain": "", "until": "soon"},
                {"until": "99"},
                {"drain": swapped[owner["s007"]], "until": "0"},
                {"shard": ""},
            ]
            for number, labels in enumerate(wrong):
                await relabel(client, secret(f"s{number:03}", namespace), **labels)
            for number, labels in enumerate(wrong):
                await relabel(client, ObjectRef(CONFIG_MAPS, f"s{number:03}", namespace), **labels)
            after = await at_rest(client, namespace, ["a", "b"])
            assert all(epochs(after)[uid] >= before[uid] for uid in before)
            wrote = sharder.counts.label_writes
            assert not sharder.report.faults
            await until(lambda: sharder.report.drains == 0)
            assert sharder.counts.label_writes == wrote, "what is at rest stays so"

    play(cluster, namespace, scenario)


@pytest.mark.parametrize("nonsense", [None, "", "1.5", "seven", "9" * 60])
def test_an_epoch_that_is_nonsense_is_repaired(cluster: Cluster, namespace: str, nonsense: str | None) -> None:
    async def scenario(client: Client) -> None:
        await make_small_world(client, namespace, 2)
        async with playing(puppet(client, namespace, "a")), sharding(client, namespace):
            before = epochs(await at_rest(client, namespace, ["a"]))
            await relabel(client, secret("s000", namespace), epoch=nonsense)
            after = epochs(await at_rest(client, namespace, ["a"]))
            assert all(after[uid] >= before[uid] for uid in before)

    cluster.run(scenario)


def test_two_leases_of_one_name_and_only_the_one_beside_the_ring_counts(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await make_small_world(client, namespace, 6)
        await make_namespace(client, f"{namespace}-b")
        twin, stranger = (puppet(client, f"{namespace}-b", name) for name in ("a", "stranger"))
        other_ring = Puppet(client, namespace, "not-mine", duration_s=LEASE_S, ring="other")
        one, two = puppet(client, namespace, "a", mortal=True), puppet(client, namespace, "b")
        async with sharding(client, namespace) as sharder, playing(twin, stranger, other_ring, two):
            async with playing(one):
                await at_rest(client, namespace, ["a", "b"])
                assert states(sharder) == {"a": Health.READY, "b": Health.READY}
            # The twin in another namespace goes on renewing, which keeps nobody alive here.
            await at_rest(client, namespace, ["b"], 2 * LEASE_S + 10)

    play(cluster, namespace, scenario)


def test_a_lease_with_nonsense_in_it_is_told_and_harms_nobody(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await make_small_world(client, namespace, 10)
        labels = {RING_LABEL: RING}
        odd = {
            "empty": (labels, LeaseSpec()),
            "no-time": (labels, LeaseSpec("no-time_1")),
            "for-ever": (labels, LeaseSpec("for-ever", 2**31 - 1)),
            "x" * 64: (labels, LeaseSpec("x" * 64 + "_1", LEASE_S)),
            "two-underscores": (labels, LeaseSpec("two-underscores_1_2", LEASE_S)),
        }
        for name, (marks, spec) in odd.items():
            lease = Lease(Meta(name=name, namespace=namespace, labels=marks), spec)
            await client.create(ObjectRef(LEASES, name, namespace), lease, Lease)
        many = Puppet(client, namespace, "many", duration_s=LEASE_S, tokens="lots")
        few = Puppet(client, namespace, "few", duration_s=LEASE_S, tokens="5")
        async with sharding(client, namespace) as sharder, playing(many, few):
            await until(lambda: sharder.report.synced and TOKENS_LABEL in notes(sharder).get("many", ""))
            told = notes(sharder)
            assert "no process of it" in told["for-ever"]
            assert "no process of it" in told["two-underscores"]
            await at_rest(client, namespace, {"many": 100, "few": 5})
            ready = [name for name, state in states(sharder).items() if state is Health.READY]
            assert set(ready) <= {"many", "few", "no-time"}

    play(cluster, namespace, scenario)


def test_a_holder_that_is_somebody_else_is_given_nothing_and_waited_out(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await make_small_world(client, namespace, 8)
        robbed, heir = puppet(client, namespace, "robbed", "never", mortal=True), puppet(client, namespace, "heir")
        async with sharding(client, namespace) as sharder, playing(heir):
            async with playing(robbed):
                before = await at_rest(client, namespace, ["robbed", "heir"])
            mine = await client.get(robbed.ref, Lease)
            stolen = msgspec.structs.replace(mine.spec, holder_identity="somebody_else", lease_duration_seconds=LEASE_S)
            await client.replace(robbed.ref, msgspec.structs.replace(mine, spec=stolen), Lease)
            began_s = clock.boot_s()
            await until(lambda: "somebody_else" in notes(sharder)["robbed"])
            assert states(sharder)["robbed"] is Health.EXPIRED
            # Twice the duration of whoever holds it must pass before anything moves.
            kept = {each.object for each in before if each.shard == "robbed"}
            while clock.boot_s() < began_s + 2 * LEASE_S - 0.5:
                now = await awaited(client, namespace, lambda _finals: True)
                assert {each.object for each in now if each.shard == "robbed"} == kept
            await at_rest(client, namespace, ["heir"], LEASE_S + 10)

    play(cluster, namespace, scenario)


@pytest.mark.parametrize("off_s", [HOUR_S, -HOUR_S])
def test_a_clock_that_is_wrong_by_an_hour_changes_nothing(cluster: Cluster, namespace: str, off_s: float) -> None:
    async def scenario(client: Client) -> None:
        await make_small_world(client, namespace, 8, drainTimeoutSeconds=30)
        right = puppet(client, namespace, "right")
        wrong = Puppet(client, namespace, "wrong", duration_s=LEASE_S, clock_off_s=off_s)
        async with sharding(client, namespace) as sharder, playing(right):
            async with playing(wrong):
                await at_rest(client, namespace, ["right", "wrong"])
                await until(lambda: states(sharder) == {"right": Health.READY, "wrong": Health.READY})
                died_s = clock.boot_s()
            await at_rest(client, namespace, ["right"], 2 * LEASE_S + 10)
            # It is missed after twice D by the sharder's own clock, neither at once nor an hour later.
            assert 2 * LEASE_S - LEASE_S / 3 - 0.5 <= clock.boot_s() - died_s <= 2 * LEASE_S + 5

    play(cluster, namespace, scenario)
