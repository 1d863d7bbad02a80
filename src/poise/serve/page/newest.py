"""The newest events of all jobs, kept up to date with every look, and the clock that tells when a line was written."""

from __future__ import annotations

import threading
from collections import deque
from datetime import datetime, timedelta

from poise.serve.facade import Event, JobsApi

KEPT = 1_000
_ENOUGH, _PAGE = 300, 1_000
# Events are found by the version of the store and read forwards: each window back is so many times wider.
_FIRST, _WIDER = 64, 16


class Newest:
    """Remembers the last events that were read, a bounded number of them; every look reads only what is new."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._lock = threading.Lock()
        self._kept: deque[Event] = deque(maxlen=KEPT)
        self._last = ""
        self._zero: datetime | None = None

    def read(self, api: JobsApi) -> list[Event]:
        """Read the newest events, oldest first: enough of them to fill a page, or all that there are."""
        with self._lock:
            if self._last:
                self._read_on(api)
            else:
                self._begin(api)
            return list(self._kept)

    def zero(self, api: JobsApi) -> datetime | None:
        """Find the time of the day at store time 0, which never changes; None while nothing has happened."""
        if self._zero is None:
            events = self.read(api)
            if events and events[-1].at is not None:
                self._zero = events[-1].at - timedelta(seconds=events[-1].line.at_s)
        return self._zero

    def _begin(self, api: JobsApi) -> None:
        """Look back, further and further, until there is enough."""
        version, window = api.wait(-1, 0.0), _FIRST
        while True:
            begin = max(0, version - window)
            self._kept.clear()
            self._last = f"{begin}.0"
            self._read_on(api)
            if begin == 0 or len(self._kept) >= _ENOUGH:
                return
            window *= _WIDER

    def _read_on(self, api: JobsApi) -> None:
        """Read to the end, and keep the last ones: one commit may have written more lines than anybody reads."""
        while page := api.events(self._last, _PAGE):
            self._kept.extend(page)
            self._last = page[-1].id
