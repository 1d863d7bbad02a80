"""Replicas under four policies: how the residual of each workload is given out, and what that does to a whole fleet.

Only workloads that an event touches are divided again: the last results of the others still fit, and what fits is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import ceil, floor
from typing import TypedDict

import msgspec

from poise.decide.divide import divide
from poise.decide.division import Division, count_moved
from poise.decide.fleet import divide_fleet
from poise.sim.ticks import Change, Tick, change
from poise.sim.worlds import FleetWorld

Counts = Mapping[str, int]


class Yardstick(msgspec.Struct, frozen=True):
    """What is exact in one world, for every policy alike.

    `sizes` has the division of every number of replicas: all workloads have the same weights, so those of one size have
    one quota. `touched` are the workloads that the last event concerns.
    """

    live: list[str]
    sizes: dict[int, Division]
    exact: dict[str, Fraction]
    unplaced: int
    touched: list[str]
    change: Change


class Held(msgspec.Struct, frozen=True):
    """What one policy has decided: the division of every workload, and the totals of the clusters."""

    results: dict[str, Counts]
    totals: dict[str, int]


class _Bounds(TypedDict):
    minimum: dict[str, int]
    maximum: dict[str, int]
    capacity: dict[str, int]
    strategy: str


def _weights(world: FleetWorld) -> dict[str, int]:
    return {name: world.clusters[name].weight for name in world.live()}


def _bounds(world: FleetWorld) -> _Bounds:
    clusters = [world.clusters[name] for name in world.live()]
    return _Bounds(
        minimum={each.name: each.min for each in clusters if each.min},
        maximum={each.name: each.max for each in clusters if each.max is not None},
        capacity={each.name: each.capacity for each in clusters if each.capacity is not None},
        strategy=world.strategy,
    )


def _seed(world: FleetWorld, workload: str) -> str:
    return f"{world.seed}/{workload}" if world.seed else workload


def measure(world: FleetWorld, before: FleetWorld, last: Yardstick | None) -> Yardstick:
    """Work out the exact shares of a world, and which workloads the step from the one before touched."""
    same = last is not None and (world.clusters, world.draining) == (before.clusters, before.draining)
    touched = [name for name, n in world.workloads.items() if not same or before.workloads.get(name) != n]
    sizes = dict(last.sizes) if last is not None and same else {}
    weights, bounds = _weights(world), _bounds(world)
    for size in {world.workloads[name] for name in touched} - sizes.keys():
        sizes[size] = divide(size, weights, **bounds)
    many = Counter(world.workloads.values())
    exact = {
        name: sum((sizes[size].quota[name] * times for size, times in many.items()), Fraction(0)) for name in weights
    }
    unplaced = sum(sizes[size].unplaced * times for size, times in many.items())
    return Yardstick(list(weights), sizes, exact, unplaced, sorted(touched), change(before.live(), weights))


# The policies: each answers the divisions that it changes.


def divide_exact(world: FleetWorld, yard: Yardstick, held: Held) -> dict[str, Counts]:
    """Keep or repair each workload by itself; a fresh residual is drawn with exact chances."""
    return _divide_each(world, yard, held, "exact", world.mix)


def divide_weighted(world: FleetWorld, yard: Yardstick, held: Held) -> dict[str, Counts]:
    """Do the same with a draw by weight, which favours the heavy clusters."""
    return _divide_each(world, yard, held, "weighted", 0)


def _divide_each(world: FleetWorld, yard: Yardstick, held: Held, draw: str, mix: float) -> dict[str, Counts]:
    weights, bounds = _weights(world), _bounds(world)
    return {
        name: divide(
            world.workloads[name],
            weights,
            last=held.results.get(name),
            seed=_seed(world, name),
            draw=draw,
            mix=mix,
            **bounds,
        ).replicas
        for name in yard.touched
    }


def divide_by_name(world: FleetWorld, yard: Yardstick, held: Held) -> dict[str, Counts]:
    """Give every residual to the first names: what a loop over a sorted list does."""
    del held
    orders = {size: _first_names(division.quota) for size, division in yard.sizes.items()}
    return {name: orders[world.workloads[name]] for name in yard.touched}


def _first_names(quota: Mapping[str, Fraction]) -> dict[str, int]:
    shares = {name: floor(share) for name, share in quota.items()}
    left = int(sum(quota.values(), Fraction(0))) - sum(shares.values())
    for name in sorted(name for name, share in quota.items() if share.denominator > 1)[:left]:
        shares[name] += 1
    return shares


def divide_owed(world: FleetWorld, yard: Yardstick, held: Held) -> dict[str, Counts]:
    """Give residuals to the clusters that are owed most over all workloads, and repair what movesMax allows."""
    weights, bounds = _weights(world), _bounds(world)
    if not world.workloads or (not world.moves_max and not yard.touched):
        return {}
    if world.moves_max or len(yard.touched) > 1:
        divisions = divide_fleet(
            world.workloads,
            weights,
            last=held.results,
            moves_max=world.moves_max,
            seed=world.seed,
            mix=world.mix,
            **bounds,
        )
        return {name: division.replicas for name, division in divisions.items()}
    # All the others are kept, so the debt that they leave is what the totals say, and one division is enough.
    (name,) = yard.touched
    last, quota = held.results.get(name, {}), yard.sizes[world.workloads[name]].quota
    debt = {each: yard.exact[each] - quota[each] - held.totals.get(each, 0) + last.get(each, 0) for each in yard.live}
    division = divide(
        world.workloads[name],
        weights,
        last=last,
        seed=_seed(world, name),
        mix=world.mix,
        debt=debt,
        **bounds,
    )
    return {name: division.replicas}


FLEET_POLICIES: dict[str, Callable[[FleetWorld, Yardstick, Held], dict[str, Counts]]] = {
    "fleet": divide_owed,
    "exact": divide_exact,
    "weighted": divide_weighted,
    "name-order": divide_by_name,
}


def held_after(world: FleetWorld, yard: Yardstick, held: Held, changed: Mapping[str, Counts]) -> Held:
    """Put the changed divisions beside the others, and count the clusters' totals again."""
    results = {name: held.results[name] for name in world.workloads if name not in changed} | dict(changed)
    totals = dict.fromkeys(yard.live, 0)
    for result in results.values():
        for name, share in result.items():
            totals[name] += share
    return Held(results, totals)


def fewest_moved(quota: Mapping[str, Fraction], last: Counts) -> int:
    """Bound from below the replicas of a workload that must move so that every share is floor or ceiling of its quota.

    Decreases are at least what lies above the ceilings, increases at least what lies below the floors, and their
    difference is given; moved = min(increases, decreases).
    """
    above = sum(max(0, share - ceil(quota.get(name, 0))) for name, share in last.items())
    short = sum(max(0, floor(share) - last.get(name, 0)) for name, share in quota.items())
    growth = int(sum(quota.values(), Fraction(0))) - sum(last.values())
    increases = max(short, above + growth)
    return min(increases, increases - growth)


def tick(world: FleetWorld, yard: Yardstick, held: Held, after: Held, changed: Mapping[str, Counts]) -> Tick:
    """Measure what one policy changed against the state that it began with."""
    moves = moves_min = innocent = 0
    for name, result in changed.items():
        last = held.results.get(name)
        if last:
            moved = count_moved(last, result)
            moves += moved
            moves_min += fewest_moved(yard.sizes[world.workloads[name]].quota, last)
            innocent += max(0, moved - _on(last, yard.change.gone) - _on(result, yard.change.joined))
    off = [after.totals[name] - yard.exact[name] for name in yard.live]
    return Tick(
        moves=moves,
        moves_min=moves_min,
        innocent=innocent,
        low=min(after.totals.values(), default=0),
        high=max(after.totals.values(), default=0),
        under=min(off, default=Fraction(0)),
        over=max(off, default=Fraction(0)),
        unassigned=yard.unplaced,
    )


def _on(counts: Counts, clusters: frozenset[str]) -> int:
    return sum(counts.get(name, 0) for name in clusters)
