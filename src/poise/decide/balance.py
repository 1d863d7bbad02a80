"""Exact-even, fewest-moves rebalance: the planner that every job of items shares.

Law: every load is the floor or the ceiling of its share, and the moves are the fewest for that:
moves = items on members that are gone or draining + the sum of max(0, load - quota).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import isfinite
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from poise.decide.arrays import np
from poise.decide.plan import Certificate, Departures, Move, Plan, held_now, spread
from poise.decide.rendezvous import NOBODY, Positions, fill, limits
from poise.decide.scores import hashes, score, scores_on
from poise.decide.shares import Shares, fair_shares
from poise.errors import invalid
from poise.inputs import mapping, sorted_names, text, unique_names, whole

if TYPE_CHECKING:
    import numpy.typing as npt

_NEW, _GONE = -1, -2
Holders: TypeAlias = "npt.NDArray[np.int32]"


class Quotas(msgspec.Struct, frozen=True):
    """What each live member may hold: its exact share, and the floor or ceiling that was chosen for it."""

    shares: Shares
    quotas: list[int]


def rebalance(
    items: Iterable[str],
    members: Iterable[str],
    current: Mapping[str, str | None],
    *,
    capacity: int | Mapping[str, int] | None = None,
    weights: Mapping[str, int] | None = None,
    draining: Iterable[str] = (),
    debt: Mapping[str, int | Fraction | float] | None = None,
    seed: str = "",
) -> Plan:
    """Plan the fewest moves that make every load the floor or the ceiling of its share.

    Order: shares and quotas; each member keeps its best items up to its quota; the others are placed on the room that
    is left, items that had a member before new ones.
    """
    leaving = set(unique_names("$.draining", draining))
    live = [member for member in sorted_names("$.members", members) if member not in leaving]
    assignment = held_now(items, current)
    names = list(assignment)
    holders = _holders(assignment.values(), len(names), live)
    loads = np.bincount(holders[holders >= 0], minlength=len(live)).tolist()
    allowed = quotas(len(names), live, loads, capacity=capacity, weights=weights, debt=debt, seed=seed)
    released = _released(names, holders, live, loads, allowed.quotas)
    uprooted = sorted(names[position] for position in [*np.flatnonzero(holders == _GONE), *released])
    fresh = sorted(names[position] for position in np.flatnonzero(holders == _NEW))
    kept = [min(load, quota) for load, quota in zip(loads, allowed.quotas, strict=True)]
    room = [quota - held for quota, held in zip(allowed.quotas, kept, strict=True)]
    choice = fill(hashes(uprooted + fresh), live, room)
    targets = list(map([*live, None].__getitem__, choice.tolist()))
    assignment.update(zip(uprooted + fresh, targets, strict=True))
    added = np.bincount(choice[choice != NOBODY], minlength=len(live)).tolist()
    after = {member: held + more for member, held, more in zip(live, kept, added, strict=True)}
    moves_min = int(np.count_nonzero(holders == _GONE)) + fewest_releases(loads, allowed.shares)
    reasons = Departures(leaving, zip(live, loads, allowed.quotas, strict=True))
    return Plan(
        assignment=assignment,
        moves=_moves(uprooted, fresh, targets, current, reasons),
        unassigned=sorted(item for item, to in zip(uprooted + fresh, targets, strict=True) if to is None),
        loads=after,
        certificate=Certificate(len(uprooted), moves_min, spread(after.values())),
    )


def _moves(
    uprooted: Sequence[str],
    fresh: Sequence[str],
    targets: Sequence[str | None],
    current: Mapping[str, str | None],
    reasons: Departures,
) -> list[Move]:
    """List what changes hands, then the first placements; the targets stand in that order."""
    moves = []
    for item, target in zip(uprooted, targets, strict=False):
        reason = reasons[source := current[item]]
        moves.append(Move(item, source, target, reason if target else f"{reason}; no member has room"))
    placed = zip(fresh, targets[len(uprooted) :], strict=True)
    moves += [Move(item, None, target, "new item") for item, target in placed if target is not None]
    return moves


def quotas(
    total: int,
    live: Sequence[str],
    loads: Sequence[int],
    *,
    capacity: int | Mapping[str, int] | None,
    weights: Mapping[str, int] | None,
    debt: Mapping[str, int | Fraction | float] | None,
    seed: str,
) -> Quotas:
    """Choose floor or ceiling of each share.

    Ceilings go first to members that hold more than their floor now (each saves a move), then to those that are owed
    most, then by score(seed, member).
    """
    mapping("$.weights", {} if weights is None else weights)
    mapping("$.debt", {} if debt is None else debt)
    text("$.seed", seed)
    given = {name: whole(f"$.weights[{name!r}]", value) for name, value in (weights or {}).items()}
    owed = {name: _owed(f"$.debt[{name!r}]", value) for name, value in (debt or {}).items()}
    heavy = [given.get(member, 1) for member in live]
    if not any(heavy):
        heavy = [1] * len(live)  # All of weight 0 is no wish at all: all are equal.
    shares = fair_shares(total, heavy, [0] * len(live), limits(live, capacity, None))
    chosen, left = shares.floors(), shares.remainders()
    extras = sum(left) // shares.denominator
    eligible = sorted(
        (index for index, remainder in enumerate(left) if remainder),
        key=lambda i: (loads[i] <= chosen[i], -owed.get(live[i], 0), -score(seed, live[i]), live[i]),
    )
    for index in eligible[:extras]:
        chosen[index] += 1
    return Quotas(shares, chosen)


def fewest_releases(loads: Sequence[int], shares: Shares) -> int:
    """Bound from below what live members must give up, by loads and exact shares alone.

    Whoever is above the floor gives up the difference, but as many ceilings as there are spare each save one.
    """
    floors, left = shares.floors(), shares.remainders()
    above = sum(max(0, load - floor) for load, floor in zip(loads, floors, strict=True))
    savers = sum(load > floor and rest > 0 for load, floor, rest in zip(loads, floors, left, strict=True))
    return above - min(savers, sum(left) // shares.denominator)


def _owed(path: str, value: int | Fraction | float) -> Fraction:
    plain = isinstance(value, int | Fraction) and not isinstance(value, bool)
    if not plain and not (isinstance(value, float) and isfinite(value)):
        raise invalid(path, f"expected a number, got {value!r:.40}")
    return Fraction(value)


def _holders(before: Iterable[str | None], count: int, live: Sequence[str]) -> Holders:
    """Turn names of holders into indices of live members, _NEW where there is none and _GONE where it is not live."""
    slots: defaultdict[str | None, int] = defaultdict(lambda: _GONE, {member: i for i, member in enumerate(live)})
    slots[None] = _NEW
    return np.fromiter(map(slots.__getitem__, before), np.int32, count)


def _released(
    names: Sequence[str], holders: Holders, live: Sequence[str], loads: Sequence[int], allowed: Sequence[int]
) -> Positions:
    """Choose what members over their quota give up: the items with the lowest score there."""
    over = [index for index, load in enumerate(loads) if load > allowed[index]]
    if not over:
        return np.empty(0, np.int64)
    members = hashes([live[index] for index in over])
    order = np.argsort(holders.astype(np.min_scalar_type(-len(live) - 2)), kind="stable")
    starts = np.searchsorted(holders[order], over)
    released = []
    for index, start, member in zip(over, starts.tolist(), members, strict=True):
        held = order[start : start + loads[index]]
        scored = scores_on(hashes([names[position] for position in held]), member)
        released.append(_lowest(held, scored, loads[index] - allowed[index], names))
    return np.concatenate(released)


def _lowest(held: Positions, scored: npt.NDArray[np.uint64], count: int, names: Sequence[str]) -> Positions:
    """Take the items with the lowest scores; of two equal scores (one hash, two names) the larger name goes first."""
    order = np.argsort(scored)
    if count < len(held) and scored[order[count - 1]] == scored[order[count]]:
        listed = zip(scored.tolist(), held.tolist(), strict=True)
        by_name = sorted(sorted(listed, key=lambda pair: names[pair[1]], reverse=True), key=lambda pair: pair[0])
        return np.array([position for _, position in by_name[:count]], np.int64)
    lowest: Positions = held[order[:count]]
    return lowest
