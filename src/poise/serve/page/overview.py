"""Every job in a line, what is wrong first; the last events; and where there is no job, how to make one."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import urlencode

import msgspec
from msgspec import UNSET
from starlette.responses import Response

from poise.errors import NotFound
from poise.jobs.sentences import Happened, in_short, lines_happened
from poise.model import KINDS
from poise.serve.facade import Event, JobSummary
from poise.serve.page.chips import LOST, MOOD_GLYPHS, MOOD_WORDS, mood_of, rank_of
from poise.serve.page.job_page import job_path
from poise.serve.page.newest import KEPT
from poise.serve.page.rendering import counted
from poise.serve.page.sentences import happened, tell
from poise.serve.page.visiting import Parts, Visit, answer
from poise.serve.page.words import ABOUT, ITEMS, MEMBERS

_EVENTS_MAX, _EVENTS_PAGE = 14, 200


class JobLine(msgspec.Struct, frozen=True):
    """One job as the overview shows it."""

    job: JobSummary
    path: str
    mood: str
    word: str
    glyph: str
    about: str
    items: str
    members: str


class Found(msgspec.Struct, frozen=True):
    """Events that fit, among how many, and whether those were of one job or of all."""

    events: list[Happened]
    looked: int
    of_job: bool = False


def show_overview(parts: Parts, visit: Visit) -> Response:
    """Show every job."""
    api = parts.site.api
    jobs = sorted(api.jobs(), key=rank_of)
    events, kept = parts.newest.telling(api)
    facts = {
        "lines": [_line(job) for job in jobs],
        "tiles": _tiles(jobs),
        "events": tell(in_short(happened(events)), _EVENTS_MAX, cut=kept == KEPT),
        "unheard": not kept,
        "server": visit.server,
        "acts": visit.acts,
        "has_strip": True,
        "stream": "all",
        "live_path": "/",
    }
    return answer(parts, visit, "overview.html", facts)


def _line(job: JobSummary) -> JobLine:
    mood = mood_of(job)
    states = sorted(job.members.items(), key=lambda each: (each[0] not in LOST, each[0]))
    members = ", ".join(f"{number:,} {state}" for state, number in states) or f"no {MEMBERS[job.kind]} yet"
    if job.replicas is not UNSET:
        members = counted(sum(job.members.values()), MEMBERS[job.kind])
    return JobLine(
        job=job,
        path=job_path(job.kind, job.name),
        mood=mood,
        word=MOOD_WORDS[mood],
        glyph=MOOD_GLYPHS[mood],
        about=ABOUT[job.kind],
        items=counted(job.items, ITEMS[job.kind]),
        members=members,
    )


def _tiles(jobs: list[JobSummary]) -> list[tuple[str, str, str]]:
    """Sum up all jobs: a number, what it counts, and how it is meant."""
    unowned = sum(job.unowned for job in jobs)
    wrong = sum(mood_of(job) == "bad" for job in jobs)
    moving = sum(job.moves_in_flight for job in jobs)
    return [
        (f"{wrong:,}", "need a look" if wrong != 1 else "needs a look", "bad" if wrong else "good"),
        (f"{unowned:,}", "without an owner", "bad" if unowned else "good"),
        (f"{moving:,}", "moves in flight" if moving != 1 else "move in flight", "wait" if moving else ""),
        (f"{len(jobs):,}", "jobs" if len(jobs) != 1 else "job", ""),
    ]


def show_events(parts: Parts, visit: Visit) -> Response:
    """Show what happened last in all jobs, or in some of them."""
    wanted = {key: visit.one(key) for key in ("kind", "job", "member")}
    found = _found(parts, wanted)
    said = {key: value for key, value in wanted.items() if value}
    facts = {
        "events": tell(found.events, _EVENTS_PAGE, cut=found.looked == KEPT),
        "wanted": wanted,
        "looked": found.looked,
        "of_job": found.of_job,
        "kinds": list(KINDS),
        "stream": urlencode(said) or "all",
        "live_path": "/events" + (f"?{urlencode(said)}" if said else ""),
    }
    return answer(parts, visit, "events.html", facts)


def _found(parts: Parts, wanted: dict[str, str]) -> Found:
    """Read the newest events of one job, however long ago they were, or the newest of all jobs that fit.

    A job that was deleted has no story of its own any more: what is still known of it stands among those of all.
    """
    api, kind, name = parts.site.api, wanted["kind"], wanted["job"]
    if kind in KINDS and name:
        with suppress(NotFound):
            story = api.history(kind, name, most=KEPT, newest=True)[::-1]
            lines = [each for each in story if wanted["member"] in ("", each.member)]
            return Found(lines_happened(kind, name, lines, parts.newest.zero(api)), len(story), of_job=True)
    events = parts.newest.read(api)
    return Found(happened(each for each in events if _is_wanted(each, wanted)), len(events))


def _is_wanted(event: Event, wanted: dict[str, str]) -> bool:
    return (
        wanted["kind"] in ("", event.kind)
        and wanted["job"] in ("", event.job)
        and wanted["member"] in ("", event.line.member)
    )
