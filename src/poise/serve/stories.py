"""The journal as people read it: the story of an item or of a job, and the events of all jobs with their times."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from math import inf

from poise.errors import invalid
from poise.jobs.stored import SERVERS
from poise.model.ownership import Line
from poise.serve.facade import ORIGIN, Event
from poise.stores.base import Store

_WIDER = 8  # What is looked for lies far apart: each window back in time is so many times wider than the last.
_PAGE = 1_000  # So many lines are read at once.


def read_story(store: Store, where: str, item: str | None, after: int | None, most: int, *, newest: bool) -> list[Line]:
    """Read so many lines after a number at most: after means before it where the newest come first."""
    if not newest:
        return store.journal(where, item, after or 0, most)
    end = store.view(where, lambda tx: tx.last_line()) + 1 if after is None else after
    found: list[Line] = []
    width = most
    while end > 1 and len(found) < most:
        begin = max(0, end - 1 - width)
        # A journal is read forwards only, and a window of so many numbers has no more lines than that.
        window = store.journal(where, item, begin, end - 1 - begin)
        found = [*(line for line in window if line.number < end), *found]
        end, width = begin + 1, width * _WIDER
    return found[::-1][:most]


class EventReader:
    """Reads events of all jobs; store time is told as wall clock time, the same for an event whenever it is asked."""

    def __init__(
        self, store: Store, now: Callable[[], datetime], on_servers: Callable[[Line], None] | None = None
    ) -> None:
        """Read this store; `on_servers` hears of the lines that nobody else sees: which server has which job."""
        self._store, self._now, self._on_servers = store, now, on_servers
        self._kinds: dict[str, str] = {}  # A set never changes its kind.
        self._zero: datetime | None = None  # The wall clock at store time 0: an event has one time.

    def read(self, after: str | None, most: int) -> list[Event]:
        """Read events after an id, or with None the newest ones; those of the servers themselves are nobody's."""
        if after is None:
            return self._events(self._newest(most))
        cursor = _cursor(after)
        while lines := self._store.events(cursor, most):
            shown = [line for line in lines if line.set != SERVERS]
            self._tell_servers(lines)
            if shown:
                return self._events(shown)
            cursor = (lines[-1].version, lines[-1].number)
        return []

    def _newest(self, most: int) -> list[Line]:
        """Look back, further and further: one commit may have written more lines than anybody reads, or none."""
        found: deque[Line] = deque()
        end, width = self._store.version() + 1, 1
        below: float = inf  # What was committed since then is newer still.
        while end > 0 and len(found) < most:
            begin = max(0, end - width)
            window, servers = deque[Line](maxlen=most - len(found)), list[Line]()
            for line in self._between(begin, below):
                (servers if line.set == SERVERS else window).append(line)
            # The newest first: whoever listens never takes an old line for the last word.
            self._tell_servers(reversed(servers))
            found.extendleft(reversed(window))
            below = end = begin
            width *= _WIDER
        return list(found)

    def _between(self, begin: int, below: float) -> Iterator[Line]:
        """Read the lines of all commits from one version on, up to another."""
        cursor = (begin, 0)
        while lines := self._store.events(cursor, _PAGE):
            yield from (line for line in lines if line.version < below)
            cursor = (lines[-1].version, lines[-1].number)
            if lines[-1].version >= below:
                return

    def _tell_servers(self, lines: Iterable[Line]) -> None:
        if self._on_servers is not None:
            for line in lines:
                if line.set == SERVERS:
                    self._on_servers(line)

    def _events(self, lines: list[Line]) -> list[Event]:
        if lines and self._zero is None:
            now_s = self._store.view(lines[0].set, lambda tx: tx.now_s)
            self._zero = self._now() - timedelta(seconds=now_s)
        zero = self._zero
        return [self._event(line, zero) for line in lines] if zero is not None else []

    def _event(self, line: Line, zero: datetime) -> Event:
        kind = self._kinds.get(line.set)
        if kind is None:
            job = self._store.view(line.set, lambda tx: tx.job())
            kind = self._kinds[line.set] = "" if job is None else job.kind
        name, at = line.set.removeprefix(f"{kind}/"), zero + timedelta(seconds=line.at_s)
        return Event(id=f"{line.version}.{line.number}", kind=kind, job=name, line=line, at=at)


def _cursor(after: str) -> tuple[int, int]:
    """Read an id of an event."""
    if after == ORIGIN:
        return (0, 0)
    version, dot, number = after.partition(".")
    if not (dot and version.isdecimal() and number.isdecimal() and len(after) < 40):
        raise invalid("Last-Event-ID", f"expected an id of an event, got {after[:40]!r}")
    return (int(version), int(number))
