"""Coordinators at work: one for every set of a store, woken by changes and by time, in a thread of its own.

A set that is slow or broken holds up no other. Whoever does not lead only looks, from time to time, whether it may.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from poise import clock
from poise.errors import Conflict, PoiseError, Unavailable
from poise.jobs.coordinator import Coordinator, Cycle
from poise.jobs.debts import Debts
from poise.stores.base import Store

WATCH_S = 1.0  # How long one wait for a change may take: a stop is heard at its end at the latest.
_BACKOFF_S, _BACKOFF_MAX_S = 0.1, 10.0
_BREATH_MAX_S = 0.5  # A cycle that takes longer is not made up for: what it found should not wait for ever.

Tell = Callable[[str, Cycle | None, float], None]
_log = logging.getLogger("poise.coordinator")


class Coordination:
    """Plans all sets of a store, or one, while its block runs: `with Coordination(store, "host-1"):`."""

    def __init__(self, store: Store, who: str, *, only: str | None = None) -> None:
        """Take part in the election of every set under this name; `who` must be another one in every process."""
        self._store, self._who, self._only = store, who, only
        self._stopped = threading.Event()
        self._debts = Debts()
        self._turns: dict[str, Turn] = {}
        self._watcher = threading.Thread(target=self._watch, name="poise-coordination", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every cycle, and give the lead to whoever wants it next."""
        self._stopped.set()
        self._watcher.join()
        for turn in self._turns.values():
            turn.stop()
        for turn in self._turns.values():
            turn.join()

    def _watch(self) -> None:
        """Wait for changes, begin the turn of every new set, and wake the others."""
        version, failures = -1, 0
        while not self._stopped.is_set():
            try:
                changed = self._store.wait(version, 0.0 if version < 0 else WATCH_S)
                if changed != version:
                    self._look()
                version, failures = changed, 0
            except PoiseError as error:
                failures += 1
                _log.warning("coordination.unwatched reason=%s", error)
                self._stopped.wait(_pause_s(failures))
            except Exception:
                failures += 1
                _log.exception("coordination.broken")  # Without its watcher no set would be woken any more.
                self._stopped.wait(_pause_s(failures))

    def _look(self) -> None:
        names = [name for name in self._store.sets() if self._only in (None, name)]
        for name in names:
            if name not in self._turns and self._is_planned(name):
                self._turns[name] = Turn(Coordinator(self._store, self._who, debts=self._debts), name)
                self._turns[name].start()
        for name in self._turns.keys() - names:
            self._turns.pop(name).stop()  # The set was deleted and has ended: nobody leads it any more.
        for turn in self._turns.values():
            turn.wake()

    def _is_planned(self, name: str) -> bool:
        """Say whether a set is planned here: pools need somebody who speaks for their pods first."""
        job = self._store.view(name, lambda tx: tx.job())
        return job is not None and job.kind in ("PartitionSet", "ShardRing")


class Turn(threading.Thread):
    """The cycles of one set, one after the other; `tell` hears of each (None: it failed), and how long it took."""

    def __init__(self, coordinator: Coordinator, name: str, tell: Tell | None = None) -> None:
        super().__init__(name=f"poise-{name}", daemon=True)
        self._coordinator, self._set, self._tell = coordinator, name, tell
        self._leads = False
        self._said = ""
        self._news = threading.Condition()
        self._woken = self._stopped = False

    def wake(self) -> None:
        """Let the leader look again; nobody else needs to."""
        with self._news:
            self._woken = True
            if self._leads:
                self._news.notify()

    def stop(self) -> None:
        """End after the cycle that runs."""
        with self._news:
            self._stopped = True
            self._news.notify()

    def run(self) -> None:
        """Plan until stopped; a failure costs this set a growing pause, and nothing else."""
        failures = 0
        while not self._stopped:
            with self._news:
                self._woken = False
            cycle, began_s = None, clock.boot_s()
            try:
                cycle = self._coordinator.cycle(self._set)
                failures, wait_s, self._leads = 0, cycle.wake_s, cycle.leads
                if cycle.plan is not None and cycle.said != self._said:
                    _log.info("coordinator.planned %s", cycle.said)
                    self._said = cycle.said
            except (Unavailable, Conflict) as error:
                failures, wait_s = failures + 1, _pause_s(failures)
                _log.warning("coordinator.waits set=%s reason=%s", self._set, error)
            except Exception:
                failures, wait_s = failures + 1, _pause_s(failures)
                _log.exception("coordinator.broken set=%s", self._set)
            took_s = clock.boot_s() - began_s
            self._report(cycle, took_s)
            self._breathe(min(took_s, _BREATH_MAX_S))
            self._rest(wait_s, heeds=self._leads and not failures)
        self._resign()

    def _report(self, cycle: Cycle | None, took_s: float) -> None:
        """Tell whoever listens; what goes wrong there is no reason to end the cycles of a set."""
        try:
            if self._tell is not None:
                self._tell(self._set, cycle, took_s)
        except Exception:
            _log.exception("coordinator.untold set=%s", self._set)

    def _breathe(self, seconds: float) -> None:
        """Leave as much time to the others as a cycle took: changes that come in bursts are then planned together."""
        with self._news:
            self._news.wait_for(lambda: self._stopped, seconds)

    def _rest(self, seconds: float, *, heeds: bool) -> None:
        """Sleep until it is time, until a change where changes matter, or until stopped."""
        with self._news:
            self._news.wait_for(lambda: self._stopped or (heeds and self._woken), seconds)

    def _resign(self) -> None:
        try:
            self._coordinator.resign(self._set)
        except PoiseError as error:
            _log.info("coordinator.not_resigned set=%s reason=%s", self._set, error)  # Its term ends by itself.


def _pause_s(failures: int) -> float:
    return min(_BACKOFF_MAX_S, _BACKOFF_S * 2.0**failures)
