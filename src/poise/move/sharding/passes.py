"""One evaluation of a whole ring: every family's next writes within the budget, and what people are told.

A second pass over what the first one wrote decides nothing. A write that is refused costs only its own family: it is
read again and decided once more, and what is refused then waits for the next evaluation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from poise.model.sharding import NOBODY, SeenObject, Standing, Step
from poise.move.sharding.decide import Outlook, next_steps
from poise.move.sharding.families import Family, Relatives


class DrainClock(msgspec.Struct, frozen=True):
    """Since when, by the sharder's own clock, an object at one epoch is being asked for."""

    epoch: int | None
    since_s: float


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """What one evaluation decided: the steps that may begin now, and the facts for the status of the ring.

    `work` names the instances whose Leases must be held for something to be written; `named` all whom labels name.
    """

    steps: tuple[Step, ...]
    work: frozenset[str]
    named: frozenset[str]
    drains: int
    oldest_s: float | None
    overdue: tuple[str, ...]
    unassigned: tuple[str, ...]
    delayed: int


def time_drains(clocks: Mapping[str, DrainClock], relatives: Relatives, now_s: float) -> dict[str, DrainClock]:
    """Time every drain from the moment it was first seen; who it is reserved for may change meanwhile."""
    timed: dict[str, DrainClock] = {}
    for each in _objects(relatives):
        if each.marks.drain is not None and each.marks.shard is not None:
            known = clocks.get(each.uid)
            same = known is not None and known.epoch == each.marks.epoch
            timed[each.uid] = known if same and known is not None else DrainClock(each.marks.epoch, now_s)
    return timed


def overdue(clocks: Mapping[str, DrainClock], timeout_s: float, now_s: float) -> frozenset[str]:
    """Name the objects that were not handed over within the drain timeout."""
    return frozenset(uid for uid, clock in clocks.items() if now_s - clock.since_s >= timeout_s)


def plan_pass(
    relatives: Relatives,
    wanted: Mapping[str, str | None],
    outlook: Outlook,
    clocks: Mapping[str, DrainClock] = {},
    *,
    moves_max: int | None = None,
    in_flight: int | None = None,
) -> Pass:
    """Decide the next writes of a ring; `wanted` gives the planner's choice for the uid of every root.

    At most `moves_max` roots are asked for at a time. What is let go for good, or taken from the dead, is not counted.
    Where only the families that changed are looked at, `in_flight` is how many roots of the whole ring are asked for.
    """
    asked = sum(map(is_moving, relatives.families)) if in_flight is None else in_flight
    room = None if moves_max is None else moves_max - asked
    chosen: list[Step] = []
    work: set[str] = set()
    delayed = 0
    for family in relatives.families:
        for step in next_steps(family, wanted.get(family.root.uid), outlook):
            if step.needs is not None:
                work.add(step.needs)
            if step.needs is not None and outlook.of(step.needs) is not Standing.HELD:
                continue
            if step.kind == "drain" and step.target != NOBODY and room is not None:
                if room <= 0:
                    delayed += 1
                    continue
                room -= 1
            chosen.append(step)
    return Pass(
        steps=tuple(chosen),
        work=frozenset(work),
        named=frozenset(each.marks.shard for each in _objects(relatives) if each.marks.shard is not None),
        drains=len(clocks),
        oldest_s=min((clock.since_s for clock in clocks.values()), default=None),
        overdue=tuple(sorted(outlook.overdue)),
        unassigned=tuple(_unassigned(relatives.families)),
        delayed=delayed,
    )


def _objects(relatives: Relatives) -> Iterable[SeenObject]:
    for family in relatives.families:
        yield family.root
        yield from family.children
    yield from relatives.waiting


def is_moving(family: Family) -> bool:
    """Say whether a root is on its way to somebody."""
    marks = family.root.marks
    return marks.shard is not None and marks.drain not in (None, NOBODY)


def _unassigned(families: Iterable[Family]) -> Iterable[str]:
    return (family.root.key for family in families if family.root.selected and family.root.marks.shard is None)


def is_clear(relatives: Relatives) -> bool:
    """Say whether a ring that is being removed may end: no root has a shard label."""
    return all(family.root.marks.shard is None for family in relatives.families)
