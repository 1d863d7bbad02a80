"""Jobs shared out over servers by the same planner and hand-over: a job is an item, a server is a member.

The servers of a store are the members of one balanced ring whose keys are the names of all jobs. What a server gains it
runs, what it loses it stops first; one that is killed is missed after its lease, and its jobs go on elsewhere. One that
was away (frozen, or without its store) has stopped its jobs in time, goes on answering, and takes its share again.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import suppress
from types import TracebackType
from typing import Self

from poise.describing import describe_types
from poise.errors import PoiseError, Replaced
from poise.hold.ending import only
from poise.hold.member import Member
from poise.jobs.coordination import Coordination, Tell
from poise.jobs.debts import Debts
from poise.jobs.running import Running
from poise.jobs.stored import SERVERS
from poise.model.ownership import SetRow, Terms
from poise.model.partition_set import PartitionGuards
from poise.move.executor import put_set
from poise.stores.base import Store, Transaction

TERMS = Terms(lease_s=6, grace_s=3, release_s=20, margin_s=2, stop_s=2)
_BACKOFF_S, _BACKOFF_MAX_S = 0.2, 10.0
_FREE = PartitionGuards(moves_in_flight_max=None, per_source_max=None, per_target_max=None)
_RING = SetRow(name=SERVERS, kind="ShardRing", policy="balanced", brake_percent=100, terms=TERMS, guards=_FREE)

_log = logging.getLogger("poise.server")


def hold_jobs(store: Store) -> int:
    """Make the ring of jobs hold exactly the jobs of the store; say how many there are. Nothing idle writes.

    Order: look beside the ring's lock first. Every change of any job comes by here, at every server.
    """
    names = [name for name in store.sets() if name != SERVERS]

    def work(tx: Transaction) -> None:
        if not _holds(tx, names):
            put_set(tx, _RING, names)

    if not store.view(SERVERS, lambda tx: _holds(tx, names)):
        store.transact(SERVERS, work)
    return len(names)


def _holds(tx: Transaction, names: list[str]) -> bool:
    job = tx.job()
    known = {item for item, row in tx.rows().items() if not row.retiring}
    return job is not None and known == set(names) and job.terms == TERMS


class JobServer:
    """Runs its share of the jobs of a store while its block runs."""

    def __init__(self, store: Store, name: str, tell: Tell | None = None, pods: ssl.SSLContext | None = None) -> None:
        """Take part under this name, another one in every process; `tell` hears of every cycle.

        `pods` is the TLS towards the pods of pools, where it is not the system's.
        """
        describe_types()
        self._store, self._name, self._tell, self._pods = store, name, tell, pods
        self._debts = Debts()
        self._running: dict[str, Running] = {}
        self._watching: asyncio.Task[None] | None = None
        self.ready = False

    async def __aenter__(self) -> Self:
        """Join the servers of the store."""
        await asyncio.to_thread(hold_jobs, self._store)
        self._ending = asyncio.Event()
        self._planning = Coordination(self._store, self._name, only=SERVERS)
        self._planning.__enter__()
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._group.create_task(self._take_part(joined))
        try:
            await joined
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        self._watching = self._group.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hand every job over, and only then go."""
        self._ending.set()
        if self._watching is not None:
            self._watching.cancel()
        try:
            await self._group.__aexit__(kind, error, trace)
        except BaseExceptionGroup as errors:
            raise only(errors) from None
        finally:
            await asyncio.to_thread(self._planning.__exit__, None, None, None)

    @property
    def jobs(self) -> list[str]:
        """Name the jobs that run here."""
        return sorted(self._running)

    async def _take_part(self, joined: asyncio.Future[None]) -> None:
        """Be a member until the end. What ends the member does not end the server: it joins anew, as a new incarnation.

        Only who was replaced by another process of its name ends, and who could not join at first.
        """
        failures = 0
        while not self._ending.is_set():
            try:
                async with self._new_member():
                    if not joined.done():
                        joined.set_result(None)
                    failures = 0
                    await self._ending.wait()
            except Replaced:
                raise
            except Exception as error:
                if not joined.done():
                    return joined.set_exception(error)
                failures += 1
                _log.error("server.left reason=%s", error)
                await self._stop_all()
                await self._pause(failures)
        return None

    def _new_member(self) -> Member:
        return Member(
            self._store,
            set=SERVERS,
            name=self._name,
            on_gain=self._gain,
            on_loss=self._lose,
            margin_s=TERMS.margin_s,
            stop_s=TERMS.stop_s,
        )

    async def _stop_all(self) -> None:
        """Leave nothing behind of what a member that has failed did not stop."""
        for name in list(self._running):
            await self._lose(name, 0)

    async def _pause(self, failures: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(min(_BACKOFF_MAX_S, _BACKOFF_S * 2.0**failures)):
                await self._ending.wait()

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
                await self._pause(failures)
            except Exception:
                failures += 1
                _log.exception("server.broken")  # Without it no job of this server would hear of a change any more.
                await self._pause(failures)

    async def _gain(self, name: str, epoch: int) -> None:
        _log.info("server.runs job=%s epoch=%d", name, epoch)
        job = await self._job(name)
        kind, who = "" if job is None else job.kind, f"{self._name} {epoch}"
        self._running[name] = Running(self._store, name, kind, who, self._debts, self._tell, self._pods)

    async def _job(self, name: str) -> SetRow | None:
        """Read what kind of job it is; a store that does not answer now is no reason to refuse the job."""
        while True:
            try:
                return await asyncio.to_thread(self._store.view, name, lambda tx: tx.job())
            except PoiseError as error:
                _log.warning("server.waits job=%s reason=%s", name, error)
                await asyncio.sleep(_BACKOFF_S)

    async def _lose(self, name: str, epoch: int) -> None:
        """Stop a job. Where the store hangs its last call may not have ended when there is no more time to wait.

        That call does no harm: what it would write is judged in the store by a term, which ends before another leads.
        """
        running = self._running.pop(name, None)
        try:
            if running is not None:
                await running.stop()
            _log.info("server.stopped job=%s epoch=%d", name, epoch)
        except asyncio.CancelledError:
            _log.warning("server.abandoned job=%s epoch=%d reason=its last call has not ended", name, epoch)
