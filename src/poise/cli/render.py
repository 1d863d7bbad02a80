"""Plans and explanations as people read them: aligned text, the reason beside every move, the certificate last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from fractions import Fraction

from msgspec import UNSET

from poise.cli.common import paint
from poise.decide.explain import Explanation
from poise.decide.partition_values import StepKind
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
from poise.jobs.partitions import SetView

_ROWS_MAX, _NAMES_MAX = 40, 8
_WIDTH = 110
_NEW = "there is no last result"  # So begins the reason of a workload that was never divided: nothing of it can move.


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
    notes = _cut([f"  note   {printable(note)}" for note in planned.notes], most, "notes")
    return "\n".join([*lines[:-1], *notes, lines[-1]])


def render_explanation(kind: str, name: str, told: Explanation | Told) -> str:
    """Print one explanation."""
    if isinstance(told, Told):
        return "\n".join([f"{kind} {name}   {told.item}", *(f"  {line}" for line in told.because)])
    place = told.member or "nowhere"
    moved = f"{told.source} -> {place}" if told.source not in (None, told.member) else place
    lines = [f"{kind} {name}   {printable(told.item)}   {moved}"]
    lines += [f"  because   {reason}" for reason in told.because]
    if told.alternatives:
        by = "distance" if told.alternatives[0].distance else "score"
        head = ("rank", "member", by, "load", "share", "")
        rows = [
            (str(a.rank), a.member, (a.distance or a.score)[:8], str(a.load), a.share, a.verdict)
            for a in told.alternatives
        ]
        lines += ["", *_cut(columns([head, *rows], indent="  "), _ROWS_MAX + 1, "alternatives"), ""]
    return "\n".join([*lines, *(f"  {what}" for what in told.would_move)])


def printable(text: str) -> str:
    """Show a name so that it cannot forge a line or a colour of the terminal."""
    return text if text.isprintable() else repr(text)[1:-1]


def columns(rows: Sequence[Sequence[str]], indent: str) -> list[str]:
    """Align columns by the widest cell of each; the last one runs free."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if rows else []
    return [
        (indent + "   ".join(cell.ljust(width) for cell, width in zip(row, [*widths[:-1], 0], strict=True))).rstrip()
        for row in rows
    ]


def _cut(lines: list[str], most: int | None, what: str) -> list[str]:
    """Count the lines that are too many; a single one is shown, since its count takes the same room."""
    if most is None or len(lines) <= most + 1:
        return lines
    return [*lines[:most], f"  … {len(lines) - most} more {what} (all of them: --all, or -o json)"]


def wrapped(head: str, cells: Iterable[str]) -> list[str]:
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
    lines += _cut(columns([_move(move) for move in entry.moves], indent="  "), most, "moves")
    lines += _unassigned(entry)
    loads = [
        _change(member, view.loads_before.get(member, 0), entry.loads.get(member, 0))
        for member in sorted({*entry.loads, *view.loads_before}, key=natural)
    ]
    lines += _cut(wrapped("  load", loads), None if most is None else 12, "lines of loads") if loads else []
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
    why = f"{step}{move.reason}" + (f"; waits: {_waits(move.waits)}" if move.waits else "")
    return f"{sign:2} {printable(move.item)}", printable(_where(move)), why


def _where(move: PlannedMove) -> str:
    if move.step == StepKind.CANCEL:
        return f"stays on {move.source}"
    if move.source is None:
        return f"-> {move.target}" if move.target else "nowhere"
    return f"{move.source} -> {move.target or 'nowhere'}"


def _waits(waits: Waits) -> str:
    return waits.reason + (f", until {_time(waits.until)}" if waits.until else "")


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%SZ")


def _certificate(entry: ItemsEntry, view: ItemsView) -> str:
    """Count every item once: it moves, is placed first, is under way, is left without a member, or stays."""
    moves, ours = entry.certificate.moves, [move for move in entry.moves if move.item in entry.assignment]
    first = sum(move.source is None and move.target is not None for move in ours)
    under_way = view.under_way if isinstance(view, SetView) else 0
    left = len(entry.assignment) - moves - first - under_way - view.stays
    waiting = len({move.item for move in ours if move.waits})
    details = [f"{waiting} of them wait{'' if waiting > 1 else 's'}"] if waiting else []
    lost = sum(move.source is not None and entry.assignment[move.item] is None for move in ours)
    details += [f"{lost} to nowhere"] if lost else []
    parts = [count(moves, "move") + (f" ({', '.join(details)})" if details else "")]
    retired = len({move.item for move in entry.moves} - set(entry.assignment))
    counted = ((first, "placed first"), (under_way, "under way"), (left, "left unassigned"), (view.stays, "stay"))
    parts += [f"{number} {what}" for number, what in counted if number > 0 or what == "stay"]
    parts += [f"{retired} to retire"] if retired else []
    proof = f" Fewest possible: {entry.certificate.moves_min}. Spread {entry.certificate.spread}."
    return f"Plan: {', '.join(parts)}." + paint(proof, "green" if moves == entry.certificate.moves_min else "yellow")


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def natural(name: str) -> tuple[tuple[int, int | str], ...]:
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
    clusters, fleet = sorted(entry.totals, key=natural), entry.divisions
    workloads = count(len(fleet), "workload")
    lines = [f"{entry.kind} {entry.name}   {count(len(clusters), 'cluster')}   {workloads}"]
    rows = [["", *map(printable, clusters), ""]]
    for name, each in fleet.items():
        shares = [f"{each.replicas.get(cluster, 0)} of {each.quota.get(cluster, '0')}" for cluster in clusters]
        what = "kept" if each.kept else "new" if each.reason.startswith(_NEW) else f"{each.moved} moved"
        unplaced = f", {each.unplaced} unplaced" if each.unplaced else ""
        rows.append([printable(name), *shares, f"{what}{unplaced}: {each.reason}"])
    table = columns(rows, indent="  ")
    lines += [*table[:1], *_cut(table[1:], most, "workloads")]
    totals = [f"{printable(name)} {total.replicas} of {total.exact}" for name, total in sorted(entry.totals.items())]
    lines += wrapped("  total", totals)
    error = max((abs(total.replicas - Fraction(total.exact)) for total in entry.totals.values()), default=Fraction(0))
    moved, kept = sum(each.moved for each in fleet.values()), sum(each.kept for each in fleet.values())
    nowhere = sum(each.unplaced for each in fleet.values())
    parts = [f"{count(moved, 'replica')} moved", *([f"{nowhere} unplaced"] if nowhere else [])]
    parts.append(f"{kept} of {len(fleet)} workloads kept")
    return [*lines, f"Plan: {', '.join(parts)}. Largest error of a total: {error}."]


def _capacity(entry: CapacityEntry, most: int | None) -> list[str]:
    lines = [f"{entry.kind} {entry.name}   {count(len(entry.workloads), 'workload')}"]
    rows = [(printable(name), *_split(each)) for name, each in entry.workloads.items()]
    lines += _cut(columns(rows, indent="  "), most, "workloads")
    due = sum(each.action != "none" for each in entry.workloads.values())
    waiting = sum(each.waits is not None for each in entry.workloads.values())
    return [*lines, f"Plan: {count(due, 'workload')} to act on, {waiting} of them wait{'s' if waiting == 1 else ''}."]


def _split(each: SplitEntry) -> tuple[str, str, str]:
    action = each.action if each.action == "none" else f"{each.action} ({count(each.steps, 'step')})"
    why = each.reason + (f"; waits: {_waits(each.waits)}" if each.waits else "")
    return _sides(each.current, each.desired), action, why


def _sides(current: Counts, desired: Counts) -> str:
    if isinstance(desired.pools, dict):
        held = current.pools if isinstance(current.pools, dict) else {}
        names = dict.fromkeys([*desired.pools, *held])
        return "   ".join(_change(name, held.get(name, 0), desired.pools.get(name, 0)) for name in names)
    return (
        f"{_change('spot', current.spot, desired.spot)}   {_change('on-demand', current.on_demand, desired.on_demand)}"
    )


def _change(name: str, before: object, after: object) -> str:
    return f"{printable(name)} {after}" if before == after else f"{printable(name)} {before}->{after}"
