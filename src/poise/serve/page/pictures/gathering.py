"""Items become cells: one each while they are few, then one for several, and what is not simply held stays visible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from urllib.parse import quote

import msgspec

from poise.model.ownership import OwnerState
from poise.serve.facade import ItemView
from poise.serve.page.pictures.courses import FLIGHT, IMAGINED, Course, whom
from poise.serve.page.pictures.ink import said
from poise.serve.page.pictures.lane_values import (
    ASKED,
    HELD,
    LATE,
    LOST,
    NOBODY,
    OFFERED,
    PLANNED,
    RELEASING,
    RESERVED,
    STATES,
    UNOWNED,
    Cell,
)
from poise.serve.page.pictures.lane_values import IMAGINED as WOULD_COME
from poise.serve.page.pictures.standing import GONE
from poise.serve.page.pictures.standing import LATE as LATE_LANE
from poise.serve.page.rendering import moment_text

_BYTES_MAX = 110_000  # Cells of one item each may take so much of a page, in both forms together.
_MARKUP = 95  # Bytes of a cell beside its names.
_LANE_MAX = 240  # More cells than these in one lane are no picture.
_FEW, _CELLS_MAX, _LANE_CELLS_MAX = 60, 320, 24
_ORDER = {state: place for place, state in enumerate(STATES)}
_GHOST = {FLIGHT: RESERVED, IMAGINED: WOULD_COME}


class Gathered(msgspec.Struct, frozen=True):
    """The cells of every lane, how many items a full one stands for, and how many items are in each state."""

    cells: dict[str, list[Cell]]
    each: int
    counts: dict[str, int]


def gather(
    items: list[ItemView],
    courses: list[Course],
    tones: Mapping[str, str],
    drawn: Collection[str],
    base: str,
    now: datetime,
) -> Gathered:
    """Put every item of the drawn lanes into a cell of its lane."""
    states = [_state(item, tones) for item in items]
    counts = Counter(states)
    counts.update(_GHOST.get(each.style, PLANNED) for each in courses)
    lanes: dict[str, list[tuple[str, ItemView]]] = {name: [] for name in drawn}
    for state, item in zip(states, items, strict=True):
        lane = item.member or NOBODY
        if lane in lanes:
            lanes[lane].append((state, item))
    each = _each(items, lanes, base)
    marks = {course.item: "" if course.style == FLIGHT else course.style for course in courses}
    if each == 1:
        cells = {name: [_single(*one, marks, base, now) for one in lane] for name, lane in lanes.items()}
    else:
        few = {state for state, number in counts.items() if state != HELD and number <= _FEW}
        cells = {name: _several(name, lane, each, base, few, now) for name, lane in lanes.items()}
    for name, ghosts in _ghosts(courses, lanes, apart=each == 1, base=base).items():
        cells[name] = [*cells[name], *ghosts]
    return Gathered({name: sorted(lane, key=_first) for name, lane in cells.items()}, each, dict(counts))


def _state(item: ItemView, tones: Mapping[str, str]) -> str:
    """Name the state of an item: first what is wrong with its owner, then what is going on with itself."""
    if item.member is None:
        return UNOWNED
    tone = tones.get(item.member, GONE)
    if tone == GONE:
        return LOST
    if tone == LATE_LANE:
        return LATE
    if item.state == OwnerState.REQUESTED_RELEASE:
        return ASKED
    if item.state == OwnerState.PENDING_RELEASE:
        return RELEASING
    return HELD if item.confirmed else OFFERED


def _each(items: list[ItemView], lanes: Mapping[str, list[tuple[str, ItemView]]], base: str) -> int:
    """Find how many items a cell must stand for: 1, 2, 5, 10, … so that page and lane stay small."""
    sizes = [len(lane) for lane in lanes.values()]
    largest, drawn = max(sizes, default=0), sum(sizes)
    names = sum(len(item.item) if item.item.isascii() else 9 * len(item.item) for item in items)
    if 2 * (drawn * (_MARKUP + len(base)) + 3 * names) <= _BYTES_MAX and largest <= _LANE_MAX:
        return 1
    each = 2
    while -(-largest // each) > _LANE_CELLS_MAX or drawn / each > _CELLS_MAX:
        each = _after(each)
    return each


def _after(each: int) -> int:
    """Go on from 1 to 2, 5, 10, 20, 50, …"""
    return each * 5 // 2 if str(each)[0] == "2" else each * 2


def _single(state: str, item: ItemView, marks: Mapping[str, str], base: str, now: datetime) -> Cell:
    href = f"{base}/{quote(item.item, safe='')}"
    return Cell(state, _title(state, item, now), href, item.item, mark=marks.get(item.item, ""))


def _title(state: str, item: ItemView, now: datetime) -> str:
    """Say who, which epoch, and what is going on."""
    name = said(item.item)
    if item.member is None:
        return f"{name}: no owner. {said(item.reason)}" if item.reason else f"{name}: no owner"
    told = f"{name}: {said(item.member)}, epoch {item.epoch}"
    if state == HELD:
        return told
    whither = f", goes to {said(item.target)}" if item.target else ""
    due = f" by {moment_text(item.deadline, now)} UTC" if item.deadline is not None else ""
    words = {LOST: "its owner is gone", LATE: "its owner is late"}.get(state, STATES[state])
    return f"{told}, {words}{whither}{due}"


def _several(
    name: str, lane: list[tuple[str, ItemView]], each: int, base: str, few: Collection[str], now: datetime
) -> list[Cell]:
    """Gather what is in the same state; the states of which there are `few` items keep a cell for each."""
    cells = [_single(state, item, {}, base, now) for state, item in lane if state in few]
    held = Counter(state for state, _ in lane if state not in few)
    href = f"{base}?member={quote(name, safe='')}" if name else base
    for state, number in held.items():
        title = f"{whom(name)}: {number:,} {STATES[state]}; a full cell is {each:,}"
        full, rest = divmod(number, each)
        cells += [Cell(state, title, href, count=each, full=each)] * full
        cells += [Cell(state, title, href, count=rest, full=each)] if rest else []
    return cells


def _ghosts(courses: Iterable[Course], lanes: Collection[str], *, apart: bool, base: str) -> dict[str, list[Cell]]:
    """Draw where items go to: a cell each while they are few, else one for all of a lane."""
    ours = [each for each in courses if each.target in lanes]
    found: dict[str, list[Cell]] = {}
    if apart and len(ours) <= _FEW:
        for each in ours:
            href = f"{base}/{quote(each.item, safe='')}"
            found.setdefault(each.target, []).append(Cell(_GHOST.get(each.style, PLANNED), each.title, href, each.item))
        return found
    numbers = Counter((each.target, _GHOST.get(each.style, PLANNED)) for each in ours)
    for (target, state), number in numbers.items():
        title = f"{said(target)}: {number:,} {STATES[state]}"
        found.setdefault(target, []).append(Cell(state, title, count=number, full=number))
    return found


def _first(cell: Cell) -> tuple[int, int]:
    """Put what moves first, so that its arcs cross nothing; what is held keeps the order of its names."""
    moving = cell.state not in (HELD, LATE, LOST, UNOWNED, OFFERED) or cell.mark
    return (0 if moving else 1, _ORDER[cell.state] if cell.full > 1 or moving else 0)
