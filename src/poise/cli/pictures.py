"""Pictures of a server as text: all jobs in a line each, or one job in full, laid out for a width and a height."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from msgspec import UNSET

from poise.cli import picture_counts as counts
from poise.cli import picture_items as items
from poise.cli.ink import Ink, Row, Span, row, width_of
from poise.cli.picture_items import NOUNS
from poise.cli.render import count, natural
from poise.cli.sparks import spark_row
from poise.cli.told import day_text, tell
from poise.cli.watching import JobSeen
from poise.serve.facade import JobSummary

_HEAD_MAX = 4  # So many lines say what is wrong; the others are in `poise get`.
_LEAST = 3  # A list of fewer lines is worth nothing.
_CLOCK, _DAY = 9, 13  # The time of an event takes so many columns, and with its day so many.
_ONCE = {"members": 60, "rows": 20, "moves": 20, "events": 8}


class Frame(NamedTuple):
    """Where a picture is drawn; a height of None has no end. `offset` is the first line of a long list."""

    width: int = 80
    height: int | None = None
    offset: int = 0
    ink: Ink = Ink()


class Shape(NamedTuple):
    """What stands around a picture: how it is connected, and to whom."""

    url: str
    now: datetime
    trouble: str = ""


class Section(NamedTuple):
    """A part of a picture: what is always shown of it, and what is shown as far as there is room."""

    head: list[Row]
    body: list[Row]
    least: int = 0
    what: str = ""


class Picture(NamedTuple):
    """The lines, and the largest offset that still shows something new."""

    lines: list[str]
    offset_max: int = 0


def job_picture(seen: JobSeen, shape: Shape, frame: Frame) -> Picture:
    """Draw one job: what is wrong first, then who holds what, what moves and why, the plan, and the last events."""
    make: Callable[[JobSeen, Frame], list[Section]] = {
        "ReplicaDivision": _division_sections,
        "CapacitySplit": _split_sections,
    }.get(seen.job.kind, _item_sections)
    summary = seen.summary
    title = Span(f"{summary.kind} {frame.ink.name(summary.name)}", "head")
    told = Span("something is wrong", "bad") if summary.problems else _health(summary, frame.ink)
    top = [_title_row(title, told, shape, frame), *_wrong_rows(seen, shape, frame)]
    top += [
        line
        for line in (_facts_row(seen), spark_row(seen.series, frame.ink, is_split=seen.job.kind == "CapacitySplit"))
        if line
    ]
    return _laid_out(top, [*make(seen, frame), _events(seen, frame)], frame)


def jobs_picture(jobs: Sequence[JobSummary], shape: Shape, frame: Frame) -> Picture:
    """Draw all jobs in a line each, what is wrong first."""
    ink, wrong = frame.ink, sum(_rank(job) == 0 for job in jobs)
    told = count(len(jobs), "job") + (f", something is wrong with {wrong}" if wrong else "")
    title = _title_row(Span("Poise", "head"), Span(f"{told}   {shape.url}", "bad" if wrong else ""), shape, frame)
    rows = [_job_row(job, jobs, ink) for job in sorted(jobs, key=lambda job: (_rank(job), job.kind, natural(job.name)))]
    if not rows:
        rows = [row(" There is no job yet. Write one with: poise apply FILE")]
    return _laid_out([title, *_trouble_rows(shape, ink)], [Section([()], rows, least=len(rows), what="jobs")], frame)


def _rank(job: JobSummary) -> int:
    """Order jobs: something is wrong, it is paused, it moves, it is as it should be."""
    if job.problems or job.unowned:
        return 0
    return 1 if job.paused else 2 if job.moves_in_flight or job.pending else 3


_RANKS = ((" !! ", "bad"), (" || ", "warn"), (" >> ", "move"), (" ok ", "good"))


def _job_row(job: JobSummary, jobs: Sequence[JobSummary], ink: Ink) -> Row:
    sign, colour = _RANKS[_rank(job)]
    widest = min(34, max(len(f"{each.kind}/{each.name}") for each in jobs))
    name = ink.cell(f"{job.kind}/{ink.name(job.name)}", widest)
    many = ink.cell(count(job.items, NOUNS[job.kind][0]), 15)
    return row(Span(sign, colour), f"{name}  {many} ", _health(job, ink))


def _health(job: JobSummary, ink: Ink) -> Span:
    paused = "; paused" if job.paused and job.health != "paused" else ""
    return Span(f"{ink.name(job.health)}{paused}", ("bad", "warn", "move", "good")[_rank(job)])


def _title_row(title: Span, told: Span, shape: Shape, frame: Frame) -> Row:
    """Put the connection to the right: in words, and by the time that the picture is of."""
    at = f"{shape.now.astimezone(UTC):%H:%M:%SZ}"
    state = Span(f"  lost, as of {at}" if shape.trouble else f"  {'' if frame.height is None else 'live '}{at}")
    room = frame.width - width_of(title.text) - width_of(state.text) - 3
    return (title, Span("   "), Span(frame.ink.cell(told.text, max(8, room)), told.colour), state)


def _trouble_rows(shape: Shape, ink: Ink) -> list[Row]:
    if not shape.trouble:
        return []
    return [row(Span(f"!! trying again: {ink.name(shape.trouble)}", "bad"))]


def _wrong_rows(seen: JobSeen, shape: Shape, frame: Frame) -> list[Row]:
    """Say what is wrong, the worst first; why items have no owner stands below how many have none."""
    ink = frame.ink
    told = [row(Span(f"!! {ink.name(problem)}", "bad")) for problem in seen.summary.problems]
    if seen.job.kind not in ("ReplicaDivision", "CapacitySplit"):
        told[1:1] = items.unowned_rows(seen, ink, frame.width)
    if len(told) > _HEAD_MAX:
        told = [*told[: _HEAD_MAX - 1], row(Span(f"   and {len(told) - _HEAD_MAX + 1} more problems", "bad"))]
    return [*_trouble_rows(shape, ink), *told]


def _facts_row(seen: JobSeen) -> Row:
    """Say the numbers of a job in a line."""
    summary = seen.summary
    noun, party = NOUNS[summary.kind]
    is_sided = [each.name for each in seen.members] == ["onDemand", "spot"]
    parties = "spot and on-demand" if is_sided else count(len(seen.members), party)
    told = [f"{count(summary.items, noun)}, {parties}"]
    if summary.replicas is not UNSET:
        told.append(count(summary.replicas, "replica"))
        told += [f"{summary.unplaced} fit nowhere"] if summary.unplaced else []
    else:
        told += [f"{summary.unowned} without owner", f"{summary.moves_in_flight} moving", f"spread {summary.spread}"]
    told += [f"revision {summary.revision}", *(["paused"] if summary.paused else [])]
    return row("   ".join(told))


def _item_sections(seen: JobSeen, frame: Frame) -> list[Section]:
    ink, lanes = frame.ink, items.lanes_of(seen)
    lost = items.unowned_of(seen)
    scale = items.scale_of(lanes, lost, frame.width)
    drawn = [items.unowned_row(lost, scale, ink)] if lost else []
    drawn += [items.lane_row(lane, scale, ink) for lane in lanes]
    if not lanes:
        drawn.append(row(f" No {NOUNS[seen.job.kind][1]} has come yet."))
    moves = items.move_rows(seen, ink, frame.width)
    return [
        Section([(), items.head_row(scale, ink)], drawn, least=3, what="members"),
        Section([items.legend_row(lanes, lost, ink), ()], []),
        Section(moves[:1], moves[1:], least=3, what="moves"),
        Section([items.certificate_row(seen, ink)], []),
    ]


def _division_sections(seen: JobSeen, frame: Frame) -> list[Section]:
    clusters = counts.cluster_rows(seen, frame.ink, frame.width)
    workloads = counts.division_rows(seen, frame.ink, frame.width)
    return [
        Section([(), clusters[0]], clusters[1:], least=3, what="members"),
        Section([(), workloads[0]], workloads[1:], least=3, what="rows"),
        Section(counts.fleet_rows(seen, frame.ink, frame.width), []),
    ]


def _split_sections(seen: JobSeen, frame: Frame) -> list[Section]:
    drawn = counts.split_rows(seen, frame.ink, frame.width)
    return [
        Section([(), drawn[0]], drawn[1:], least=6, what="members"),
        Section([counts.action_row(seen)], []),
    ]


def _events(seen: JobSeen, frame: Frame) -> Section:
    """Tell the last events, newest first; those of other days say their day."""
    noun, room = NOUNS[seen.job.kind][0], _CLOCK
    found = tell(seen.lines, seen.zero, noun, frame.ink, frame.width - room - 2)
    if any(len(day_text(told.at, seen.now)) > room for told in found):
        room = _DAY
        found = tell(seen.lines, seen.zero, noun, frame.ink, frame.width - room - 2)
    rows = [
        row(Span(f" {day_text(told.at, seen.now):<{room}} ", "dim"), Span(told.text, told.colour)) for told in found
    ]
    head = row(Span("Last events", "head"), "" if rows else "   none yet")
    return Section([head], rows, least=2, what="events")


def _laid_out(top: list[Row], sections: Sequence[Section], frame: Frame) -> Picture:
    """Share the lines out: every part its least, then the long list, then the others; the last ones may be left out."""
    while len(sections) > 1 and _free(top, sections, frame.height) < _LEAST:
        sections = sections[:-1]
    rooms, offset_max = _rooms(top, sections, frame.height)
    offset = min(frame.offset, offset_max)
    lines, footer = list(top), ""
    for place, section in enumerate(sections):
        lines += [line for line in section.head if line or place == 0 or lines[-1]]
        begin = offset if place == 0 else 0
        shown = section.body[begin : begin + rooms[place]]
        left = len(section.body) - begin - len(shown)
        if place == 0 and (left or begin):
            footer = f"{begin + 1}{frame.ink.sign('dash')}{begin + len(shown)} of {len(section.body)}"
        elif left and section.what != "events" and shown:
            shown = [*shown[:-1], row(Span(f"  {frame.ink.sign('more')} {left + 1} more {section.what}", "dim"))]
        lines += shown
    written = [frame.ink.line(line, frame.width) for line in lines]
    if frame.height is None:
        return Picture(
            [*written, *([f" {footer} are shown; all: poise get members, poise get items"] if footer else [])]
        )
    keys = "q quits" + (f"   {footer}: p or arrows for the others" if footer else "")
    body = written[: frame.height - 1]
    body += [""] * (frame.height - 1 - len(body))
    return Picture([*body, frame.ink.line(row(Span(f" {keys}", "dim")), frame.width)], offset_max)


def _free(top: Sequence[Row], sections: Sequence[Section], height: int | None) -> int:
    """Count the lines that are left for what has no fixed length."""
    return _LEAST if height is None else height - 1 - len(top) - sum(len(each.head) for each in sections)


def _rooms(top: Sequence[Row], sections: Sequence[Section], height: int | None) -> tuple[list[int], int]:
    """Give every part its number of lines, and say how far the first one can be turned."""
    if height is None:
        return [min(len(each.body), _ONCE.get(each.what, len(each.body))) for each in sections], 0
    free = _free(top, sections, height)
    rooms = []
    for section in sections:
        rooms.append(max(0, min(len(section.body), section.least, free)))
        free -= rooms[-1]
    for place, section in enumerate(sections):
        more = max(0, min(len(section.body) - rooms[place], free))
        rooms[place] += more
        free -= more
    return rooms, max(0, len(sections[0].body) - rooms[0])
