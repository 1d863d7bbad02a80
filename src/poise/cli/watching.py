"""What `poise top` knows of a server: one look after the other, each no dearer than the server can bear."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Generic, TypeVar

import msgspec

from poise import clock
from poise.cli.remote import Job, Server
from poise.errors import InvalidSpec, PoiseError
from poise.jobs.entries import Planned
from poise.jobs.series import Series
from poise.model.ownership import Line as JournalLine
from poise.model.ownership import OwnerState
from poise.serve.facade import Event, ItemView, JobSummary, MemberView

ITEMS_MAX = 1_000  # Of larger jobs only some of those items are read that are moving or have no owner.
SOME = 200
LINES = 100  # Lines of the journal that are read: what happened to many at once becomes one sentence.
_APART = (OwnerState.UNASSIGNED, OwnerState.REQUESTED_RELEASE, OwnerState.PENDING_RELEASE)
_SOONEST_S, _LATEST_S = 0.4, 1.0  # A look is so far from the next one: leases end in silence, and streams, too.
_PART, _IDLE_PART, _PLAN_PART = 3, 15, 15  # Looking takes at most one part in so many of the time.
_TOOK_MAX_S = 4.0
Seen = TypeVar("Seen")


class JobSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One job at one time; `is_complete` says whether `items` are all of them, or some that move or have no owner."""

    job: Job
    summary: JobSummary
    members: list[MemberView]
    items: list[ItemView]
    is_complete: bool
    planned: Planned | None
    refused: str
    lines: list[JournalLine]
    zero: datetime | None
    series: Series | None
    now: datetime


class Eyes(Server):
    """A server as it is watched."""

    def __init__(self, url: str, *, hurries: bool = False) -> None:
        """Know nothing yet; whoever hurries shows a large job first, and its plan with the next look."""
        super().__init__(url)
        self._hurries = hurries
        self._zero: datetime | None = None
        self._last_plan: Planned | None = None
        self._refused, self._plan_s = "", 0.0

    def summary(self, job: Job) -> JobSummary:
        """Ask for one job in a line."""
        return self._read(self._ask("GET", job.path("summary")), JobSummary)

    def look(self, job: Job) -> JobSeen:
        """Look at one job."""
        summary = self.summary(job)
        is_complete = summary.items <= ITEMS_MAX
        if is_complete or not self._hurries:
            self._plan(job)
        self._hurries = False
        lines = self._lines(job)
        return JobSeen(
            job=job,
            summary=summary,
            members=self.members(job),
            items=self.items(job) if is_complete else [each for state in _APART for each in self._some(job, state)],
            is_complete=is_complete,
            planned=self._last_plan,
            refused=self._refused,
            lines=lines,
            zero=self._when(job, lines),
            series=self._series(job),
            now=clock.now(),
        )

    def _some(self, job: Job, state: str) -> list[ItemView]:
        """Read the first items in a state: a server takes its time for every page of a large job."""
        return self._read(self._ask("GET", job.path("items"), query={"state": state, "limit": str(SOME)}), _Items).items

    def _plan(self, job: Job) -> None:
        """Plan a job again unless that was dear and a short time ago; one that cannot be planned says why."""
        began_s = time.monotonic()
        if began_s < self._plan_s:
            return
        try:
            self._last_plan, self._refused = self.plan(job), ""
        except InvalidSpec as error:
            self._last_plan, self._refused = None, str(error)
        self._plan_s = time.monotonic() + (time.monotonic() - began_s) * _PLAN_PART

    def _lines(self, job: Job) -> list[JournalLine]:
        """Read the newest lines of a job's journal, newest first."""
        response = self._ask("GET", job.path("history"), query={"newest": "true", "limit": str(LINES)})
        return self._read(response, _Lines).items

    def _series(self, job: Job) -> Series | None:
        """Read the history of a job; a server that keeps none shows none."""
        with suppress(PoiseError):
            return self._read(self._ask("GET", job.path("series")), Series)
        return None

    def _when(self, job: Job, lines: list[JournalLine]) -> datetime | None:
        """Find the wall clock at store time 0, once: the newest line as an event has both times."""
        if self._zero is None and lines:
            after = f"{lines[0].version}.{lines[0].number - 1}"
            with suppress(PoiseError):
                self._zero = _zero_of(self._first_event(job, after))
        return self._zero

    def _first_event(self, job: Job, after: str) -> Event | None:
        import httpx2

        headers, query = {"Last-Event-ID": after}, {"kind": job.kind, "job": job.name}
        timeout = httpx2.Timeout(5.0, read=2.0)
        try:
            with self._client.stream("GET", "/v1/events", headers=headers, params=query, timeout=timeout) as response:
                for line in response.iter_lines() if response.status_code == 200 else ():
                    if line.startswith("data:"):
                        return msgspec.json.decode(line[5:], type=Event)
        except (httpx2.RequestError, OSError, msgspec.DecodeError):
            return None
        return None


def _zero_of(event: Event | None) -> datetime | None:
    return None if event is None or event.at is None else event.at - timedelta(seconds=event.line.at_s)


class _Lines(msgspec.Struct, frozen=True):
    items: list[JournalLine]


class _Items(msgspec.Struct, frozen=True):
    items: list[ItemView]


class Watch(Generic[Seen]):
    """Looks in a thread of its own, at every change and from time to time; who draws never waits for the server."""

    def __init__(self, server: Server, look: Callable[[], Seen], first: Seen, tell: Callable[[], None]) -> None:
        """Begin with a first look; `tell` hears of every further one, and of every failure."""
        self.seen, self.trouble, self.ended = first, "", ""
        self._server, self._look, self._tell = server, look, tell
        self._stopped = threading.Event()
        self._news = server.news()
        self._thread = threading.Thread(target=self._run, name="poise-top", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more; a question under way is left alone."""
        self._stopped.set()
        self._news.end()

    def _run(self) -> None:
        took_s = 0.0
        while not self._stopped.wait(max(_SOONEST_S, took_s * _PART)):
            self._news.wait(max(_LATEST_S, took_s * (_IDLE_PART - _PART)))
            began_s = time.monotonic()
            try:
                self.seen, self.trouble = self._look(), ""
            except InvalidSpec as error:
                self.ended = str(error)  # It is no longer there: nothing else is wrong with the question.
            except PoiseError as error:
                self.trouble = str(error)
            except Exception:
                if not self._stopped.is_set():
                    raise
                return  # The connection was closed under the last question.
            self._tell()
            if self.ended:
                return
            took_s = min(_TOOK_MAX_S, time.monotonic() - began_s)
