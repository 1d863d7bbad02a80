"""The order that a shard keeps on a real API server: list, confirm, then act; and watches that outrun answers."""

from __future__ import annotations

import asyncio

import pytest
from tests.cluster.faulty_proxy import FaultyProxy, refusal
from tests.cluster.shard_library_world import LateAnswers, Living, Notes, World
from tests.cluster.world import Cluster, until

from poise.errors import Conflict, NotFound
from poise.hold.shard import Held
from poise.kube import Client
from poise.kube.patches import Operation, pointer
from poise.model.sharding import Marks

pytestmark = pytest.mark.usefixtures("definitions")
NOTED = Operation("add", pointer("metadata", "annotations"), {"seen": "yes"})
AWAY = refusal("503 Service Unavailable")


def test_a_gain_is_acted_on_after_a_renewal_that_was_sent_since(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring(6)
        await world.make("x")
        between = FaultyProxy(cluster.plane.port, cluster.plane.ca_file)
        async with between, cluster.connect(url=between.url) as far:
            living = await Living(world.shard("a", client=far), Notes()).holds()
            await asyncio.sleep(0.3)
            between.refuse(AWAY, when=lambda line: line.startswith("PUT"), times=1_000)
            await world.share("a")
            await until(lambda: living.shard.counts.renewals_failed > 3)
            assert living.shard.counts.objects == 1
            assert living.shard.holding
            assert not living.notes.all, "a twin may have taken the Lease before this object was given to the name"
            between._refusals.clear()
            await until(lambda: bool(living.notes.all))
            await living.end()

    cluster.run(scenario)


def test_nothing_is_acted_on_before_everything_was_listed(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring()
        await world.make("x")
        first = await Living(world.shard("a"), Notes()).holds()
        await world.share("a")
        await until(lambda: bool(first.notes.all))
        await first.end()
        between = FaultyProxy(cluster.plane.port, cluster.plane.ca_file)
        async with between, cluster.connect(url=between.url) as far:
            between.refuse(AWAY, when=lambda line: "configmaps?" in line and "limit=500" in line, times=1_000)
            living = Living(world.shard("a", client=far), Notes())
            await until(lambda: living.entered.is_set() and living.shard.counts.objects == 1)
            await until(lambda: living.shard.counts.renewals > 1)
            assert not living.notes.all
            between._refusals.clear()
            await until(lambda: bool(living.notes.all))
            await living.end()

    cluster.run(scenario)


def test_a_watch_that_outruns_the_answer_to_an_own_write_cancels_nothing(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring()
        await world.make("x")
        await world.make_child("c", "x")
        first = await Living(world.shard("a"), Notes()).holds()
        await world.share("a")
        await until(lambda: bool(first.notes.all))
        await first.end()
        between = LateAnswers(cluster.plane.port, cluster.plane.ca_file)

        async def act(held: Held) -> None:
            if held.epoch == 1:
                await held.patch(NOTED)

        async with between, cluster.connect(url=between.url) as far:
            living = await Living(world.shard("a", client=far), Notes(act)).holds()
            await until(lambda: any(note.ended_s is not None for note in living.notes.all))
            assert await world.marks(world.config("c")) == Marks("a", 2)
            await world.share("b")
            await until(lambda: living.shard.counts.handed_over == 1)
            await asyncio.sleep(0.3)
            assert (living.shard.counts.cancelled, living.shard.counts.failures) == (0, 0)
            assert not [line for line in between.seen if line.startswith("GET") and "configmaps/c" in line]
            assert living.shard.counts.objects == 0
            await living.end()

    cluster.run(scenario)


def test_creates_have_a_name_of_their_own_and_deletes_carry_what_was_seen(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring()
        await world.make("x")
        await world.make_child("c", "x")
        seen: list[str] = []

        async def act(held: Held) -> None:
            if "done" in seen:
                return
            with pytest.raises(Conflict):
                await held.create(world.config("c"), {"data": {}})
            entry = held._view.entries[held.children[0].meta.uid]
            await world.mark(world.config("c"), Marks("a", 1, "b", 9))  # Somebody else writes meanwhile.
            held._view.entries[entry.uid] = entry
            with pytest.raises(Conflict):
                await held.delete(world.config("c"))
            seen.append("done")

        living = await Living(world.shard("a"), Notes(act)).holds()
        await world.share("a")
        await until(lambda: "done" in seen)
        assert (await world.meta(world.config("c"))).uid
        await living.end()

        async def remove(held: Held) -> None:
            if held.children:
                await held.delete(world.config("c"))

        living = await Living(world.shard("a"), Notes(remove)).holds()
        await world.mark(world.config("c"), Marks("a", 1))
        await world.eventually(lambda: _is_gone(world))
        await living.end()

    cluster.run(scenario)


async def _is_gone(world: World) -> bool:
    try:
        await world.meta(world.config("c"))
    except NotFound:
        return True
    return False
