"""Breadth-first search over all interleavings of a ring, and walks by chance that go further than it comes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

import msgspec
from tests.model.explore import Violation
from tests.model.sharding_turns import turns
from tests.model.sharding_world import Universe, World


class Exploration(msgspec.Struct, frozen=True):
    """What a search found: how many distinct states and steps, whether that was all, and the first violation."""

    states: int
    steps: int
    complete: bool
    violation: Violation | None


def explore(
    universe: Universe, *, states_max: int = 10_000_000, judge: Callable[[World], str] = lambda _: ""
) -> Exploration:
    """Visit every state, nearest first, until a law is broken or the bound is reached."""
    start = universe.start()
    parents: dict[World, tuple[World, str] | None] = {start: None}
    queue = deque([start])
    steps = 0
    while queue:
        world = queue.popleft()
        if law := judge(world):
            return Exploration(len(parents), steps, False, Violation(law, trace(parents, world)))
        for label, after, broken in turns(universe, world):
            steps += 1
            if broken:
                return Exploration(len(parents), steps, False, Violation(broken, (*trace(parents, world), label)))
            if after not in parents:
                parents[after] = (world, label)
                queue.append(after)
        if len(parents) >= states_max:
            return Exploration(len(parents), steps, False, None)
    return Exploration(len(parents), steps, True, None)


def wander(
    universe: Universe, seed: int, *, walks: int, steps: int, judge: Callable[[World], str] = lambda _: ""
) -> Violation | None:
    """Take walks by chance, further than a search comes, judge where each ends, and give the way to a broken law."""
    chance = Random(seed)
    for _ in range(walks):
        world, way = universe.start(), list[str]()
        for _ in range(steps):
            label, world, broken = chance.choice(list(turns(universe, world)))
            way.append(label)
            if broken:
                return Violation(broken, tuple(way))
        if law := judge(world):
            return Violation(law, tuple(way))
    return None


def trace(parents: dict[World, tuple[World, str] | None], world: World) -> tuple[str, ...]:
    """Read the way back to the start."""
    labels = []
    while (parent := parents[world]) is not None:
        world, label = parent
        labels.append(label)
    return tuple(reversed(labels))
