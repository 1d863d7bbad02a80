"""What happens to the objects of a shard: watches tell, reconciles run, hand-overs follow; each wakes the others."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import suppress

import msgspec

from poise.errors import NotFound, PoiseError
from poise.hold.shard_held import Held, Reconcile
from poise.hold.shard_lease import OwnLease
from poise.hold.shard_runs import Run, Runs
from poise.hold.shard_steps import Steps
from poise.hold.shard_terms import ShardSettings
from poise.hold.shard_view import DEPTH_MAX, Entry, View, entry_of
from poise.hold.sharding import Verdict
from poise.kube.client import Client
from poise.kube.mirror import Deleted, Event, Synced
from poise.kube.objects import Partial
from poise.kube.resources import ObjectRef, Resource
from poise.kube.work import Workers
from poise.kube.work_queue import WorkQueue
from poise.model.sharding import Step

LOOKS_AT_ONCE = 4
# What a renewal or a list may change; all else changes by what a watch shows.
_PASSING = (Verdict.NO_LEASE, Verdict.NOT_LISTED, Verdict.UNCONFIRMED, Verdict.FENCE_FIRST)
_log = logging.getLogger("poise.shard")


class Left(msgspec.Struct, frozen=True):
    """An object that left the filter, and who controls it."""

    ref: ObjectRef
    uid: str
    parent: str


class Core:
    """Owns what one process knows of objects. `chosen` are the resources to reconcile, `kinds` all of the ring."""

    def __init__(
        self,
        client: Client,
        settings: ShardSettings,
        lease: OwnLease,
        *,
        chosen: Collection[Resource],
        kinds: Collection[tuple[str, str]],
        now_s: Callable[[], float],
    ) -> None:
        """Begin with nothing known."""
        self.view = View(settings.name)
        self._client, self._ring, self._lease, self._now_s = client, settings.ring, lease, now_s
        self._chosen, self._kinds = chosen, kinds
        self._looks: WorkQueue[Left] = WorkQueue()
        # What watches showed of objects while own writes of their labels were under way.
        self._later: dict[str, list[tuple[Resource, Event[Partial]]]] = {}
        self.runs = Runs(self.view, self.judge, at_once=settings.at_once, now_s=now_s, moved=self._moved)
        self.steps = Steps(
            client,
            self.view,
            lease,
            ring=settings.ring,
            kinds=kinds,
            at_once=settings.steps_at_once,
            now_s=now_s,
            is_running=self._is_waited_for,
            wrote=self._wrote,
            settled=self._settled,
            moved=self._look_at,
        )

    def judge(self, uid: str) -> Verdict:
        """Say whether an object may be acted on now."""
        return self.view.judge(uid, self._lease.grip, self._now_s(), self.steps.handing)

    def work(self, reconcile: Reconcile) -> Awaitable[None]:
        """Reconcile until cancelled."""

        async def call(run: Run) -> float | None:
            return await reconcile(Held(run, self._ring, self.view, self._client, self))

        return self.runs.work(call)

    async def look_on(self) -> None:
        """Read what left the filter, until cancelled."""
        await Workers(self._looks, self._look, at_once=LOOKS_AT_ONCE, tell=self._tell_look).run()

    def may_act(self) -> bool:
        """Say whether the Lease allows anything now."""
        return self._lease.may_act()

    def left_s(self) -> float:
        """Give how long a write may take that is sent now."""
        return self._lease.left_s()

    async def fence_first(self, uid: str) -> None:
        """Fence an earlier process of this name before the first patch of what it left."""
        await self.steps.fence_first(uid)

    # What is told.

    def see(self, resource: Resource, event: Event[Partial]) -> None:
        """Take what a watch shows. It may outrun the answer to an own write, without which it cannot be understood."""
        if isinstance(event, Synced):
            return
        uid = (event.old if isinstance(event, Deleted) else event.object).metadata.uid
        if uid in self.steps.writing:
            self._later.setdefault(uid, []).append((resource, event))
        elif isinstance(event, Deleted):
            self._leave_filter(entry_of(resource, event.old.metadata, self._ring, self._kinds))
        else:
            self._take(entry_of(resource, event.object.metadata, self._ring, self._kinds))

    def _settled(self, uid: str) -> None:
        """The end of an own write is known: take what was shown meanwhile."""
        for resource, event in self._later.pop(uid, ()):
            self.see(resource, event)

    def all_listed(self) -> None:
        """Note that everything was listed since the Lease was acquired."""
        self._lease.listed()
        _log.info("shard.listed name=%s objects=%d", self.view.name, len(self.view.entries))
        self.look_again()

    def look_again(self) -> None:
        """Look at all that waits: a renewal may have confirmed it."""
        self.runs.try_again(uid for uid, found in self.runs.waiting.items() if found in _PASSING)
        for uid in self.view.drained:
            self.steps.ask(uid)

    def _take(self, entry: Entry) -> None:
        before, gained_s, grip = self.view.entries.get(entry.uid), self.view.newest_gain_s, self._lease.grip
        if not self.view.put(entry, self._now_s(), inherited=grip is not None and not grip.listed):
            return
        self.runs.cancel_lost(entry.uid)
        moved = before is None or before.seen.marks != entry.seen.marks or before.seen.parent != entry.seen.parent
        for each in self.view.line(entry.uid) or [entry]:
            self._wake(each, afresh=moved)
        if self.view.newest_gain_s != gained_s:
            self._lease.gained.set()
            for each in self.view.below(entry.uid):
                self._wake(each, afresh=True)
        if moved or entry.seen.marks.drain is not None:
            self._look_at(entry.uid)

    def _wake(self, entry: Entry, *, afresh: bool = False) -> None:
        if entry.ref.resource in self._chosen:
            self.runs.wake(entry.uid, afresh=afresh)

    def _leave_filter(self, entry: Entry) -> None:
        """An object is not its own any more, which never means that it is gone: that is read first."""
        given = self.view.was_let_go(entry.uid)
        self.view.drop(entry.uid)
        self.runs.cancel_lost(entry.uid)
        self._look_at(entry.uid)
        if not given and entry.seen.parent is not None:
            self._looks.add(Left(entry.ref, entry.uid, entry.seen.parent))

    async def _look(self, left: Left) -> None:
        """Read what left the filter: only what is really gone concerns those who control it."""
        with suppress(NotFound):
            if (await self._client.get(left.ref, Partial)).metadata.uid == left.uid:
                return
        for owner in self.view.line(left.parent):
            self._wake(owner)

    def _tell_look(self, left: Left, error: PoiseError, wait_s: float) -> None:
        _log.warning("shard.look_again object=%s wait_s=%.2f reason=%s", left.ref, wait_s, error)

    # What is done.

    def _wrote(self, entry: Entry, step: Step) -> None:
        """Take the answer to an own write; what runs under an own fence goes on at the raised epoch."""
        self.view.wrote(entry, self._now_s(), fences=step.kind == "fence")
        run = self.runs.running.get(entry.uid)
        if step.kind == "fence" and run is not None and entry.seen.marks.epoch is not None:
            run.epoch = entry.seen.marks.epoch
        self.runs.cancel_lost(entry.uid)

    def _look_at(self, uid: str) -> None:
        """Look again at an object, and at those above and below it: something was written, seen, or ended there."""
        self.runs.try_again((uid,))
        for entry in (*self._upward(uid), *self.view.below(uid)):
            self.runs.try_again((entry.uid,))
            if entry.seen.marks.drain is not None:
                self.steps.ask(entry.uid)

    def _upward(self, uid: str) -> Iterator[Entry]:
        """Give an object and those above it that are in sight: an adopted one is asked for where its root is not."""
        here = self.view.entries.get(uid)
        for _ in range(DEPTH_MAX):
            if here is None:
                return
            yield here
            here = self.view.entries.get(here.seen.parent or "")

    def _is_waited_for(self, uids: Iterable[str]) -> bool:
        """Say whether a hand-over must wait for reconciles; those are told that it does."""
        asked = tuple(uids)
        self.runs.ask_to_end(asked)
        return self.runs.is_running(asked)

    def _moved(self, uid: str) -> None:
        """A reconcile ended, or must wait: see to what is due before it or after it."""
        root = self.view.root(uid)
        if root is not None and self.runs.waiting.get(uid) is Verdict.FENCE_FIRST:
            self.steps.ask(root.uid)
        for entry in self._upward(uid):
            if entry.seen.marks.drain is not None:
                self.steps.ask(entry.uid)
