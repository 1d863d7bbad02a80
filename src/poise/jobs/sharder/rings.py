"""Follows the ShardRings of a cluster and runs a sharder for each one that is accepted.

Order for safety: the finalizer before the first label, no label and no policy left before the finalizer goes. One ring
that cannot be run is told so in its status, and the others go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

import msgspec

from poise import clock
from poise.errors import Conflict, Forbidden, InvalidSpec, NotFound, PoiseError
from poise.jobs.sharder.accepting import (
    FINALIZER,
    OPERATOR_ANNOTATION,
    brake_released,
    forbidden,
    invalid_document,
    is_accepted,
    is_claimed,
    is_removed,
    name_taken,
    read_ring,
    rightful,
    run_elsewhere,
    taken_elsewhere,
)
from poise.jobs.sharder.happenings import Happening
from poise.jobs.sharder.metrics import RingNumbers
from poise.jobs.sharder.orders import read_orders
from poise.jobs.sharder.recording import Recorder
from poise.jobs.sharder.report import RingReport
from poise.jobs.sharder.ring_run import RingRun
from poise.jobs.sharder.session import Session
from poise.jobs.sharder.sharder import RingSharder
from poise.jobs.sharder.snapshot import RingSnapshot
from poise.jobs.sharder.status import Looked, Refusal, read_known, status_of
from poise.kube import Client, Event, Modified, ObjectRef, Reflector, Selection, Synced, WorkQueue
from poise.kube.crds import custom_resource
from poise.kube.mirror import Added, Deleted, Key
from poise.kube.objects import Custom, Meta
from poise.kube.pacing import Pace
from poise.kube.work import Workers
from poise.model import ShardRing
from poise.model.sharding import is_older

RINGS = custom_resource("ShardRing")
SHOW_EVERY_S = 1.0
_LOOK_EVERY_S = 0.5  # A sharder that tells of many changes at once is looked at once.
_PATIENCE_S = 10.0
_AGAIN_S = 10.0  # Nothing is due then; what was missed is found.
_FAILED_PACE = Pace(first_s=0.2, longest_s=10.0)
_log = logging.getLogger("poise.operator")


async def _nothing(_ring: ShardRing) -> None:
    """Do nothing."""


class Lookout(msgspec.Struct, frozen=True, kw_only=True):
    """What the job is given: who it is, when it may act, and where it looks; no scope is the whole cluster.

    `home` names the installation: two of them must never run one ring.
    """

    client: Client
    me: str
    home: str = ""
    may_act: Callable[[], bool]
    scope: str | None = None
    rings_changed: Callable[[list[ShardRing]], None] = lambda _rings: None
    ring_ends: Callable[[ShardRing], Awaitable[None]] = _nothing
    troubles: Callable[[], dict[str, str]] = dict
    now_s: Callable[[], float] = clock.boot_s


class KnownRing:
    """What the operator remembers of one ring."""

    def __init__(self, custom: Custom, now_s: float) -> None:
        """Begin with what the watch showed."""
        self.custom, self.seen_at_s = custom, now_s
        self.run: RingRun | None = None
        self.task: asyncio.Task[None] | None = None
        self.refusal: Refusal | None = None
        self.shown_at_s = float("-inf")
        self.clear_from_s: float | None = None

    def answered(self, answer: Custom) -> None:
        """Take the answer to an own write, unless the watch has shown a newer document, or another ring, meanwhile.

        Neither would be told again.
        """
        if answer.metadata.uid == self.meta.uid and not _lags(answer.metadata, self.meta):
            self.custom = answer

    @property
    def meta(self) -> Meta:
        """Who it is, by the newest that was seen."""
        return self.custom.metadata


class RingLook(msgspec.Struct, frozen=True):
    """One ring as an operator knows it; without a report no sharder runs for it, and `refusal` says why.

    `revision` is another one when objects, or their labels of this ring, are.
    """

    meta: Meta
    report: RingReport | None
    refusal: Refusal | None
    revision: int = 0


class Rings:
    """The ShardRing job of one leader. Made anew for every time it leads: what was known before may be wrong."""

    def __init__(self, lookout: Lookout, make: Callable[..., RingSharder] = RingSharder) -> None:
        """Prepare; nothing is asked yet."""
        self._its, self._make = lookout, make
        self._known: dict[Key, KnownRing] = {}
        self._queue: WorkQueue[Key] = WorkQueue(_FAILED_PACE)
        self._recorder = Recorder(lookout.client, lookout.me, lookout.may_act, lookout.now_s)
        chosen = Selection(RINGS, lookout.scope or "")
        self._reflector = Reflector(lookout.client, chosen, Custom, self._take)
        self._tasks: asyncio.TaskGroup | None = None
        self._synced = False

    async def run(self) -> None:
        """Follow the rings until cancelled; everything that runs for them ends then, too."""
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._reflector.run())
            self._tasks.create_task(self._recorder.run())
            self._tasks.create_task(Workers(self._queue, self._look, tell=self._tell).run())

    # What others ask.

    def unready(self) -> str:
        """Say what is not read yet; empty when all is, or when why not is told in the status of a ring."""
        if self._reflector.trouble is not None:
            return f"the rings cannot be followed: {self._reflector.trouble}"
        if not self._synced:
            return "the rings are not listed yet"
        late = [name for name, run in self._runs() if not (run.sharder.report.synced or run.sharder.report.faults)]
        return f"the objects of these rings are not listed yet: {', '.join(late)}" if late else ""

    def numbers(self) -> list[RingNumbers]:
        """Give the numbers of all rings that are run."""
        known = sorted(self._known.values(), key=lambda each: each.meta.key)
        return [
            RingNumbers(
                each.meta.name, each.run.sharder.report, each.run.sharder.counts, each.refusal, is_removed(each.meta)
            )
            for each in known
            if each.run is not None
        ]

    def looks(self) -> list[RingLook]:
        """Look at every ring that is known, those included that are not run."""
        known = sorted(self._known.values(), key=lambda each: each.meta.key)
        runs = [(each, each.run) for each in known]
        return [
            RingLook(each.meta, None, each.refusal)
            if run is None
            else RingLook(each.meta, run.sharder.report, each.refusal, run.sharder.revision)
            for each, run in runs
        ]

    def snapshot(self, key: Key) -> RingSnapshot | None:
        """Give all that is seen of one ring; None where it is not run."""
        known = self._known.get(key)
        return None if known is None or known.run is None else known.run.sharder.snapshot

    def session(self, key: Key) -> Session | None:
        """Lend what is seen of the objects of a ring; None where it is not run here."""
        known = self._known.get(key)
        return None if known is None or known.run is None else known.run.sharder.session

    @property
    def refused(self) -> int:
        """How many rings are not run, or not by their newest document."""
        return sum(known.refusal is not None for known in self._known.values())

    @property
    def events_dropped(self) -> int:
        """How many Events were only counted."""
        return self._recorder.dropped

    def _runs(self) -> Iterator[tuple[str, RingRun]]:
        for known in sorted(self._known.values(), key=lambda known: known.meta.key):
            if known.run is not None:
                yield known.meta.name, known.run

    def _tell_rings(self) -> None:
        """Tell which rings are run: their labels are to be protected."""
        self._its.rings_changed([run.ring for _, run in self._runs()])

    # What the watch tells.

    def _take(self, event: Event[Custom]) -> None:
        """Note one event, and look at every ring of that name."""
        match event:
            case Synced():
                self._synced = True
                self._tell_rings()
                return
            case Added(object=custom) | Modified(object=custom):
                known = self._known.setdefault(custom.metadata.key, KnownRing(custom, self._its.now_s()))
                if not _lags(custom.metadata, known.meta):
                    known.custom = custom
            case Deleted(old=custom):
                pass
        self._look_at_all(custom.metadata.name)

    def _look_at_all(self, name: str) -> None:
        """Look at all rings of a name: another one may have become the rightful one."""
        for key in self._known:
            if key[1] == name:
                self._queue.forget(key)
                self._queue.add(key)

    def _tell(self, key: Key, error: PoiseError, wait_s: float) -> None:
        _log.warning("ring.waits name=%s/%s seconds=%.1f reason=%s", *key, wait_s, error)

    # What is done.

    async def _look(self, key: Key) -> float | None:
        """Look at one ring: run it, refuse it or let it end, then tell what happened, and show how it stands."""
        known = self._known.get(key)
        if known is None:
            return None
        if not self._its.may_act():
            return SHOW_EVERY_S
        if key not in self._reflector.objects and await self._forget(known):
            return None
        if known.run is not None and known.run.uid != known.meta.uid:
            self._recorder.forget(known.run.uid)
            await self._end(known)
        if by := run_elsewhere(known.meta, self._its.home):
            await self._end(known)
            self._leave(known, by)
            self._tell_rings()
            return _AGAIN_S  # Its status is the other one's to write.
        refusal = await self._settle(known)
        self._tell_rings()
        report = None
        if known.run is not None:
            report = known.run.sharder.report
            refusal = refusal or known.run.failure(report)
            self._recorder.record(known.meta, known.run.told_since(report))
        known.refusal = refusal
        return await self._show(known, report)

    async def _forget(self, known: KnownRing) -> bool:
        """End a ring that is gone; False where another one took its place meanwhile, which nobody would tell again."""
        key, uid = known.meta.key, known.meta.uid
        await self._end(known)
        self._recorder.forget(uid)
        if key in self._reflector.objects:
            return False
        del self._known[key]
        self._tell_rings()
        self._look_at_all(key[1])
        return True

    def _leave(self, known: KnownRing, by: str) -> None:
        """Note that another installation runs a ring, and tell it once: nothing else would, were that one gone."""
        refusal = taken_elsewhere(known.meta, by)
        if known.refusal != refusal:
            _log.warning("ring.elsewhere name=%s/%s operator=%s", *known.meta.key, by)
            self._recorder.record(known.meta, [Happening(refusal.reason, "", refusal.message, "Warning")])
        known.refusal = refusal

    async def _settle(self, known: KnownRing) -> Refusal | None:
        """Bring one ring to what it should be; gives why it is not run, or not by its newest document."""
        meta, home = known.meta, self._its.home
        first = rightful((each.meta for each in self._known.values() if each.meta.name == meta.name), home)
        if first.key != meta.key:
            await self._end(known)
            runner = run_elsewhere(first, home)
            if is_removed(meta) and is_accepted(meta):
                await self._set_finalizer(known, wanted=False)
            elif runner and is_claimed(meta, home):
                await self._give_up(known)
            return name_taken(meta, first, runner)
        try:
            ring = read_ring(known.custom)
        except InvalidSpec as error:
            if known.run is not None:
                self._update(known, known.run.ring)
                await self._maybe_end(known)
            return invalid_document(error, runs=known.run is not None, removed=is_removed(meta))
        return await self._accept(known, ring)

    async def _accept(self, known: KnownRing, ring: ShardRing) -> Refusal | None:
        """Run a ring: the finalizer comes before its first label, and goes when no root has one."""
        if not is_removed(known.meta) and not is_claimed(known.meta, self._its.home):
            try:
                await self._set_finalizer(known, wanted=True)
            except Forbidden as error:
                return forbidden(error)
        if not is_accepted(known.meta):
            await self._end(known)
            return Refusal("Removing", "the ring is being removed, and Poise has nothing more to do for it")
        self._update(known, ring)
        await self._maybe_end(known)
        return None

    def _update(self, known: KnownRing, ring: ShardRing) -> None:
        """Start the sharder of a ring, or tell it what people want now."""
        if known.run is None:
            key = known.meta.key
            _log.info("ring.accepted name=%s/%s", *key)
            known.run = RingRun(lambda its: self._sharder(its, key), ring, known.meta.uid, lambda: self._changed(key))
            assert self._tasks is not None, "rings are looked at while the job runs"
            known.task = self._tasks.create_task(known.run.run())
        known.run.update(
            ring,
            removing=is_removed(known.meta),
            brake_released=brake_released(known.meta),
            orders=read_orders(known.meta.annotations),
        )

    def _sharder(self, ring: ShardRing, key: Key) -> RingSharder:
        its = self._its
        return self._make(
            its.client,
            ring,
            namespace=key[0],
            me=its.me,
            may_act=its.may_act,
            scope=its.scope,
            changed=lambda: self._changed(key),
            now_s=its.now_s,
        )

    def _changed(self, key: Key) -> None:
        """Note that a sharder has something new to show."""
        self._queue.add_at(key, asyncio.get_running_loop().time() + _LOOK_EVERY_S)

    async def _maybe_end(self, known: KnownRing) -> None:
        """Let a ring end that somebody removed, once nothing carries its shard label.

        A request that was sent before the sharder heard of it may still land: so long the ring must stay clear.
        """
        if known.run is None or not is_removed(known.meta):
            return
        if not known.run.sharder.report.clear:
            known.clear_from_s = None
            return
        now_s = self._its.now_s()
        known.clear_from_s = now_s if known.clear_from_s is None else known.clear_from_s
        left_s = known.clear_from_s + self._its.client.request_s - now_s
        if left_s > 0:
            self._queue.add_at(known.meta.key, asyncio.get_running_loop().time() + left_s)
            return
        ring = known.run.ring
        await self._end(known)
        self._tell_rings()
        # What protects its labels goes first: an operator that ends now leaves nothing behind.
        await self._its.ring_ends(ring)
        _log.info("ring.removed name=%s/%s", *known.meta.key)
        await self._set_finalizer(known, wanted=False)

    async def _end(self, known: KnownRing) -> None:
        """Stop the sharder of a ring, and wait until it has stopped."""
        task, known.task, known.run, known.clear_from_s = known.task, None, None, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _set_finalizer(self, known: KnownRing, *, wanted: bool) -> None:
        """Put the finalizer on this version of this ring, or take it off."""
        others = [each for each in known.meta.finalizers if each != FINALIZER]
        finalizers = [*others, FINALIZER] if wanted else others
        change: dict[str, object] = {"finalizers": finalizers}
        if self._its.home:
            # In the same write: of two installations exactly one is faster.
            change["annotations"] = {OPERATOR_ANNOTATION: self._its.home if wanted else None}
        known.answered(await self._its.client.merge(_ref(known.meta), known.meta, {"metadata": change}, Custom))

    async def _give_up(self, known: KnownRing) -> None:
        """Take the own claim off a ring that is not run: two that each gave way to the other's would wait for ever."""
        change = {"metadata": {"annotations": {OPERATOR_ANNOTATION: None}}}
        known.answered(await self._its.client.merge(_ref(known.meta), known.meta, change, Custom))

    async def _show(self, known: KnownRing, report: RingReport | None) -> float | None:
        """Write the status where it changed, about once a second at most; gives when to look again."""
        wait_s = known.shown_at_s + SHOW_EVERY_S - self._its.now_s()
        if wait_s > 0:
            return wait_s
        meta = known.meta
        looked = Looked(
            generation=meta.generation,
            report=report,
            spec=None if known.run is None else known.run.ring.spec,
            refusal=known.refusal,
            removing=is_removed(meta),
            troubles=self._its.troubles(),
        )
        before = read_known(known.custom.status)
        if looked.is_starting and before.shows(meta.generation) and self._its.now_s() < known.seen_at_s + _PATIENCE_S:
            return SHOW_EVERY_S  # A new leader leaves what the last one showed until it knows better.
        status = status_of(looked, before, clock.now())
        if status != _plain(known.custom) and self._its.may_act():
            known.shown_at_s = self._its.now_s()
            # The version refuses a status that comes late: another leader, or another document, was there since.
            named = {
                "name": meta.name,
                "namespace": meta.namespace,
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
            }
            body = {"apiVersion": RINGS.api_version, "kind": RINGS.kind, "metadata": named, "status": status}
            try:
                known.answered(await self._its.client.apply(_ref(meta, "status"), body, Custom, force=True))
            except Conflict:
                return SHOW_EVERY_S  # The watch tells what it is now.
            except NotFound:
                return None  # It has just ended.
        return _AGAIN_S


def _ref(meta: Meta, subresource: str = "") -> ObjectRef:
    return ObjectRef(RINGS, meta.name, meta.namespace, subresource)


def _plain(custom: Custom) -> dict[str, object]:
    return msgspec.json.decode(custom.status or b"{}", type=dict[str, object])


def _lags(shown: Meta, known: Meta) -> bool:
    """Say whether a watch shows what an own write has replaced."""
    return shown.uid == known.uid and is_older(shown.resource_version, known.resource_version)
