"""Waking threads that wait for a commit: whoever hears of one rings, and every waiter looks again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial


class Bell:
    """Counts rings. A waiter notes the count, looks, and sleeps until the count differs: no ring is missed."""

    def __init__(self) -> None:
        self._rung = threading.Condition()
        self._rings = 0
        self._waiting = 0
        self.closed = False

    def ring(self) -> None:
        """Wake every waiter."""
        with self._rung:
            self._rings += 1
            self._rung.notify_all()

    def close(self) -> None:
        """Wake everybody for good."""
        with self._rung:
            self.closed = True
            self._rung.notify_all()

    def wait_for_change(self, version: int, read: Callable[[], int], timeout_s: float) -> int:
        """Read the version until it differs from the one given, once at first and once for every ring."""
        until_s = time.monotonic() + timeout_s
        while True:
            with self._rung:
                rings = self._rings
            found = read()
            if found != version or self.closed or time.monotonic() >= until_s:
                return found
            with self._rung:
                self._waiting += 1
                self._rung.notify_all()
                self._rung.wait_for(partial(self._rang_since, rings), until_s - time.monotonic())
                self._waiting -= 1

    def _rang_since(self, rings: int) -> bool:
        return self.closed or self._rings != rings

    def wait_for_waiters(self) -> bool:
        """Sleep while nobody waits, so that nothing is watched in vain; False once closed."""
        with self._rung:
            self._rung.wait_for(lambda: self.closed or self._waiting > 0)
            return not self.closed

    def rest(self, seconds: float) -> None:
        """Sleep until the time is over or the bell is closed."""
        with self._rung:
            self._rung.wait_for(lambda: self.closed, seconds)
