"""The link from a member to its coordinator: register, heartbeat, and be called when something waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import msgspec

from poise.hold.settings import BEATS_PER_LEASE
from poise.model.ownership import Heartbeat, Reply, Terms
from poise.move.executor import register_member, take_heartbeat
from poise.move.handoff import Transition
from poise.move.heartbeat import Stale, Superseded
from poise.stores.base import Store, Transaction

# What others write about a member that it should hear of before its next heartbeat is due.
CALLS = (Transition.T1, Transition.T3, Transition.T6)
_THREADS = 3  # One waits for calls, one sends, and one is there for an attempt that was given up on.
_LINES_MAX = 1000

Answer = TypeVar("Answer")


class Registered(msgspec.Struct, frozen=True):
    """What a process gets when it registers: its incarnation, the promises of the set, and how often to speak."""

    incarnation: int
    terms: Terms
    period_s: float


class StoreLink:
    """Speaks for one member with a store, in threads beside the event loop."""

    def __init__(self, store: Store, job: str, member: str, process: str, *, closes: bool = False) -> None:
        """Link one process of a member to a set; `closes`: the store is this link's own, and is closed with it."""
        self._store = store
        self._job = job
        self._member = member
        self._process = process
        self._closes = closes
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix=f"poise-{member}")
        self._version = 0
        self._read = 0

    async def register(self, check: Callable[[Terms], None]) -> Registered:
        """Get an incarnation; a process that registers twice gets the same one.

        `check` refuses what the set promises by raising: then nothing was registered, and nobody superseded.
        """
        return await self._run(lambda: self._register(check))

    async def beat(self, said: Heartbeat) -> Reply | Superseded | Stale:
        """Send one heartbeat and hear the answer."""
        return await self._run(
            lambda: self._store.transact(self._job, lambda tx: take_heartbeat(tx, self._job, self._member, said))
        )

    async def called(self, timeout_s: float) -> bool:
        """Wait for a change, and say whether it concerns this member: only transitions do, renewals never."""
        return await self._run(lambda: self._called(timeout_s))

    async def close(self, timeout_s: float) -> None:
        """Let go of the threads, and of the store where it is this link's own; a store that hangs is left behind."""
        loop, gone = asyncio.get_running_loop(), asyncio.Event()

        def part() -> None:
            self._threads.shutdown()
            if self._closes:
                self._store.close()
            with suppress(RuntimeError):  # Nobody waits any more.
                loop.call_soon_threadsafe(gone.set)

        threading.Thread(target=part, name=f"poise-{self._member}-part", daemon=True).start()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await gone.wait()

    async def _run(self, work: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _register(self, check: Callable[[Terms], None]) -> Registered:
        def work(tx: Transaction) -> Registered:
            row = register_member(tx, self._job, self._member, self._process)
            job = tx.job()
            assert job is not None  # Registering has read it.
            check(job.terms)
            self._read = tx.last_line()
            return Registered(row.incarnation, job.terms, job.terms.lease_s / BEATS_PER_LEASE)

        self._version = self._store.version()
        return self._store.transact(self._job, work)

    def _called(self, timeout_s: float) -> bool:
        self._version = self._store.wait(self._version, timeout_s)
        lines = self._store.journal(self._job, after=self._read, most=_LINES_MAX)
        if lines:
            self._read = lines[-1].number
        return any(line.member == self._member and line.transition in CALLS for line in lines)
