"""The reconciles of a shard: at most one at a time for an object, never one that may not be, each ended in time.

Order for safety: what may not go on is cancelled at once; what does not end then ends the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from poise.errors import Hung, PoiseError
from poise.hold.shard_view import Entry, View
from poise.hold.sharding import Verdict, overdue
from poise.kube.work import Workers
from poise.kube.work_queue import WorkQueue

_IDLE_LOOK_S = 0.02
_log = logging.getLogger("poise.shard")


class Run:
    """One reconcile. Its epoch is read once, when it begins; only an own fence raises it."""

    def __init__(self, entry: Entry, root: Entry, epoch: int) -> None:
        """Begin for an object as it is seen now."""
        self.entry, self.root, self.epoch = entry, root, epoch
        self.cancelled_at_s: float | None = None
        self.over = False
        self.asked = asyncio.Event()


class Runs:
    """Takes objects that want to be looked at, and reconciles those that may be acted on; the others wait here."""

    def __init__(
        self,
        view: View,
        judge: Callable[[str], Verdict],
        *,
        at_once: int,
        now_s: Callable[[], float],
        moved: Callable[[str], None],
    ) -> None:
        """Prepare; `judge` says whether an object may be acted on now, `moved` hears of each one that waits or ends."""
        self.running: dict[str, Run] = {}
        self.taking = True
        self.begun = self.failed = self.cancelled = 0
        self.waiting: dict[str, Verdict] = {}
        self._view, self._judge, self._now_s, self._moved = view, judge, now_s, moved
        self._queue: WorkQueue[str] = WorkQueue()
        self._workers = Workers(self._queue, self._handle, at_once=at_once, tell=self._tell)
        self._reconcile: Callable[[Run], Awaitable[float | None]] | None = None

    async def work(self, reconcile: Callable[[Run], Awaitable[float | None]]) -> None:
        """Reconcile until cancelled."""
        self._reconcile = reconcile
        await self._workers.run()

    @property
    def depth(self) -> int:
        """How many objects could be looked at now."""
        return self._queue.ready

    def wake(self, uid: str, *, afresh: bool = False) -> None:
        """Ask for an object to be looked at; `afresh` where its earlier failures say nothing any more."""
        if afresh:
            self._queue.forget(uid)
        self.waiting.pop(uid, None)
        self._queue.add(uid)

    def try_again(self, uids: Iterable[str]) -> None:
        """Look again at those that wait, since something changed that they may have waited for."""
        for uid in list(uids):
            if uid in self.waiting:
                self.wake(uid)

    def is_running(self, uids: Iterable[str]) -> bool:
        """Say whether a reconcile of any of them runs; one that was cancelled runs until it has ended."""
        return any(uid in self.running for uid in uids)

    def ask_to_end(self, uids: Iterable[str]) -> None:
        """Tell whatever runs of them that somebody waits for its end."""
        for uid in uids:
            if uid in self.running:
                self.running[uid].asked.set()

    async def _handle(self, uid: str) -> float | None:
        """Reconcile one object if it may be acted on. Nothing happens between that question and the beginning."""
        line = self._view.line(uid)
        found = self._judge(uid)
        if not self.taking or found is not Verdict.ACT or self._reconcile is None:
            if uid in self._view.entries:
                self.waiting[uid] = found
                self._moved(uid)
            return None
        epoch = line[0].seen.marks.epoch
        assert epoch is not None, "what may be acted on has an epoch"
        run = self.running[uid] = Run(line[0], line[-1], epoch)
        self.begun += 1
        try:
            return await self._reconcile(run)
        except PoiseError:
            raise
        except Exception as error:
            _log.exception("shard.reconcile_failed object=%s epoch=%d", run.entry.seen.key, run.epoch)
            raise PoiseError(f"{type(error).__name__}: {error}") from error
        finally:
            run.over = True
            del self.running[uid]
            self._moved(uid)

    def _tell(self, uid: str, error: PoiseError, wait_s: float) -> None:
        self.failed += 1
        entry = self._view.entries.get(uid)
        key = uid if entry is None else entry.seen.key
        _log.warning("shard.again object=%s wait_s=%.2f reason=%s", key, wait_s, error)

    def cancel_lost(self, changed: str) -> None:
        """Cancel on loss: what is no longer its own, or was raised by somebody else, is not gone on with.

        Law: whatever happens to one object, only itself and what it controls can be lost by that.
        """
        for uid in (changed, *(entry.uid for entry in self._view.below(changed))):
            run = self.running.get(uid)
            if run is not None and not self._view.is_own(uid, run.epoch):
                self._cancel(uid, run, "lost")

    def cancel_all(self) -> None:
        """Cancel everything, and take nothing more."""
        self.taking = False
        for uid, run in self.running.items():
            self._cancel(uid, run, "ends")

    def _cancel(self, uid: str, run: Run, reason: str) -> None:
        if run.cancelled_at_s is not None:
            return
        run.cancelled_at_s = self._now_s()
        self.cancelled += 1
        _log.info("shard.cancelled object=%s epoch=%d reason=%s", run.entry.seen.key, run.epoch, reason)
        self._workers.cancel(uid)

    def check_deadlines(self, drain_timeout_s: float, stop_s: float) -> None:
        """Cancel what a drain has waited for too long; Hung where that did not help."""
        now_s = self._now_s()
        for uid, run in self.running.items():
            asked_s = self._view.asked_since_s(uid)
            if run.cancelled_at_s is not None:
                found = overdue(run.cancelled_at_s, 0.0, stop_s, now_s)
            else:
                found = "wait" if asked_s is None else overdue(asked_s, drain_timeout_s, stop_s, now_s)
            if found == "end" and run.cancelled_at_s is not None:
                raise Hung(f"the reconcile of {run.entry.seen.key} did not stop within {stop_s:g} s")
            if found != "wait":
                self._cancel(uid, run, "drain timeout")

    async def idle(self, timeout_s: float, hurried: Callable[[], bool] = lambda: False) -> bool:
        """Wait until nothing runs; False where something still does, and there is no more time."""
        loop = asyncio.get_running_loop()
        last_s = loop.time() + timeout_s
        while self.running and loop.time() < last_s and not hurried():
            await asyncio.sleep(_IDLE_LOOK_S)
        return not self.running
