"""What is to be looked at, each thing once: at most one run a key, and a longer wait after each failure. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from poise.kube.pacing import Pace

Key = TypeVar("Key", bound=Hashable)
FAILED_PACE = Pace(first_s=0.05, longest_s=60.0)


class WorkQueue(Generic[Key]):
    """Keys that wait for their turn, in the order in which they came; time and chance are arguments.

    A key that is asked for while it runs, runs once more afterwards. One that failed waits its time out, whatever is
    asked meanwhile, unless its failures are forgotten.
    """

    def __init__(self, pace: Pace = FAILED_PACE) -> None:
        """Begin empty."""
        self.on_add: Callable[[], None] = lambda: None
        self._pace = pace
        # The order of a dict is the order of arrival.
        self._ready: dict[Key, None] = {}
        self._due_s: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._numbers: Iterator[int] = count()
        self._running: set[Key] = set()
        self._again: set[Key] = set()
        self._failures: dict[Key, int] = {}

    def __len__(self) -> int:
        """Count the keys that are ready or wait; those that run do not count."""
        return len(self._ready) + len(self._due_s)

    @property
    def ready(self) -> int:
        """How many keys could run now: the depth that a metric shows."""
        return len(self._ready)

    def failures(self, key: Key) -> int:
        """Count the failures of a key since it last succeeded."""
        return self._failures.get(key, 0)

    def add(self, key: Key) -> None:
        """Ask for a key to be looked at as soon as may be; asking twice is asking once."""
        if key in self._running:
            self._again.add(key)
        elif key not in self._failures or key not in self._due_s:
            self._due_s.pop(key, None)
            self._ready[key] = None
            self.on_add()

    def add_at(self, key: Key, at_s: float) -> None:
        """Ask for a key to be looked at by then; an earlier wish stays."""
        if key in self._ready or (key in self._due_s and self._due_s[key] <= at_s):
            return
        self._wait_until(key, at_s)
        self.on_add()

    def forget(self, key: Key) -> None:
        """Forget the failures of a key, and let it run now if it waited for that: the cause may be gone."""
        waited = self._failures.pop(key, 0) and self._due_s.pop(key, None) is not None
        if waited:
            self.add(key)

    def take(self, now_s: float) -> Key | None:
        """Take the next key to run; it must be given back by `done` or `failed`."""
        self._wake(now_s)
        key = next(iter(self._ready), None)
        if key is not None:
            del self._ready[key]
            self._running.add(key)
        return key

    def done(self, key: Key) -> None:
        """Give a key back that succeeded."""
        self._failures.pop(key, None)
        self._give_back(key)

    def failed(self, key: Key, now_s: float, chance: float, at_least_s: float = 0.0) -> float:
        """Give a key back that failed; gives the time that it now waits."""
        self._failures[key] = self._failures.get(key, 0) + 1
        wait_s = max(self._pace.wait_s(self._failures[key], chance), at_least_s)
        self._again.discard(key)
        self._running.discard(key)
        self._wait_until(key, now_s + wait_s)
        return wait_s

    def next_s(self) -> float | None:
        """Give the instant at which the next waiting key is due; None where none waits."""
        while self._heap and self._due_s.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _give_back(self, key: Key) -> None:
        self._running.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _wait_until(self, key: Key, at_s: float) -> None:
        self._due_s[key] = at_s
        heappush(self._heap, (at_s, next(self._numbers), key))

    def _wake(self, now_s: float) -> None:
        """Make ready what is due. A key whose time comes while it runs waits until it is given back."""
        while (due_s := self.next_s()) is not None and due_s <= now_s:
            key = heappop(self._heap)[2]
            del self._due_s[key]
            if key in self._running:
                self._again.add(key)
            else:
                self._ready[key] = None
