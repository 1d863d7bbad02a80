"""A job that owns items as text: members as lanes, items as cells by state, load against floor and ceiling, moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from poise.cli.ink import Ink, Row, Span, row, width_of
from poise.cli.render import count, natural
from poise.cli.told import waits_text
from poise.cli.watching import JobSeen
from poise.jobs.entries import ItemsEntry, PlannedMove
from poise.model.ownership import OwnerState
from poise.serve.facade import ItemView, MemberView

NOUNS = {
    "TargetPool": ("target", "pod"),
    "PartitionSet": ("partition", "worker"),
    "ShardRing": ("object", "instance"),
    "ReplicaDivision": ("workload", "cluster"),
    "CapacitySplit": ("workload", "pool"),
}
_LIVE = ("active", "ready", "draining")
_CELLS = {"held": "good", "offered": "warn", "asked": "move", "letting": "move", "lost": "bad", "unowned": "bad"}
_MEANINGS = {
    "held": "held",
    "offered": "given, not yet confirmed",
    "asked": "asked back",
    "letting": "letting go",
    "lost": "its owner is not heard",
    "unowned": "no owner",
}
_STATES = {OwnerState.REQUESTED_RELEASE.value: "asked", OwnerState.PENDING_RELEASE.value: "letting"}
_WORDS = {"asked": "asked back", "letting": "letting go"}
_NAME_MAX, _NAMED_MAX = 22, 6
_NAME_ROOMS = (30, 20, 14, 10, 8)  # A name is cut to these, the more the less room its line has.


class Lane(NamedTuple):
    """One member: its cells by state, and the bounds of its share."""

    member: MemberView
    cells: Counter[str]


class Scale(NamedTuple):
    """How lanes are drawn: how wide the names and the cells are, and how many items one cell stands for."""

    name: int
    state: int
    cells: int
    each: int


def lanes_of(seen: JobSeen) -> list[Lane]:
    """Sort the items of a job into lanes; what is wrong comes first, then the names in their order."""
    known: dict[str, Counter[str]] = {each.name: Counter() for each in seen.members}
    live = {each.name for each in seen.members if each.state in _LIVE}
    for item in seen.items if seen.is_complete else ():
        if item.member in known:
            known[item.member][_cell(item, is_live=item.member in live)] += 1
    lanes = []
    for member in seen.members:
        cells = known[member.name]
        if not seen.is_complete and member.name in live:
            cells["asked"] = member.releasing
        rest = member.load - cells.total()
        cells["held" if member.name in live else "lost"] += max(0, rest)
        lanes.append(Lane(member, cells))
    return sorted(lanes, key=lambda lane: (_rank(lane.member), natural(lane.member.name)))


def unowned_of(seen: JobSeen) -> int:
    """Count what nobody has, not even somebody who is not heard."""
    if seen.is_complete:
        return sum(item.member is None for item in seen.items)
    return max(0, seen.summary.items - sum(member.load for member in seen.members))


def _cell(item: ItemView, *, is_live: bool) -> str:
    if not is_live:
        return "lost"
    return _STATES.get(item.state, "held" if item.confirmed else "offered")


def _rank(member: MemberView) -> int:
    """Put a member that holds something and is not heard first, one that is gone and holds nothing last."""
    if member.state in _LIVE:
        return 1 if member.draining or member.state == "draining" or member.error else 2
    return 0 if member.load else 3


def scale_of(lanes: Sequence[Lane], unowned: int, width: int) -> Scale:
    """Choose widths for 80 columns or more, and how many items a cell stands for, so that the longest lane fits."""
    name = max([8, *(min(_NAME_MAX, len(lane.member.name)) for lane in lanes)])
    state = max([5, *(len(_state(lane.member)) for lane in lanes)])
    cells = max(10, width - name - state - 20)
    longest = max([unowned, *(max(lane.member.load, lane.member.ceiling or 0) for lane in lanes)])
    return Scale(name, state, cells, max(1, -(-longest // (cells - 2))))


def head_row(scale: Scale, ink: Ink) -> Row:
    """Head the lanes."""
    cells = f"a cell: {_each(scale)}; [ floor ] ceiling"
    told = f" {ink.cell('member', scale.name)} {ink.cell('state', scale.state)}  load  change  {cells}"
    return row(Span(told, "dim"))


def _each(scale: Scale) -> str:
    return "1 item" if scale.each == 1 else f"up to {scale.each} items"


def lane_row(lane: Lane, scale: Scale, ink: Ink) -> Row:
    """Draw one lane: name, state in words, load, what leaves and comes, and its cells."""
    member = lane.member
    colour = "" if member.state in _LIVE else "bad" if member.load else "dim"
    return (
        Span(f" {ink.cell(member.name, scale.name)} {ink.cell(_state(member), scale.state)}", colour),
        Span(f" {_number(member.load):>5} {_change(member):>7}  "),
        *_cells(lane.cells, scale, ink, member.floor, member.ceiling),
    )


def unowned_row(unowned: int, scale: Scale, ink: Ink) -> Row:
    """Draw what nobody holds as a lane of its own."""
    told = f" {ink.cell('nobody', scale.name)} {ink.cell('!!', scale.state)} {_number(unowned):>5} {'':>7}  "
    return (Span(told, "bad"), *_cells(Counter({"unowned": unowned}), scale, ink, None, None))


def _state(member: MemberView) -> str:
    return "draining" if member.draining and member.state in _LIVE else member.state


def _number(number: int) -> str:
    return str(number) if number < 100_000 else f"{number // 1000}k"


def _change(member: MemberView) -> str:
    """Say how many leave and how many come."""
    leaving = f"-{_number(member.releasing)}" if member.releasing else ""
    coming = f"+{_number(member.reserved)}" if member.reserved else ""
    return f"{leaving} {coming}".strip()


def _cells(cells: Counter[str], scale: Scale, ink: Ink, floor: int | None, ceiling: int | None) -> Row:
    """Draw cells, with the marks between them; a state that is there at all has at least one cell."""
    numbers = {state: -(-number // scale.each) for state, number in cells.items() if number}
    whole = -(-cells.total() // scale.each)
    others = sum(number for state, number in numbers.items() if state != "held")
    if "held" in numbers:
        numbers["held"] = max(1, whole - others)
    drawn = [(ink.sign(state), colour) for state, colour in _CELLS.items() for _ in range(numbers.get(state, 0))]
    drawn = drawn[: scale.cells - 2]
    if floor is not None and ceiling:
        low, high = -(-floor // scale.each), -(-ceiling // scale.each)
        drawn += [(ink.sign("empty"), "dim")] * (high - len(drawn))
        marks = [(high, "]"), (low, "[")] if low != high else [(high, "|")]
        for place, mark in marks:
            drawn.insert(min(place, scale.cells - 2), (mark, ""))
    return _joined(drawn)


def _joined(drawn: Iterable[tuple[str, str]]) -> Row:
    """Put neighbours of one colour together."""
    spans: list[Span] = []
    for sign, colour in drawn:
        if spans and spans[-1].colour == colour:
            spans[-1] = Span(spans[-1].text + sign, colour)
        else:
            spans.append(Span(sign, colour))
    return tuple(spans)


def legend_row(lanes: Sequence[Lane], unowned: int, ink: Ink) -> Row:
    """Say what the cells that are there mean."""
    there = Counter({"unowned": unowned})
    for lane in lanes:
        there.update(lane.cells)
    told = [f"{ink.sign(state)} {_MEANINGS[state]}" for state in _CELLS if there[state] > 0]
    return row(Span(f" {'   '.join(told)}", "dim")) if told else ()


def unowned_rows(seen: JobSeen, ink: Ink, width: int) -> list[Row]:
    """Say what nobody holds, those of one reason together."""
    reasons: dict[str, list[str]] = {}
    for item in seen.items:
        if item.member is None:
            reasons.setdefault(item.reason or "not planned yet", []).append(item.item)
    rows = []
    for reason, names in sorted(reasons.items(), key=lambda pair: -len(pair[1])):
        # Where only some were read, how many have a reason is known if there is but one.
        number = len(names) if seen.is_complete else unowned_of(seen) if len(reasons) == 1 else 0
        has = f"{number} {'has' if number == 1 else 'have'} no owner" if number else "no owner, such as"
        head, tail = f"   {has}: ", f": {ink.name(reason)}"
        room = width - width_of(head) - width_of(tail)
        rows.append(row(Span(head + _few(names, ink, room, number or len(names)) + tail, "bad")))
    return rows


def _few(names: Sequence[str], ink: Ink, width: int, total: int) -> str:
    """Name the first ones, as many as there is room for, and count the others; one at least, cut where it must be."""
    told = ""
    many = min(len(names), _NAMED_MAX)
    for number, room in [
        *((number, _NAME_ROOMS[0]) for number in range(many, 1, -1)),
        *((1, each) for each in _NAME_ROOMS),
    ]:
        left = total - number
        told = ", ".join(ink.fit_middle(ink.name(name), room) for name in names[:number])
        told += f" and {left} more" if left else ""
        if width_of(told) <= width:
            break
    return told


def move_rows(seen: JobSeen, ink: Ink, width: int) -> list[Row]:
    """List what moves, since when and why; then what waits for what; then what comes next."""
    moving = [item for item in seen.items if item.state in _STATES]
    waiting, coming = _planned(seen, {item.item for item in moving})
    told = [f"{len(moving) if seen.is_complete else seen.summary.moves_in_flight} in flight"]
    told += [f"{len(waiting)} wait"] if waiting else []
    told += [f"{len(coming)} to begin"] if coming else []
    rows = [row(Span("Moves", "head"), f"   {', '.join(told) if moving or waiting or coming else 'none'}")]
    rows += [_moving(item, seen.now, ink, width) for item in sorted(moving, key=_age)]
    return [*rows, *_waiting(waiting, seen.now, ink, width), *_coming(coming, ink, width)]


def _planned(seen: JobSeen, moving: set[str]) -> tuple[list[PlannedMove], list[PlannedMove]]:
    """Give the moves of the plan that are not under way: those that wait, and the others."""
    entry = seen.planned.entry if seen.planned is not None else None
    if not isinstance(entry, ItemsEntry):
        return [], []
    moves = [move for move in entry.moves if move.item not in moving and move.source is not None]
    return [move for move in moves if move.waits is not None], [move for move in moves if move.waits is None]


def _age(item: ItemView) -> tuple[float, tuple[tuple[int, int | str], ...]]:
    return (item.since.timestamp() if item.since else 0.0, natural(item.item))


def _moving(item: ItemView, now: datetime, ink: Ink, width: int) -> Row:
    state = _STATES[item.state]
    since = f" {_seconds(now, item.since)}" if item.since else ""
    left = f", {max(0.0, (item.deadline - now).total_seconds()):.0f} s left" if item.deadline else ""
    told = f"{_WORDS[state]}{since}{left}: {ink.name(item.reason)}"
    head = f"  {ink.sign(state)} "
    way = _way((item.item, item.member or "nobody", item.target or "nobody"), ink, width - width_of(head + told))
    return row(Span(head + way, "move"), told)


def _way(names: tuple[str, str, str], ink: Ink, width: int) -> str:
    """Name what goes from where to where, cut so that verb and reason beside it fit; else so short that it is read."""
    told = ""
    for gap, room in [("   ", 100), *(("  ", each) for each in _NAME_ROOMS)]:
        item, source, target = (ink.fit_middle(ink.name(name), room) for name in names)
        told = f"{item}{gap}{source} {ink.sign('arrow')} {target}{gap}"
        if width_of(told) <= width:
            break
    return told


def _seconds(now: datetime, since: datetime) -> str:
    return f"{max(0.0, (now - since).total_seconds()):.0f} s"


def _waiting(moves: Sequence[PlannedMove], now: datetime, ink: Ink, width: int) -> list[Row]:
    """Tell those that wait for the same together."""
    reasons: dict[str, list[PlannedMove]] = {}
    for move in moves:
        assert move.waits is not None
        reasons.setdefault(waits_text(move.waits, now, ink), []).append(move)
    rows = []
    for reason, held in reasons.items():
        told = f"   waits: {reason}"
        names = _few([move.item for move in held], ink, width - 5 - width_of(told), len(held))
        rows.append(row(Span("  || ", "warn"), names + told))
    return rows


def _coming(moves: Sequence[PlannedMove], ink: Ink, width: int) -> list[Row]:
    rows = []
    for move in moves:
        reason = ink.name(move.reason)
        names = (move.item, move.source or "nobody", move.target or "nowhere")
        rows.append(row(f"  .. {_way(names, ink, width - 5 - width_of(reason))}{reason}"))
    return rows


def certificate_row(seen: JobSeen, ink: Ink) -> Row:
    """Say what the plan needs, and that it is the least possible."""
    if seen.planned is None or not isinstance(seen.planned.entry, ItemsEntry):
        return row(
            Span("Plan", "head"), f"   none: {ink.name(seen.refused)}" if seen.refused else "   is being asked for"
        )
    proof = seen.planned.entry.certificate
    told = f"   {count(proof.moves, 'move')} to make, fewest possible {proof.moves_min}, spread {proof.spread} after it"
    return row(Span("Plan", "head"), Span(told, "good" if proof.moves == proof.moves_min else "warn"))
