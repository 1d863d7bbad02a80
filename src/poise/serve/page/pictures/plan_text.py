"""A plan as people read it: the first lines, how many more there are, the loads, and the proof."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from fractions import Fraction

import msgspec
from msgspec import UNSET

from poise.decide.partition_values import StepKind
from poise.jobs.entries import (
    CapacityEntry,
    Counts,
    DividedEntry,
    DivisionEntry,
    ItemsEntry,
    ItemsView,
    PlannedMove,
    SplitEntry,
    Waits,
)
from poise.jobs.partitions import SetView
from poise.serve.page.pictures.ink import counted, natural
from poise.serve.page.pictures.seen import Look
from poise.serve.page.pictures.share_values import mixed
from poise.serve.page.rendering import moment_text

LATER = "then "  # So begins what the cycles after this plan will do.
_NEW = "there is no last result"  # So begins the reason of a workload that was never divided: nothing of it can move.


class PlanLine(msgspec.Struct, frozen=True):
    """One line of a plan: a glyph, what moves, from where, to where, and why; it may have to wait."""

    glyph: str
    item: str
    source: str
    target: str
    reason: str
    waits: bool = False


class LoadChange(msgspec.Struct, frozen=True):
    """A member's load before and after."""

    member: str
    before: int
    after: int

    def __str__(self) -> str:
        """Read as `worker-a 13→11`, or without an arrow where nothing changes."""
        change = f"{self.before:,}→{self.after:,}" if self.before != self.after else f"{self.after:,}"
        return f"{self.member} {change}"


class PlanText(msgspec.Struct, frozen=True, kw_only=True):
    """A plan in words: lines, what was cut, loads, notes, and the certificate; `proven` where no fewer would do."""

    lines: list[PlanLine] = []
    more: str = ""
    loads: list[LoadChange] = []
    notes: list[str] = []
    certificate: str = ""
    proven: bool = True
    empty: str = ""


def plan_lines(seen: Look, most: int = 12) -> PlanText:
    """Put a plan into words, at most so many lines; what is cut is counted."""
    if seen.planned is None:
        return PlanText(empty=seen.refused or "There is no plan.", proven=False)
    entry, view, notes = seen.planned.entry, seen.planned.view, list(seen.planned.notes)
    if isinstance(entry, DivisionEntry):
        return _division(seen, entry, notes, most)
    if isinstance(entry, CapacityEntry):
        return _capacity(entry, notes, most, seen.now)
    assert view is not None, "a plan of items says how to show it"
    return _items(entry, view, notes, most, seen.now)


def _items(entry: ItemsEntry, view: ItemsView, notes: list[str], most: int, now: datetime) -> PlanText:
    lines = [_move(move, now) for move in entry.moves]
    lacking = Counter(each.reason for each in entry.unassigned)
    notes = [f"{counted(number, 'item')} without an owner: {why}" for why, number in lacking.items()] + notes
    names = sorted({*entry.loads, *view.loads_before}, key=natural)
    return PlanText(
        lines=lines[:most],
        more=_more(lines[most:]),
        loads=[LoadChange(name, view.loads_before.get(name, 0), entry.loads.get(name, 0)) for name in names],
        notes=notes,
        certificate=_certificate(entry, view),
        proven=entry.certificate.moves == entry.certificate.moves_min,
        empty="" if lines else "Nothing is to move.",
    )


def _move(move: PlannedMove, now: datetime) -> PlanLine:
    stays = move.step == StepKind.CANCEL
    glyph = "…" if move.waits else "↩" if stays else "+" if move.source is None else "→"
    target = move.source if stays else move.target
    reason = f"{move.reason}; waits: {waiting(move.waits, now)}" if move.waits else move.reason
    return PlanLine(glyph, move.item, move.source or "nobody", target or "nobody", reason, waits=move.waits is not None)


def waiting(waits: Waits, now: datetime) -> str:
    """Say what something waits for, and until when."""
    return waits.reason + (f", until {moment_text(waits.until, now)} UTC" if waits.until else "")


def _more(cut: Iterable[PlanLine]) -> str:
    """Count what was cut."""
    left = list(cut)
    if not left:
        return ""
    held = sum(line.waits for line in left)
    return f"… {len(left):,} more" + (f", {held:,} of them wait{'s' if held == 1 else ''}" if held else "")


def _certificate(entry: ItemsEntry, view: ItemsView) -> str:
    """Count every item once: it moves, is placed first, is under way, is left without an owner, or stays."""
    moves, ours = entry.certificate.moves, [move for move in entry.moves if move.item in entry.assignment]
    first = sum(move.source is None and move.target is not None for move in ours)
    under_way = view.under_way if isinstance(view, SetView) else 0
    left = len(entry.assignment) - moves - first - under_way - view.stays
    waits = len({move.item for move in ours if move.waits})
    details = f" ({waits:,} of them wait{'s' if waits == 1 else ''})" if waits else ""
    parts = [counted(moves, "move") + details]
    retired = len({move.item for move in entry.moves} - set(entry.assignment))
    numbers = ((first, "placed first"), (under_way, "under way"), (left, "left without an owner"))
    parts += [f"{number:,} {what}" for number, what in numbers if number > 0]
    parts += [f"{view.stays:,} stay"] + ([f"{retired:,} to retire"] if retired else [])
    proof = f"Fewest possible: {entry.certificate.moves_min:,}. Spread {entry.certificate.spread:,}."
    return f"Plan: {', '.join(parts)}. {proof}"


def _division(seen: Look, entry: DivisionEntry, notes: list[str], most: int) -> PlanText:
    before = {each.item: each.counts for each in seen.items if each.counts is not UNSET}
    changed = [
        _divided(name, before.get(name, {}), each)
        for name, each in entry.divisions.items()
        if each.unplaced or dict(before.get(name, {})) != dict(each.replicas)
    ]
    error = max((abs(each.replicas - Fraction(each.exact)) for each in entry.totals.values()), default=Fraction(0))
    moved, kept = (sum(each.moved for each in entry.divisions.values()), sum(e.kept for e in entry.divisions.values()))
    nowhere = sum(each.unplaced for each in entry.divisions.values())
    parts = [f"{counted(moved, 'replica')} moved", *([f"{nowhere:,} unplaced"] if nowhere else [])]
    parts.append(f"{kept:,} of {counted(len(entry.divisions), 'workload')} kept")
    later = [note for note in notes if note.startswith(LATER)]
    held: Counter[str] = Counter()
    for each in before.values():
        held.update(each)
    names = sorted({*entry.totals, *held}, key=natural)
    after = {name: total.replicas for name, total in entry.totals.items()}
    return PlanText(
        lines=changed[:most],
        more=_more(changed[most:]),
        loads=[LoadChange(name, held[name], after.get(name, 0)) for name in names],
        notes=[note for note in notes if note not in later],
        certificate=" ".join(
            [f"Plan: {', '.join(parts)}. Largest error of a total: {mixed(error)}.", *map(sentence, later)]
        ),
        proven=not nowhere and not later,
        empty="" if changed else "Nothing is to move.",
    )


def sentence(note: str) -> str:
    """Read a note as a sentence."""
    return f"{note[:1].upper()}{note[1:]}."


def _divided(name: str, before: Mapping[str, int], each: DividedEntry) -> PlanLine:
    """Name only the clusters whose count changes."""
    places = [
        place
        for place in sorted({*before, *each.replicas}, key=natural)
        if before.get(place, 0) != each.replicas.get(place, 0)
    ]
    fresh = not before or each.reason.startswith(_NEW)
    unplaced = f"{each.unplaced:,} unplaced; " if each.unplaced else ""
    return PlanLine(
        "+" if fresh else "→",
        name,
        "nobody" if fresh else listed({place: before.get(place, 0) for place in places}),
        listed({place: each.replicas.get(place, 0) for place in places}),
        unplaced + each.reason,
    )


def listed(counts: Mapping[str, int]) -> str:
    """Read counts as `east 4, west 3`."""
    return ", ".join(f"{place} {count:,}" for place, count in counts.items())


def _capacity(entry: CapacityEntry, notes: list[str], most: int, now: datetime) -> PlanText:
    due = {name: each for name, each in entry.workloads.items() if each.action != "none"}
    lines = [_split(name, each, now) for name, each in due.items()]
    waits = sum(each.waits is not None for each in due.values())
    details = f", {waits} of them wait{'s' if waits == 1 else ''}" if waits else ""
    right = len(entry.workloads) - len(due)
    return PlanText(
        lines=lines[:most],
        more=_more(lines[most:]),
        notes=notes,
        certificate=f"Plan: {counted(len(due), 'workload')} to act on{details}; {right} as they should be.",
        empty="" if lines else "Nothing is to do.",
    )


def _split(name: str, each: SplitEntry, now: datetime) -> PlanLine:
    steps = f"{each.action}, {counted(each.steps, 'step')} to go; {each.reason}"
    reason = f"{steps}; waits: {waiting(each.waits, now)}" if each.waits else steps
    current, desired = listed(sides(each.current)), listed(sides(each.desired))
    return PlanLine("…" if each.waits else "→", name, current, desired, reason, waits=each.waits is not None)


def sides(counts: Counts) -> dict[str, int]:
    """Name both sides, or the pools where there are pools."""
    if counts.pools is not UNSET:
        return dict(counts.pools)
    spot = 0 if counts.spot is UNSET else counts.spot
    return {"spot": spot, "on-demand": 0 if counts.on_demand is UNSET else counts.on_demand}
