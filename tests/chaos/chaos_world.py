"""A world of real processes: a store, a sink, who plans, and workers that come, go, die and freeze."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.chaos.chaos_audit import Case, Fault, Terms
from tests.chaos.chaos_processes import Worker, start_coordinator, start_sink
from tests.chaos.chaos_sink import Entry, read_log
from tests.chaos.chaos_store import Observer, grants_of

TERMS = Terms(lease_s=3, grace_s=1)
MARGIN_S, STOP_S, RESTART_GRACE_S = 0.8, 0.5, 20.0
PATIENCE_S = 40.0
_FRESH_S = 0.4


class World:
    """Everything that was started; `close` ends it, whatever has happened."""

    def __init__(self, folder: Path, url: str, items: int, *, own_coordinator: bool) -> None:
        """Prepare; plans are made in a process of its own, or in the workers."""
        self.folder, self.url, self.own_coordinator = folder, url, own_coordinator
        self.items = tuple(str(number) for number in range(items))
        self.workers: list[Worker] = []
        self._others: list[subprocess.Popen[bytes]] = []
        self._pipe, self._log = folder / "pipe", folder / "sink.db"
        self._coordinator_says = folder / "coordinator.err"
        self._coordinator: subprocess.Popen[bytes] | None = None
        self.observer: Observer | None = None
        self.faults: list[Fault] = []
        self._latest: dict[str, Entry] = {}
        self._read = 0

    def begin(self) -> None:
        """Start the sink, put the set into the store, and begin to look at it."""
        self._others.append(start_sink(self._pipe, self._log))
        self.start_coordinator()
        await_that(lambda: self.coordinator_begun, f"the coordinator begins; see {self._coordinator_says}")
        self.observer = Observer(self.url, "chaos")
        if not self.own_coordinator:
            self.kill_coordinator()

    def start_coordinator(self) -> None:
        """Start a coordinator in a process of its own."""
        terms = (TERMS.lease_s, TERMS.grace_s, RESTART_GRACE_S)
        self._coordinator = start_coordinator(self.url, len(self.items), terms, self._coordinator_says)
        self._others.append(self._coordinator)

    @property
    def coordinator_begun(self) -> bool:
        """Say whether the coordinator that was started last is at work; those of the workers are."""
        started = len(self._others) - 1
        return self._coordinator_says.read_text().count("plans chaos") == started

    def kill_coordinator(self) -> None:
        """Kill it in the middle of whatever it does."""
        assert self._coordinator is not None
        self._coordinator.kill()
        self._coordinator.wait()

    def start(self, name: str, *options: str) -> Worker:
        """Start a worker."""
        terms = ("--margin", str(MARGIN_S), "--stop", str(STOP_S))
        planning = ("--no-coordinate",) if self.own_coordinator else ()
        said = self.folder / f"{name}-{len(self.workers)}.err"
        worker = Worker(name, self.url, self._pipe, said, (*terms, *planning, *options))
        self.workers.append(worker)
        return worker

    @property
    def present(self) -> list[Worker]:
        """Give the workers that are there, frozen or not."""
        return [worker for worker in self.workers if not worker.ending]

    def leads(self, worker: Worker) -> bool:
        """Say whether a worker is the one that plans."""
        return self.observer is not None and self.observer.leader.partition(" ")[0] == worker.name

    def entries(self) -> list[Entry]:
        """Read the whole log."""
        return read_log(self._log)

    def latest(self) -> dict[str, Entry]:
        """Give the last accepted write of each item."""
        for entry in read_log(self._log, self._read):
            self._read = entry.number
            if entry.kind == "write" and entry.accepted:
                self._latest[entry.item] = entry
        return self._latest

    def settled(self) -> bool:
        """Say whether every item is being written, and by all workers evenly."""
        now_s = time.monotonic()
        fresh = [entry for entry in self.latest().values() if now_s - entry.sink_s < _FRESH_S]
        loads = Counter(dict.fromkeys((worker.name for worker in self.present), 0))
        loads.update(entry.member for entry in fresh)
        even = max(loads.values(), default=0) - min(loads.values(), default=0) <= 1
        return len(fresh) == len(self.items) and even and len(loads) == len(self.present)

    def await_settled(self, patience_s: float = PATIENCE_S) -> bool:
        """Wait until all is even; the auditor says what is wrong if it does not come."""
        last_s = time.monotonic() + patience_s
        while not self.settled():
            if time.monotonic() > last_s:
                return False
            time.sleep(0.05)
        return True

    def case(self, from_s: float, settled_s: float) -> Case:
        """Put together what the auditor needs."""
        assert self.observer is not None
        until_s = time.monotonic()
        names = tuple(worker.name for worker in self.present)
        facts = (tuple(self.faults), grants_of(self.observer.journal()), self.observer.stalls)
        return Case(self.entries(), self.items, TERMS, from_s, settled_s, until_s, names, *facts)

    def close(self) -> None:
        """End every process that was started here, the sink last: nobody writes into a broken pipe."""
        with ExitStack() as ends:  # Each of them, also when another one fails.
            for other in self._others:
                ends.callback(_end, other)
            for worker in self.workers:
                ends.callback(worker.end)
            if self.observer is not None:
                ends.callback(self.observer.close)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@contextmanager
def world(folder: Path, url: str, items: int, *, own_coordinator: bool) -> Iterator[World]:
    """Make a world, and end all of it."""
    made = World(folder, url, items, own_coordinator=own_coordinator)
    try:
        made.begin()
        yield made
    finally:
        made.close()


def await_that(met: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait for something that must come."""
    last_s = time.monotonic() + patience_s
    while not met():
        assert time.monotonic() < last_s, f"it did not come in time: {what}"
        time.sleep(0.02)
