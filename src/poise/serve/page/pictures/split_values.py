"""What the picture of a split is made of: workloads as bars, each side now and as wanted, and the next action."""

from __future__ import annotations

import msgspec

SETTLED, ACTS, WAITS = "settled", "acts", "waits"


class Side(msgspec.Struct, frozen=True):
    """One side, or one pool: what runs there and what should."""

    name: str
    now: int
    wanted: int


class SplitRow(msgspec.Struct, frozen=True, kw_only=True):
    """One workload; `next` says the next action, `why` the reason for it or what it waits for."""

    name: str
    href: str
    tone: str
    sides: list[Side]
    words: str
    next: str
    why: str
    title: str

    @property
    def longest(self) -> int:
        """Count the replicas of a full bar: all that run, or all that are wanted."""
        return max(1, sum(side.now for side in self.sides), sum(side.wanted for side in self.sides))


class Splits(msgspec.Struct, frozen=True, kw_only=True):
    """The whole picture; `places` names sides or pools in their order."""

    about: str
    rows: list[SplitRow]
    places: list[str]
    counts: dict[str, int]
    notes: list[str] = []
    teach: list[str] = []
