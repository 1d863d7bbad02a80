"""Every job in a line, what is wrong first; the last events; and where there is no job, how to make one."""

from __future__ import annotations

from urllib.parse import urlencode

import msgspec
from msgspec import UNSET
from starlette.responses import Response

from poise.jobs.sentences import in_short
from poise.model import KINDS
from poise.serve.facade import Event, JobSummary
from poise.serve.page.chips import MOOD_GLYPHS, MOOD_WORDS, mood_of, rank_of
from poise.serve.page.job_page import job_path
from poise.serve.page.rendering import counted
from poise.serve.page.sentences import happened, tell
from poise.serve.page.visiting import Parts, Visit, answer
from poise.serve.page.words import ABOUT, ITEMS, MEMBERS

_EVENTS_MAX, _EVENTS_PAGE = 14, 200
_LOST = ("gone", "dead", "orphaned", "expired", "uncertain")


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


def show_overview(parts: Parts, visit: Visit) -> Response:
    """Show every job."""
    api = parts.site.api
    jobs = sorted(api.jobs(), key=rank_of)
    events = parts.newest.read(api)
    facts = {
        "lines": [_line(job) for job in jobs],
        "tiles": _tiles(jobs),
        "events": tell(in_short(happened(events)), _EVENTS_MAX),
        "server": visit.server,
        "acts": visit.acts,
        "has_strip": True,
        "stream": "all",
        "live_path": "/",
    }
    return answer(parts, visit, "overview.html", facts)


def _line(job: JobSummary) -> JobLine:
    mood = mood_of(job)
    states = sorted(job.members.items(), key=lambda each: (each[0] not in _LOST, each[0]))
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
    events = [each for each in parts.newest.read(parts.site.api) if _is_wanted(each, wanted)]
    said = {key: value for key, value in wanted.items() if value}
    facts = {
        "events": tell(happened(events), _EVENTS_PAGE),
        "wanted": wanted,
        "kinds": list(KINDS),
        "stream": urlencode(said) or "all",
        "live_path": "/events" + (f"?{urlencode(said)}" if said else ""),
    }
    return answer(parts, visit, "events.html", facts)


def _is_wanted(event: Event, wanted: dict[str, str]) -> bool:
    return (
        wanted["kind"] in ("", event.kind)
        and wanted["job"] in ("", event.job)
        and wanted["member"] in ("", event.line.member)
    )
