"""A sharder in the process of a test, with puppets as instances: what it does is judged by what the API shows."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from tests.cluster.audit_case import Case, Final, Terms
from tests.cluster.auditor import falling_epochs
from tests.cluster.puppet import LASTING_S, Answers, Puppet
from tests.cluster.ring_world import RING, RINGS, Observer, make_families, make_ring, read_finals, wanted_owners
from tests.cluster.world import Cluster

from poise.clock import boot_s
from poise.jobs.sharder.accepting import read_ring
from poise.jobs.sharder.sharder import RingSharder
from poise.kube import Client, ObjectRef
from poise.kube.objects import Custom
from poise.model.sharding import holder_identity

LEASE_S = 3


async def make_small_world(client: Client, namespace: str, families: int = 12, **spec: object) -> None:
    """Create a ring and some families in a namespace that is there."""
    await make_ring(client, namespace, leaseSeconds=LEASE_S, **spec)
    await make_families(client, namespace, (f"s{number:03}" for number in range(families)))


@asynccontextmanager
async def sharding(client: Client, namespace: str, ring: str = RING) -> AsyncIterator[RingSharder]:
    """Let a sharder of a ring run while the block does; it never ends by itself."""
    custom = await client.get(ObjectRef(RINGS, ring, namespace), Custom)
    sharder = RingSharder(
        client,
        read_ring(custom),
        namespace=namespace,
        me=holder_identity("poise-sharder-test", uuid.uuid4().hex),
        may_act=lambda: True,
        scope=namespace,
    )
    task = asyncio.create_task(sharder.run())
    try:
        yield sharder
        assert not task.done(), f"a sharder never ends by itself: {task}"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def puppet(client: Client, namespace: str, name: str, answers: Answers = "short", *, mortal: bool = False) -> Puppet:
    """Make an instance that answers like this; the Lease of a mortal one ends soon after it."""
    return Puppet(client, namespace, name, duration_s=LEASE_S if mortal else LASTING_S, answers=answers)


@asynccontextmanager
async def playing(*puppets: Puppet) -> AsyncIterator[None]:
    """Let instances live while the block runs; afterwards they are dead, and say nothing."""
    async with AsyncExitStack() as stack:
        for each in puppets:
            await stack.enter_async_context(each.playing())
        yield


async def awaited(
    client: Client, namespace: str, holds: Callable[[Collection[Final]], bool], within_s: float = 60.0
) -> tuple[Final, ...]:
    """Wait until the API shows what it should."""
    end_s = boot_s() + within_s
    while not holds(finals := await read_finals(client, namespace)):
        assert boot_s() < end_s, f"not within {within_s} s: {finals}"
        await asyncio.sleep(0.1)
    return finals


async def at_rest(
    client: Client, namespace: str, instances: Collection[str] | Mapping[str, int], within_s: float = 60.0
) -> tuple[Final, ...]:
    """Wait until every object is with whom the ring wants, children are copies, and nothing is drained."""
    wanted = await wanted_owners(client, namespace, instances)

    def holds(finals: Collection[Final]) -> bool:
        by_uid = {each.object: each for each in finals}
        return all(_rests(each, by_uid[each.family], wanted) for each in finals)

    return await awaited(client, namespace, holds, within_s)


def _rests(each: Final, root: Final, wanted: Mapping[str, str]) -> bool:
    return each.epoch is not None and each[2:] == (wanted[root.object], root.epoch, None)


def play(cluster: Cluster, namespace: str, scenario: Callable[[Client], Awaitable[None]]) -> None:
    """Play a scenario under the eyes of an observer: whatever happens, no epoch ever falls."""
    with Observer(cluster.kubeconfig(), namespace) as observer:
        cluster.run(scenario)
    seen = tuple(observer.sightings)
    assert seen, "the observer has seen something"
    case = Case(Terms(LEASE_S, 0.0, 0.0), 0.0, 0.0, (), (), (), sightings=seen)
    assert list(falling_epochs(case)) == []
