"""A shard interrupted after every one of its writes, or never told how they ended: the next comes to the same end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeVar

import pytest
from tests.cluster.shard_library_world import Living, Notes, World
from tests.cluster.world import Cluster, until

from poise.errors import Unavailable
from poise.kube import Client, Meta, ObjectRef
from poise.model.sharding import Marks

Shape = TypeVar("Shape")
pytestmark = pytest.mark.usefixtures("definitions")
FAMILY = ("c1", "c2")


class DyingClient(Client):
    """The client of a process that is killed after so many label patches: the last one lands, nobody hears of it."""

    def __init__(self, alive: Client, writes: int) -> None:
        super().__init__(alive._http, namespace=alive.namespace, request_s=alive.request_s)
        self._left = writes
        self.dead = asyncio.Event()

    async def merge(self, ref: ObjectRef, meta: Meta, change: Mapping[str, object], shape: type[Shape]) -> Shape:
        if self._left > 0:
            self._left -= 1
            answer = await super().merge(ref, meta, change, shape)
            if self._left:
                return answer
        self.dead.set()
        return await asyncio.Future()


class UnheardClient(Client):
    """A client that never hears how its label patches ended; every second one does not even arrive."""

    def __init__(self, alive: Client) -> None:
        super().__init__(alive._http, namespace=alive.namespace, request_s=alive.request_s)
        self._count = 0

    async def merge(self, ref: ObjectRef, meta: Meta, change: Mapping[str, object], shape: type[Shape]) -> Shape:
        self._count += 1
        if self._count % 2:
            await super().merge(ref, meta, change, shape)
        raise Unavailable("the answer is lost")


async def family(world: World) -> list[Marks]:
    """Read the labels of the root and its children."""
    refs = (world.secret("x"), *map(world.config, FAMILY))
    return [await world.marks(ref) for ref in refs]


async def held(client: Client, namespace: str) -> World:
    """Make a family that an instance holds, which has gone since: it restarts."""
    world = await World(client, namespace).make_ring()
    await world.make("x")
    for child in FAMILY:
        await world.make_child(child, "x")
    living = await Living(world.shard("a"), Notes()).holds()
    await world.share("a")
    await until(lambda: bool(living.notes.all))
    await living.end()
    return world


async def interrupted(world: World, writes: int, *, eager: bool) -> None:
    """Let a process die after so many writes."""
    dying = DyingClient(world.client, writes)
    living = Living(world.shard("a", client=dying, fence_restarts="eager" if eager else "lazy"), Notes())
    await living.holds()
    await asyncio.wait_for(dying.dead.wait(), 10.0)
    await living.crash()


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_a_hand_over_that_was_interrupted_is_finished(cluster: Cluster, namespace: str, writes: int) -> None:
    async def scenario(client: Client) -> None:
        world = await held(client, namespace)
        await world.share("b")
        await interrupted(world, writes, eager=False)
        shards = {each.shard for each in (await family(world))[1:]}
        assert shards == {1: {"a", "b"}, 2: {"b"}, 3: {"b"}}[writes]
        again = await Living(world.shard("a", trust_stable_name=True), Notes()).holds()
        await world.eventually(lambda: _all_are(world, Marks("b", 2)))
        assert not again.notes.all, "what is asked for is not begun"
        await again.end()

    cluster.run(scenario)


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_a_fence_that_was_interrupted_never_lets_an_epoch_fall(cluster: Cluster, namespace: str, writes: int) -> None:
    async def scenario(client: Client) -> None:
        world = await held(client, namespace)
        await interrupted(world, writes, eager=True)
        assert [each.epoch for each in await family(world)].count(2) == writes
        again = Living(world.shard("a", trust_stable_name=True, fence_restarts="eager"), Notes())
        await again.holds()
        await until(lambda: bool(again.notes.all))
        assert again.notes.all[0].epoch == 3
        while await world.share("a"):
            pass
        assert await family(world) == [Marks("a", 3)] * 3
        await again.end()

    cluster.run(scenario)


def test_answers_that_are_lost_change_nothing(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        world = await held(client, namespace)
        living = await Living(world.shard("a", client=UnheardClient(client)), Notes()).holds()
        await until(lambda: bool(living.notes.all))
        begun = len(living.notes.all)
        await world.share("b")
        await world.eventually(lambda: _all_are(world, Marks("b", 2)))
        await until(lambda: living.shard.counts.objects == 0)
        assert len(living.notes.all) == begun
        await living.end()

    cluster.run(scenario)


async def _all_are(world: World, marks: Marks) -> bool:
    return await family(world) == [marks] * 3
