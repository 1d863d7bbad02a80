"""The sharder killed between any two writes, and storms of refusals: another one goes on, to the same end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import pytest
from tests.cluster.faulty_proxy import FaultyProxy, refusal
from tests.cluster.puppet import Puppet
from tests.cluster.puppet_world import at_rest, make_small_world, play, playing, puppet, sharding
from tests.cluster.ring_world import make_families, make_ring
from tests.cluster.world import Cluster, make_namespace, until

from poise.kube import Client, Meta, ObjectRef

Shape = TypeVar("Shape")
LEASE_S, FAMILIES = 1, 4
POINTS = range(1, 13)
pytestmark = pytest.mark.usefixtures("definitions")


class DyingClient(Client):
    """A client whose process is killed after so many writes: the last one lands, and its answer is never read."""

    def __init__(self, alive: Client, writes: int) -> None:
        """Use the connections of another client."""
        super().__init__(alive._http, namespace=alive.namespace, request_s=alive.request_s)
        self._left = writes
        self.dead = asyncio.Event()

    async def merge(self, ref: ObjectRef, meta: Meta, change: Mapping[str, object], shape: type[Shape]) -> Shape:
        """Patch, while there is life."""
        return await self._counted(lambda: Client.merge(self, ref, meta, change, shape))

    async def replace(self, ref: ObjectRef, body: object, shape: type[Shape]) -> Shape:
        """Put, while there is life."""
        return await self._counted(lambda: Client.replace(self, ref, body, shape))

    async def _counted(self, write: Callable[[], Awaitable[Shape]]) -> Shape:
        self._left -= 1
        if self._left >= 0:
            answer = await write()
            if self._left > 0:
                return answer
        self.dead.set()
        return await asyncio.Future()


async def _make_place(client: Client, namespace: str, families: int = FAMILIES) -> None:
    """Make a small world in a namespace of its own."""
    await make_namespace(client, namespace)
    await make_ring(client, namespace, leaseSeconds=LEASE_S)
    await make_families(client, namespace, (f"s{number}" for number in range(families)))


async def _killed_and_followed(client: Client, namespace: str, writes: int, lasting: list[str]) -> bool:
    """Let a sharder die after so many writes, and another one go on; says whether there were so many."""
    dying = DyingClient(client, writes)
    async with sharding(dying, namespace):
        try:
            async with asyncio.timeout(6 * LEASE_S):
                await dying.dead.wait()
        except TimeoutError:
            pass
    async with sharding(client, namespace):
        await at_rest(client, namespace, lasting, 30)
    return dying.dead.is_set()


def test_the_sharder_killed_after_any_write_of_taking_from_a_dead_instance(cluster: Cluster, namespace: str) -> None:
    async def one(client: Client, writes: int) -> bool:
        """Hold, four children, four roots, empty: ten writes, and nothing more to be interrupted after them."""
        place = f"{namespace}-{writes}"
        await _make_place(client, place)
        left, stays = (Puppet(client, place, name, duration_s=LEASE_S) for name in ("left", "stays"))
        async with playing(left), sharding(client, place):
            await at_rest(client, place, ["left"])
        async with playing(stays):
            await left.release()
            return await _killed_and_followed(client, place, writes, ["stays"])

    async def scenario(client: Client) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = {writes: group.create_task(one(client, writes)) for writes in POINTS}
        assert [writes for writes, task in tasks.items() if task.result()][-1] >= 2 * FAMILIES + 2

    cluster.run(scenario)


def test_the_sharder_killed_after_any_write_of_a_move(cluster: Cluster, namespace: str) -> None:
    async def one(client: Client, writes: int) -> bool:
        place = f"{namespace}-{writes}"
        await _make_place(client, place, 10)
        first, second = (Puppet(client, place, name, duration_s=LEASE_S) for name in ("first", "second"))
        async with playing(first):
            async with sharding(client, place):
                await at_rest(client, place, ["first"])
            async with playing(second):
                return await _killed_and_followed(client, place, writes, ["first", "second"])

    async def scenario(client: Client) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = {writes: group.create_task(one(client, writes)) for writes in range(1, 4)}
        assert tasks[1].result(), "something was interrupted"

    cluster.run(scenario)


def test_storms_of_429_and_410_end_in_the_same_place(cluster: Cluster, namespace: str) -> None:
    gone = refusal("410 Gone", body='{"kind":"Status","message":"too old","reason":"Expired","code":410}')
    busy = refusal("429 Too Many Requests", "Retry-After: 1")
    curt = refusal("429 Too Many Requests")

    async def scenario(client: Client) -> None:
        await make_small_world(client, namespace, 20)
        a, b, c = (puppet(client, namespace, name) for name in "abc")
        plane = cluster.plane
        async with (
            FaultyProxy(plane.port, plane.ca_file) as between,
            cluster.connect(url=between.url) as far,
            playing(a, b),
            sharding(far, namespace) as sharder,
        ):
            await at_rest(client, namespace, ["a", "b"])
            for answer, times in ((curt, 8), (busy, 3)):
                between.refuse(answer, when=lambda line: "watch=1" not in line, times=times)
            between.refuse(gone, when=lambda line: "watch=1" in line, times=4)
            between.cut()
            async with playing(c):
                await at_rest(client, namespace, ["a", "b", "c"], 40)
                # What failed often is asked again later each time, so this takes a while.
                await until(lambda: sharder.report.faults == (), 40)

    play(cluster, namespace, scenario)
