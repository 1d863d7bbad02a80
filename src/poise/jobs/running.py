"""One job that runs on this server: a thread of cycles, or a task."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress

from poise import clock
from poise.errors import Conflict, NotFound, Unavailable
from poise.jobs.coordination import Tell, Turn
from poise.jobs.coordinator import Coordinator, Cycle
from poise.jobs.debts import Debts
from poise.jobs.dividing import divide_stored
from poise.jobs.pool.engine import PoolEngine
from poise.jobs.stored import DOCUMENT
from poise.stores.base import Store

WAKE_S = 5.0  # A job that no change wakes looks around this often.
_LOOK_S = 0.01
_BACKOFF_S, _BACKOFF_MAX_S = 0.2, 10.0

_log = logging.getLogger("poise.server")


class Running:
    """Runs one job from when it is made until it is stopped."""

    def __init__(
        self,
        store: Store,
        name: str,
        kind: str,
        who: str,
        debts: Debts,
        tell: Tell | None,
        pods: ssl.SSLContext | None = None,
    ) -> None:
        """Begin; `who` is another one at every epoch, so that a cycle of an old one is known for what it is."""
        self._store, self._name, self._tell = store, name, tell
        self._changed = asyncio.Event()
        self._divided: str | None = None  # The document for which nothing is left to divide.
        self._dividing: str | None = None  # The one of the last cycle; the next one of the same is due later.
        self._due_s = 0.0
        self._turn: Turn | None = None
        self._task: asyncio.Task[None] | None = None
        match kind:
            case "PartitionSet" | "ShardRing":
                self._turn = Turn(Coordinator(store, who, debts=debts), name, tell)
                self._turn.start()
            case "TargetPool":
                engine = PoolEngine(store, name.removeprefix("TargetPool/"), who=who, tell=tell, context=pods)
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
        """End, and return when nothing of it runs any more. Cancelled, it ends all the same, only nobody waits."""
        if self._turn is not None:
            self._turn.stop()
        if self._task is not None:
            self._task.cancel()
        # No thread is spent on waiting: where the store hangs, so do all who ask it.
        while self._turn is not None and self._turn.is_alive():
            await asyncio.sleep(_LOOK_S)
        if self._task is not None:
            await asyncio.wait([self._task])

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
        """Divide once, then wait for the next change or the next cycle."""
        self._changed.clear()
        await asyncio.to_thread(self._divide_once, self._name.removeprefix("ReplicaDivision/"))
        with suppress(TimeoutError):
            async with asyncio.timeout(WAKE_S):
                await self._changed.wait()

    def _divide_once(self, name: str) -> None:
        """Divide what people have changed at once; a repair waits for the next cycle, since each may move so much only.

        Where nothing was left to do, nothing is looked at before people change something.
        """
        job, document = self._store.view(self._name, lambda tx: (tx.job(), tx.note(DOCUMENT)))
        if job is None or job.paused or document is None or document == self._divided:
            return
        now_s = clock.boot_s()
        if document == self._dividing and now_s < self._due_s:
            return
        cycle = None
        try:
            changed = divide_stored(self._store, name, clock.now())
            cycle = Cycle(f"{self._name}: {changed} workloads divided", WAKE_S, changed)
        finally:
            if self._tell is not None:
                self._tell(self._name, cycle, clock.boot_s() - now_s)
        self._dividing, self._due_s = document, now_s + WAKE_S
        self._divided = None if changed else document
