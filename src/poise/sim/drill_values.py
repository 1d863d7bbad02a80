"""The parts of a drilled world: its settings, its chance, its processes and their troubles."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from poise.decide.draw import below, words
from poise.hold.holding import Holding
from poise.jobs.coordinator import Coordinator
from poise.model.ownership import Terms

SET = "drill"
TERMS = Terms(lease_s=10, grace_s=2, release_s=10)
# The inequality of the protocol, nearly used up: (10 - 1)·1.01 + 2.5 + 0 + 0.2 <= 10 + 2.
MARGIN_S, STOP_S, RATE_ERROR, STEP_S = 1.0, 2.5, 0.01, 0.2
PERIOD_S = TERMS.lease_s / 3
LOOK_S = 2.0  # So often at least a leader looks.
MISHAPS_IN = 120  # One call in so many is refused, another one loses a race, another one is not answered.
TRAVEL_S, SLOW_S, SLOW_ONE_IN = 0.3, 9.0, 30  # The longest ways of a message, in peace and under faults.


class Chance:
    """One stream of draws: the same seed gives the same world everywhere."""

    def __init__(self, seed: int) -> None:
        """Begin the stream of a seed."""
        self._stream: Iterator[int] = words("drill", str(seed))

    def below(self, bound: int) -> int:
        """Draw one of 0 … bound - 1."""
        return below(self._stream, bound)

    def between(self, low_s: float, high_s: float) -> float:
        """Draw a length of time."""
        return low_s + (high_s - low_s) * (next(self._stream) >> 44) / 2**20


class Process(msgspec.Struct, eq=False):
    """One process of a member: its state machine, its own clocks, and what befalls it."""

    name: str
    number: int
    holding: Holding
    rate: float
    alive: bool = True
    frozen: bool = False
    cut_until_s: float = 0.0
    jumped_s: float = 0.0  # How far its wall clock was set; nothing may look at it.
    fence_s: float | None = None  # The instant of its own clock for which its alarm is set.
    acting: dict[str, int] = msgspec.field(default_factory=dict)
    overslept: set[str] = msgspec.field(default_factory=set)  # What it must stop because it was frozen.
    waiting: list[Callable[[], None]] = msgspec.field(default_factory=list)


class Leader(msgspec.Struct, eq=False):
    """One process that coordinates, or would."""

    coordinator: Coordinator
    alive: bool = True
    calls: int = 0
    freeze_at: int = 0  # The call of its cycle before which it freezes; 0 is none.
    freeze_s: float = 0.0
    froze: bool = False  # It froze in its last cycle, which therefore saw more than one instant.
    jumped_s: float = 0.0  # How far its wall clock was set; only windows would look at it.


class Trouble(msgspec.Struct, frozen=True):
    """One thing that went wrong, to whom (empty: to all), and how long it may keep an item from being worked on."""

    who: str
    from_s: float
    until_s: float
    cost_s: float
