"""Lets kopf process the events of an object only while its shard holds it, handlers and kopf's own patches alike.

Order for safety: held, then processed; asked for, then daemons end and nothing new begins, then it is handed over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import TypeVar, Unpack

from poise.errors import NotFound, PoiseError
from poise.hold.kopf_inside import (
    Call,
    Process,
    index,
    is_handled,
    is_watched,
    labels_of,
    memory_of,
    resource_name,
    running_daemons,
    stop_daemon,
    traces_of,
    uid_of,
    was_handled,
    watching_only,
    with_labels,
)
from poise.hold.kopf_stays import Job, Stay
from poise.hold.shard import Held, Shard
from poise.kube.client import Client
from poise.kube.objects import Partial
from poise.kube.resources import ObjectRef, Resource
from poise.model.sharding import read_marks

Ended = TypeVar("Ended")
LOOK_S = 0.05
SWEEP_S = 30.0
_RING_LABELS = tuple(f"{part}.poise.dev/" for part in ("shard", "epoch", "drain", "drain-until"))
_log = logging.getLogger("poise.kopf")
held_now: ContextVar[Held] = ContextVar("held_now")


class Gate:
    """Stands between kopf and its handlers. `resources` are those of the ring, `everywhere` those left to kopf."""

    def __init__(
        self,
        inner: Process,
        shard: Shard,
        client: Client,
        ring: str,
        *,
        resources: Collection[str],
        everywhere: Collection[str],
    ) -> None:
        """Stand before one shard; `inner` is how kopf processes an event."""
        self._inner = inner
        self._shard, self._client, self._ring = shard, client, ring
        self._resources, self._everywhere = resources, everywhere
        self._stays: dict[str, Stay] = {}
        self._refused: set[str] = set()
        self._farewells: set[asyncio.Task[str | None]] = set()

    async def process(self, **call: Unpack[Call]) -> str | None:
        """Take one event from kopf, in its place; gives the version that kopf wrote."""
        name, seen = resource_name(call["resource"]), without_ring_labels(call)
        if name not in self._resources:
            return await self._leave_to_kopf(name, seen)
        marks = read_marks(labels_of(call), self._ring)
        await index(seen)
        uid = uid_of(seen)
        if seen["raw_event"]["type"] == "DELETED":
            return await self._leave(uid, seen)
        stay = self._stays.setdefault(uid, Stay())
        job = stay.put(Job(seen, marks))
        self._shard.wake(uid)
        return await self._answer(uid, stay, job)

    async def _leave_to_kopf(self, name: str, call: Call) -> str | None:
        """Let kopf do as it likes where it only reads, or was told to; every instance would do it."""
        if name in self._everywhere or not is_handled(call):
            return await self._inner(**call)
        if name not in self._refused:
            self._refused.add(name)
            _log.error("kopf.refused resource=%s reason=every instance would handle it: name it in join_ring", name)
        await index(call)
        return None

    async def _answer(self, uid: str, stay: Stay, job: Job) -> str | None:
        """Wait while the event is processed. Where the object is not held it waits alone: kopf has other events."""
        try:
            while not job.done.done():
                if job.task is None and not self._shard.holds(uid):
                    job.awaited = False
                    return None
                await asyncio.wait((job.done,), timeout=LOOK_S if job.task is None else None)
        except asyncio.CancelledError:
            # kopf ends, and has waited long enough.
            stay.job = None if stay.job is job else stay.job
            if job.task is not None:
                job.task.cancel()
            raise
        return job.done.result()

    # What the shard calls.

    async def reconcile(self, held: Held) -> None:
        """Process what waits, and stay as long as daemons of the object live; end when somebody asks for it."""
        stay = self._stays.get(held.meta.uid)
        if stay is None:
            return
        fresh, last = stay.epoch != held.epoch, None
        stay.leaving = False
        held_now.set(held)
        try:
            while not held.asked.is_set():
                job = stay.take(held.epoch)
                if job is not None:
                    last = job
                    await self._process(stay, job, held, fresh=fresh)
                    fresh = False
                elif running := running_daemons(stay.memory):
                    await first_of((stay.news, held.asked), (daemon.task for daemon in running))
                else:
                    return
            await asyncio.gather(*map(stop_daemon, running_daemons(stay.memory)))
            stay.leaving = True
            stay.put_back(last)
        except asyncio.CancelledError:
            stay.put_back(last)
            raise
        finally:
            await end_all([daemon.task for daemon in running_daemons(stay.memory)])
            if last is not None:
                stay.epoch = held.epoch  # An own fence may have raised it.

    async def _process(self, stay: Stay, job: Job, held: Held, *, fresh: bool) -> None:
        """Let kopf process one event; a sleep until the next attempt of a handler ends when the object is asked for."""
        call = await self._begun(stay, job, fresh=fresh, first=held.epoch == 1)
        stay.epoch = held.epoch
        task = job.task = asyncio.create_task(self._inner(**call))
        stay.begun = job
        try:
            await first_of((held.asked, *job.haste()), (task,))
            job.hurry()
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            await end_all([task])
            job.finish(None)
            raise
        finally:
            stay.begun, stay.memory, stay.traces = None, memory_of(call), traces_of(call)
        self._take_result(stay, job, task)

    async def _begun(self, stay: Stay, job: Job, *, fresh: bool, first: bool) -> Call:
        """Prepare an event. The first of a stay tells of what was there before, as a list does: handlers resume."""
        call = job.under_pressure()
        if fresh:
            await call["memories"].forget(call["raw_event"]["object"])
            stay.expect("", 0.0)
            if not first or was_handled(call):
                call = {**call, "raw_event": {"type": None, "object": call["raw_event"]["object"]}}
        return {**call, "consistency_time": stay.consistency_s(call)}

    def _take_result(self, stay: Stay, job: Job, task: asyncio.Task[str | None]) -> None:
        if task.cancelled():
            job.finish(None)
            return
        error = task.exception()
        if error is None:
            loop_s = asyncio.get_running_loop().time()
            stay.expect(task.result(), loop_s + job.call["settings"].persistence.consistency_timeout)
            job.finish(task.result())
        elif job.awaited:
            job.fail(error)  # kopf knows what to do about its faults.
        else:
            stay.put_back(job)
            raise error

    # What leaves.

    async def _leave(self, uid: str, call: Call) -> str | None:
        """An object left the filter, which never means that it is gone: it is read before handlers hear of its end."""
        stay = self._stays.pop(uid, None)
        if stay is not None and stay.job is not None:
            stay.job.finish(None)
        told = stay is not None and stay.epoch is not None and not stay.leaving and is_watched(call)
        if not told or not self._shard.holding or await self._is_there(uid, call):
            await traces_of(call).wipe()
            return None
        farewell = asyncio.create_task(self._inner(**watching_only(call)))
        self._farewells.add(farewell)
        farewell.add_done_callback(self._farewells.discard)
        try:
            await asyncio.wait((farewell,))
        except asyncio.CancelledError:
            farewell.cancel()  # kopf ends, and has waited long enough.
            raise
        return None if farewell.cancelled() else farewell.result()

    async def _is_there(self, uid: str, call: Call) -> bool:
        """Say whether an object is still there; whoever cannot tell says yes."""
        found, meta = call["resource"], call["raw_event"]["object"]["metadata"]
        resource = Resource(found.group, found.version, found.plural, found.kind or "", bool(found.namespaced))
        try:
            ref = ObjectRef(resource, str(meta.get("name", "")), str(meta.get("namespace") or ""))
            return (await self._client.get(ref, Partial)).metadata.uid == uid
        except NotFound:
            return False
        except PoiseError:
            return True

    async def sweep_on(self) -> None:
        """Forget what left while kopf's watch was broken: no event tells of it."""
        while True:
            await asyncio.sleep(SWEEP_S)
            for uid, stay in list(self._stays.items()):
                stay.unseen = 0 if self._shard.sees(uid) else stay.unseen + 1
                if stay.unseen > 1 and not running_daemons(stay.memory):
                    del self._stays[uid]
                    if stay.traces is not None:
                        await stay.traces.wipe()

    async def close(self) -> None:
        """End what no shard waits for."""
        await end_all(list(self._farewells))


def without_ring_labels(call: Call) -> Call:
    """Hide the labels of rings: their change is no update of the object, and children must not be given copies."""
    labels = labels_of(call)
    kept = {name: value for name, value in labels.items() if not name.startswith(_RING_LABELS)}
    return call if kept == labels else with_labels(call, kept)


async def first_of(events: Iterable[asyncio.Event], tasks: Iterable[asyncio.Task[Ended]]) -> None:
    """Wait until an event is set, or a task ends."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait([*waits, *tasks], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def end_all(tasks: Sequence[asyncio.Task[Ended]]) -> None:
    """Cancel tasks and see them end, whoever cancels this one meanwhile: nobody may believe that they have ended."""
    for task in tasks:
        task.cancel()
    while waiting := [task for task in tasks if not task.done()]:
        with suppress(asyncio.CancelledError):
            await asyncio.wait(waiting)
