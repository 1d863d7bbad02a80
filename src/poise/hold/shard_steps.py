"""Carries out what a shard decides to write on labels: hand-overs and fences, one at a time for a family.

Order for safety: nothing of the family runs, children first, the root last; a fence raises the root first. Every write
carries the version it was decided on, and is sent only while the Lease lasts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from poise.errors import Conflict, NotFound, NotHeld, PoiseError
from poise.hold.shard_lease import OwnLease
from poise.hold.shard_view import Entry, View, entry_of
from poise.hold.sharding import fence, hand_over
from poise.kube.client import Client, within
from poise.kube.objects import Partial, slim
from poise.kube.pacing import Pace
from poise.kube.work import Workers
from poise.kube.work_queue import WorkQueue
from poise.model.sharding import Step, Write, label_patch

_PACE = Pace(first_s=0.05, longest_s=5.0)  # Somebody waits for a hand-over: it is not put off for long.
_log = logging.getLogger("poise.shard")


class Steps:
    """Decides and writes. `handing` are the heads of what is being handed over: nothing of it begins meanwhile."""

    def __init__(
        self,
        client: Client,
        view: View,
        lease: OwnLease,
        *,
        ring: str,
        kinds: Collection[tuple[str, str]],
        at_once: int,
        now_s: Callable[[], float],
        is_running: Callable[[Iterable[str]], bool],
        wrote: Callable[[Entry, Step], None],
        settled: Callable[[str], None],
        moved: Callable[[str], None],
    ) -> None:
        """Prepare; `wrote` hears of each write that succeeded, `settled` when it is known, `moved` when a step ends."""
        self.handing: set[str] = set()
        self.writing: set[str] = set()
        self.taking = True
        self.handed_over = self.fenced = self.conflicts = 0
        self._client, self._view, self._lease, self._ring, self._kinds = client, view, lease, ring, kinds
        self._now_s, self._is_running = now_s, is_running
        self._wrote, self._settled, self._moved = wrote, settled, moved
        self._under_way: dict[str, asyncio.Event] = {}
        self._queue: WorkQueue[str] = WorkQueue(_PACE)
        self._gate = asyncio.Semaphore(at_once)
        self._at_once = at_once

    async def work(self) -> None:
        """Step on until cancelled."""
        await Workers(self._queue, self._handle, at_once=self._at_once, tell=self._tell).run()

    async def settle(self, timeout_s: float) -> None:
        """Take no new step, and wait for those under way. One that takes longer arrives by itself, or never."""
        self.taking = False
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for done in list(self._under_way.values()):
                    await done.wait()

    def ask(self, uid: str) -> None:
        """Ask for an object to be handed over or fenced, if that is due."""
        self._queue.add(uid)

    def _tell(self, uid: str, error: PoiseError, wait_s: float) -> None:
        entry = self._view.entries.get(uid)
        _log.warning("shard.step_again object=%s wait_s=%.2f reason=%s", entry and entry.seen.key, wait_s, error)

    async def _handle(self, uid: str) -> None:
        head = self._view.entries.get(uid)
        if head is None or not self.taking or self._blocking(uid) is not None:
            return
        step = self._decided(head)
        if step is not None:
            await self._carry_out(head, step)

    def _decided(self, head: Entry) -> Step | None:
        """Decide the next step of an object and what it controls."""
        below, known, grip = self._view.below(head.uid), self._view.known.get(head.uid), self._lease.grip
        children = [entry.seen for entry in below]
        if head.seen.marks.drain is not None:
            busy = self._is_running((head.uid, *(entry.uid for entry in below)))
            return hand_over(grip, head.seen, children, known, self._now_s(), busy=busy)
        if grip is None or not grip.eager or head.seen.parent is not None:
            return None
        return fence(grip, head.seen, children, known, self._now_s())

    async def fence_first(self, uid: str) -> None:
        """Before the first patch of an inherited family: raise its epoch, so that an earlier process is refused."""
        while True:
            root = self._view.root(uid)
            known = None if root is None else self._view.known.get(root.uid)
            if root is None or known is None:
                raise NotHeld("the root is not held any more")
            if not known.inherited:
                return
            other = self._blocking(root.uid)
            if other is not None:
                await other.wait()
                continue
            children = [entry.seen for entry in self._view.below(root.uid)]
            step = fence(self._lease.grip, root.seen, children, known, self._now_s())
            if step is None:
                raise NotHeld(f"{root.seen.key} is asked for, or the time is over: it cannot be fenced now")
            await self._carry_out(root, step)

    def _blocking(self, uid: str) -> asyncio.Event | None:
        """Find a step that is under way above or below an object: one family makes one step at a time."""
        above = {entry.uid for entry in self._view.line(uid)} | {uid}
        for head, done in self._under_way.items():
            if head in above or any(entry.uid == uid for entry in self._view.line(head)):
                return done
        return None

    async def _carry_out(self, head: Entry, step: Step) -> None:
        """Write group by group: one begins only when every write of the one before it has succeeded."""
        entries = {entry.uid: entry for entry in (head, *self._view.below(head.uid))}
        done = self._under_way[head.uid] = asyncio.Event()
        if step.kind == "hand over":
            self.handing.add(head.uid)
        try:
            for group in step.groups:
                writes = (self._write(entries[write.uid], write, step) for write in group)
                ends = await asyncio.gather(*writes, return_exceptions=True)
                for end in ends:
                    if isinstance(end, BaseException):
                        raise end
        except (Conflict, NotFound):
            self.conflicts += 1
            raise
        finally:
            del self._under_way[head.uid]
            self.handing.discard(head.uid)
            done.set()
            self._moved(head.uid)

    async def _write(self, entry: Entry, write: Write, step: Step) -> None:
        """Send one write while the Lease lasts, and take its answer."""
        assert write.version == entry.meta.resource_version, "a write is made for the version that was decided on"
        change: dict[str, object] = {"labels": label_patch(entry.meta.labels, self._ring, write.marks)}
        async with self._gate:
            if not self._lease.may_act():
                raise NotHeld("the Lease does not last any more")
            self.writing.add(entry.uid)
            try:
                async with within(self._lease.left_s()):
                    answer = await self._client.merge(entry.ref, entry.meta, {"metadata": change}, Partial)
                self._take_answer(entry_of(entry.ref.resource, slim(answer.metadata), self._ring, self._kinds), step)
            finally:
                self.writing.discard(entry.uid)
                self._settled(entry.uid)

    def _take_answer(self, written: Entry, step: Step) -> None:
        if step.kind == "fence":
            self.fenced += 1
        elif written.uid == step.writes[-1].uid:
            self.handed_over += 1
        self._wrote(written, step)
