"""The independent checker of capacity: reads a result and names every broken law, by inequalities of its own.

It shares no code with the planners, and takes plain numbers: a pair is (spot, on-demand), a pool is
(name, weight, min, max).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction

Pair = tuple[int, int]
PlainPool = tuple[str, int, int, int | None]

_EFFECTS: dict[str, Pair] = {
    "none": (0, 0),
    "scale-up-on-demand": (0, 1),
    "scale-up-spot": (1, 0),
    "scale-down-spot": (-1, 0),
    "scale-down-on-demand": (0, -1),
    "migrate-to-spot": (1, -1),
    "migrate-to-on-demand": (-1, 1),
}


def check_split(result: Pair, total: int, spot_percentage: int, min_on_demand: int) -> list[str]:
    """Check a split: complete, no more spot than either term allows, and no less than both allow."""
    spot, on_demand = result
    hundredths = total * max(0, min(100, spot_percentage))
    broken = []
    if spot + on_demand != total:
        broken.append(f"{spot} spot and {on_demand} on-demand are not {total} replicas")
    if spot < 0 or on_demand < 0:
        broken.append(f"a count is below zero: {spot} spot, {on_demand} on-demand")
    if on_demand < min(min_on_demand, total):
        broken.append(f"{on_demand} on-demand are fewer than the minimum of {min(min_on_demand, total)}")
    if spot > 0 and 100 * (spot - 1) >= hundredths:
        broken.append(f"{spot} spot are more than {spot_percentage} percent of {total}, rounded up")
    if 100 * spot < hundredths and on_demand > min_on_demand:
        broken.append(f"{spot} spot are too few: percentage and minimum allow one more")
    return broken


def check_next_action(action: str, total: int, min_on_demand: int, *, current: Pair, desired: Pair) -> list[str]:
    """Check an action: safe, in the order of safety, and one step nearer to desired."""
    if action not in _EFFECTS:
        return [f"{action!r} is no action"]
    change = _EFFECTS[action]
    then = current[0] + change[0], current[1] + change[1]
    broken = _unsafe(action, then, total, min_on_demand, current) + _out_of_order(action, total, current, desired)
    if sum(desired) == total:
        # An honest action removes exactly one step; doing nothing is honest only when nothing is left to do.
        left, still_left = _distance(current, desired), _distance(then, desired)
        if still_left != max(0, left - 1):
            broken.append(f"{action} leaves {still_left} of {left} steps")
    return broken


def _unsafe(action: str, then: Pair, total: int, min_on_demand: int, current: Pair) -> list[str]:
    broken = []
    if min(then) < 0:
        broken.append(f"{action} takes a count below zero")
    if then[1] < current[1] and then[1] < min(min_on_demand, total):
        broken.append(f"{action} takes on-demand below the minimum of {min(min_on_demand, total)}")
    return broken


def _out_of_order(action: str, total: int, current: Pair, desired: Pair) -> list[str]:
    broken = []
    if action == "scale-up-spot" and current[1] < desired[1]:
        broken.append("spot grows before on-demand")
    if action == "scale-down-on-demand" and current[0] > desired[0]:
        broken.append("on-demand shrinks before spot")
    if action.startswith("migrate-") and sum(current) != total:
        broken.append(f"a migration while the total is {sum(current)} instead of {total}")
    return broken


def _distance(one: Pair, other: Pair) -> int:
    """Count the steps on the grid where a step changes one side, or both in opposite directions."""
    spot, on_demand = one[0] - other[0], one[1] - other[1]
    return max(abs(spot), abs(on_demand), abs(spot + on_demand))


def check_pools(
    replicas: Mapping[str, int],
    unplaced: int,
    total: int,
    pools: Sequence[PlainPool],
    *,
    order: Sequence[str] | None = None,
    previous: Mapping[str, int] | None = None,
    down: Collection[str] = (),
) -> list[str]:
    """Check a split over pools: complete, within bounds, each the floor or ceiling of its share, leftovers in order."""
    names = [name for name, *_ in pools]
    if sorted(replicas) != sorted(names):
        return [f"the pools are {names}, the result names {list(replicas)}"]
    broken = [f"{name} is down and has {replicas[name]}" for name in names if name in down and replicas[name]]
    if sum(replicas.values()) + unplaced != total or unplaced < 0:
        broken.append(f"{sum(replicas.values())} placed and {unplaced} unplaced are not {total}")
    ups = [pool for pool in pools if pool[0] not in down]
    if total < sum(least for _, _, least, _ in ups):
        return broken + _check_minimums(replicas, total, ups)
    shares = _shares(total, ups)
    broken += _check_counts(replicas, shares, ups)
    if not broken:
        ranks = {name: rank for rank, name in enumerate(order or ())}
        broken += _check_leftovers(replicas, shares, ranks, previous or {})
    return broken


def _check_minimums(replicas: Mapping[str, int], total: int, ups: Sequence[PlainPool]) -> list[str]:
    """Check that the minimums are served in list order: a pool has its minimum, or nothing is left after it."""
    broken, left = [], total
    for name, _, least, _ in ups:
        if replicas[name] != min(least, left):
            broken.append(f"{name} has {replicas[name]} of its minimum {least}, with {left} left")
        left -= min(least, left)
    return broken


def _clamped(level: Fraction, pool: PlainPool) -> Fraction:
    _, weight, least, most = pool
    filled = max(level * weight, Fraction(least))
    return filled if most is None or weight == 0 else min(filled, Fraction(most))


def _filled(level: Fraction, ups: Sequence[PlainPool]) -> Fraction:
    return sum((_clamped(level, pool) for pool in ups), Fraction(0))


def _shares(total: int, ups: Sequence[PlainPool]) -> dict[str, Fraction]:
    """Find the level by trying the corners: between two neighbouring ones the filled sum is a straight line."""
    bounds = [(weight, bound) for _, weight, least, most in ups for bound in (least, most) if weight]
    corners = sorted({Fraction(0), *(Fraction(bound, weight) for weight, bound in bounds if bound is not None)})
    below = bisect_right(corners, Fraction(total), key=lambda corner: _filled(corner, ups)) - 1
    level, filled = corners[below], _filled(corners[below], ups)
    beyond = corners[below + 1] if below + 1 < len(corners) else level + 1
    rise = _filled(beyond, ups) - filled
    if rise:
        level += (total - filled) * (beyond - level) / rise
    return {pool[0]: _clamped(level, pool) for pool in ups}


def _check_counts(replicas: Mapping[str, int], shares: Mapping[str, Fraction], ups: Sequence[PlainPool]) -> list[str]:
    broken = []
    for name, _, least, most in ups:
        count = replicas[name]
        if count < least or (most is not None and count > most):
            broken.append(f"{name} has {count}, outside of its bounds {least} to {most}")
        if abs(count - shares[name]) >= 1:
            broken.append(f"{name} has {count}, neither floor nor ceiling of its share {shares[name]}")
    if sum(replicas[name] for name, *_ in ups) != sum(shares.values()):
        broken.append(f"{sum(shares.values())} have a place, and {sum(replicas.values())} were placed")
    return broken


def _check_leftovers(
    replicas: Mapping[str, int], shares: Mapping[str, Fraction], ranks: Mapping[str, int], previous: Mapping[str, int]
) -> list[str]:
    """Compare the last pool that was rounded up with the first that was rounded down."""

    def claim(name: str) -> tuple[int, Fraction, bool, int, str]:
        before = previous.get(name, 0)
        return ranks.get(name, len(ranks)), -(shares[name] % 1), before < shares[name], -before, name

    cut = [name for name, share in shares.items() if share % 1]
    ups = [name for name in cut if replicas[name] > shares[name]]
    downs = [name for name in cut if replicas[name] < shares[name]]
    if not ups or not downs:
        return []
    winner, loser = max(ups, key=claim), min(downs, key=claim)
    if claim(winner) < claim(loser):
        return []
    return [f"{winner} was rounded up before {loser}"]
