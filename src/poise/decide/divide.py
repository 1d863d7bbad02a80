"""Replicas over clusters by weight: what does not divide evenly is spread fairly, what still fits is left alone.

quota_i = N·w_i / W, kept within the bounds of cluster i. A share is always the floor or the ceiling of its quota, so a
whole quota is met exactly. What the floors leave over goes out one each, with chances equal to the fractions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import gcd

from poise.decide.division import Division, Draw, Record, Step, count_moved, with_step
from poise.decide.division_goal import (
    Counts,
    Debt,
    Goal,
    Last,
    read_count,
    read_counts,
    read_debt,
    read_fraction,
    read_last,
    read_seed,
    read_terms,
    set_goal,
)
from poise.decide.draw import highest, systematic, tilted, weighted, words
from poise.errors import invalid
from poise.inputs import as_struct

__all__ = ["Division", "Draw", "Record", "Step", "divide", "replay"]


def divide(
    replicas: int,
    weights: Counts,
    *,
    last: Last = None,
    minimum: Counts | None = None,
    maximum: Counts | None = None,
    capacity: Counts | None = None,
    strategy: str = "StaticWeight",
    seed: str = "",
    draw: str = "exact",
    mix: int | float | Fraction | None = None,
    debt: Mapping[str, int | Fraction] | None = None,
) -> Division:
    """Divide replicas over clusters: keep the last result if it fits, else change as few replicas as possible."""
    wanted = read_counts("$.weights", weights)
    terms = read_terms(wanted, minimum, maximum, capacity, strategy, draw, mix)
    goal = set_goal(read_count("$.replicas", replicas), wanted, terms)
    return decide(goal, read_seed(seed), read_last("$.last", last, strategy), read_debt(debt, wanted))


def replay(record: Record | Mapping[str, object]) -> Division:
    """Decide again from the record alone; a sound record gives the same division bit for bit."""
    record = as_struct("$.record", record, Record)
    owed = record.debt
    debt = None if owed is None else {name: read_fraction(f"$.debt[{name!r}]", owed[name]) for name in owed}
    division = divide(
        record.replicas,
        record.weights,
        last=record.last,
        minimum=record.minimum,
        maximum=record.maximum,
        capacity=record.capacity,
        strategy=record.strategy,
        seed=record.seed,
        draw=record.draw,
        mix=read_fraction("$.mix", record.mix),
        debt=debt,
    )
    step = record.step
    if step is None:
        return division
    if not division.replicas.get(step.source) or step.target not in division.replicas:
        raise invalid("$.step", f"no replica can move from {step.source!r} to {step.target!r}")
    return with_step(division, step)


def decide(goal: Goal, seed: str, last: Counts | None, debt: Debt | None) -> Division:
    """Answer a goal: the last result if it fits, else its nearest repair; without one a fresh draw."""
    if last is not None and fits(goal, last):
        return _conclude(goal, [last.get(name, 0) for name in goal.names], seed, last, kept=True)
    shares = list(goal.floors) if last is None else _clamped(goal, last)
    change = 1 if sum(shares) <= goal.placed else -1
    taken, drawn = _draw(goal, shares, change, seed, debt, fresh=last is None)
    for position in taken:
        shares[position] += change
    return _conclude(goal, shares, seed, last, drawn)


def fits(goal: Goal, last: Counts) -> bool:
    """Same total placed, every share within floor..ceiling, nothing on a removed cluster."""
    before = [last.get(name, 0) for name in goal.names]
    if sum(before) != goal.placed or sum(last.values()) != goal.placed:
        return False
    return before == _clamped(goal, last)


def _clamped(goal: Goal, last: Counts) -> list[int]:
    """Bring every last share into its floor..ceiling."""
    return [
        min(max(last.get(name, 0), floor), floor + (fraction > 0))
        for name, floor, fraction in zip(goal.names, goal.floors, goal.fractions, strict=True)
    ]


def _draw(
    goal: Goal, shares: list[int], change: int, seed: str, debt: Debt | None, *, fresh: bool
) -> tuple[list[int], Draw | None]:
    """Choose who gets one more (or one less), among the clusters to which their quota leaves a choice."""
    takes = abs(goal.placed - sum(shares))
    if not takes:
        return [], None
    full = change < 0
    free = [i for i, fraction in enumerate(goal.fractions) if fraction and shares[i] == goal.floors[i] + full]
    if debt is not None:
        rule, odds, unit = "debt", [debt.amounts.get(goal.names[i], 0) for i in free], debt.unit
        chosen = highest(words("tie", seed), _scores(goal, free, debt, change), takes)
    elif fresh and goal.terms.draw == "exact":
        rule, (odds, unit) = "exact", _chances(goal, free)
        chosen = systematic(words("exact", seed), odds, unit)
    elif fresh:
        rule, odds, unit = "weighted", [goal.pulls[i] for i in free], 1
        chosen = weighted(words("weighted", seed), odds, takes)
    else:
        rule, unit = "fraction", goal.quotas.denominator
        odds = [unit - goal.fractions[i] if full else goal.fractions[i] for i in free]
        chosen = weighted(words("repair", seed), odds, takes)
    taken = [free[position] for position in chosen]
    texts = {goal.names[i]: _text(part, unit) for i, part in zip(free, odds, strict=True)}
    return taken, Draw(change, rule, texts, [goal.names[i] for i in taken])


def _scores(goal: Goal, free: Sequence[int], debt: Debt, change: int) -> list[int]:
    """score = debt + fraction, over the product of the two units; turned round where the smallest must be found."""
    unit, owed = goal.quotas.denominator * change, debt.amounts
    return [owed.get(goal.names[i], 0) * unit + goal.fractions[i] * debt.unit * change for i in free]


def _chances(goal: Goal, free: Sequence[int]) -> tuple[list[int], int]:
    """Chance = fraction, or what the capacities make of it."""
    capacities = [goal.terms.capacity.get(goal.names[i]) for i in free]
    return tilted([goal.fractions[i] for i in free], goal.quotas.denominator, capacities, goal.terms.mix)


def _text(numerator: int, denominator: int) -> str:
    """Write a fraction as `str(Fraction)` would, at a third of the price."""
    divisor = gcd(numerator, denominator)
    above, below = numerator // divisor, denominator // divisor
    return str(above) if below == 1 else f"{above}/{below}"


def _conclude(
    goal: Goal,
    shares: Sequence[int],
    seed: str,
    last: Counts | None,
    drawn: Draw | None = None,
    *,
    kept: bool = False,
) -> Division:
    """Write the answer down, with all that a replay needs; of the debts only those that decided."""
    names, terms = goal.names, goal.terms
    result = dict(zip(names, shares, strict=True))
    quota = dict(zip(names, goal.quotas.fractions(), strict=True))
    reason = "; ".join(filter(None, (_reason(goal, last, drawn, kept=kept), goal.note)))
    record = Record(
        replicas=goal.replicas,
        weights=goal.weights,
        strategy=terms.strategy,
        result=dict(result),
        quotas={name: str(share) for name, share in quota.items()},
        seed=seed,
        draws=[] if drawn is None else [drawn],
        kept=kept,
        reason=reason,
        minimum=_among(names, terms.minimum),
        maximum=_among(names, terms.maximum),
        capacity=_among(names, terms.capacity),
        last=None if last is None else dict(last),
        debt=drawn.odds if drawn is not None and drawn.rule == "debt" else None,
        draw=terms.draw,
        mix=str(terms.mix) if terms.mix else "0",
    )
    wanted = goal.replicas * max(1, len(names)) if terms.strategy == "Duplicated" else goal.replicas
    return Division(result, quota, kept, count_moved(last, result), wanted - goal.placed, reason, record)


def _among(names: Sequence[str], bound: Counts) -> dict[str, int]:
    return {name: bound[name] for name in names if name in bound} if bound else {}


_RULES = {
    "exact": "drawn with exact chances",
    "weighted": "drawn by weight",
    "fraction": "drawn by fraction",
    "debt": "by what the clusters are owed",
}


def _reason(goal: Goal, last: Counts | None, drawn: Draw | None, *, kept: bool) -> str:
    if kept:
        return "the last result still fits"
    if not goal.names:
        return ""  # The note of the goal says it all.
    start = "there is no last result" if last is None else "the last result no longer fits"
    if goal.terms.strategy == "Duplicated":
        return f"{start}: every cluster gets all {goal.replicas}"
    if drawn is None:
        return f"{start}: every quota is whole" if last is None else f"{start}: its shares go to the nearest that fit"
    more = "more" if drawn.change > 0 else "less"
    return f"{start}: {len(drawn.winners)} of {len(drawn.odds)} clusters get one {more}, {_RULES[drawn.rule]}"
