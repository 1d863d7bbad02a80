"""What is counted of a job at one instant, for its history: what is wrong, what moved, and how even it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction

import msgspec

from poise.decide.division import count_moved
from poise.decide.fleet import fleet_totals
from poise.jobs.capacity import plan_capacity
from poise.jobs.clusters import divide_document
from poise.jobs.entries import CapacityEntry, Counts, SplitEntry
from poise.jobs.history import Number, Values
from poise.model import CapacitySplit, Document, ReplicaDivision
from poise.model.ownership import GENERATION, Line
from poise.move.executor import Snapshot
from poise.move.handoff import Transition
from poise.move.heartbeat import standing

_RETIRED = ""  # Nobody's name: what was given up and comes again is placed first once more.
_ITEMS = ("unowned", "moves", "loadMin", "loadMean", "loadMax")
# What the history of a kind always names, also where nothing was counted yet.
NAMES: dict[str, tuple[str, ...]] = {
    "PartitionSet": _ITEMS,
    "ShardRing": _ITEMS,
    "TargetPool": _ITEMS,
    "ReplicaDivision": ("unowned", "moves", "replicas", "error"),
    "CapacitySplit": ("unowned", "moves"),
}


class Counted(msgspec.Struct):
    """Moves so far, and whom the items left that nobody has now."""

    moves: int = 0
    left: dict[str, str | None] = {}
    ended: bool = False  # The job ended and began anew: what was before is another one's history.


def measure_items(facts: Snapshot) -> Values:
    """Count what nobody may work on, and the loads of the members that take items."""
    held = Counter(row.owner for row in facts.rows.values())
    loads = [held[each.name] for each in facts.members.values() if standing(each, facts.now_s).takes]
    values: dict[str, Number] = {"unowned": sum(_lost(facts, owner) * number for owner, number in _owned(facts))}
    if loads:
        mean = round(sum(loads) / len(loads), 2)
        values |= {"loadMin": min(loads), "loadMean": mean, "loadMax": max(loads)}
    return values


def _owned(facts: Snapshot) -> Iterable[tuple[tuple[str | None, int], int]]:
    """Count the items of every process of every member; many items have few owners."""
    return Counter((row.owner, row.owner_incarnation or 0) for row in facts.rows.values()).items()


def _lost(facts: Snapshot, owner: tuple[str | None, int]) -> bool:
    """Say whether nobody works on what this process holds: it is not there, not heard of, or superseded."""
    name, incarnation = owner
    member = None if name is None else facts.members.get(name)
    return member is None or facts.now_s >= member.lease_until_s or incarnation < member.incarnation


def measure_division(document: ReplicaDivision) -> Values:
    """Count the replicas that have a cluster and those that have none, and how far the totals are from exact."""
    divisions, known = divide_document(document), document.status.divisions
    exact = {name: total.exact for name, total in fleet_totals(divisions).items()}
    wanted = {workload.name: workload.replicas for workload in document.spec.workloads}
    held: Counter[str] = Counter()
    for record in known.values():
        held.update(record.result)
    # What stands is measured, not what the plan would make of it: a plan that waits is no cure.
    errors = [abs(held[name] - exact.get(name, Fraction(0))) for name in {*exact, *held}]
    return {
        "unowned": sum(each.unplaced if name in known else wanted[name] for name, each in divisions.items()),
        "replicas": held.total(),
        "error": round(float(max(errors, default=0)), 3),
    }


def measure_split(document: CapacitySplit, now_s: float) -> Values:
    """Count replicas on each side against what is desired; over pools, those in the right and in the wrong place."""
    entry = plan_capacity(document, now_s).entry
    assert isinstance(entry, CapacityEntry)
    splits = entry.workloads
    wanted = {workload.name: workload.replicas for workload in document.spec.workloads}
    missing = {"unowned": sum(max(0, wanted[name] - _sum(each.current)) for name, each in splits.items())}
    if document.spec.pools:
        return missing | {
            "replicas": sum(_sum(each.current) for each in splits.values()),
            "desired": sum(_sum(each.desired) for each in splits.values()),
            "misplaced": sum(map(_misplaced, splits.values())),
        }
    return missing | {
        "spot": sum(each.current.spot or 0 for each in splits.values()),
        "onDemand": sum(each.current.on_demand or 0 for each in splits.values()),
        "desiredSpot": sum(each.desired.spot or 0 for each in splits.values()),
        "desiredOnDemand": sum(each.desired.on_demand or 0 for each in splits.values()),
    }


def _sum(counts: Counts) -> int:
    return sum((counts.pools or {}).values()) + (counts.spot or 0) + (counts.on_demand or 0)


def _misplaced(each: SplitEntry) -> int:
    """Count the replicas that a pool should have and has not."""
    held = each.current.pools or {}
    return sum(max(0, count - held.get(pool, 0)) for pool, count in (each.desired.pools or {}).items())


def count_moves(lines: Iterable[Line], counted: Counted, document: Document | None) -> Counted:
    """Count the moves of further lines of a journal; a first placement, and coming back to the same, is none."""
    take = _division_counter(document) if isinstance(document, ReplicaDivision) else _is_move
    moves, left, ended = counted.moves, dict(counted.left), counted.ended
    for line in lines:
        if line.transition == "set" and line.reason == "ended":
            moves, ended = 0, True
        else:
            moves += take(line, left)
    return Counted(moves, left, ended)


def _is_move(line: Line, left: dict[str, str | None]) -> int:
    """Say whether a line ends a move: an item that somebody had goes to somebody else; a report of counts is one."""
    match line.transition:
        case Transition.T5 | Transition.T7:
            left[line.item] = line.member
        case Transition.T9:
            left[line.item] = _RETIRED
        case Transition.T1:
            source = left.pop(line.item, None)
            return int(line.epoch % GENERATION > 1 and source not in (line.member, _RETIRED))
        case "reported":
            return 1
    return 0


def _division_counter(document: ReplicaDivision) -> Callable[[Line, dict[str, str | None]], int]:
    """Count the replicas that a decision moved; its record knows the result before it."""
    told: set[str] = set()

    def take(line: Line, _left: dict[str, str | None]) -> int:
        record = document.status.divisions.get(line.item)
        if line.transition != "divided" or record is None or line.item in told:
            return 0
        told.add(line.item)
        return count_moved(record.last, record.result)

    return take
