"""Every rule of "Moving without two owners", by its name, against a real API server."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.cluster.played_shard import D
from tests.cluster.sharder_world import (
    Story,
    bare_lease,
    controlled_by,
    make_config_map,
    make_families,
    state,
    tamper,
    world,
)
from tests.cluster.world import Cluster, make_secret, make_secrets, secret, until

from poise.jobs.sharder.session import Session
from poise.jobs.sharder.view import Kind
from poise.kube import Client, Event, ObjectRef, Partial, Selection
from poise.kube.resources import CONFIG_MAPS, SECRETS
from poise.model.sharding import Marks, label_names

NAMES = [f"s{number:02}" for number in range(12)]


def moved_to(owners: dict[str, str | None], name: str) -> list[str]:
    return sorted(each for each, owner in owners.items() if owner == name and each.startswith("s"))


def test_assigning_writes_the_children_first_and_the_root_is_the_commit(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            root = await make_secret(client, "root", namespace, {label_names(w.name)[1]: "6"})
            child = await make_config_map(client, "child", root, namespace)
            await make_config_map(client, "grandchild", child, namespace, kind="ConfigMap")
            await asyncio.sleep(0.3)
            assert w.sharder.report.unassigned == 1
            async with Story(client, w.name, namespace).watching() as story:
                story.forget()
                await bare_lease(w, "a-0")
                await w.settled(["a-0"])
                await until(lambda: len(story.changes) == 3)
            assert {name for name, _ in story.changes[:2]} == {"child", "grandchild"}
            assert story.changes[2][0] == "root"
            assert {marks for _, marks in story.changes} == {Marks("a-0", 7)}

    cluster.run(scenario)


def test_from_a_ready_instance_two_writes_a_root_and_one_a_child(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await w.shard("a-0")
            await make_families(client, 12, namespace)
            before = await w.settled(["a-0"])
            async with Story(client, w.name, namespace).watching() as story:
                story.forget()
                # It has listed before anybody gives it something: what it finds then it would take for inherited.
                await w.stop_sharder()
                await w.shard("a-1")
                await w.start_sharder()
                after = await w.settled(["a-0", "a-1"])
                moved = moved_to(after, "a-1")
                assert moved, "the ring gives it something"
                await until(lambda: len(story.changes) == 3 * len(moved))
            # One write of the sharder a root, no more; the others are the instance's.
            assert w.sharder.counts.label_writes == len(moved)
            assert w.sharder.counts.conflicts == 0
            assert {name: after[name] for name in before if name[1:] not in {each[1:] for each in moved}} == {
                name: "a-0" for name in before if name[1:] not in {each[1:] for each in moved}
            }
            for name in moved:
                asked, given = story.of(name)
                assert (asked.shard, asked.epoch, asked.drain) == ("a-0", 1, "a-1")
                assert asked.drain_until is not None
                assert abs(asked.drain_until - time.time() - 60) < 20
                assert given == Marks("a-1", 2)
                assert story.of(f"c{name[1:]}") == [Marks("a-1", 2)]
                order = [each for each, marks in story.changes if marks.epoch == 2 and each[1:] == name[1:]]
                assert order == [f"c{name[1:]}", name]

    cluster.run(scenario)


def test_the_long_form_removes_shard_and_drain_and_the_sharder_assigns(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await w.shard("a-0", short=False)
            await make_families(client, 12, namespace)
            await w.settled(["a-0"])
            async with Story(client, w.name, namespace).watching() as story:
                await bare_lease(w, "a-1")
                after = await w.settled(["a-0", "a-1"])
                name = moved_to(after, "a-1")[0]
                await until(lambda: story.of(name)[-1] == Marks("a-1", 2))
            assert [(marks.shard, marks.epoch) for marks in story.of(name)] == [
                ("a-0", 1),
                ("a-0", 1),
                (None, 1),
                ("a-1", 2),
            ]
            assert after[f"c{name[1:]}"] == "a-1"

    cluster.run(scenario)


def test_a_next_owner_that_is_gone_before_the_hand_over_is_replaced_and_the_deadline_stays(
    cluster: Cluster, namespace: str
) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace, drainTimeoutSeconds=600) as w:
            holder = await w.shard("a-0", stubborn=True)
            await make_secrets(client, NAMES, namespace)
            await w.settled(["a-0"])
            leaving = await w.shard("a-1")
            await until(lambda: w.sharder.report.drains > 0)
            await asyncio.sleep(0.3)
            asked = {name: marks for name, marks in (await w.marks()).items() if marks.drain is not None}
            assert {marks.drain for marks in asked.values()} == {"a-1"}
            await bare_lease(w, "a-2")
            await until(lambda: state(w, "a-2") == "ready")
            await leaving.release()

            async def redirected() -> bool:
                now = await w.marks()
                return all(now[name].drain != "a-1" for name in asked)

            while not await redirected():
                await asyncio.sleep(0.05)
            now = await w.marks()
            for name, marks in asked.items():
                if now[name].drain == "a-2":
                    assert now[name].drain_until == marks.drain_until
                else:
                    assert now[name] == Marks("a-0", 1)
            holder.stubborn = False
            await w.settled(["a-0", "a-2"])

    cluster.run(scenario)


def test_a_drain_without_anybody_else_is_taken_back(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await w.shard("a-0", stubborn=True)
            await make_secrets(client, NAMES, namespace)
            before = await w.marks()
            await w.settled(["a-0"])
            before = await w.marks()
            leaving = await w.shard("a-1")
            await until(lambda: w.sharder.report.drains > 0)
            await leaving.release()
            await until(lambda: w.sharder.report.drains == 0)
            await asyncio.sleep(0.2)
            assert await w.marks() == before

    cluster.run(scenario)


def test_handed_over_to_one_that_died_the_objects_move_once_it_is_dead(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await w.shard("a-0")
            await make_families(client, 12, namespace)
            await w.settled(["a-0"])
            taker = await w.mortal("a-1")
            await w.settled(["a-0", "a-1"])
            assert "a-1" in (await w.owners()).values()
            await taker.crash()
            after = await w.settled(["a-0"], 2 * D + 3)
            assert set(after.values()) == {"a-0"}

    cluster.run(scenario)


def test_drain_timeout_wait_is_reported_and_nothing_is_taken(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace, drainTimeoutSeconds=1) as w:
            holder = await w.shard("a-0", stubborn=True)
            await make_secrets(client, NAMES, namespace)
            await w.settled(["a-0"])
            await bare_lease(w, "a-1")
            await until(lambda: w.sharder.report.overdue > 0)
            await asyncio.sleep(0.5)
            report = w.sharder.report
            assert report.overdue == report.drains == report.in_flight
            assert report.oldest_drain_s is not None
            assert report.oldest_drain_s > 1
            assert set((await w.owners()).values()) == {"a-0"}
            holder.stubborn = False
            await w.settled(["a-0", "a-1"])
            assert w.sharder.report.overdue == 0

    cluster.run(scenario)


def test_drain_timeout_force_takes_children_then_root_raises_the_epoch_and_only_then_assigns(
    cluster: Cluster, namespace: str
) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace, drainTimeoutSeconds=1, onDrainTimeout="force") as w:
            await w.shard("a-0", stubborn=True)
            await make_families(client, 12, namespace)
            await w.settled(["a-0"])
            async with Story(client, w.name, namespace).watching() as story:
                story.forget()
                await bare_lease(w, "a-1")
                await until(lambda: w.sharder.counts.writes.get("force", 0) > 0)
                after = await w.settled(["a-0", "a-1"])
                name = moved_to(after, "a-1")[0]
                child = f"c{name[1:]}"
                # Two watches show them, each in its own time.
                await until(lambda: all(story.of(each)[-1:] == [Marks("a-1", 3)] for each in (name, child)))
            assert [(each, marks.shard, marks.epoch) for each, marks in story.changes if each in (name, child)] == [
                (name, "a-0", 1),
                (child, None, 2),
                (name, None, 2),
                (child, "a-1", 3),
                (name, "a-1", 3),
            ]

    cluster.run(scenario)


def test_a_child_is_mended_and_only_while_its_root_has_no_drain_label(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            holder = await w.shard("a-0")
            names = await make_families(client, 12, namespace)
            await w.settled(["a-0"])
            shard, epoch, _, _ = label_names(w.name)
            await tamper(client, CONFIG_MAPS, "c00", namespace, {shard: "nonsense", epoch: "x"})
            await tamper(client, CONFIG_MAPS, "c01", namespace, {shard: None, epoch: None})
            await w.settled(["a-0"])
            # A child that is ahead of its root raises the root: no epoch ever falls.
            await tamper(client, CONFIG_MAPS, "c02", namespace, {epoch: "9"})
            await until(lambda: w.sharder.counts.writes.get("repair", 0) == 1)
            await w.settled(["a-0"])
            assert (await w.marks())["s02"] == (await w.marks(CONFIG_MAPS))["c02"] == Marks("a-0", 9)
            holder.stubborn = True
            await bare_lease(w, "a-1")
            await until(lambda: w.sharder.report.drains > 0)
            await asyncio.sleep(0.3)
            drained = next(name for name, marks in (await w.marks()).items() if marks.drain is not None)
            await tamper(client, CONFIG_MAPS, f"c{drained[1:]}", namespace, {shard: "a-1"})
            await asyncio.sleep(0.6)
            assert (await w.owners(CONFIG_MAPS))[f"c{drained[1:]}"] == "a-1"
            assert drained in names

    cluster.run(scenario)


def test_labels_that_an_admin_tampered_with_lead_back_to_one_owner(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await w.shard("a-0")
            await make_secrets(client, NAMES, namespace)
            await w.settled(["a-0"])
            shard, epoch, drain, until_label = label_names(w.name)
            changes: list[dict[str, str | None]] = [
                {shard: None},
                {shard: "No_Lease"},  # Nobody can have this name.
                {epoch: "x"},
                {epoch: None},
                {until_label: "5"},
                {shard: None, drain: "a-0", until_label: "7"},
                {shard: "gone-9"},  # Somebody could: it is waited for.
            ]
            for name, change in zip(NAMES, changes, strict=False):
                await tamper(client, SECRETS, name, namespace, change)
            tampered_s = time.monotonic()
            await asyncio.sleep(1)
            marks = await w.marks()
            assert [marks[name].shard for name in NAMES[:6]] == ["a-0"] * 6
            assert all(marks[name] == Marks("a-0", marks[name].epoch) for name in NAMES[:6])
            assert all((marks[name].epoch or 0) >= 1 for name in NAMES[:6])
            assert marks[NAMES[6]].shard == "gone-9"
            await w.settled(["a-0"], 3 * D)
            assert time.monotonic() - tampered_s > 2 * D - 0.5

    cluster.run(scenario)


def test_a_drain_to_somebody_unknown_leads_back_to_one_owner(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await w.shard("a-0")
            await make_secrets(client, NAMES[:2], namespace)
            await w.settled(["a-0"])
            await tamper(client, SECRETS, NAMES[0], namespace, {label_names(w.name)[2]: "nobody-known"})
            # The sharder takes it back, unless the owner was faster: then nobody-known is waited for like any other.
            await w.settled(["a-0"], 4 * D)

    cluster.run(scenario)


def test_an_adopted_object_is_drained_like_a_root_first(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await w.shard("a-0")
            await w.shard("a-1")
            await make_families(client, 12, namespace)
            owners = await w.settled(["a-0", "a-1"])
            old = moved_to(owners, "a-0")[0]
            new = moved_to(owners, "a-1")[0]
            child = f"c{old[1:]}"
            async with Story(client, w.name, namespace).watching() as story:
                story.forget()
                parent = await client.get(secret(new, namespace), Partial)
                ref = ObjectRef(CONFIG_MAPS, child, namespace)
                meta = (await client.get(ref, Partial)).metadata
                await client.merge(ref, meta, {"metadata": controlled_by(parent)}, Partial)
                while (await w.marks(CONFIG_MAPS))[child] != (await w.marks())[new]:
                    await asyncio.sleep(0.05)
                await until(lambda: story.of(child)[-1].shard == "a-1")
            # Who held it was asked, and answered, before anybody else got it.
            assert [(marks.shard, marks.drain) for marks in story.of(child)][:2] == [("a-0", "a-1"), ("a-1", None)]

    cluster.run(scenario)


def test_removing_a_ring_drains_to_nobody_and_a_ring_of_that_name_goes_on_from_its_epoch(
    cluster: Cluster, namespace: str
) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await w.shard("a-0")
            await w.shard("a-1")
            await make_families(client, 12, namespace)
            before = await w.marks()
            await w.settled(["a-0", "a-1"])
            before = await w.marks()
            async with Story(client, w.name, namespace).watching() as story:
                story.forget()
                w.sharder.update(w.document, removing=True, brake_released="")
                await until(lambda: w.sharder.report.clear)
                await until(lambda: len(story.of("s00")) == 2)
            asked, gone = story.of("s00")
            assert (asked.shard, asked.drain) == (before["s00"].shard, "")
            assert gone == Marks(epoch=before["s00"].epoch)
            assert await w.marks() == {name: Marks(epoch=marks.epoch) for name, marks in before.items()}
            assert {marks.shard for marks in (await w.marks(CONFIG_MAPS)).values()} == {None}
            writes = w.sharder.counts.label_writes
            await asyncio.sleep(0.5)
            assert w.sharder.counts.label_writes == writes
            await w.stop_sharder()
            await w.start_sharder()
            await w.settled(["a-0", "a-1"])
            after = await w.marks()
            assert all(after[name].epoch == (before[name].epoch or 0) + 1 for name in before)

    cluster.run(scenario)


def test_removing_a_ring_also_ends_what_the_dead_hold(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            shard = await w.mortal("a-0")
            await make_families(client, 4, namespace)
            await w.settled(["a-0"])
            await shard.crash()
            w.sharder.update(w.document, removing=True, brake_released="")
            await asyncio.sleep(0.5)
            assert not w.sharder.report.clear
            await until(lambda: w.sharder.report.clear, 3 * D)
            assert set((await w.owners()).values()) == set((await w.owners(CONFIG_MAPS)).values()) == {None}

    cluster.run(scenario)


def test_moves_in_flight_are_bounded(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace, guards={"movesInFlightMax": 2}) as w:
            holder = await w.shard("a-0", stubborn=True)
            await make_secrets(client, NAMES, namespace)
            await w.settled(["a-0"])
            await bare_lease(w, "a-1")
            await until(lambda: w.sharder.report.delayed > 0 and w.sharder.report.drains == 2)
            await asyncio.sleep(0.3)
            asked = [marks for marks in (await w.marks()).values() if marks.drain is not None]
            report = w.sharder.report
            assert (len(asked), report.in_flight, report.drains) == (2, 2, 2)
            holder.stubborn = False
            after = await w.settled(["a-0", "a-1"])
            assert len(moved_to(after, "a-1")) == report.delayed + 2

    cluster.run(scenario)


def test_a_conflict_costs_only_that_object_one_retry(
    cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf: list[bool] = []
    take = Session._take

    def heard(session: Session, kind: Kind, event: Event[Partial]) -> None:
        if not deaf:
            take(session, kind, event)

    monkeypatch.setattr(Session, "_take", heard)

    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await make_secrets(client, NAMES, namespace)
            await until(lambda: w.sharder.report.unassigned == len(NAMES))
            # What the watch tells is not heard for a while: one object is not what it was.
            deaf.append(True)
            await tamper(client, SECRETS, "s05", namespace, {"somebody": "wrote"})
            await asyncio.sleep(0.2)
            await bare_lease(w, "a-0")
            await until(lambda: w.sharder.report.unassigned == 0)
            assert w.sharder.counts.conflicts == 1
            assert w.sharder.counts.label_writes == len(NAMES)
            assert w.sharder.counts.failures == 0
            marks = await w.marks()
            assert set(marks.values()) == {Marks("a-0", 1)}

    cluster.run(scenario)


def test_a_second_pass_with_nothing_to_do_writes_nothing(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await bare_lease(w, "a-0")
            await bare_lease(w, "a-1")
            await make_families(client, 12, namespace)
            await w.settled()
            versions = await _versions(client, namespace)
            writes = dict(w.sharder.counts.writes)
            w.sharder.update(w.document, removing=False, brake_released="")
            await asyncio.sleep(0.5)
            assert w.sharder.counts.writes == writes
            # Nor does a sharder that knows nothing of the first one.
            await w.stop_sharder()
            await w.start_sharder()
            await asyncio.sleep(0.5)
            assert w.sharder.counts.writes == {}
            assert await _versions(client, namespace) == versions

    cluster.run(scenario)


async def _versions(client: Client, namespace: str) -> dict[str, str]:
    found = [
        *(await client.list_all(Selection(SECRETS, namespace), Partial))[0],
        *(await client.list_all(Selection(CONFIG_MAPS, namespace), Partial))[0],
    ]
    return {each.metadata.name: each.metadata.resource_version for each in found}


def test_many_rings_share_an_object(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as one, world(client, namespace) as two:
            await one.shard("a-0")
            await two.shard("b-0")
            await make_families(client, 12, namespace)
            await one.settled(["a-0"])
            await two.settled(["b-0"])
            before = await two.marks()
            one.sharder.update(one.document, removing=True, brake_released="")
            await until(lambda: one.sharder.report.clear)
            assert await two.marks() == before
            assert {marks.shard for marks in (await one.marks()).values()} == {None}

    cluster.run(scenario)
