"""Which items go where: what is in flight, what is planned and may have to wait, and what is only imagined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

import msgspec

from poise.decide.partition_values import StepKind
from poise.jobs.entries import ItemsEntry, PlannedMove
from poise.model.ownership import RELEASING
from poise.serve.facade import ItemView
from poise.serve.page.pictures.ink import counted, said
from poise.serve.page.pictures.lane_values import NOBODY, Arc
from poise.serve.page.pictures.plan_text import waiting
from poise.serve.page.pictures.seen import Look
from poise.serve.page.rendering import moment_text

FLIGHT, NEXT, WAITS, IMAGINED = "flight", "next", "waits", "imagined"
_ARCS_MAX = 16  # More arcs than these are bundled: one for each pair of lanes.
_BUNDLES_MAX = 64
_STYLES = {FLIGHT: "in flight", NEXT: "about to start", WAITS: "waiting", IMAGINED: "imagined"}
_STAYING = (StepKind.CANCEL, StepKind.RETIRE)


class Course(msgspec.Struct, frozen=True, gc=False):
    """One item on its way, or to be on its way, from lane to lane."""

    item: str
    source: str
    target: str
    style: str
    title: str


def courses_of(seen: Look) -> list[Course]:
    """List every move, those in flight first."""
    flights = [_flight(each, seen.now) for each in seen.items if each.target is not None and each.target != each.member]
    entry = seen.planned.entry if seen.planned is not None else None
    if not isinstance(entry, ItemsEntry):
        return flights
    flying = {(each.item, each.target) for each in flights}
    owners = {each.item: each.member for each in seen.items}
    style = IMAGINED if seen.what_if is not None else None
    planned = [
        _planned(move, owners, style, seen.now) for move in entry.moves if (move.item, move.target) not in flying
    ]
    return flights + [each for each in planned if each is not None]


def _flight(item: ItemView, now: datetime) -> Course:
    assert item.target is not None
    due = f", due by {moment_text(item.deadline, now)} UTC" if item.deadline is not None else ""
    doing = "being released" if item.state == RELEASING[1] else "asked back" if item.member else "free"
    why = f". {said(item.reason)}" if item.reason else ""
    title = f"{said(item.item)}: {whom(item.member)} → {said(item.target)}, {doing}{due}{why}"
    return Course(item.item, item.member or NOBODY, item.target, FLIGHT, title)


def _planned(move: PlannedMove, owners: Mapping[str, str | None], style: str | None, now: datetime) -> Course | None:
    """Give the course of a planned move; a step that leaves the item where it is has none."""
    source = owners.get(move.item) or NOBODY
    if move.target is None or move.target == source or move.step in _STAYING:
        return None
    style = style or (WAITS if move.waits else NEXT)
    waits = f"; waits: {said(waiting(move.waits, now))}" if move.waits else ""
    what = "what if: " if style == IMAGINED else ""
    title = f"{what}{said(move.item)}: {whom(source)} → {said(move.target)}. {said(move.reason)}{waits}"
    return Course(move.item, source, move.target, style, title)


def whom(member: str | None) -> str:
    """Name a member, also where there is none."""
    return said(member) if member else "no owner"


def arcs_of(courses: list[Course], drawn: set[str]) -> tuple[list[Arc], int]:
    """Draw each move between drawn lanes, or where they are many one arc a pair; and count those left out."""
    ours = [each for each in courses if each.source in drawn and each.target in drawn]
    if len(ours) <= _ARCS_MAX:
        arcs = [Arc(**msgspec.structs.asdict(each)) for each in ours]
        return arcs, len(courses) - len(ours)
    pairs = Counter((each.source, each.target, each.style) for each in ours)
    kept = pairs.most_common(_BUNDLES_MAX)
    arcs = [_bundle(*pair, count) for pair, count in kept]
    return arcs, len(courses) - sum(arc.count for arc in arcs)


def _bundle(source: str, target: str, style: str, count: int) -> Arc:
    title = f"{counted(count, 'move')} {_STYLES[style]}: {whom(source)} → {said(target)}"
    return Arc(source=source, target=target, style=style, title=title, count=count)
