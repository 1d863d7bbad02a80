"""The newest events of all jobs and the last lines of each, kept up to date with every look; and the clock of lines.

Nothing here grows with time: so many events, so many lines of a job and so many jobs are kept, whoever looks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from poise.jobs.sentences import CHATTER, REPORTED
from poise.model.ownership import Line
from poise.serve.facade import ORIGIN, Event, JobsApi

KEPT = 1_000
_FIRST = 5_000  # So many events are read by the first look, to find those that are worth telling.
_PAGE, _PAGES_MAX = 1_000, 3
_LINES, _LINES_PAGE, _LINES_MAX = 400, 2_000, 20_000  # So far back a job is read: at first, then at once, and in all.
_NEW_MAX = 4_000  # So many new lines of a job are read on; where there are more, its end is read anew.
_LINES_KEPT, _JOBS_KEPT = 2_000, 32

Lines = tuple[Line, ...]


class LastLines(msgspec.Struct, frozen=True):
    """The last lines of a job that are worth telling, oldest first.

    `newest` is the newest line of all, worth telling or not; `cut` says that there are older ones.
    """

    lines: Lines = ()
    newest: Line | None = None
    cut: bool = False


class Newest:
    """Remembers the last events that were read, a bounded number of them; every look reads only what is new."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._lock = threading.Lock()
        self._kept: deque[Event] = deque(maxlen=KEPT)
        self._telling: deque[Event] = deque(maxlen=KEPT)
        self._last = ""
        self._zero: datetime | None = None
        self._jobs: dict[tuple[str, str], LastLines] = {}

    def read(self, api: JobsApi) -> list[Event]:
        """Read the newest events, oldest first: so many as are kept, or all that there are."""
        with self._lock:
            self._look(api)
            return list(self._kept)

    def telling(self, api: JobsApi) -> tuple[list[Event], int]:
        """Read the newest events without confirmations and counts, which come all the time; and how many are kept."""
        with self._lock:
            self._look(api)
            return list(self._telling), len(self._kept)

    def zero(self, api: JobsApi) -> datetime | None:
        """Find the time of the day at store time 0, which never changes; None while nothing has happened."""
        if self._zero is None:
            events = self.read(api)
            if events and events[-1].at is not None:
                self._zero = events[-1].at - timedelta(seconds=events[-1].line.at_s)
        return self._zero

    def lines(self, api: JobsApi, kind: str, name: str, enough: Callable[[Lines], bool]) -> LastLines:
        """Read the last lines of a job that are worth telling, as far back as it takes to have `enough` of them."""
        with self._lock:
            known = self._jobs.pop((kind, name), LastLines())
        found = _read_on(api, kind, name, known) or _read_back(api, kind, name, enough)
        with self._lock:
            self._jobs[kind, name] = found
            while len(self._jobs) > _JOBS_KEPT:
                del self._jobs[next(iter(self._jobs))]
        return found

    def _look(self, api: JobsApi) -> None:
        """Read what has come since; whoever has not looked for long begins anew: what lies between is not kept."""
        for _ in range(_PAGES_MAX if self._last else 0):
            page = api.events(self._last, _PAGE)
            if not page:
                return
            self._keep(page)
        self._kept.clear()
        self._telling.clear()
        self._last = self._last or ORIGIN
        self._keep(api.events(None, _FIRST))

    def _keep(self, events: list[Event]) -> None:
        self._kept.extend(events)
        self._telling.extend(each for each in events if _is_telling(each.line) and each.line.transition != REPORTED)
        self._last = events[-1].id if events else self._last


def _is_telling(line: Line) -> bool:
    return line.transition not in CHATTER


def _read_on(api: JobsApi, kind: str, name: str, known: LastLines) -> LastLines | None:
    """Read what has come since the last look; None where that is too much, or where the job is another one by now."""
    if known.newest is None:
        return None
    page = api.history(kind, name, after=known.newest.number - 1, most=_NEW_MAX)
    if not page or page[0] != known.newest or len(page) == _NEW_MAX:
        return None
    return _bounded((*known.lines, *filter(_is_telling, page[1:])), page[-1], cut=known.cut)


def _read_back(api: JobsApi, kind: str, name: str, enough: Callable[[Lines], bool]) -> LastLines:
    """Read backwards until there is enough, or the story is over, or so much was read that nobody should wait."""
    found, newest, before, read, most = list[Line](), None, None, 0, _LINES
    cut = True
    while cut and read < _LINES_MAX:
        page = api.history(kind, name, after=before, most=most, newest=True)
        newest = newest or (page[0] if page else None)
        found += filter(_is_telling, page)
        read, cut = read + len(page), len(page) == most
        if enough(tuple(reversed(found))):
            break
        before, most = page[-1].number if page else None, _LINES_PAGE
    return _bounded(tuple(reversed(found)), newest, cut=cut)


def _bounded(lines: Lines, newest: Line | None, *, cut: bool) -> LastLines:
    return LastLines(lines[-_LINES_KEPT:], newest, cut or len(lines) > _LINES_KEPT)
