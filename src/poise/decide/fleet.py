"""Many workloads over the same clusters: each is divided so that the totals of the clusters come out right too.

debt_c = sum over the workloads of (quota - share) on cluster c: what the cluster is owed. It is always derived from the
divisions, never counted on. It is exact while the common denominator of all quotas stays below 2^192; a stranger fleet
is rounded down to multiples of 2^-192.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from heapq import heappop, heappush
from math import lcm

import msgspec

from poise.decide.divide import decide, fits
from poise.decide.division import Division, Step, with_step
from poise.decide.division_goal import (
    Counts,
    Debt,
    Goal,
    Last,
    Terms,
    read_choice,
    read_count,
    read_counts,
    read_last,
    read_seed,
    read_terms,
    set_goal,
)
from poise.errors import invalid
from poise.inputs import unique_names

FAIR = ("fleet", "single")
UNIT_MAX = 2**192


class Total(msgspec.Struct, frozen=True):
    """What a cluster holds of all workloads together, and its exact share."""

    replicas: int
    exact: Fraction


class FleetStep(msgspec.Struct, frozen=True):
    """One replica of one workload that a repair moves."""

    workload: str
    source: str
    target: str
    reason: str


class Repair(msgspec.Struct, frozen=True):
    """What a repair would do: its steps, the largest gain first, and the totals before and after."""

    steps: list[FleetStep]
    before: dict[str, Total]
    after: dict[str, Total]


def divide_fleet(
    workloads: Counts,
    weights: Counts | Mapping[str, Counts],
    *,
    last: Mapping[str, Last] | None = None,
    moves_max: int = 0,
    minimum: Counts | None = None,
    maximum: Counts | None = None,
    capacity: Counts | None = None,
    strategy: str = "StaticWeight",
    seed: str = "",
    draw: str = "exact",
    mix: int | float | Fraction | None = None,
    fair: str = "fleet",
) -> dict[str, Division]:
    """Divide every workload: what fits is kept, the others follow in bytewise order and pay off what is owed.

    Fair "single" divides each workload by itself, without debts. A repair of up to moves_max replicas comes last.
    """
    read_choice("$.fair", fair, FAIR)
    budget = read_count("$.moves_max", moves_max)
    wanted = _read_fleet(workloads, weights)
    shared = {name for name, each in weights.items() if not isinstance(each, Mapping)}
    clusters = sorted(shared.union(*(each for _, each in wanted.values())))
    terms = read_terms(clusters, minimum, maximum, capacity, strategy, draw, mix)
    before = _read_lasts(last, wanted, terms)
    read_seed(seed)
    goals = {name: set_goal(replicas, each, terms) for name, (replicas, each) in wanted.items()}
    seeds = {name: f"{seed}/{name}" if seed else name for name in goals}
    if fair == "single":
        divisions = {name: decide(goal, seeds[name], before.get(name), None) for name, goal in goals.items()}
    else:
        divisions = _divide_in_turn(goals, seeds, before)
    return repair(divisions, budget) if budget else divisions


def _read_fleet(workloads: Counts, weights: Mapping[str, object]) -> dict[str, tuple[int, dict[str, int]]]:
    """Read each workload with its weights, in bytewise order; weights that hold mappings are one for each workload."""
    counts = read_counts("$.workloads", workloads)
    if not isinstance(weights, Mapping) or not any(isinstance(each, Mapping) for each in weights.values()):
        shared = read_counts("$.weights", weights)
        return {name: (replicas, shared) for name, replicas in counts.items()}
    for name in unique_names("$.weights", weights):
        if name not in counts:
            raise invalid(f"$.weights[{name!r}]", "no such workload here")
    for name in counts:
        if name not in weights:
            raise invalid(f"$.weights[{name!r}]", "expected a mapping cluster -> number, as for the other workloads")
    return {name: (counts[name], read_counts(f"$.weights[{name!r}]", weights[name])) for name in counts}


def _read_lasts(last: object, workloads: Iterable[str], terms: Terms) -> dict[str, dict[str, int]]:
    """Read the last results that there are; those of workloads that are gone do not matter."""
    if last is None:
        return {}
    if not isinstance(last, Mapping):
        raise invalid("$.last", f"expected a mapping workload -> last result, got {type(last).__name__}")
    read = {name: read_last(f"$.last[{name!r}]", last.get(name), terms.strategy) for name in workloads}
    return {name: result for name, result in read.items() if result is not None}


def _divide_in_turn(
    goals: Mapping[str, Goal], seeds: Mapping[str, str], before: Mapping[str, Counts]
) -> dict[str, Division]:
    """Keep what fits, then decide the others; each sees the debts that all before it leave."""
    unit = _common_unit(goal.quotas.denominator for goal in goals.values())
    amounts: dict[str, int] = {}
    debt = Debt(amounts, unit)
    turns = sorted(goals, key=lambda name: not (name in before and fits(goals[name], before[name])))
    divisions = {}
    for name in turns:
        goal = goals[name]
        division = divisions[name] = decide(goal, seeds[name], before.get(name), debt)
        parts, whole = goal.quotas.numerators, goal.quotas.denominator
        for (cluster, share), part in zip(division.replicas.items(), parts, strict=True):
            amounts[cluster] = amounts.get(cluster, 0) + part * unit // whole - share * unit
    return {name: divisions[name] for name in goals}


def _common_unit(denominators: Iterable[int]) -> int:
    """Find the common denominator of all, but no more than UNIT_MAX."""
    unit = 1
    for denominator in set(denominators):
        unit = lcm(unit, denominator)
        if unit > UNIT_MAX:
            return UNIT_MAX
    return unit


def fleet_totals(divisions: Mapping[str, Division]) -> dict[str, Total]:
    """Add up what every cluster holds and should hold, in bytewise order of the clusters."""
    debts, unit, held = _debts(divisions)
    return {name: Total(held[name], Fraction(debts[name], unit) + held[name]) for name in sorted(held)}


def _debts(divisions: Mapping[str, Division]) -> tuple[dict[str, int], int, dict[str, int]]:
    """Derive what every cluster is owed, its unit, and what the cluster holds."""
    unit = _common_unit(quota.denominator for each in divisions.values() for quota in each.quota.values())
    debts: dict[str, int] = {}
    held: dict[str, int] = {}
    for division in divisions.values():
        for name, quota in division.quota.items():
            share = division.replicas[name]
            held[name] = held.get(name, 0) + share
            debts[name] = debts.get(name, 0) + quota.numerator * unit // quota.denominator - share * unit
    return debts, unit, held


# The repair of a fleet that drifted.


def repair(divisions: Mapping[str, Division], moves_max: int) -> dict[str, Division]:
    """Carry out what `plan_repair` finds."""
    repaired = dict(divisions)
    for step in plan_repair(divisions, moves_max).steps:
        repaired[step.workload] = with_step(divisions[step.workload], Step(step.source, step.target, step.reason))
    return repaired


def plan_repair(divisions: Mapping[str, Division], moves_max: int) -> Repair:
    """Find up to moves_max steps, one a workload, the largest gain first; stop when no step helps.

    A step takes one replica from a cluster that has too much in total to one that is owed, within floor and ceiling
    of its workload. gain = debt(target) - debt(source) - 1, half of what it takes off the sum of the squared debts.
    """
    budget = read_count("$.moves_max", moves_max)
    debts, unit, held = _debts(divisions)
    before = fleet_totals(divisions)
    steps = _find_steps(divisions, debts, unit, budget)
    for step in steps:
        held[step.source] -= 1
        held[step.target] += 1
    return Repair(steps, before, {name: Total(held[name], total.exact) for name, total in before.items()})


def _find_steps(divisions: Mapping[str, Division], debts: dict[str, int], unit: int, budget: int) -> list[FleetStep]:
    """Take the pair of clusters with the largest gain again and again; ties go by name, workloads by their order."""
    names = sorted(divisions)
    above, below = _sides(divisions, names)
    unused = (1 << len(names)) - 1
    queue: list[tuple[int, str, str]] = []
    _push(queue, ((source, target) for source in above for target in below), debts, unit)
    steps: list[FleetStep] = []
    while queue and len(steps) < budget:
        promised, source, target = heappop(queue)
        gain, able = _gain(debts, unit, source, target), above.get(source, 0) & below.get(target, 0) & unused
        if gain <= 0 or not able:
            continue
        if gain < -promised:  # Steps since then took some of the gain: the pair must queue again with what is left.
            heappush(queue, (-gain, source, target))
            continue
        position = (able & -able).bit_length() - 1
        unused ^= 1 << position
        steps.append(FleetStep(names[position], source, target, _why(debts, unit, source, target)))
        debts[source] += unit
        debts[target] -= unit
        # A gain grows only where a cluster changed sides: the source is now owed, or the target has too much.
        _push(queue, [(source, target)], debts, unit)
        _push(queue, ((other, source) for other in above), debts, unit)
        _push(queue, ((target, other) for other in below), debts, unit)
    return steps


def _push(
    queue: list[tuple[int, str, str]], pairs: Iterable[tuple[str, str]], debts: Mapping[str, int], unit: int
) -> None:
    for source, target in pairs:
        gain = _gain(debts, unit, source, target)
        if gain > 0:
            heappush(queue, (-gain, source, target))


def _gain(debts: Mapping[str, int], unit: int, source: str, target: str) -> int:
    """Weigh a step from a cluster that has too much to one that is owed; 0 or less is no help."""
    return debts[target] - debts[source] - unit if debts[source] < 0 < debts[target] else 0


def _sides(divisions: Mapping[str, Division], names: list[str]) -> tuple[dict[str, int], dict[str, int]]:
    """Mark, for every cluster, the workloads that could give one up and those that could take one, one bit each.

    So the workloads that can make a step are one AND of two numbers, and no list is kept for every pair of clusters.
    """
    above: dict[str, bytearray] = {}
    below: dict[str, bytearray] = {}
    for position, name in enumerate(names):
        division = divisions[name]
        for cluster, quota in division.quota.items() if division.record.step is None else ():
            if quota.denominator > 1:
                side = above if division.replicas[cluster] > quota else below
                bits = side.setdefault(cluster, bytearray(len(names) // 8 + 1))
                bits[position >> 3] |= 1 << (position & 7)
    return _numbers(above), _numbers(below)


def _numbers(marks: Mapping[str, bytearray]) -> dict[str, int]:
    return {cluster: int.from_bytes(bits, "little") for cluster, bits in marks.items()}


def _why(debts: Mapping[str, int], unit: int, source: str, target: str) -> str:
    excess, owed = _decimal(-debts[source], unit), _decimal(debts[target], unit)
    return f"one moves from {source}, which has {excess} too many in total, to {target}, which is owed {owed}"


def _decimal(numerator: int, denominator: int) -> str:
    """Write a number with two decimals, rounded down: exact totals may be very long."""
    hundredths = numerator * 100 // denominator
    return f"{hundredths // 100}.{hundredths % 100:02}"
