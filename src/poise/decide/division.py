"""What a division of replicas over clusters answers, and the record from which it can be explained and replayed."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import msgspec


class Draw(msgspec.Struct, frozen=True):
    """One draw: who got one replica more (or one less), by which rule, and the odds of everyone, as fractions in text.

    Rule exact: the odds are the chances to win. Rules weighted and fraction: they are the weights of a draw one by one
    without replacement. Rule debt: they are what each is owed; the largest owed + fraction win.
    """

    change: int
    rule: str
    odds: dict[str, str]
    winners: list[str]


class Step(msgspec.Struct, frozen=True):
    """One replica that a fleet repair moves, after the division itself was decided."""

    source: str
    target: str
    reason: str


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that a decision knew and did; a replay needs nothing else. Fractions are text, such as 7/2."""

    replicas: int
    weights: dict[str, int]
    strategy: str
    result: dict[str, int]
    quotas: dict[str, str]
    seed: str
    draws: list[Draw]
    kept: bool
    reason: str
    minimum: dict[str, int] = {}
    maximum: dict[str, int] = {}
    capacity: dict[str, int] = {}
    last: dict[str, int] | None = None
    debt: dict[str, str] | None = None
    draw: str = "exact"
    mix: str = "0"
    step: Step | None = None


class Division(msgspec.Struct, frozen=True):
    """How many replicas each cluster gets, and its quota. Moved and unplaced count replicas."""

    replicas: dict[str, int]
    quota: dict[str, Fraction]
    kept: bool
    moved: int
    unplaced: int
    reason: str
    record: Record


def count_moved(last: Mapping[str, int] | None, result: Mapping[str, int]) -> int:
    """moved = min(sum of increases, sum of decreases), removed clusters included."""
    if not last:
        return 0
    increases = sum(max(0, share - last.get(name, 0)) for name, share in result.items())
    decreases = increases + sum(last.values()) - sum(result.values())
    return min(increases, decreases)


def with_step(division: Division, step: Step) -> Division:
    """Move one replica of a division from one cluster to another, as a fleet repair does."""
    replicas = dict(division.replicas)
    replicas[step.source] -= 1
    replicas[step.target] += 1
    reason = f"{division.reason}; {step.reason}"
    record = msgspec.structs.replace(division.record, result=replicas, kept=False, reason=reason, step=step)
    return msgspec.structs.replace(
        division,
        replicas=dict(replicas),
        kept=False,
        moved=count_moved(record.last, replicas),
        reason=reason,
        record=record,
    )
