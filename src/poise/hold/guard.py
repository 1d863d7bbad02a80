"""The last line: a thread that ends the process when its event loop is blocked or its work will not stop."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

EXIT_CODE = 70
_LOOK_S = 0.05


def _abort(late_s: float) -> None:
    """End the process at once, without asking anybody: whatever could be asked is what hangs."""
    sys.stderr.write(f"poise: work did not stop in time ({late_s:.2f} s late): this process ends\n")
    sys.stderr.flush()
    os._exit(EXIT_CODE)


class Guard:
    """Ends the process once `limit_s` has passed; who moves it on in time is left alone."""

    def __init__(self, clock: Callable[[], float], abort: Callable[[float], None] = _abort) -> None:
        """Begin to look."""
        self.limit_s: float | None = None
        self._clock, self._abort = clock, abort
        self._closed = threading.Event()
        threading.Thread(target=self._look, name="poise-guard", daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _look(self) -> None:
        while not self._closed.wait(_LOOK_S):
            limit_s, now_s = self.limit_s, self._clock()
            if limit_s is not None and now_s >= limit_s:
                self._abort(now_s - limit_s)
                return
