"""The link from a member to its coordinator: register, heartbeat, and be called when something waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from poise.errors import Conflict
from poise.model.ownership import Heartbeat, Reply, Terms
from poise.move.executor import register_member, take_heartbeat
from poise.move.handoff import Transition
from poise.move.heartbeat import Stale, Superseded
from poise.stores.base import Store, Transaction

# What others write about a member that it should hear of before its next heartbeat is due.
_CALLS = (Transition.T1, Transition.T3, Transition.T6)
_THREADS = 3  # One waits for calls, one sends, and one is there for an attempt that was given up on.
_LINES_MAX = 1000

Answer = TypeVar("Answer")


class Registered(msgspec.Struct, frozen=True):
    """What a process gets when it registers: its incarnation, and the promises of the set."""

    incarnation: int
    terms: Terms


class Replaced(Conflict):
    """A newer process of this name has registered. This one stops, and does not register again by itself."""


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

    async def register(self) -> Registered:
        """Get an incarnation; a process that registers twice gets the same one."""
        return await self._run(self._register)

    async def beat(self, said: Heartbeat) -> Reply | Superseded | Stale:
        """Send one heartbeat and hear the answer."""
        return await self._run(
            lambda: self._store.transact(self._job, lambda tx: take_heartbeat(tx, self._job, self._member, said))
        )

    async def called(self, timeout_s: float) -> bool:
        """Wait for a change, and say whether it concerns this member: only transitions do, renewals never."""
        return await self._run(lambda: self._called(timeout_s))

    async def close(self) -> None:
        """Let go of the threads, and of the store where it is this link's own."""
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
        if self._closes:
            self._store.close()

    async def _run(self, work: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _register(self) -> Registered:
        def work(tx: Transaction) -> Registered:
            row = register_member(tx, self._job, self._member, self._process)
            job = tx.job()
            assert job is not None  # Registering has read it.
            self._read = tx.last_line()
            return Registered(row.incarnation, job.terms)

        self._version = self._store.version()
        return self._store.transact(self._job, work)

    def _called(self, timeout_s: float) -> bool:
        self._version = self._store.wait(self._version, timeout_s)
        lines = self._store.journal(self._job, after=self._read, most=_LINES_MAX)
        if lines:
            self._read = lines[-1].number
        return any(line.member == self._member and line.transition in _CALLS for line in lines)
