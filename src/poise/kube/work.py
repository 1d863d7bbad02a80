"""Runs what a work queue holds: many keys at once, never the same one twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic

from poise.errors import PoiseError
from poise.kube.pacing import asked_wait_s
from poise.kube.work_queue import Key, WorkQueue


class Workers(Generic[Key]):
    """Calls `handle` for each key, at most `at_once` of them together.

    What `handle` gives is when to look again, in seconds. An error of Poise makes the key wait, and so does an end as
    cancelled that nobody asked for; any other error is a fault of the program and ends all.
    """

    def __init__(
        self,
        queue: WorkQueue[Key],
        handle: Callable[[Key], Awaitable[float | None]],
        *,
        at_once: int = 16,
        tell: Callable[[Key, PoiseError, float], None] = lambda _key, _error, _wait_s: None,
    ) -> None:
        """Prepare; `tell` hears of each failure and of the wait that follows."""
        self._queue, self._handle, self._at_once, self._tell = queue, handle, at_once, tell
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._woken = asyncio.Event()

    @property
    def running(self) -> int:
        """How many keys are being handled now."""
        return len(self._running)

    def cancel(self, key: Key) -> bool:
        """Cancel the run of one key; False where it does not run."""
        task = self._running.get(key)
        return task.cancel() if task is not None else False

    async def run(self) -> None:
        """Work until cancelled; what runs then is cancelled, too, and waited for."""
        self._queue.on_add = self._woken.set
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                self._woken.clear()
                while len(self._running) < self._at_once and (key := self._queue.take(loop.time())) is not None:
                    self._running[key] = group.create_task(self._run(key))
                due_s = self._queue.next_s() if len(self._running) < self._at_once else None
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(due_s):
                        await self._woken.wait()

    async def _run(self, key: Key) -> None:
        try:
            again_s = await self._handle(key)
        except PoiseError as error:
            self._failed(key, error)
        except asyncio.CancelledError:
            if _is_cancelled():
                self._queue.done(key)
                raise
            self._failed(key, PoiseError("CancelledError: something that it waited for was cancelled"))
        except BaseException:
            self._queue.done(key)
            raise
        else:
            self._queue.done(key)
            if again_s is not None:
                self._queue.add_at(key, asyncio.get_running_loop().time() + again_s)
        finally:
            del self._running[key]
            self._woken.set()

    def _failed(self, key: Key, error: PoiseError) -> None:
        now_s = asyncio.get_running_loop().time()
        self._tell(key, error, self._queue.failed(key, now_s, random.random(), asked_wait_s(error)))


def _is_cancelled() -> bool:
    """Say whether somebody cancelled this task; else it waited for another one that was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
