"""The Lease of a shard on a real API server: twins, restarts, loss, a server that does not answer, and the ring."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.cluster import sharder_world
from tests.cluster.faulty_proxy import FaultyProxy
from tests.cluster.shard_library_world import RESOURCES, Living, Notes, World
from tests.cluster.sharder_world import bare_lease, make_families, state
from tests.cluster.world import Cluster, until

from poise.clock import boot_s
from poise.errors import Conflict, InvalidSpec
from poise.hold.shard import LeaseLost, Shard
from poise.jobs.sharder.accepting import read_ring
from poise.kube import Client, Lease, Partial, Selection
from poise.kube.objects import Custom, LeaseSpec, Meta
from poise.kube.resources import CONFIG_MAPS, SECRETS
from poise.model.sharding import Marks

pytestmark = pytest.mark.usefixtures("definitions")
D = 3


async def begun(world: World, *, client: Client | None = None, hangs: bool = False) -> Living:
    """Let a shard hold one object, and reconcile it; `hangs`: until it is cancelled."""
    await world.make("x")
    living = await Living(world.shard("a", client=client), Notes()).holds()
    if hangs:
        living.notes.gate.clear()
    await world.share("a")
    await until(lambda: bool(living.notes.running if hangs else living.notes.all))
    return living


def test_the_lease_says_who_and_for_whom(cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(client: Client) -> None:
        monkeypatch.setenv("POD_NAME", "web-0")
        monkeypatch.setenv("POD_UID", "pod-uid")
        monkeypatch.setenv("POD_NAMESPACE", namespace)
        world = await World(client, namespace).make_ring(15)
        shard = Shard(
            ring=world.ring, resources=["secrets"], namespace=namespace, client=client, tokens=50, on_hang="raise"
        )
        async with shard:
            lease = await world.lease("web-0")
            assert lease is not None
            assert lease.spec.holder_identity == shard.holder
            assert lease.spec.lease_duration_seconds == 15
            assert lease.metadata.labels == {"poise.dev/ring": world.ring, "poise.dev/tokens": "50"}
            owner = lease.metadata.owner_references[0]
            assert (owner.kind, owner.name, owner.uid, owner.controller) == ("Pod", "web-0", "pod-uid", False)
            await world.make("x")
            await world.make_child("c", "x")
            await world.share("web-0", ready=("web-0",))
            await until(lambda: shard.counts.objects == 2)  # Its watches are open: nothing is cut off in its middle.
        assert await world.holder("web-0") == ""

    cluster.run(scenario)


def test_a_twin_waits_and_never_acts_until_the_first_has_gone(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring(D)
        first = await begun(world)
        twin = Living(world.shard("a"), Notes())
        await asyncio.sleep(2.5 * D)
        assert not twin.entered.is_set()
        assert await world.holder("a") == first.shard.holder
        assert not first.task.done(), "a twin that waits disturbs nobody"
        await first.end()
        await twin.holds(1.5)
        await until(lambda: bool(twin.notes.all))
        assert twin.notes.all[0].begun_s > (first.notes.all[-1].ended_s or 0.0)
        await twin.end()

    cluster.run(scenario)


@pytest.mark.parametrize("trust", [False, True], ids=["waits", "trusts its stable name"])
def test_a_restarted_process_and_the_hold_of_its_earlier_one(cluster: Cluster, namespace: str, trust: bool) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring(D)
        first = await begun(world)
        await first.crash()
        assert await world.holder("a") == first.shard.holder
        began_s = boot_s()
        second = await Living(world.shard("a", trust_stable_name=trust), Notes()).holds()
        waited_s = boot_s() - began_s
        assert waited_s < 1.0 if trust else D - 0.2 <= waited_s < D + 1.5
        await until(lambda: bool(second.notes.all))
        assert await world.marks(world.secret("x")) == Marks("a", 1), "its object has not moved"
        await second.end()

    cluster.run(scenario)


@asynccontextmanager
async def sharded(world: World) -> AsyncIterator[sharder_world.World]:
    """Let a real sharder run the ring of a world."""
    ring = read_ring(await world.client.get(world.ring_ref, Custom))
    sharding = sharder_world.World(world.client, world.namespace, ring)
    try:
        await sharding.start_sharder()
        yield sharding
    finally:
        await sharding.close()


async def _versions(world: World) -> dict[str, str]:
    listed = [await world.client.list_all(Selection(each, world.namespace), Partial) for each in (SECRETS, CONFIG_MAPS)]
    return {each.metadata.uid: each.metadata.resource_version for found, _ in listed for each in found}


@pytest.mark.parametrize("trust", [False, True], ids=["waits", "trusts its stable name"])
def test_who_starts_again_within_d_keeps_its_objects_and_the_sharder_writes_nothing(
    cluster: Cluster, namespace: str, trust: bool
) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring(D)
        async with sharded(world) as sharding:
            first = await Living(world.shard("a"), Notes()).holds()
            await bare_lease(sharding, "b")
            await make_families(client, 12, namespace)
            given = Counter((await sharding.settled("ab")).values())
            assert given.keys() == {"a", "b"}
            await until(lambda: len(first.shard.held) == given["a"])
            held, versions = set(first.shard.held), await _versions(world)
            writes = sharding.sharder.counts.label_writes
            await first.crash()
            crashed_s = boot_s()
            await asyncio.sleep(D / 4)  # So long it takes to come back.
            second = Living(world.shard("a", trust_stable_name=trust), Notes())
            seen = {state(sharding, "a")}
            while set(second.shard.held if second.entered.is_set() else ()) != held:
                seen.add(state(sharding, "a"))
                assert boot_s() < crashed_s + 3 * D, f"it was {seen}, and its objects are not its own again"
                await asyncio.sleep(0.02)
            assert seen == ({"ready"} if trust else {"ready", "expired"}), "it was waited for"
            # The Lease of one that stayed away would be taken now.
            await until(lambda: boot_s() > crashed_s + 2 * D + 0.5)
            assert await world.holder("a") == second.shard.holder
            assert state(sharding, "a") == "ready"
            assert await _versions(world) == versions, "nobody wrote any object"
            assert sharding.sharder.counts.label_writes == writes
            assert sharding.sharder.counts.lease_writes == {}
            await second.end()

    cluster.run(scenario)


def test_a_lease_that_is_deleted_ends_all_and_while_objects_carry_the_name_the_next_waits(
    cluster: Cluster, namespace: str
) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring(D)
        living = await begun(world, hangs=True)
        lease = await world.lease("a")
        assert lease is not None
        deleted_s = boot_s()
        await client.delete(world.lease_ref("a"), uid=lease.metadata.uid)
        with pytest.raises(LeaseLost, match="the Lease a is gone"):
            await living.task
        assert living.notes.all[-1].cancelled
        assert boot_s() - deleted_s < D
        assert await world.lease("a") is None, "whoever lost it does not make it again"
        began_s = boot_s()
        second = await Living(world.shard("a", trust_stable_name=True), Notes()).holds()
        assert boot_s() - began_s >= 2 * D - 0.2
        await until(lambda: bool(second.notes.all))
        assert second.notes.all[0].epoch == 2, "whoever comes after a Lease was gone fences first"
        await second.end()

    cluster.run(scenario)


def test_a_lease_that_somebody_else_took_ends_all_and_is_waited_out(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring(D)
        living = await begun(world, hangs=True)
        await world.hold("a", "poise-sharder-1_p", 2 * D)
        taken_s = boot_s()
        with pytest.raises(LeaseLost, match="held by poise-sharder-1_p"):
            await living.task
        assert boot_s() - taken_s < D
        assert living.notes.all[-1].cancelled
        began_s = boot_s()
        second = await Living(world.shard("a", trust_stable_name=True), Notes()).holds()
        assert boot_s() - began_s >= 2 * D - 0.2
        await second.end()

    cluster.run(scenario)


def test_it_stops_before_its_lease_ends_when_the_server_does_not_answer(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring(D)
        between = FaultyProxy(cluster.plane.port, cluster.plane.ca_file)
        async with between, cluster.connect(url=between.url) as far:
            living = await begun(world, client=far, hangs=True)
            await world.eventually(lambda: _renewed(living))
            between.hung = True
            between.cut()
            hung_s = boot_s()
            with pytest.raises(LeaseLost, match="could not be renewed in time"):
                await living.task
            note = living.notes.all[-1]
            assert note.cancelled
            assert note.ended_s is not None
            assert note.ended_s - hung_s < D, "it stops before anybody else may begin"
            assert await world.holder("a") == living.shard.holder

    cluster.run(scenario)


async def _renewed(living: Living) -> bool:
    return living.shard.counts.renewals > 1


def test_a_renewal_whose_answer_is_lost_costs_nothing(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring(4)
        between = FaultyProxy(cluster.plane.port, cluster.plane.ca_file)
        async with between, cluster.connect(url=between.url) as far:
            living = await begun(world, client=far, hangs=True)
            between.freeze()  # Requests arrive, answers do not.
            await until(lambda: living.shard.counts.renewals_failed > 0)
            between.cut()
            between.thaw()
            renewals = living.shard.counts.renewals
            await until(lambda: living.shard.counts.renewals > renewals + 1)
            assert living.notes.running, "the Lease was its own all the time"
            living.notes.gate.set()
            await living.end()

    cluster.run(scenario)


def test_an_admin_who_edits_the_lease_disturbs_nobody(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring(D)
        living = await begun(world, hangs=True)
        lease = await world.lease("a")
        assert lease is not None
        await client.merge(world.lease_ref("a"), lease.metadata, {"metadata": {"labels": None}}, Lease)
        renewals = living.shard.counts.renewals
        await until(lambda: living.shard.counts.renewals > renewals + 1)
        assert living.notes.running
        lease = await world.lease("a")
        assert lease is not None
        assert lease.metadata.labels["poise.dev/ring"] == world.ring
        living.notes.gate.set()
        await living.end()

    cluster.run(scenario)


def test_a_ring_is_waited_for_until_an_operator_looked_at_it_and_followed_when_it_changes(
    cluster: Cluster, namespace: str
) -> None:
    async def scenario(client: Client) -> None:
        world = World(client, namespace)
        living = Living(world.shard("a"), Notes())
        await asyncio.sleep(0.5)
        await world.make_ring(D, accepted=False)
        await asyncio.sleep(0.5)
        await world.accept("NameTaken")
        await asyncio.sleep(1.0)
        assert await world.lease("a") is None
        await world.accept()
        await living.holds()
        await world.change_ring(leaseSeconds=7)
        await world.eventually(lambda: _lasts(world, 7))
        await world.change_ring(leaseSeconds=1)
        await world.eventually(lambda: _lasts(world, 1))
        await world.change_ring(resources=[{"resource": "secrets"}])
        with pytest.raises(Conflict, match="names other resources"):
            await living.task
        lease = await world.lease("a")
        assert lease is not None
        assert lease.metadata.annotations["poise.dev/released"] == "restart"

    cluster.run(scenario)


def test_a_document_that_the_operator_refuses_counts_for_no_instance(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring(D)
        living = await Living(world.shard("a"), Notes()).holds()
        await world.change_ring("InvalidSpec", leaseSeconds=7, resources=[{"resource": "secrets"}])
        times: set[str | None] = set()
        while len(times) < 4:
            assert not living.task.done(), "it goes on by the document that the sharder goes by"
            lease = await world.lease("a")
            assert lease is not None
            assert lease.spec.lease_duration_seconds == D
            times.add(lease.spec.renew_time)
            await asyncio.sleep(0.2)
        other = await Living(world.shard("b"), Notes()).holds()
        started = await world.lease("b")
        assert started is not None
        assert started.spec.lease_duration_seconds == D, "who starts goes by it, too"
        await world.change_ring(leaseSeconds=7, resources=RESOURCES)
        await world.eventually(lambda: _lasts(world, 7))
        await living.end()
        await other.end()

    cluster.run(scenario)


async def _lasts(world: World, duration_s: int) -> bool:
    lease = await world.lease("a")
    return lease is not None and lease.spec.lease_duration_seconds == duration_s


def test_a_missing_right_is_told_and_waited_for(
    cluster: Cluster, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring(D)
        async with cluster.connect("alice") as alice:
            living = Living(world.shard("a", client=alice), Notes())
            await until(lambda: "may not list shardrings" in caplog.text)
            assert not living.task.done()
            living.task.cancel()
            await asyncio.gather(living.task, return_exceptions=True)

    cluster.run(scenario)


def test_what_cannot_be_worked_for_is_refused(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring(D)
        with pytest.raises(
            InvalidSpec, match=r"resources\[0\]: expected one that the ring names \(configmaps, secrets"
        ):
            async with world.shard("a", resources=("pods",)):
                pass
        spec = LeaseSpec("other_1", 15)
        other = Lease(Meta(name="a", namespace=namespace, labels={"poise.dev/ring": "another"}), spec)
        await client.create(world.lease_ref("a"), other, Lease)
        with pytest.raises(InvalidSpec, match="the Lease a is of the ring another"):
            async with world.shard("a"):
                pass
        assert await world.holder("a") == "other_1"

    cluster.run(scenario)
