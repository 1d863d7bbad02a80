"""What the sink's log tells in numbers: moves, gaps of planned releases, and how long a crash lasts."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from tests.chaos.chaos_audit import Case, Fault, Gap, bound_s, by_item
from tests.chaos.chaos_sink import Entry


def moves(entries: Iterable[Entry]) -> int:
    """Count how often an item was written by another member than before; a restart under the same name is none."""
    accepted = [entry for entry in entries if entry.kind == "write" and entry.accepted]
    return sum(
        before.member != after.member for writes in by_item(accepted).values() for before, after in pairwise(writes)
    )


def handovers_s(entries: Iterable[Entry]) -> list[float]:
    """Measure from the exit of each child that was asked to stop to the start of the next one of its item."""
    notes = [entry for entry in entries if entry.kind != "write"]
    return [
        after.child_s - before.child_s
        for story in by_item(notes).values()
        for before, after in pairwise(story)
        if (before.kind, after.kind) == ("stop", "start")
    ]


def recoveries(case: Case) -> list[Gap]:
    """Measure from each kill of a worker to the first write of another process, for every item it wrote last."""
    accepted = by_item([write for write in case.writes if write.accepted])
    kills = [fault for fault in case.faults if fault.kind in ("kill", "coordinator")]
    found = ((item, _recovery(fault, writes)) for fault in kills for item, writes in accepted.items())
    return [Gap(item, *span, bound_s(case, item, *span)) for item, span in found if span is not None]


def _recovery(fault: Fault, writes: list[Entry]) -> tuple[float, float] | None:
    before = [write for write in writes if fault.at_s - 0.5 < write.sink_s < fault.at_s]
    if not before or before[-1].member != fault.member:
        return None
    others = (write for write in writes if write.sink_s >= fault.at_s and write.pid != before[-1].pid)
    after = next(others, None)
    return None if after is None else (fault.at_s, after.sink_s)
