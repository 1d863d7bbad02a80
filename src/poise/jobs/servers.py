"""Jobs shared out over servers by the same planner and hand-over: a job is an item, a server is a member.

The servers of a store are the members of one balanced ring whose keys are the names of all jobs. What a server gains it
runs, what it loses it stops first; one that is killed is missed after its lease, and its jobs go on elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from poise import clock
from poise.errors import Conflict, NotFound, PoiseError, Unavailable
from poise.hold.member import Member
from poise.jobs.coordination import Coordination, Tell, Turn
from poise.jobs.coordinator import Coordinator
from poise.jobs.debts import Debts
from poise.jobs.dividing import divide_stored
from poise.jobs.pool.engine import PoolEngine
from poise.jobs.stored import DOCUMENT, SERVERS
from poise.model.ownership import SetRow, Terms
from poise.model.partition_set import PartitionGuards
from poise.move.executor import put_set
from poise.stores.base import Store, Transaction

TERMS = Terms(lease_s=6, grace_s=3, release_s=20, margin_s=2, stop_s=2)
WAKE_S = 5.0  # A job that no change wakes looks around this often.
_BACKOFF_S, _BACKOFF_MAX_S = 0.2, 10.0

_log = logging.getLogger("poise.server")


def hold_jobs(store: Store) -> int:
    """Make the ring of jobs hold exactly the jobs of the store; say how many there are. Nothing idle writes."""
    names = [name for name in store.sets() if name != SERVERS]
    free = PartitionGuards(moves_in_flight_max=None, per_source_max=None, per_target_max=None)
    ring = SetRow(name=SERVERS, kind="ShardRing", policy="balanced", brake_percent=100, terms=TERMS, guards=free)

    def work(tx: Transaction) -> None:
        job = tx.job()
        known = {item for item, row in tx.rows().items() if not row.retiring} if job else set()
        if job is None or known != set(names) or job.terms != TERMS:
            put_set(tx, ring, names)

    store.transact(SERVERS, work)
    return len(names)


class JobServer:
    """Runs its share of the jobs of a store while its block runs."""

    def __init__(self, store: Store, name: str, tell: Tell | None = None) -> None:
        """Take part under this name, another one in every process; `tell` hears of every cycle."""
        self._store, self._name, self._tell = store, name, tell
        self._debts = Debts()
        self._running: dict[str, _Running] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.ready = False

    async def __aenter__(self) -> Self:
        """Join the servers of the store."""
        await asyncio.to_thread(hold_jobs, self._store)
        self._planning = Coordination(self._store, self._name, only=SERVERS)
        self._member = Member(
            self._store,
            set=SERVERS,
            name=self._name,
            on_gain=self._gain,
            on_loss=self._lose,
            margin_s=TERMS.margin_s,
            stop_s=TERMS.stop_s,
        )
        self._planning.__enter__()
        try:
            await self._member.__aenter__()
        except BaseException:
            await asyncio.to_thread(self._planning.__exit__, None, None, None)
            raise
        self._tasks = [asyncio.create_task(self._watch())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hand every job over, and only then go."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._member.__aexit__(kind, error, trace)
        finally:
            await asyncio.to_thread(self._planning.__exit__, None, None, None)

    @property
    def jobs(self) -> list[str]:
        """Name the jobs that run here."""
        return sorted(self._running)

    async def _watch(self) -> None:
        """Wake the jobs that run here at every change, and keep the list of jobs."""
        version, failures = -1, 0
        while True:
            try:
                found = await asyncio.to_thread(self._store.wait, version, 0.0 if version < 0 else 1.0)
                if found != version:
                    await asyncio.to_thread(hold_jobs, self._store)
                    for running in self._running.values():
                        running.wake()
                version, failures, self.ready = found, 0, True
                await asyncio.sleep(0.02)  # Changes come in bursts: look at them together.
            except PoiseError as error:
                failures += 1
                _log.warning("server.unwatched reason=%s", error)
                await asyncio.sleep(min(_BACKOFF_MAX_S, _BACKOFF_S * 2**failures))

    async def _gain(self, name: str, epoch: int) -> None:
        _log.info("server.runs job=%s epoch=%d", name, epoch)
        job = await self._job(name)
        kind, who = "" if job is None else job.kind, f"{self._name} {epoch}"
        self._running[name] = _Running(self._store, name, kind, who, self._debts, self._tell)

    async def _job(self, name: str) -> SetRow | None:
        """Read what kind of job it is; a store that does not answer now is no reason to refuse the job."""
        while True:
            try:
                return await asyncio.to_thread(self._store.view, name, lambda tx: tx.job())
            except PoiseError as error:
                _log.warning("server.waits job=%s reason=%s", name, error)
                await asyncio.sleep(_BACKOFF_S)

    async def _lose(self, name: str, epoch: int) -> None:
        running = self._running.pop(name, None)
        if running is not None:
            await running.stop()
        _log.info("server.stopped job=%s epoch=%d", name, epoch)


class _Running:
    """One job that runs here: a thread of cycles, or a task."""

    def __init__(self, store: Store, name: str, kind: str, who: str, debts: Debts, tell: Tell | None) -> None:
        self._store, self._name = store, name
        self._changed = asyncio.Event()
        self._divided: str | None = None  # The document for which nothing is left to divide.
        self._turn: Turn | None = None
        self._task: asyncio.Task[None] | None = None
        match kind:
            case "PartitionSet" | "ShardRing":
                self._turn = Turn(Coordinator(store, who, debts=debts), name, tell)
                self._turn.start()
            case "TargetPool":
                engine = PoolEngine(store, name.removeprefix("TargetPool/"), who=who)
                self._task = asyncio.create_task(self._again(engine.run))
            case "ReplicaDivision":
                self._task = asyncio.create_task(self._again(self._divide))
            case _:
                pass  # What a CapacitySplit should do next is answered when it is asked.

    def wake(self) -> None:
        """Something has changed in the store."""
        self._changed.set()
        if self._turn is not None:
            self._turn.wake()

    async def stop(self) -> None:
        """End, and return when nothing of it runs any more."""
        if self._turn is not None:
            self._turn.stop()
            await asyncio.to_thread(self._turn.join)
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _again(self, run: Callable[[], Awaitable[None]]) -> None:
        """Run until cancelled; a failure costs this job a growing pause, and nothing else."""
        failures = 0
        while True:
            try:
                await run()
                failures = 0
            except (Unavailable, Conflict, NotFound) as error:
                failures += 1
                _log.warning("job.waits job=%s reason=%s", self._name, error)
            except Exception:
                failures += 1
                _log.exception("job.broken job=%s", self._name)
            await asyncio.sleep(min(_BACKOFF_MAX_S, _BACKOFF_S * 2**failures) if failures else 0.0)

    async def _divide(self) -> None:
        """Divide until nothing changes, then wait for the next change."""
        self._changed.clear()
        name = self._name.removeprefix("ReplicaDivision/")
        while await asyncio.to_thread(self._divide_once, name):
            pass
        with suppress(TimeoutError):
            async with asyncio.timeout(WAKE_S):
                await self._changed.wait()

    def _divide_once(self, name: str) -> int:
        """Divide if people have changed anything since nothing was left to do; say how many workloads changed."""
        job, document = self._store.transact(self._name, lambda tx: (tx.job(), tx.note(DOCUMENT)))
        if job is None or job.paused or document is None or document == self._divided:
            return 0
        changed = divide_stored(self._store, name, clock.now())
        self._divided = None if changed else document
        return changed
