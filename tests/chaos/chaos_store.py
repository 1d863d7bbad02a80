"""A neutral observer of the store: when it did not answer, who leads, and to whom items were given."""

from __future__ import annotations

import threading
import time

import msgspec
from tests.chaos.chaos_audit import Grant

from poise.errors import PoiseError
from poise.model.ownership import Line
from poise.move.handoff import Transition
from poise.stores.open import open_store

_LOOK_S = 0.15
_STALL_S = 0.4
_LINES_MAX = 1000


class Observer:
    """Asks the store again and again, in a thread of its own."""

    def __init__(self, url: str, name: str) -> None:
        """Begin to look."""
        self._store, self._name = open_store(url), name
        self._done = threading.Event()
        self._stalls: list[tuple[float, float]] = []
        self.leader = ""
        self._thread = threading.Thread(target=self._look_on, name="observer")
        self._thread.start()

    def _look_on(self) -> None:
        answered_s = time.monotonic()
        while not self._done.wait(_LOOK_S):
            try:
                self.leader = self._store.transact(self._name, lambda tx: tx.leader()).holder
            except PoiseError:
                continue
            now_s = time.monotonic()
            if now_s - answered_s > _LOOK_S + _STALL_S:
                self._stalls.append((answered_s, now_s))
            answered_s = now_s

    @property
    def stalls(self) -> tuple[tuple[float, float], ...]:
        """Give the times without an answer so far."""
        return tuple(self._stalls)

    def journal(self) -> list[Line]:
        """Read the whole journal, with times by the clock of everybody else here."""
        ahead_s = self._store.transact(self._name, lambda tx: tx.now_s) - time.monotonic()
        lines, found = self._store.journal(self._name, most=_LINES_MAX), list[Line]()
        while lines:
            found += [msgspec.structs.replace(line, at_s=line.at_s - ahead_s) for line in lines]
            lines = self._store.journal(self._name, after=lines[-1].number, most=_LINES_MAX)
        return found

    def close(self) -> None:
        """End it."""
        self._done.set()
        self._thread.join()
        self._store.close()


def grants_of(journal: list[Line]) -> tuple[Grant, ...]:
    """Find to whom items were given."""
    return tuple(
        Grant(line.item, line.member, line.at_s) for line in journal if line.transition == Transition.T1 and line.member
    )
