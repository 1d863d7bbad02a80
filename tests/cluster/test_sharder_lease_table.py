"""Every row of the lease table, by its name, against a real API server; D is two seconds."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest
from tests.cluster.played_shard import D
from tests.cluster.sharder_world import bare_lease, labelled, lease_of, make_families, state, world
from tests.cluster.world import Cluster, make_secrets, until

from poise import clock
from poise.jobs.sharder.instances import Instances
from poise.kube import LEASES, Client, Lease, ObjectRef
from poise.model.sharding import RING_LABEL
from poise.observe import leases

NAMES = [f"s{number:02}" for number in range(12)]


def test_ready_renewed_within_d_gets_objects(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await w.mortal("a-0")
            await w.mortal("a-1")
            await make_families(client, 12, namespace)
            owners = await w.settled(["a-0", "a-1"])
            assert {state(w, name) for name in ("a-0", "a-1")} == {"ready"}
            assert set(owners.values()) == {"a-0", "a-1"}
            # Every object has one owner, and a child has its root's.
            assert all(owners[f"s{number:02}"] == owners[f"c{number:02}"] for number in range(12))
            assert w.sharder.report.unassigned == 0
            # The sharder never writes a Lease that its holder may still renew.
            await asyncio.sleep(1.1 * D)
            assert w.sharder.counts.lease_writes == {}

    cluster.run(scenario)


def test_expired_nothing_moves_and_no_new_objects_for_another_d(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            shard = await w.mortal("a-0")
            await bare_lease(w, "a-1")
            await make_secrets(client, NAMES, namespace)
            before = await w.settled()
            assert set(before.values()) == {"a-0", "a-1"}
            await shard.crash()
            await until(lambda: state(w, "a-0") == "expired", 2 * D)
            writes = w.sharder.counts.label_writes
            await make_secrets(client, [f"new{number}" for number in range(12)], namespace)
            await until(lambda: w.sharder.counts.label_writes > writes)
            await asyncio.sleep(0.3)
            assert state(w, "a-0") == "expired"
            after = await w.owners()
            assert {name: after[name] for name in before} == before
            assert {after[name] for name in after if name.startswith("new")} == {"a-1", None}
            assert w.sharder.counts.lease_writes == {}

    cluster.run(scenario)


def test_expired_a_lease_that_vanished_waits_the_same(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await bare_lease(w, "a-1")
            shard = await w.mortal("a-0")
            await make_secrets(client, NAMES, namespace)
            before = await w.settled()
            await shard.crash()
            lease = await lease_of(w, "a-0")
            assert lease is not None
            await client.delete(ObjectRef(LEASES, "a-0", namespace), uid=lease.metadata.uid)
            gone_s = time.monotonic()
            await until(lambda: state(w, "a-0") == "expired")
            while time.monotonic() < gone_s + 2 * D - 0.5:
                assert await w.owners() == before
                await asyncio.sleep(0.2)
            # Uncertain: a vanished Lease is created, by which the instance is dead; then all moves.
            await w.settled(["a-1"], 2 * D)
            await until(lambda: w.sharder.counts.lease_writes == {"hold": 1, "empty": 1})
            made = await lease_of(w, "a-0")
            assert made is not None
            assert made.metadata.uid != lease.metadata.uid
            assert made.metadata.labels[RING_LABEL] == w.name
            assert made.spec.holder_identity is None

    cluster.run(scenario)


def test_uncertain_the_lease_is_acquired_with_2d_and_then_emptied(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            shard = await w.mortal("a-0")
            await bare_lease(w, "a-1")
            await make_families(client, 12, namespace)
            before = await w.settled()
            assert set(before.values()) == {"a-0", "a-1"}
            seen: list[Lease] = []
            crashed_s = time.monotonic()
            await shard.crash()
            while Counter((await w.owners()).values())["a-0"]:
                lease = await lease_of(w, "a-0")
                assert lease is not None
                seen.append(lease)
                await asyncio.sleep(0.01)
            took_s = time.monotonic() - crashed_s
            assert 2 * D - 0.8 < took_s < 2 * D + 3
            # Nothing moved before the hold: it is the own process's, for twice as long.
            holds = [each.spec for each in seen if each.spec.holder_identity != shard.me]
            assert holds, "the hold was seen"
            assert {each.lease_duration_seconds for each in holds} == {2 * D}
            assert all((each.holder_identity or "").startswith("poise-sharder-test_") for each in holds)
            await w.settled(["a-1"])
            await until(lambda: w.sharder.counts.lease_writes == {"hold": 1, "empty": 1})
            emptied = await lease_of(w, "a-0")
            assert emptied is not None
            assert emptied.spec.holder_identity is None

    cluster.run(scenario)


def test_uncertain_a_renewal_that_the_sharder_did_not_see_refuses_the_acquisition(
    cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            shard = await w.mortal("a-0")
            await bare_lease(w, "a-1")
            await make_secrets(client, NAMES, namespace)
            before = await w.settled()
            see = Instances.see
            # The watch of the sharder hangs: what it knows of the Lease becomes old, while the instance is well.
            monkeypatch.setattr(Instances, "see", lambda *_: None)
            await until(lambda: w.sharder.counts.failures >= 3, 3 * D)
            assert w.sharder.counts.lease_writes == {}
            assert await w.owners() == before
            assert shard.grip is not None
            assert clock.boot_s() < shard.grip.until_s
            note = next(each.note for each in w.sharder.report.instances if each.name == "a-0")
            assert "leases.coordination.k8s.io" in note
            monkeypatch.setattr(Instances, "see", see)
            await until(lambda: state(w, "a-0") == "ready")
            assert await w.owners() == before

    cluster.run(scenario)


def test_dead_another_sharders_hold_is_waited_out_like_any_holders(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await w.stop_sharder()
            await bare_lease(w, "a-0", "poise-sharder-other_1", duration_s=1)
            await bare_lease(w, "a-1")
            await labelled(w, "x", "a-0", 7)
            await w.start_sharder()
            began_s = time.monotonic()
            assert state(w, "a-0") == "expired"
            assert "poise-sharder-other_1" in w.sharder.report.instances[0].note
            await w.settled(["a-1"], 5)
            assert time.monotonic() - began_s > 1.5
            assert (await w.marks())["x"].epoch == 8

    cluster.run(scenario)


def test_dead_a_released_lease_is_acquired_first_too(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            shard = await w.mortal("a-0")
            await make_families(client, 12, namespace)
            await w.settled(["a-0"])
            await bare_lease(w, "a-1", duration_s=600)
            await w.settled(["a-0", "a-1"])
            released_s = time.monotonic()
            await shard.release()
            await w.settled(["a-1"], 5)
            assert time.monotonic() - released_s < 2 * D - 0.5
            await until(lambda: w.sharder.counts.lease_writes == {"hold": 1, "empty": 1})

    cluster.run(scenario)


def test_dead_without_a_hold_nothing_moves(cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await bare_lease(w, "a-1")
            shard = await w.mortal("a-0")
            await make_secrets(client, NAMES, namespace)
            before = await w.settled()
            # The hold is always over when a write is about to be sent.
            monkeypatch.setattr("poise.jobs.sharder.writing.may_move", lambda *_: False)
            await shard.release()
            await until(lambda: w.sharder.counts.lease_writes.get("hold", 0) >= 1)
            await asyncio.sleep(1)
            assert await w.owners() == before
            monkeypatch.setattr("poise.jobs.sharder.writing.may_move", leases.may_move)
            await w.settled(["a-1"])

    cluster.run(scenario)


def test_orphaned_10d_past_its_last_renewal_the_lease_is_deleted(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await w.stop_sharder()
            await bare_lease(w, "a-1", duration_s=600)
            shard = await w.mortal("a-0")
            await shard.release()
            lease = await lease_of(w, "a-0")
            assert lease is not None
            # The clock of this sharder runs eight times as fast; it is woken, since tasks sleep by another clock.
            began_s = clock.boot_s()
            w.clock = lambda: began_s + 8 * (clock.boot_s() - began_s)
            await w.start_sharder()
            while "delete" not in w.sharder.counts.lease_writes:
                assert state(w, "a-0") in ("dead", "orphaned")
                assert clock.boot_s() - began_s < 10
                w.sharder.update(w.document, removing=False, brake_released="")
                await asyncio.sleep(0.05)
            assert w.sharder.counts.lease_writes == {"delete": 1}
            assert clock.boot_s() - began_s > 10 * D / 8 - 0.1
            assert await lease_of(w, "a-0") is None
            assert state(w, "a-0") == ""

    cluster.run(scenario)


def test_orphaned_a_lease_that_was_taken_again_is_not_deleted_by_a_sharder_that_did_not_see_it(
    cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await w.stop_sharder()
            shard = await w.mortal("a-0")
            await shard.release()
            began_s = clock.boot_s()
            w.clock = lambda: began_s + 8 * (clock.boot_s() - began_s)
            await w.start_sharder()
            await until(lambda: state(w, "a-0") in ("dead", "orphaned"))
            see = Instances.see
            monkeypatch.setattr(Instances, "see", lambda *_: None)
            again = await w.mortal("a-0")
            while not w.sharder.counts.failures:
                w.sharder.update(w.document, removing=False, brake_released="")
                await asyncio.sleep(0.05)
            assert w.sharder.counts.lease_writes == {}
            lease = await lease_of(w, "a-0")
            assert lease is not None
            assert lease.spec.holder_identity == again.me
            monkeypatch.setattr(Instances, "see", see)
            await until(lambda: state(w, "a-0") == "ready")

    cluster.run(scenario)


def test_after_its_own_start_every_lease_is_granted_a_full_d(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await bare_lease(w, "a-1", duration_s=600)
            shard = await w.mortal("a-0")
            await make_secrets(client, NAMES, namespace)
            before = await w.settled()
            await shard.crash()
            await asyncio.sleep(1.5 * D)
            await w.stop_sharder()
            await w.start_sharder()
            began_s = time.monotonic()
            assert state(w, "a-0") == "ready"
            while time.monotonic() < began_s + 2 * D - 0.5:
                assert await w.owners() == before
                await asyncio.sleep(0.2)
            await w.settled(["a-1"], 2 * D)

    cluster.run(scenario)


def test_restart_grace_keeps_the_objects_of_who_restarts(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace, restartGraceSeconds=3) as w:
            await bare_lease(w, "a-1")
            shard = await w.mortal("a-0")
            await make_secrets(client, NAMES, namespace)
            before = await w.marks()
            await w.settled()
            before = await w.marks()
            writes = w.sharder.counts.label_writes
            await shard.release("restart")
            await asyncio.sleep(1)
            assert state(w, "a-0") == "expired"
            again = await w.mortal("a-0")
            await until(lambda: state(w, "a-0") == "ready")
            await asyncio.sleep(0.3)
            assert await w.marks() == before
            assert w.sharder.counts.label_writes == writes
            # Whoever does not come back in time has left.
            released_s = time.monotonic()
            await again.release("restart")
            await w.settled(["a-1"], 8)
            assert time.monotonic() - released_s > 2.5

    cluster.run(scenario)


def test_brake_nothing_is_acquired_or_moved_until_an_operator_says_so(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await bare_lease(w, "a-9")
            shards = [await w.mortal(f"a-{number}") for number in range(2)]
            await make_families(client, 12, namespace)
            await w.settled()
            before = {name: who for name, who in (await w.owners()).items() if who != "a-9"}
            assert set(before.values()) == {"a-0", "a-1"}
            for shard in shards:
                await shard.crash()
            await until(lambda: w.sharder.report.vanished == ("a-0", "a-1"), 3 * D)
            await asyncio.sleep(1.5 * D)
            assert {state(w, name) for name in ("a-0", "a-1")} == {"uncertain"}
            owners = await w.owners()
            assert {name: owners[name] for name in before} == before
            assert w.sharder.counts.lease_writes == {}
            w.sharder.update(w.document, removing=False, brake_released="2026-11-16")
            await w.settled(["a-9"])
            assert w.sharder.report.vanished == ()

    cluster.run(scenario)


def test_brake_opens_when_they_return(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            shards = [await w.mortal(f"a-{number}") for number in range(2)]
            await make_secrets(client, NAMES, namespace)
            before = await w.settled()
            for shard in shards:
                await shard.crash()
            await until(lambda: w.sharder.report.vanished == ("a-0", "a-1"), 3 * D)
            assert await w.owners() == before
            assert w.sharder.counts.lease_writes == {}
            # When one is back the other one is no longer one of many: it may be taken for dead before it is back, too.
            await asyncio.gather(w.mortal("a-0"), w.mortal("a-1"))
            await until(lambda: w.sharder.report.vanished == ())
            while await w.settled(["a-0", "a-1"]) != before:
                await asyncio.sleep(0.1)

    cluster.run(scenario)


def test_nonsense_in_a_lease_is_told_and_hurts_nobody(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await bare_lease(w, "a-1")
            await bare_lease(w, "many", tokens="1000000")
            await bare_lease(w, "strange", "stranger")
            await bare_lease(w, "twin", "twin_a_b")
            labels = {RING_LABEL: w.name}
            bare = {"metadata": {"name": "silent", "labels": labels}, "spec": {"holderIdentity": "silent_x"}}
            await client.create(ObjectRef(LEASES, "silent", namespace), bare, Lease)
            long = "x" * 70
            body = {"metadata": {"name": long, "labels": labels}, "spec": {"holderIdentity": f"{long}_1"}}
            await client.create(ObjectRef(LEASES, long, namespace), body, Lease)
            await until(lambda: len(w.sharder.report.instances) == 5)
            notes = {each.name: each.note for each in w.sharder.report.instances}
            assert "'stranger', which is no process of it" in notes["strange"]
            assert "no number from 1 to 10000" in notes["many"]
            assert "no duration" in notes["silent"]
            assert notes["a-1"] == ""
            await make_secrets(client, NAMES, namespace)
            owners = set((await w.settled(within_s=10)).values())
            assert owners <= {"a-1", "many", "silent"}
            assert {"a-1", "many"} <= owners

    cluster.run(scenario)


def test_a_lease_of_that_name_that_is_another_rings_is_told_and_nothing_moves(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await bare_lease(w, "a-1")
            body = {
                "metadata": {"name": "a-0", "labels": {RING_LABEL: "another"}},
                "spec": {"holderIdentity": "a-0_1", "leaseDurationSeconds": 60},
            }
            await client.create(ObjectRef(LEASES, "a-0", namespace), body, Lease)
            await labelled(w, "x", "a-0")
            await until(lambda: w.sharder.counts.failures >= 3, 3 * D)
            await until(lambda: "already exists" in w.sharder.report.instances[0].note)
            assert (await w.owners())["x"] == "a-0"
            assert w.sharder.counts.lease_writes == {}

    cluster.run(scenario)


def test_tokens_of_the_lease_count_and_similar_names_do_not_collide(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            names = [f"foo-{number}" for number in range(1, 14)]
            for name in names:
                await bare_lease(w, name, tokens="400" if name == "foo-11" else "")
            await until(lambda: len(w.sharder.report.instances) == len(names))
            await make_secrets(client, [f"s{number:03}" for number in range(150)], namespace)
            loads = Counter((await w.settled(names)).values())
            assert {each.name: each.tokens for each in w.sharder.report.instances}["foo-11"] == 400
            assert loads["foo-11"] == max(loads.values())
            assert sum(each.objects for each in w.sharder.report.instances) == 150

    cluster.run(scenario)
