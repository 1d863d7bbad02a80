"""Plans and explanations as people read them: aligned text, the reason beside every move, the certificate last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from fractions import Fraction

from msgspec import UNSET

from poise.cli.common import paint
from poise.decide.explain import Explanation
from poise.jobs.entries import (
    CapacityEntry,
    Counts,
    DivisionEntry,
    ItemsEntry,
    ItemsView,
    Planned,
    PlannedMove,
    SplitEntry,
    Told,
    Waits,
)

_ROWS_MAX, _NAMES_MAX = 40, 8
_WIDTH = 110


def render(planned: Planned, *, everything: bool) -> str:
    """Print one plan."""
    most = None if everything else _ROWS_MAX
    entry = planned.entry
    if isinstance(entry, DivisionEntry):
        lines = _division(entry, most)
    elif isinstance(entry, CapacityEntry):
        lines = _capacity(entry, most)
    else:
        assert planned.view is not None
        lines = _items(entry, planned.view, most)
    return "\n".join([*lines[:-1], *(f"  note   {note}" for note in planned.notes), lines[-1]])


def render_explanation(kind: str, name: str, told: Explanation | Told) -> str:
    """Print one explanation."""
    if isinstance(told, Told):
        return "\n".join([f"{kind} {name}   {told.item}", *(f"  {line}" for line in told.because)])
    place = told.member or "nowhere"
    moved = f"{told.source} -> {place}" if told.source not in (None, told.member) else place
    lines = [f"{kind} {name}   {printable(told.item)}   {moved}"]
    lines += [f"  because   {reason}" for reason in told.because]
    if told.alternatives:
        head = ("rank", "member", "score", "load", "share", "")
        rows = [(str(a.rank), a.member, a.score[:8], str(a.load), a.share, a.verdict) for a in told.alternatives]
        lines += ["", *_cut(_columns([head, *rows], indent="  "), _ROWS_MAX + 1, "alternatives"), ""]
    return "\n".join([*lines, *(f"  {what}" for what in told.would_move)])


def printable(text: str) -> str:
    """Show a name so that it cannot forge a line or a colour of the terminal."""
    return text if text.isprintable() else repr(text)[1:-1]


def _columns(rows: Sequence[Sequence[str]], indent: str) -> list[str]:
    """Align columns by the widest cell of each; the last one runs free."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if rows else []
    return [
        (indent + "   ".join(cell.ljust(width) for cell, width in zip(row, [*widths[:-1], 0], strict=True))).rstrip()
        for row in rows
    ]


def _cut(lines: list[str], most: int | None, what: str) -> list[str]:
    if most is None or len(lines) <= most:
        return lines
    return [*lines[:most], f"  … {len(lines) - most} more {what} (all of them: --all, or -o json)"]


def _wrapped(head: str, cells: Iterable[str]) -> list[str]:
    """Fill lines with cells, the head before the first."""
    lines, line = [], head
    for cell in cells:
        if len(line) + 3 + len(cell) > _WIDTH and line.strip() != head.strip():
            lines.append(line)
            line = " " * len(head)
        line += f"   {cell}"
    return [*lines, line]


def _items(entry: ItemsEntry, view: ItemsView, most: int | None) -> list[str]:
    grown = f"{view.members_before} -> " if view.members_before != view.members_after else ""
    many = f"{view.noun}s" if view.members_after != 1 else view.noun
    lines = [f"{entry.kind} {entry.name}   {grown}{view.members_after} {many}   policy {view.policy}"]
    lines += _cut(_columns([_move(move) for move in entry.moves], indent="  "), most, "moves")
    lines += _unassigned(entry)
    loads = []
    for member in sorted({*entry.loads, *view.loads_before}, key=_natural):
        before, after = view.loads_before.get(member, 0), entry.loads.get(member, 0)
        loads.append(f"{member} {before}->{after}" if before != after else f"{member} {after}")
    lines += _cut(_wrapped("  load", loads), None if most is None else 12, "lines of loads") if loads else []
    return [*lines, _certificate(entry, view)]


def _unassigned(entry: ItemsEntry) -> list[str]:
    """Say who is without a member, those of one reason together: this is what people must see first."""
    reasons: dict[str, list[str]] = {}
    for each in entry.unassigned:
        reasons.setdefault(each.reason, []).append(printable(each.item))
    lines = []
    for reason, names in reasons.items():
        some = ", ".join(names[:_NAMES_MAX]) + (
            f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
        )
        lines.append(f"  !! unassigned   {some}   {reason}")
    return lines


def _move(move: PlannedMove) -> tuple[str, str, str]:
    sign = "…" if move.waits else "+" if move.source is None else "->"
    step = f"{move.step}: " if move.step is not UNSET else ""
    where = (
        f"{move.source} -> {move.target}" if move.source and move.target else move.target or f"{move.source} -> nowhere"
    )
    if move.source is None:
        where = f"-> {move.target}" if move.target else "nowhere"
    why = f"{step}{move.reason}" + (f"; waits: {_waits(move.waits)}" if move.waits else "")
    return f"{sign:2} {printable(move.item)}", where, why


def _waits(waits: Waits) -> str:
    return waits.reason + (f", until {_time(waits.until)}" if waits.until else "")


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%SZ")


def _certificate(entry: ItemsEntry, view: ItemsView) -> str:
    moves, first = entry.certificate.moves, sum(move.source is None for move in entry.moves)
    parts = [_count(moves, "move")]
    if first:
        parts.append(f"{first} placed first")
    if entry.unassigned:
        parts.append(f"{len(entry.unassigned)} unassigned")
    waiting = sum(move.waits is not None for move in entry.moves)
    said = f"Plan: {', '.join(parts)}, {view.stays} stay{f', {waiting} of the moves wait' if waiting else ''}."
    proof = f" Fewest possible: {entry.certificate.moves_min}. Spread {entry.certificate.spread}."
    return said + paint(proof, "green" if moves == entry.certificate.moves_min else "yellow")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """Sort pod-2 before pod-10."""
    parts: list[tuple[int, int | str]] = []
    digits = ""
    for character in f"{name}\0":
        if character.isascii() and character.isdigit():
            digits += character
            continue
        if digits:
            parts.append((0, int(digits)))
            digits = ""
        parts.append((1, character))
    return tuple(parts)


def _division(entry: DivisionEntry, most: int | None) -> list[str]:
    clusters, fleet = sorted(entry.totals, key=_natural), entry.divisions
    workloads = _count(len(fleet), "workload")
    lines = [f"{entry.kind} {entry.name}   {_count(len(clusters), 'cluster')}   {workloads}"]
    rows = [["", *clusters, ""]]
    for name, each in fleet.items():
        shares = [f"{each.replicas.get(cluster, 0)} of {each.quota.get(cluster, '0')}" for cluster in clusters]
        what = "kept" if each.kept else f"{each.moved} moved"
        unplaced = f", {each.unplaced} unplaced" if each.unplaced else ""
        rows.append([printable(name), *shares, f"{what}{unplaced}: {each.reason}"])
    table = _columns(rows, indent="  ")
    lines += [*table[:1], *_cut(table[1:], most, "workloads")]
    totals = [f"{name} {total.replicas} of {total.exact}" for name, total in sorted(entry.totals.items())]
    lines += _wrapped("  total", totals)
    error = max((abs(total.replicas - Fraction(total.exact)) for total in entry.totals.values()), default=Fraction(0))
    moved, kept = sum(each.moved for each in fleet.values()), sum(each.kept for each in fleet.values())
    lines.append(
        f"Plan: {_count(moved, 'replica')} moved, {kept} of {workloads} kept. Largest error of a total: {error}."
    )
    return lines


def _capacity(entry: CapacityEntry, most: int | None) -> list[str]:
    lines = [f"{entry.kind} {entry.name}   {_count(len(entry.workloads), 'workload')}"]
    rows = [(printable(name), *_split(each)) for name, each in entry.workloads.items()]
    lines += _cut(_columns(rows, indent="  "), most, "workloads")
    due = sum(each.action != "none" for each in entry.workloads.values())
    waiting = sum(each.waits is not None for each in entry.workloads.values())
    return [*lines, f"Plan: {_count(due, 'workload')} to act on, {waiting} of them wait."]


def _split(each: SplitEntry) -> tuple[str, str, str]:
    action = each.action if each.action == "none" else f"{each.action} ({_count(each.steps, 'step')})"
    why = each.reason + (f"; waits: {_waits(each.waits)}" if each.waits else "")
    return _sides(each.current, each.desired), action, why


def _sides(current: Counts, desired: Counts) -> str:
    if isinstance(desired.pools, dict):
        held = current.pools if isinstance(current.pools, dict) else {}
        return "   ".join(_change(name, held.get(name, 0), count) for name, count in desired.pools.items())
    return (
        f"{_change('spot', current.spot, desired.spot)}   {_change('on-demand', current.on_demand, desired.on_demand)}"
    )


def _change(name: str, before: object, after: object) -> str:
    return f"{name} {after}" if before == after else f"{name} {before}->{after}"
