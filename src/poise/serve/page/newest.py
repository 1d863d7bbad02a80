"""The newest events of all jobs, kept up to date with every look, and the clock that tells when a line was written."""

from __future__ import annotations

import threading
from collections import deque
from datetime import datetime, timedelta

from poise.serve.facade import ORIGIN, Event, JobsApi

KEPT = 1_000
_PAGE, _PAGES_MAX = 1_000, 3


class Newest:
    """Remembers the last events that were read, a bounded number of them; every look reads only what is new."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._lock = threading.Lock()
        self._kept: deque[Event] = deque(maxlen=KEPT)
        self._last = ""
        self._zero: datetime | None = None

    def read(self, api: JobsApi) -> list[Event]:
        """Read the newest events, oldest first: so many as are kept, or all that there are."""
        with self._lock:
            if not self._last:
                self._kept.extend(api.events(None, KEPT))
                self._last = self._kept[-1].id if self._kept else ORIGIN
            self._read_on(api)
            return list(self._kept)

    def zero(self, api: JobsApi) -> datetime | None:
        """Find the time of the day at store time 0, which never changes; None while nothing has happened."""
        if self._zero is None:
            events = self.read(api)
            if events and events[-1].at is not None:
                self._zero = events[-1].at - timedelta(seconds=events[-1].line.at_s)
        return self._zero

    def _read_on(self, api: JobsApi) -> None:
        """Read what has come since; whoever has not looked for long begins anew: what lies between is not kept."""
        for _ in range(_PAGES_MAX):
            page = api.events(self._last, _PAGE)
            if not page:
                return
            self._kept.extend(page)
            self._last = page[-1].id
        self._kept.clear()
        self._kept.extend(api.events(None, KEPT))
        self._last = self._kept[-1].id if self._kept else self._last
