"""Answers that are kept as long as what they were made from is the same: a bounded number of them, for one server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")
Job = tuple[str, str]


class Kept(Generic[Answer]):
    """The last answers about some jobs. Everything may be called from any thread; nobody waits while one is made."""

    def __init__(self, most: int) -> None:
        """Keep the answers about so many jobs."""
        self._most = most
        self._turn = threading.Lock()
        self._known: dict[Job, tuple[object, Answer]] = {}

    def get(self, job: Job, mark: object, make: Callable[[], Answer]) -> Answer:
        """Give the answer that has this mark, or make it; the mark was read before, so no answer is older than it."""
        with self._turn:
            known = self._known.get(job)
        if known is not None and known[0] == mark:
            return known[1]
        made = make()
        with self._turn:
            self._known.pop(job, None)
            self._known[job] = (mark, made)
            if len(self._known) > self._most:
                del self._known[next(iter(self._known))]
        return made
