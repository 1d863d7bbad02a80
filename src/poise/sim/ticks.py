"""What is measured of one policy at one event, the same for items and for replicas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import msgspec


class Tick(msgspec.Struct, frozen=True):
    """One policy after one event.

    moves: things that had a member and have another one, or none, afterwards. moves_min: the fewest moves from this
    policy's own last state to loads that are the floor or the ceiling of their shares. innocent: moves whose source
    neither left nor was drained in this event, and whose target did not join in it. low, high: the smallest and the
    largest load of a live member; under, over: the same of load minus exact share.
    """

    moves: int
    moves_min: int
    innocent: int
    low: int
    high: int
    under: Fraction
    over: Fraction
    unassigned: int

    @property
    def spread(self) -> int:
        """Take the smallest load from the largest."""
        return self.high - self.low

    @property
    def error(self) -> Fraction:
        """Give the largest distance of a load from its exact share."""
        return max(self.over, -self.under)


class Change(msgspec.Struct, frozen=True):
    """Who came and who went in one event, be it by a drain."""

    joined: frozenset[str]
    gone: frozenset[str]


def change(before: Iterable[str], after: Iterable[str]) -> Change:
    """Compare the live members before and after an event."""
    was, now = frozenset(before), frozenset(after)
    return Change(now - was, was - now)


def deviations(loads: Sequence[int], shares: Sequence[int], unit: int) -> tuple[Fraction, Fraction]:
    """Give the smallest and the largest of load minus share, with the shares in parts of a unit."""
    off = [load * unit - share for load, share in zip(loads, shares, strict=True)]
    return Fraction(min(off, default=0), unit), Fraction(max(off, default=0), unit)
