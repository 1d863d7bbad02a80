"""Drains and pauses on a real API server, with shards that answer and an auditor: never two owners."""

from __future__ import annotations

import asyncio

import pytest
from tests.cluster.sharder_world import World, make_families, world
from tests.cluster.world import Cluster, until

from poise.decide.ring import Ring
from poise.jobs.sharder.orders import NO_ORDERS, Orders
from poise.kube import Client

WITHIN_S = 40.0


def order(w: World, orders: Orders) -> None:
    """Ask something of a ring, as its annotations would."""
    w.sharder.update(w.document, removing=False, brake_released="", orders=orders)


async def homed(w: World, names: str) -> dict[str, str | None]:
    """Wait until the ring of these instances is carried out; a moment of calm before it begins is not enough."""
    loop, ring = asyncio.get_running_loop(), Ring(list(names))
    end_s = loop.time() + WITHIN_S
    while True:
        held = await w.settled(names, WITHIN_S)
        wanted = {name: ring.owner(f"/Secret/{w.namespace}/s{name[1:]}") for name in held}
        if held == wanted:
            return held
        assert loop.time() < end_s, (held, wanted)
        await asyncio.sleep(0.05)


def held_back(w: World) -> int:
    return w.sharder.report.withheld


@pytest.mark.parametrize("policy", ["ring", "balanced"])
def test_an_instance_is_emptied_and_filled_again(cluster: Cluster, namespace: str, policy: str) -> None:
    async def scenario(client: Client) -> None:
        await make_families(client, 9, namespace)
        async with world(client, namespace, policy=policy) as w:
            for name in ("a", "b", "c"):
                await w.shard(name)
            if policy == "ring":
                await homed(w, "abc")
            order(w, Orders(drained=frozenset("a")))
            await w.settled("bc", WITHIN_S)
            if policy == "ring":
                await homed(w, "bc")
            # The report follows the labels, a moment later.
            await until(lambda: [each.objects for each in w.sharder.report.instances if each.drained] == [0], WITHIN_S)
            order(w, Orders(drained=frozenset("ab")))
            await w.settled("c", WITHIN_S)
            order(w, Orders(drained=frozenset("abc")))
            await asyncio.sleep(1.0)
            assert set((await w.owners()).values()) == {"c"}, "nobody can take it: it stays"
            order(w, NO_ORDERS)
            if policy == "ring":
                await homed(w, "abc")
            else:
                await until(lambda: {each.objects for each in w.sharder.report.instances} == {6}, WITHIN_S)

    cluster.run(scenario)


def test_under_a_pause_only_what_is_lost_moves(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await make_families(client, 9, namespace)
        async with world(client, namespace) as w:
            await w.mortal("a")
            await w.shard("b")
            before = await homed(w, "ab")
            order(w, Orders("moves"))
            await w.shard("c")
            await until(lambda: held_back(w) > 0, WITHIN_S)
            await asyncio.sleep(0.5)
            assert await w.settled("ab", WITHIN_S) == before, "nobody gives anything to the one who joined"
            await w.shards["a"].crash()
            recovered = await w.settled("bc", WITHIN_S)
            assert {name: who for name, who in recovered.items() if before[name] == "b"} == {
                name: "b" for name, who in before.items() if who == "b"
            }, "what is well stays"
            order(w, NO_ORDERS)
            await until(lambda: not held_back(w), WITHIN_S)
            await homed(w, "bc")

    cluster.run(scenario)


def test_a_pause_of_everything_recovers_nothing(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await make_families(client, 4, namespace)
        async with world(client, namespace, brakePercent=100) as w:
            await w.mortal("a")
            await w.shard("b")
            before = await homed(w, "ab")
            order(w, Orders("all"))
            await w.shards["a"].crash()
            dead = ("uncertain", "dead", "orphaned")
            await until(
                lambda: any(each.name == "a" and each.state in dead for each in w.sharder.report.instances), WITHIN_S
            )
            await asyncio.sleep(1.0)
            owners = {**await w.owners()}
            assert owners == {name: who for name, who in before.items() if name in owners}, "nothing is taken"
            order(w, NO_ORDERS)
            await w.settled("b", WITHIN_S)

    cluster.run(scenario)
