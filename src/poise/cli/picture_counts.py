"""A job that only counts as text: clusters as bars against their exact share, spot and on-demand against desired."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from fractions import Fraction
from textwrap import wrap
from typing import NamedTuple

from poise.cli.ink import Ink, Row, Span, row, width_of
from poise.cli.render import count, natural
from poise.cli.told import waits_text
from poise.cli.watching import JobSeen
from poise.jobs.entries import CapacityEntry, Counts, DividedEntry, DivisionEntry, SplitEntry
from poise.serve.facade import MemberView

_NAME_MAX = 22
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def cluster_rows(seen: JobSeen, ink: Ink, width: int) -> list[Row]:
    """Draw every cluster's replicas against its exact share; the first row is their head."""
    name = max([8, *(min(_NAME_MAX, len(each.name)) for each in seen.members)])
    exact = {each.name: Fraction(each.quota) if each.quota else None for each in seen.members}
    shares = max([5, *(width_of(_mixed(share)) for share in exact.values())])
    bar = max(10, width - name - shares - 32)
    longest = max([1, *(each.load for each in seen.members), *(int(share) + 1 for share in exact.values() if share)])
    head = f" {ink.cell('cluster', name)} weight replicas  {ink.cell('share', shares)}   error  | marks the exact share"
    rows = [row(Span(head, "dim"))]
    for member in sorted(seen.members, key=lambda each: natural(each.name)):
        share = exact[member.name]
        told = f" {ink.cell(member.name, name)} {member.weight:>6} {member.load:>8}  {ink.cell(_mixed(share), shares)}"
        rows.append(row(f"{told} {_error(member, share):>7}  ", *_bar(member.load, share, longest, bar, ink)))
    return rows


def _error(member: MemberView, share: Fraction | None) -> str:
    """Say how far a total is from its exact share."""
    if share is None:
        return ""
    error = member.load - share
    return "0" if not error else f"{'+' if error > 0 else '-'}{_mixed(abs(error))}"


def _mixed(number: Fraction | None) -> str:
    """Write a fraction as people do: 413 1/3; one with a long denominator as a decimal."""
    if number is None:
        return "?"
    whole, rest = divmod(number.numerator, number.denominator)
    if not rest:
        return str(whole)
    if number.denominator > 99:
        return f"{float(number):.2f}"
    return f"{whole} {rest}/{number.denominator}" if whole else f"{rest}/{number.denominator}"


def _bar(load: int, share: Fraction | None, longest: int, width: int, ink: Ink) -> Row:
    """Draw a bar to scale, with a mark where the exact share is."""
    full = round(load * (width - 1) / longest)
    text = ink.sign("held") * full
    if share is None:
        return row(Span(text, "good"))
    mark = round(share * (width - 1) / longest)
    text = text.ljust(mark, ink.sign("empty"))
    return row(Span(text[:mark], "good"), "|", Span(text[mark:], "warn"))


def division_rows(seen: JobSeen, ink: Ink, width: int) -> list[Row]:
    """List the workloads, those that change first."""
    entry = seen.planned.entry if seen.planned is not None else None
    if not isinstance(entry, DivisionEntry):
        return _unplanned(seen, ink)
    changing = sum(not each.kept for each in entry.divisions.values())
    head = f"   {len(entry.divisions) - changing} kept, {changing} to divide"
    rows = [row(Span("Workloads", "head"), head)]
    order = sorted(entry.divisions.items(), key=lambda pair: (pair[1].kept, natural(pair[0])))
    return rows + [_division(name, each, ink, width) for name, each in order]


def _division(name: str, each: DividedEntry, ink: Ink, width: int) -> Row:
    """Tell how a workload is divided; where it is kept, its sign says why as well as words for which is no room."""
    shares = ", ".join(f"{cluster} {number}" for cluster, number in sorted(each.replicas.items()))
    unplaced = f", {each.unplaced} fit nowhere" if each.unplaced else ""
    sign = Span("  == ", "dim") if each.kept else Span(f"  {ink.sign('arrow'):2} ", "move")
    told = f"{ink.fit_middle(ink.name(name), 30)}   {shares}{unplaced}"
    reasons = [each.reason, each.reason.partition(": ")[0]]
    for reason in reasons:
        text = f"{told}: {ink.name(reason)}"
        if width_of(text) + 5 <= width:
            return row(sign, text)
    return row(sign, told if each.kept else f"{told}: {ink.name(reasons[0])}")


def fleet_rows(seen: JobSeen, ink: Ink, width: int) -> list[Row]:
    """Say the fleet's error, and in lines of its own what a repair would do."""
    entry = seen.planned.entry if seen.planned is not None else None
    if not isinstance(entry, DivisionEntry):
        return []
    error = max((abs(total.replicas - Fraction(total.exact)) for total in entry.totals.values()), default=Fraction(0))
    moved = sum(each.moved for each in entry.divisions.values())
    notes = [ink.name(note) for note in (seen.planned.notes if seen.planned else [])]
    told = f"   {count(moved, 'replica')} to move; largest error of a total: {_mixed(error)}"
    first = row(Span("Plan", "head"), Span(told, "good" if error < 1 else "warn"))
    return [first, *(row(f"       {line}") for note in notes for line in wrap(note, max(20, width - 7)))]


class _Desk(NamedTuple):
    """What all workloads of a split are drawn with: the signs of sides or pools, widths, and the time."""

    places: dict[str, str]
    name: int
    longest: int
    width: int
    now: datetime
    ink: Ink


def split_rows(seen: JobSeen, ink: Ink, width: int) -> list[Row]:
    """Draw every workload's sides against what is desired, those with something to do first."""
    entry = seen.planned.entry if seen.planned is not None else None
    if not isinstance(entry, CapacityEntry):
        return _unplanned(seen, ink)
    sides = [_numbers(side) for each in entry.workloads.values() for side in (each.current, each.desired)]
    settled = [ink.name(name) for name, each in entry.workloads.items() if each.action == "none"]
    desk = _Desk(
        places=_places(sides, ink),
        name=max([10, *(min(_NAME_MAX, width_of(name)) for name in settled)]),
        longest=max([1, *(sum(side.values()) for side in sides)]),
        width=width,
        now=seen.now,
        ink=ink,
    )
    told = "   ".join(f"{sign} {ink.name(place)}" for place, sign in desk.places.items())
    rows = [row(Span(f" {told}", "dim"))]
    order = sorted(entry.workloads.items(), key=lambda pair: (pair[1].action == "none", natural(pair[0])))
    return rows + [drawn for name, each in order for drawn in _split(name, each, desk)]


def _places(sides: Iterable[Mapping[str, int]], ink: Ink) -> dict[str, str]:
    """Give every side or pool its sign."""
    names = dict.fromkeys(name for side in sides for name in side)
    if set(names) <= {"spot", "on-demand"}:
        return {"spot": ink.sign("spot"), "on-demand": ink.sign("onDemand")}
    return {name: _LETTERS[place % len(_LETTERS)] for place, name in enumerate(names)}


def _numbers(counts: Counts) -> Mapping[str, int]:
    return counts.pools or {"spot": counts.spot or 0, "on-demand": counts.on_demand or 0}


def _split(name: str, each: SplitEntry, desk: _Desk) -> list[Row]:
    """Draw one workload: in one row where it is as it should be, else now, wanted, what it waits for, and why."""
    ink = desk.ink
    if each.action == "none":
        return [_side(f" {ink.cell(ink.name(name), desk.name)} ", each.current, desk)]
    steps = "" if each.steps == 1 else f", {each.steps} steps to the goal"
    told = Span(f"next: {each.action}{steps}", "warn" if each.waits else "move")
    rows = [
        row(f" {ink.fit(ink.name(name), 30)}   ", told),
        _side("     now    ", each.current, desk),
        _side("     wanted ", each.desired, desk),
    ]
    rows += [row("     waits  ", Span(waits_text(each.waits, desk.now, ink), "warn"))] if each.waits else []
    return [*rows, row(f"     why    {ink.name(each.reason)}")]


def _side(head: str, counts: Counts, desk: _Desk) -> Row:
    """Draw replicas side by side, with their numbers; one sign stands for several where they are many."""
    numbers, ink = _numbers(counts), desk.ink
    told = "  ".join(f"{ink.name(place)} {number}" for place, number in numbers.items())
    each = max(1, -(-desk.longest // max(10, desk.width - width_of(head) - 30)))
    bar = "".join(desk.places[place] * -(-number // each) for place, number in numbers.items())
    return row(head, ink.cell(told, 28), "  ", Span(bar, "good"))


def action_row(seen: JobSeen) -> Row:
    """Say how many workloads have something to do, and how many of them wait."""
    entry = seen.planned.entry if seen.planned is not None else None
    if not isinstance(entry, CapacityEntry):
        return ()
    due = sum(each.action != "none" for each in entry.workloads.values())
    waiting = sum(each.waits is not None for each in entry.workloads.values())
    return row(Span("Plan", "head"), f"   {count(due, 'workload')} to act on, {waiting} of them held back by a guard")


def _unplanned(seen: JobSeen, ink: Ink) -> list[Row]:
    return [row(Span(f" no plan: {ink.name(seen.refused or 'not yet')}", "warn"))]
