"""The work on items: every gain is followed by exactly one loss, never both at once; a loss that hangs is noticed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from poise.errors import Hung

Callback = Callable[[str, int], Awaitable[None]]

_log = logging.getLogger("poise.member")


class _Work:
    """One item at one epoch: the task that began it, and the one that ends it."""

    def __init__(self, item: str, epoch: int) -> None:
        self.item, self.epoch = item, epoch
        self.gain: asyncio.Task[None] | None = None
        self.loss: asyncio.Task[None] | None = None
        self.timers: list[asyncio.TimerHandle] = []


class Works:
    """Calls a member's callbacks, each in a task of its own, and tells what became of them."""

    def __init__(
        self,
        on_gain: Callback | None,
        on_loss: Callback | None,
        *,
        cancel_s: float,
        hung_s: float,
        stopped: Callable[[str, int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Tell `stopped` of work that has ended, and `failed` of work that cannot be ended."""
        self._on_gain, self._on_loss = on_gain, on_loss
        self._cancel_s, self._hung_s = cancel_s, hung_s
        self._stopped, self._failed = stopped, failed
        self._works: dict[str, _Work] = {}
        self.hung = False  # Some work could not be ended: whoever waits for it waits in vain.
        self._tasks: set[asyncio.Task[None]] = set()  # An event loop alone does not keep its tasks.

    def start(self, item: str, epoch: int) -> None:
        """Begin to work on an item."""
        assert item not in self._works, "what runs at an old epoch ends before the new one begins"
        work = self._works[item] = _Work(item, epoch)
        if self._on_gain is not None:
            work.gain = self._task(self._on_gain, work)
            work.gain.add_done_callback(lambda task: self._gained(work, task))

    def stop(self, item: str, epoch: int) -> None:
        """Begin to end the work on an item: cancel a gain that is still under way, then call the loss."""
        work = self._works.get(item)
        if work is None:
            self._stopped(item, epoch)
        elif work.loss is None:
            work.loss = self._task(self._lose, work)
            work.loss.add_done_callback(lambda task: self._lost(work, task))

    def hurry(self, item: str) -> None:
        """Give work that is being ended its last moments: then it is cancelled, and then it has hung."""
        work = self._works.get(item)
        if work is None or work.timers:
            return
        later = asyncio.get_running_loop().call_later
        work.timers = [
            later(self._cancel_s, self._cancel, work),
            later(self._hung_s, self._give_up, work),
        ]

    def _task(self, callback: Callback, work: _Work) -> asyncio.Task[None]:
        async def run() -> None:
            await callback(work.item, work.epoch)

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _lose(self, item: str, epoch: int) -> None:
        work = self._works[item]
        if work.gain is not None and not work.gain.done():
            work.gain.cancel()
            await asyncio.wait([work.gain])
        if self._on_loss is not None:
            await self._on_loss(item, epoch)

    def _gained(self, work: _Work, task: asyncio.Task[None]) -> None:
        """Look at a gain that has ended; one that failed is let go of, and others may try."""
        if task.cancelled() or task.exception() is None:
            return
        _log.error("member.gain_failed item=%s epoch=%d", work.item, work.epoch, exc_info=task.exception())
        self.stop(work.item, work.epoch)

    def _lost(self, work: _Work, task: asyncio.Task[None]) -> None:
        """Look at a loss that has ended; only one that returned says that the work has stopped."""
        for timer in work.timers:
            timer.cancel()
        if task.cancelled():
            self._failed(self._judge(work))
        elif (error := task.exception()) is not None:
            self._failed(error)
        else:
            del self._works[work.item]
            self._stopped(work.item, work.epoch)

    def _cancel(self, work: _Work) -> None:
        _log.error("member.cancelled item=%s epoch=%d reason=hangs", work.item, work.epoch)
        for task in (work.gain, work.loss):
            if task is not None:
                task.cancel()

    def _give_up(self, work: _Work) -> None:
        self._failed(self._judge(work))

    def _judge(self, work: _Work) -> Hung:
        self.hung = True
        return Hung(f"item {work.item} at epoch {work.epoch} did not stop within {self._hung_s:g} s")
