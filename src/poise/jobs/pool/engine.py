"""The engine of one TargetPool: it follows document and source, plans, and speaks for every pod.

Order for safety: pods are spoken for before the first plan, and again after any time in which nobody could; a plan is
made only when every new pod was tried once. Pods run in tasks of their own: none delays another.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from poise import clock
from poise.errors import PoiseError
from poise.jobs.coordination import Tell
from poise.jobs.coordinator import Coordinator, Cycle
from poise.jobs.pool import facts
from poise.jobs.pool.delivery import Courier, Packet, open_client, pack
from poise.jobs.pool.former import PUSHED, Fetching, Former
from poise.jobs.pool.loops import Loops
from poise.jobs.pool.pod import Links, Pod
from poise.jobs.pool.pull import has_asked_twice
from poise.jobs.pool.seeing import has_left, observed
from poise.jobs.pool.settings import PoolDocument, pace_of
from poise.jobs.pool.sources import LastList, Source, SourceFault, guard
from poise.jobs.pool.speaking import Said, read_rights
from poise.jobs.pool.state import Notes, PodNote, PodState, PoolState, SourceState
from poise.jobs.pool.steps import Rights
from poise.jobs.stored import store_name
from poise.model.target_pool import Delivery, Target
from poise.stores.base import Store, Transaction

if TYPE_CHECKING:
    import httpx2

Answer = TypeVar("Answer")
START_S = 2.0  # How long a plan waits for the first answer of new pods.
WAKING = frozenset(
    {"assigned", "release requested", "cancelled", "expired"}
)  # Lines that change what a pod shall have.
_THREADS = 8
_LINES = 10_000  # Of the journal, at once.
_WATCH_S = 0.5
_CALM_S = 0.03  # Between two looks at the store.
_IDLE_S = 5.0
_RESIGN_S = 0.5  # Whoever ends an engine waits for it.
_NEVER = "never"  # No document reads like this: the first one is always adopted.

_log = logging.getLogger("poise.pool")


class PoolEngine:
    """Runs one pool of a store until it is cancelled; a restart loses nothing."""

    _group: asyncio.TaskGroup
    _client: httpx2.AsyncClient  # Of the source; every pod has its own.
    _tls: ssl.SSLContext
    _threads: ThreadPoolExecutor

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        folder: Path | None = None,
        who: str = "",
        context: ssl.SSLContext | None = None,
        now: Callable[[], float] = clock.boot_s,
        start_s: float = START_S,
        tell: Tell | None = None,
    ) -> None:
        """Drive the TargetPool of this name; `folder` is where relative paths of files begin.

        `context` holds authorities and a client certificate where pods ask for them; else those of the system.
        """
        self._context = context
        self._store, self._set, self._folder = store, store_name("TargetPool", name), folder or Path()
        self._now, self._start_s, self._tell = now, start_s, tell
        self._coordinator = Coordinator(store, who or f"pool-{os.getpid()}-{uuid.uuid4().hex[:8]}")
        self._loops = Loops(self._set)
        self._document: PoolDocument | None = None
        self._text: str | None = None
        self._adopted: str | None = _NEVER
        self._pace, self._delivery = pace_of(30), Delivery("pull")
        self._source: Source | None = None
        self._last: LastList | None = None
        self._targets: dict[str, Target] = {}
        self._packets: dict[frozenset[str], Packet] = {}  # Of the targets and the delivery that are in force.
        self._notes: Notes = {}
        self._alive: list[str] = []
        self._pods: dict[str, Pod] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._version, self._line = -1, 0
        self._planned_s, self._joined_s = -inf, -inf
        self._unassigned: dict[str, str] = {}
        self._said, self._told = "", SourceState()
        self._kept: SourceState | None = None  # What the store has of the source.
        self._plan_due, self._tend_due, self._source_due = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled. Pods go on collecting what they have when nobody runs this."""
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix=self._set)
        self._adopted, self._version = _NEVER, -1
        try:
            await self._loops.until_done("begin", self._begin)
            self._tls = self._context or ssl.create_default_context()
            async with open_client(self._tls) as client, asyncio.TaskGroup() as group:
                self._group, self._client = group, client
                group.create_task(self._loops.forever("store", self._watch_store))
                group.create_task(self._loops.forever("pods", self._tend, self._tend_due))
                group.create_task(self._loops.forever("source", self._read_source, self._source_due))
                group.create_task(self._loops.forever("plan", self._plan, self._plan_due))
        finally:
            await self._end()

    async def _end(self) -> None:
        """Close every connection, and give the lead to whoever wants it next."""
        for pod in self._pods.values():
            await pod.close()
        self._pods, self._tasks = {}, {}
        with suppress(TimeoutError):
            await asyncio.wait_for(self._do(self._resign), _RESIGN_S)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def state(self) -> PoolState:
        """Show what is known now."""
        pods = [
            PodState(name, note.state, note.since, note.error, note.targets)
            for name, note in sorted(self._notes.items())
        ]
        error = "; ".join(f"{what}: {reason}" for what, reason in sorted(self._loops.errors.items()))
        return PoolState(pods, dict(self._unassigned), self._told, self._said, error)

    async def _do(self, work: Callable[[], Answer]) -> Answer:
        """Run work in a thread of this pool."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _transact(self, work: Callable[[Transaction], Answer]) -> Answer:
        return await self._do(lambda: self._store.transact(self._set, work))

    async def _begin(self) -> float:
        """Read what an earlier engine has left, and speak once for the pods that were not gone."""
        start = await self._transact(facts.begin)
        self._notes, self._line = start.notes, start.line
        self._use(start.last)
        self._note_alive()
        await self._renew()
        return 0.0

    def _note_alive(self) -> None:
        """Remember who was there while somebody could tell: these are spoken for after a time in which nobody could."""
        self._alive = [name for name, note in self._notes.items() if note.state != "gone"]

    async def _renew(self) -> None:
        pods = self._alive
        await self._transact(lambda tx: facts.renew_all(tx, self._set, pods))
        self._planned_s = self._now()

    async def _watch_store(self) -> float:
        """Wait for a change, and wake whom it concerns."""
        version = await self._do(lambda: self._store.wait(self._version, 0.0 if self._version < 0 else _WATCH_S))
        if version == self._version:
            return 0.0
        text = await self._transact(facts.read_note)
        lines = await self._do(lambda: self._store.journal(self._set, after=self._line, most=_LINES))
        for pod in {line.member or "" for line in lines if line.transition in WAKING}:
            if pod in self._pods:
                self._pods[pod].wake()
        self._line = lines[-1].number if lines else self._line
        self._version = version if len(lines) < _LINES else self._version
        self._text = text
        if text != self._adopted:
            self._tend_due.set()
        self._plan_due.set()
        return _CALM_S

    async def _tend(self) -> float:
        """Follow the document, then keep what was observed of the pods."""
        if self._version >= 0 and self._text != self._adopted:
            await self._adopt(self._text)
        await self._publish()
        return _IDLE_S

    async def _adopt(self, text: str | None) -> None:
        """Follow a changed document: who joins, who departs, at which pace, and which source."""
        last = self._last
        adopted = await self._transact(lambda tx: facts.adopt(tx, self._set, text, last))
        document = adopted.document
        self._document, self._notes, self._adopted, self._source = document, adopted.notes, text, None
        self._use(adopted.last)
        if document is not None:
            spec = document.pool.spec
            self._pace, self._delivery = pace_of(spec.gone_after_seconds), spec.delivery or Delivery("pull")
            self._source = Source(spec.targets, self._client, self._folder)
        for name, note in adopted.notes.items():
            await self._join(name, note)
        self._source_due.set()
        self._plan_due.set()

    async def _join(self, name: str, note: PodNote) -> None:
        """Begin the task of a new pod or of one with a new address; tell the others that something has changed."""
        if note.former:
            await self._drop(name)
        pod = self._pods.get(name)
        if pod is not None:
            pod.repace(self._pace)
            pod.wake()
        elif note.kind != "pull" or note.former:
            pull, pack, well = note.kind == "pull", self._pack, self._are_others_well
            links = Links(self._read, self._speak, self._keep_alive, pack, well, self._tend_due.set)
            courier, former = None if pull else self._courier(note.kind, note.url), self._former(name, note.former)
            pod = Pod(name, courier, links, self._pace, memory=note.memory, former=former, now=self._now)
            self._pods[name] = pod
            self._tasks[name] = self._group.create_task(pod.run())
            self._joined_s = self._now()

    def _courier(self, kind: str, url: str) -> Courier:
        return Courier(open_client(self._tls), kind, url, self._pace)

    def _former(self, name: str, place: str) -> Former | None:
        """Find the way to where a pod was before."""
        kind, _, url = place.partition(" ")
        if kind in PUSHED and url:
            return self._courier(kind, url)
        return Fetching(lambda: self._transact(lambda tx: has_asked_twice(tx, name))) if kind == "pull" else None

    async def _drop(self, name: str) -> None:
        task, pod = self._tasks.pop(name, None), self._pods.pop(name, None)
        if task is not None and pod is not None:
            task.cancel()
            await asyncio.wait([task])
            await pod.close()

    async def _read(self, pod: str) -> Rights:
        return await self._transact(lambda tx: read_rights(tx, pod))

    async def _speak(self, pod: str, said: Said) -> Rights:
        departing = pod in self._notes and self._notes[pod].departing
        return await self._transact(lambda tx: facts.speak(tx, self._set, pod, said, departing=departing))

    async def _keep_alive(self, pod: str) -> None:
        await self._transact(lambda tx: facts.renew_all(tx, self._set, [pod]))

    def _pack(self, names: frozenset[str]) -> Packet:
        """Make a document, or take it as it was made before: most turns find nothing changed."""
        if len(self._packets) > 4 * len(self._pods) + 8:
            self._packets.clear()
        packet = self._packets.get(names)
        if packet is None:
            packet = pack(self._delivery, [self._targets[name] for name in names if name in self._targets])
            self._packets[names] = packet
        return packet

    def _are_others_well(self, name: str) -> bool:
        """Say whether somebody else takes documents: then it is this pod that is at fault, and not the document."""
        return any(pod.is_well for other, pod in self._pods.items() if other != name)

    async def _read_source(self) -> float:
        """Read the source, judge it, and put its list in force."""
        source, document = self._source, self._document
        if source is None or document is None:
            return _IDLE_S
        try:
            fresh = await source.read()
        except SourceFault as fault:
            self._tell_source(str(fault))
            return source.every_s or _IDLE_S
        if fresh is not None:
            percent = document.pool.spec.drop_max_percent
            last = guard(self._last, fresh, source.origin, percent=percent, revision=document.revision)
            await self._obey(last)
        self._tell_source(str(self._last.held) if self._last is not None and self._last.held else "")
        return source.every_s or inf

    async def _obey(self, last: LastList) -> None:
        before = self._last
        if last != before:
            await self._transact(lambda tx: facts.obey(tx, last, before))
            self._use(last)
            for pod in self._pods.values():
                pod.wake()
            self._plan_due.set()

    def _use(self, last: LastList | None) -> None:
        """Make documents of this list from now on."""
        self._last, self._targets = last, {target.name: target for target in last.targets} if last else {}
        self._packets.clear()

    def _tell_source(self, reason: str) -> None:
        if reason and reason != self._told.error:
            _log.warning("pool.source pool=%s reason=%s", self._set, reason)
        told = SourceState(len(self._targets), reason)
        if told != self._told:
            self._told = told
            self._tend_due.set()

    async def _plan(self) -> float:
        """Plan once; after a time in which nobody could speak for the pods, speak for them before."""
        if self._adopted == _NEVER:
            return _IDLE_S
        if self._now() - self._planned_s > self._pace.gone_after_s / 2:
            await self._renew()
        if any(not pod.tried for pod in self._pods.values()) and self._now() < self._joined_s + self._start_s:
            return _CALM_S
        cycle = await self._do(self._cycle)
        if cycle.plan is not None:
            self._unassigned = dict(cycle.plan.unowned)
        if cycle.written:
            _log.info("pool.planned %s", cycle.said)
        self._said, self._planned_s = cycle.said, self._now()
        self._note_alive()
        self._tend_due.set()
        return min(cycle.wake_s, self._pace.gone_after_s / 4)

    def _cycle(self) -> Cycle:
        """Run one cycle, and tell how it went and how long it took."""
        began_s, cycle = clock.boot_s(), None
        try:
            cycle = self._coordinator.cycle(self._set)
            return cycle
        finally:
            if self._tell is not None:
                self._tell(self._set, cycle, clock.boot_s() - began_s)

    async def _publish(self) -> None:
        """Keep what was observed, where it has changed, and let go of pods that have left for good."""
        known, told = self._notes, self._told
        counted = {name for name, note in known.items() if note.departing or note.kind == "pull"}
        seen = await self._transact(lambda tx: facts.see(tx, known, counted))
        notes = {name: observed(name, note, self._pods.get(name), seen) for name, note in known.items()}
        for name in [name for name, note in notes.items() if has_left(name, note, self._pods.get(name), seen)]:
            await self._drop(name)
            del notes[name]
        for name in [name for name, note in notes.items() if note.kind == "pull" and not note.former]:
            await self._drop(name)  # It fetches, and where it was before is free.
        if notes != known or told != self._kept:
            await self._transact(lambda tx: facts.keep(tx, notes, told))
            self._notes, self._kept = notes, told

    def _resign(self) -> None:
        try:
            self._coordinator.resign(self._set)
        except PoiseError as error:
            _log.info("pool.not_resigned pool=%s reason=%s", self._set, error)  # Its term ends by itself.
