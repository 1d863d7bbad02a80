"""Which faults come when: drawn from a seed, so that a failing run can be asked for again."""

from __future__ import annotations

from itertools import accumulate
from random import Random
from typing import NamedTuple

WORKERS = 5
_FEWEST, _MOST = 4, 7
_LOSSES = {"kill": 4, "stop": 3, "coordinator": 2}
_PAUSES = {"freeze all": 3, "freeze worker": 3}


class Planned(NamedTuple):
    """A fault that will come, so long after the one before it; a pause lasts so long."""

    kind: str
    after_s: float
    length_s: float


def draw_faults(seed: int, *, restarts: int, leaders_work: bool, shortest_pause_s: float) -> list[Planned]:
    """Shuffle a deck of faults until there are neither too few nor too many workers at any time.

    As many workers join as are lost; where the leader is one of them, a coordinator's end is a loss too.
    """
    chance = Random(seed)
    growth = {"join": 1, "kill": -1, "stop": -1, "coordinator": -int(leaders_work)}
    joins = -sum(growth[kind] * count for kind, count in _LOSSES.items())
    kinds = {**_LOSSES, **_PAUSES, "join": joins, "store": restarts}
    deck = [kind for kind, count in kinds.items() for _ in range(count)]
    chance.shuffle(deck)
    while not all(_FEWEST <= WORKERS + size <= _MOST for size in accumulate(growth.get(kind, 0) for kind in deck)):
        chance.shuffle(deck)
    return [Planned(kind, chance.uniform(0.4, 2.4), _length_s(kind, chance, shortest_pause_s)) for kind in deck]


def _length_s(kind: str, chance: Random, shortest_pause_s: float) -> float:
    """Say how long a pause lasts, or how long it takes until what was ended is started again."""
    if kind.startswith("freeze"):
        return shortest_pause_s + chance.uniform(0.0, 1.5)
    return chance.uniform(0.0, 2.5 if kind == "store" else 1.0)
