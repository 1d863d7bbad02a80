"""`poise operator` as real processes on a real API server: rings come, are shown, change hands and go."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack

import msgspec
import pytest
from tests.cluster.faulty_proxy import FaultyProxy
from tests.cluster.operator_process import (
    LEASE_S,
    OperatorProcess,
    awaited,
    change_ring,
    event,
    eventually,
    put_ring,
    read_events,
    read_ring,
    remove_ring,
    ring_ref,
    shown,
)
from tests.cluster.puppet import LASTING_S, Puppet
from tests.cluster.ring_world import RINGS, make_families, read_families
from tests.cluster.world import Cluster

from poise.errors import NotFound
from poise.jobs.sharder.accepting import FINALIZER
from poise.kube import LEASES, Client, Lease, ObjectRef, Selection
from poise.kube.objects import Custom
from poise.model.sharding import Marks, read_marks

D = 3
pytestmark = pytest.mark.usefixtures("definitions")


def operator(cluster: Cluster, namespace: str, *options: str) -> OperatorProcess:
    """Start an operator for the namespace of this test alone."""
    return OperatorProcess(cluster.kubeconfig(), "--namespace", namespace, *options)


def puppet(client: Client, namespace: str, name: str, ring: str = "web", duration_s: int = LASTING_S) -> Puppet:
    return Puppet(client, namespace, name, duration_s=duration_s, ring=ring)


async def owners(client: Client, namespace: str, ring: str = "web") -> dict[str, Marks]:
    """Read the labels of every root."""
    families = await read_families(client, namespace)
    return {name: read_marks(root.metadata.labels, ring) for name, (root, _) in families.items()}


async def gone(client: Client, namespace: str, name: str) -> bool:
    try:
        await read_ring(client, namespace, name)
    except NotFound:
        return True
    return False


def test_a_ring_is_accepted_shown_counted_and_removed(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await make_families(client, namespace, [f"s{number}" for number in range(10)])
        await put_ring(client, namespace, "web", leaseSeconds=D)
        with operator(cluster, namespace) as process:
            await process.ready()
            empty = await shown(client, namespace, "web", "Ready", "False", "NoInstances")
            assert empty.metadata.finalizers == (FINALIZER,)
            assert empty.status.unassigned == 10
            async with puppet(client, namespace, "a").playing(), puppet(client, namespace, "b").playing():
                await shown(client, namespace, "web", "Balanced", "True", "Settled")
                seen = await shown(client, namespace, "web", "Progressing", "False", "Settled")
                ready = seen.status.of("Ready")
                assert (ready.status, ready.reason) == ("True", "Sharding")
                assert seen.status.observed_generation == seen.metadata.generation
                assert seen.status.objects.keys() == {"a", "b"}
                assert sum(seen.status.objects.values()) == 20, "ten Secrets with a ConfigMap each"
                assert seen.status.instances == (
                    {"name": "a", "state": "ready", "tokens": 100},
                    {"name": "b", "state": "ready", "tokens": 100},
                )
                assert (seen.status.ready, seen.status.drains_pending, seen.status.unassigned) == (2, 0, 0)
                numbers = await process.numbers()
                assert numbers["poise_leads"] == 1
                assert numbers["poise_rings"] == 1
                assert numbers["poise_items ShardRing/web"] == 20
                assert numbers["poise_members ShardRing/web ready"] == 2
                assert numbers["poise_unowned ShardRing/web"] == 0
                assert numbers["poise_label_writes_total ShardRing/web assign"] == 20
                await remove_ring(client, namespace, "web")
                await awaited(lambda: gone(client, namespace, "web"), lambda: process.said)
            left = await owners(client, namespace)
            assert {marks.shard for marks in left.values()} == {None}
            assert all(marks.epoch is not None for marks in left.values()), "the epoch stays for a ring of that name"
            assert (await process.numbers())["poise_rings"] == 0
            assert await process.end() == 0

    cluster.run(scenario)


def test_nothing_is_written_while_nothing_changes(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await make_families(client, namespace, ["s1", "s2"])
        await put_ring(client, namespace, "web", leaseSeconds=D)
        with operator(cluster, namespace) as process:
            async with puppet(client, namespace, "a", duration_s=D).playing():
                await shown(client, namespace, "web", "Balanced", "True", "Settled")
                await asyncio.sleep(1.5)
                before = (await read_ring(client, namespace, "web")).metadata.resource_version
                writes = {name: n for name, n in (await process.numbers()).items() if "_writes_total" in name}
                events = len(await read_events(client, namespace))
                await asyncio.sleep(12)
                assert (await read_ring(client, namespace, "web")).metadata.resource_version == before
                after = {name: n for name, n in (await process.numbers()).items() if "_writes_total" in name}
                assert after == writes
                assert len(await read_events(client, namespace)) == events

    cluster.run(scenario)


def test_a_busy_ring_writes_its_status_about_once_a_second(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await put_ring(client, namespace, "web", leaseSeconds=D)
        with operator(cluster, namespace) as process:
            await process.ready()
            async with puppet(client, namespace, "a").playing():
                await shown(client, namespace, "web", "Ready", "True", "Sharding")
                _, version = await client.list_all(Selection(RINGS, namespace), Custom)
                loop = asyncio.get_running_loop()
                began_s = loop.time()
                for number in range(60):
                    await make_families(client, namespace, [f"s{number}"])
                    await asyncio.sleep(0.05)
                seen = await shown(client, namespace, "web", "Balanced", "True", "Settled")
                took_s = loop.time() - began_s
                assert took_s >= 3
                changes = await _changes(client, namespace, version, seen.metadata.resource_version)
                assert 2 <= changes <= took_s + 2

    cluster.run(scenario)


async def _changes(client: Client, namespace: str, after: str, until: str) -> int:
    """Count the versions of the rings between two of them."""
    seen = 0
    async with client.watch(Selection(RINGS, namespace), Custom, after) as lines:
        async for line in lines:
            seen += line.type == "MODIFIED"
            if line.object.metadata.resource_version == until:
                return seen
    raise AssertionError("the watch ended")


def test_instances_have_events_and_objects_none(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await make_families(client, namespace, [f"s{number}" for number in range(6)])
        await put_ring(client, namespace, "web", leaseSeconds=D)
        with operator(cluster, namespace):
            async with puppet(client, namespace, "a").playing():
                await shown(client, namespace, "web", "Balanced", "True", "Settled")
                late = puppet(client, namespace, "b")
                async with late.playing():
                    came = await event(client, namespace, "InstanceReady", "b is ready")
                    assert (came.type, came.count) == ("Normal", 1)
                    await shown(client, namespace, "web", "Balanced", "True", "Settled")
                await late.release()
                await event(client, namespace, "InstanceReleased", "b has released its Lease")
                async with puppet(client, namespace, "c", duration_s=D).playing():
                    await event(client, namespace, "InstanceReady", "c is ready")
                expired = await event(client, namespace, "InstanceExpired", "c is expired", within_s=4 * D)
                assert expired.type == "Warning"
                await event(client, namespace, "InstanceDead", "c is dead", within_s=4 * D)
                await shown(client, namespace, "web", "Balanced", "True", "Settled")
                listed = await read_events(client, namespace)
                assert all(each.metadata.name.startswith("web.") for each in listed)
                assert not [each for each in listed if "s1" in each.message], "no object has an Event"

    cluster.run(scenario)


def test_the_brake_is_shown_told_and_opened_by_an_annotation(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await make_families(client, namespace, [f"s{number}" for number in range(12)])
        await put_ring(client, namespace, "web", leaseSeconds=D)
        with operator(cluster, namespace) as process:
            async with AsyncExitStack() as all_of_them:
                async with AsyncExitStack() as lost:
                    await all_of_them.enter_async_context(puppet(client, namespace, "a").playing())
                    for name in ("b", "c"):
                        await lost.enter_async_context(puppet(client, namespace, name, duration_s=D).playing())
                    await shown(client, namespace, "web", "Balanced", "True", "Settled")
                braked = await shown(client, namespace, "web", "Ready", "False", "Braked", within_s=4 * D)
                assert "b, c" in braked.status.of("Ready").message
                assert (await event(client, namespace, "BrakeEngaged")).type == "Warning"
                assert (await process.numbers())["poise_brake_engaged ShardRing/web"] == 1
                await asyncio.sleep(2.5 * D)
                held = {marks.shard for marks in (await owners(client, namespace)).values()}
                assert held == {"a", "b", "c"}, "nothing moves"
                notes = {"metadata": {"annotations": {"poise.dev/brake-released": "looked at it"}}}
                await change_ring(client, namespace, "web", notes)
                await event(client, namespace, "BrakeOpened")
                await shown(client, namespace, "web", "Balanced", "True", "Settled")
                assert {marks.shard for marks in (await owners(client, namespace)).values()} == {"a"}

    cluster.run(scenario)


def test_many_rings_at_once_share_the_objects(cluster: Cluster, namespace: str) -> None:
    names = [f"ring-{number}" for number in range(12)]

    async def scenario(client: Client) -> None:
        await make_families(client, namespace, ["s1", "s2", "s3"])
        with operator(cluster, namespace) as process:
            async with AsyncExitStack() as playing:
                for name in names:
                    await put_ring(client, namespace, name, leaseSeconds=D)
                    instance = puppet(client, namespace, f"of-{name}", name)
                    await playing.enter_async_context(instance.playing())
                for name in names:
                    await shown(client, namespace, name, "Balanced", "True", "Settled")
                    held = {marks.shard for marks in (await owners(client, namespace, name)).values()}
                    assert held == {f"of-{name}"}
                assert (await process.numbers())["poise_rings"] == len(names)

    cluster.run(scenario)


async def leader(client: Client, namespace: str) -> str:
    try:
        lease = await client.get(ObjectRef(LEASES, "poise-operator", namespace), Lease)
    except NotFound:
        return ""
    return lease.spec.holder_identity or ""


def test_another_one_leads_at_once_after_sigterm_and_within_the_lease_after_a_kill(
    cluster: Cluster, namespace: str
) -> None:
    async def scenario(client: Client) -> None:
        await make_families(client, namespace, ["s1", "s2"])
        await put_ring(client, namespace, "web", leaseSeconds=D)
        loop = asyncio.get_running_loop()
        with (
            operator(cluster, namespace, "--id", "one") as one,
            operator(cluster, namespace, "--id", "two") as two,
        ):
            both = {"one": one, "two": two}
            for process in both.values():
                await process.ready()
            leading = [name for name, each in both.items() if (await each.numbers())["poise_leads"] == 1]
            assert len(leading) == 1, "one leads, and both are ready"
            first = leading[0]
            other = "two" if first == "one" else "one"
            assert (await leader(client, namespace)).startswith(f"poise-sharder-{first}_")
            assert (await both[other].numbers())["poise_rings"] == 0
            async with puppet(client, namespace, "a").playing():
                await shown(client, namespace, "web", "Balanced", "True", "Settled")
                began_s = loop.time()
                assert await both[first].end() == 0
                assert both[first].lines[-1] == "poise: ended"
                await eventually(lambda: "leads as" in both[other].said, lambda: both[other].said, LEASE_S)
                assert loop.time() - began_s < LEASE_S
                await make_families(client, namespace, ["s3"])
                await awaited(lambda: _is_given(client, namespace, "s3"), lambda: both[other].said)
                with operator(cluster, namespace, "--id", "three") as three:
                    await three.ready()
                    both[other].process.kill()
                    await eventually(lambda: "leads as" in three.said, lambda: three.said, 3 * LEASE_S)
                    await make_families(client, namespace, ["s4"])
                    await awaited(lambda: _is_given(client, namespace, "s4"), lambda: three.said)

    cluster.run(scenario)


async def _is_given(client: Client, namespace: str, name: str) -> bool:
    return (await owners(client, namespace))[name].shard is not None


def test_a_leader_that_stood_still_past_its_lease_ends_with_a_code(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await put_ring(client, namespace, "web", leaseSeconds=D)
        with operator(cluster, namespace, "--id", "one") as one:
            await one.ready()
            with operator(cluster, namespace, "--id", "two") as two:
                await two.ready()
                one.process.send_signal(signal.SIGSTOP)
                await eventually(lambda: "leads as" in two.said, lambda: two.said, 4 * LEASE_S)
                one.process.send_signal(signal.SIGCONT)
                assert await one.ended() == 1
                assert "did not stop before its Lease ends: this process ends now" in one.lines[-1]
                assert (await two.numbers())["poise_leads"] == 1
                assert (await leader(client, namespace)).startswith("poise-sharder-two_")

    cluster.run(scenario)


def test_a_leader_that_is_cut_off_stops_and_stands_again(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await put_ring(client, namespace, "web", leaseSeconds=D)
        async with FaultyProxy(cluster.plane.port, cluster.plane.ca_file) as between:
            far = cluster.kubeconfig(url=between.url)
            with OperatorProcess(far, "--namespace", namespace, "--id", "one") as one:
                await one.ready()
                with operator(cluster, namespace, "--id", "two") as two:
                    await two.ready()
                    between.hung = True
                    between.cut()
                    await eventually(lambda: "the lead is lost" in one.said, lambda: one.said, LEASE_S)
                    assert "leads as" not in two.said, "it stopped before another one may lead"
                    await eventually(lambda: "leads as" in two.said, lambda: two.said, 3 * LEASE_S)
                    between.hung = False
                    between.cut()
                    await one.ready()
                    assert (await one.numbers())["poise_leads"] == 0
                    assert (await one.numbers())["poise_rings"] == 0
                    assert await one.end() == 0, "who stands by ends cleanly, too"
                    assert (await leader(client, namespace)).startswith("poise-sharder-two_")

    cluster.run(scenario)


def test_a_ring_removed_while_nobody_leads_is_removed_by_the_next_leader(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await make_families(client, namespace, ["s1", "s2", "s3"])
        await put_ring(client, namespace, "web", leaseSeconds=D)
        async with puppet(client, namespace, "a").playing():
            with operator(cluster, namespace) as first:
                await shown(client, namespace, "web", "Balanced", "True", "Settled")
                assert await first.end() == 0
            await remove_ring(client, namespace, "web")
            await asyncio.sleep(1)
            assert not await gone(client, namespace, "web"), "its labels are still there, and so is the finalizer"
            with operator(cluster, namespace) as second:
                await awaited(lambda: gone(client, namespace, "web"), lambda: second.said)
            assert {marks.shard for marks in (await owners(client, namespace)).values()} == {None}

    cluster.run(scenario)


def test_kubectl_shows_the_columns(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await make_families(client, namespace, ["s1"])
        await put_ring(client, namespace, "web", leaseSeconds=D)
        with operator(cluster, namespace):
            async with puppet(client, namespace, "a").playing():
                await shown(client, namespace, "web", "Balanced", "True", "Settled")
                with cluster.plane.client() as plain:
                    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
                    table = plain.get(ring_ref(namespace, "web").path, headers=accept).json()
        columns = [each["name"] for each in table["columnDefinitions"]]
        cells = dict(zip(columns, msgspec.convert(table["rows"][0]["cells"], list[object]), strict=True))
        assert (cells["Ready"], cells["Balanced"], cells["Instances"]) == ("True", "True", 1)
        assert (cells["Draining"], cells["Unassigned"]) == (0, 0)
        assert cells["Reason"] == "1 of 1 instance ready, 2 objects"

    cluster.run(scenario)
