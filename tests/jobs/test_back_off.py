"""A member that was broken and is mended gets its share again, also of what another one holds meanwhile."""

from __future__ import annotations

from functools import partial

from tests.set_world import World

from poise.hold.holding import speak
from poise.move.executor import take_heartbeat


def test_a_member_that_is_mended_gets_its_share_again() -> None:
    world = World(6, "a", "b")
    for _ in range(120):
        world.coordinator.cycle("orders")
        world.beat("b")
        holding, said = speak(world.members["a"])  # It speaks, and never of its items.
        world.members["a"] = holding
        world.store.transact("orders", partial(take_heartbeat, name="orders", member="a", said=said))
        world.now_s += 1.0
    assert all(row.offers["a"] >= 3 for row in world.facts().rows.values())
    world.settle(300)
    assert world.loads() == {"a": 3, "b": 3}
    assert world.sound()
