"""Why a workload is split like this, what happens next and why, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from poise.decide.pools import pool_shares, read_pools, split_pools
from poise.decide.split import (
    Action,
    Split,
    Term,
    binding_term,
    by_percentage,
    clamp_percentage,
    drift,
    next_action,
    split,
    steps,
)
from poise.model.capacity_split import Pool

_REASONS = {
    Action.NONE: "nothing to do",
    Action.SCALE_UP_ON_DEMAND: "the total is too low, and on-demand grows before spot",
    Action.SCALE_UP_SPOT: "the total is too low, and on-demand has what it should have",
    Action.SCALE_DOWN_SPOT: "the total is too high, and spot shrinks before on-demand",
    Action.SCALE_DOWN_ON_DEMAND: "the total is too high, and spot has no more than it should have",
    Action.MIGRATE_TO_SPOT: "the total is right, on-demand has too many and spot too few",
    Action.MIGRATE_TO_ON_DEMAND: "the total is right, spot has too many and on-demand too few",
}


def explain_split(
    total: int,
    spot_percentage: int,
    min_on_demand: int,
    current: Split | None = None,
    *,
    desired: Split | None = None,
    waits: str = "",
) -> list[str]:
    """Explain a split: the term that bound, the drift, the next action with its reason, the steps, and why it waits.

    `desired` is the formula's answer unless something else, such as a fallback, changed it. `waits` is a refusal of the
    guards as a sentence.
    """
    formula = split(total, spot_percentage, min_on_demand)
    goal = formula if desired is None else desired
    lines = [_term_sentence(total, spot_percentage, min_on_demand)]
    if goal != formula:
        lines.append(f"Instead of {_counts(formula)} the goal is now {_counts(goal)}.")
    if current is None:
        return lines
    action = next_action(total, current, goal)
    lines += [_drift_sentence(current, goal), f"Next: {action}: {action_reason(action, current, goal)}."]
    if action is not Action.NONE:
        count = steps(current, goal)
        lines.append(f"{count} step{'' if count == 1 else 's'} to {_counts(goal)}.")
        if waits:
            lines.append(f"It {waits}.")
    return lines


def action_reason(action: Action, current: Split, desired: Split) -> str:
    """Say why an action is the next one."""
    if action is Action.NONE and current != desired:
        return f"no single action leads from {_counts(current)} to {_counts(desired)} with this total"
    return _REASONS[action]


def explain_pools(
    total: int,
    pools: Iterable[Pool | Mapping[str, object]],
    *,
    order: Iterable[str] | None = None,
    previous: Mapping[str, int] | None = None,
    down: Iterable[str] = (),
) -> list[str]:
    """Explain a split over pools: each one's exact share, what bound it, and who got the leftovers."""
    listed, left_out, named = read_pools(pools), list(down), list(order or ())
    result = split_pools(total, listed, order=named, previous=previous, down=left_out)
    ups = [pool for pool in listed if pool.name not in left_out]
    shares = dict(zip([pool.name for pool in ups], pool_shares(total, ups).fractions(), strict=True))
    short = total < sum(pool.min for pool in ups)
    losers = [name for name, share in shares.items() if share > result.replicas[name]]
    lines = []
    for pool in listed:
        count = result.replicas[pool.name]
        if pool.name in left_out:
            why = "down"
        elif short:
            why = f"minimums in list order, {count} of its {pool.min}"
        else:
            why = _share_reason(pool, shares[pool.name])
            if count > shares[pool.name]:
                why += f", rounded up {_rule(pool.name, losers, shares, named, previous or {})}"
            elif count < shares[pool.name]:
                why += ", rounded down"
        lines.append(f"{pool.name}: {count}: {why}.")
    if result.unplaced:
        lines.append(f"{result.unplaced} unplaced: every pool that is up has its most.")
    return lines


def _rule(
    name: str,
    losers: Iterable[str],
    shares: Mapping[str, Fraction],
    order: Sequence[str],
    held: Mapping[str, int],
) -> str:
    """Name the rule that gave a pool its leftover unit."""
    if name in order:
        return "by the order"
    ties = [other for other in losers if shares[other] % 1 == shares[name] % 1]
    if not ties:
        return "by the largest remainder"

    def before(pool: str) -> tuple[bool, int]:
        return held.get(pool, 0) > shares[pool], held.get(pool, 0)

    return "as it held more" if before(name) > max(map(before, ties)) else "by name"


def _term_sentence(total: int, spot_percentage: int, min_on_demand: int) -> str:
    percentage = clamp_percentage("$.spot_percentage", spot_percentage)
    goal = split(total, percentage, min_on_demand)
    asked = f"ceil({total}·{percentage}/100) = {by_percentage(total, percentage)}"
    left = f"{total} - {min_on_demand} = {total - min_on_demand}"
    term = binding_term(total, percentage, min_on_demand)
    sentences = {
        Term.PERCENTAGE: f"the percentage decided: {asked}, and the minimum leaves {left}",
        Term.MINIMUM: f"the minimum decided: it leaves {left}, and the percentage asks for {asked}",
        Term.MINIMUM_UNMET: f"minimum cannot be met: {total} replicas for a minimum of {min_on_demand} on on-demand",
        Term.NO_REPLICAS: "no replicas",
    }
    return f"{_counts(goal)}: {sentences[term]}."


def _drift_sentence(current: Split, goal: Split) -> str:
    spot, on_demand = drift(current, goal)
    if not spot and not on_demand:
        return f"Now {_counts(current)}: no drift."
    return f"Now {_counts(current)}: spot {_off(spot)}, on-demand {_off(on_demand)}."


def _off(count: int) -> str:
    if not count:
        return "is right"
    return f"has {abs(count)} too {'many' if count > 0 else 'few'}"


def _counts(pair: Split) -> str:
    return f"{pair.spot} spot, {pair.on_demand} on-demand"


def _share_reason(pool: Pool, share: Fraction) -> str:
    """Say what made the count: a bound, or the exact share."""
    if not pool.weight:
        return f"weight 0, its minimum of {pool.min}"
    if share == pool.max:
        return f"its most is {pool.max}"
    if share == pool.min and pool.min:
        return f"its minimum is {pool.min}"
    return f"its share is {share}"
