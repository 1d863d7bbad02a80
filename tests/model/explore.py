"""Breadth-first search over all interleavings, with the shortest trace to whatever breaks a law."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec
from tests.model.turns import turns
from tests.model.world import Universe, World

VISITED: list[int] = []  # How many states each world of the exploration had, for the summary of the run.


class Violation(msgspec.Struct, frozen=True):
    """A broken law, and the fewest steps that lead to it."""

    law: str
    trace: tuple[str, ...]

    def story(self) -> str:
        """Tell it step by step."""
        return "\n".join([f"{self.law}, after {len(self.trace)} steps:", *(f"  {step}" for step in self.trace)])


class Exploration(msgspec.Struct, frozen=True):
    """What a search found: how many distinct states and steps, whether that was all, and the first violation."""

    states: int
    steps: int
    complete: bool
    violation: Violation | None
    worlds: list[World]


def explore(
    universe: Universe, *, states_max: int = 10_000_000, judge: Callable[[World], str] = lambda _: ""
) -> Exploration:
    """Visit every state, nearest first, until a law is broken or the bound is reached.

    `judge` may name a broken law of a whole state, such as that it never settles.
    """
    start = universe.start()
    parents: dict[World, tuple[World, str] | None] = {start: None}
    queue = deque([start])
    steps = 0
    while queue:
        world = queue.popleft()
        if law := judge(world):
            return _found(parents, steps, law, _trace(parents, world))
        for label, after, broken in turns(universe, world):
            steps += 1
            if broken:
                return _found(parents, steps, broken, (*_trace(parents, world), label))
            if after not in parents:
                parents[after] = (world, label)
                queue.append(after)
        if len(parents) >= states_max:
            return Exploration(len(parents), steps, False, None, list(parents))
    return Exploration(len(parents), steps, True, None, list(parents))


def _found(parents: dict[World, tuple[World, str] | None], steps: int, law: str, trace: tuple[str, ...]) -> Exploration:
    return Exploration(len(parents), steps, False, Violation(law, trace), list(parents))


def _trace(parents: dict[World, tuple[World, str] | None], world: World) -> tuple[str, ...]:
    """Read the way back to the start."""
    labels = []
    while (parent := parents[world]) is not None:
        world, label = parent
        labels.append(label)
    return tuple(reversed(labels))
