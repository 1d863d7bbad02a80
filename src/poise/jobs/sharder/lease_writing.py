"""Writes the Leases of instances that are gone: holds, empties and deletes them, over the version that was seen.

Every write is decided on at the last moment, and never after a fresh read: whoever renewed since makes it fail. A
write whose end is not known is observed like everybody else's, and a hold that it may have ended is no longer used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from poise import clock
from poise.errors import Forbidden, PoiseError
from poise.hold.ring_leases import sharder_lease
from poise.jobs.sharder.instances import Instances
from poise.jobs.sharder.report import RingCounts
from poise.jobs.sharder.session import Session
from poise.jobs.sharder.writing import longest_s
from poise.kube import LEASES, Client, Lease, ObjectRef, WorkQueue
from poise.kube.client import within
from poise.kube.pacing import Pace
from poise.kube.work import Workers
from poise.model.sharding import LeaseWrite

_log = logging.getLogger("poise.sharder")
_PACE = Pace(0.1, 2.0)
_UNDECIDED_S = 0.05
_NOT_LEADING_S = 0.5
_TOLD_AFTER = 3  # One refusal is an ordinary race; so many in a row are told.


class LeaseWriter:
    """Writes the Leases of one ring, one request a Lease at a time."""

    def __init__(
        self,
        client: Client,
        instances: Instances,
        counts: RingCounts,
        place: tuple[str, str],
        session: Callable[[], Session],
        *,
        may_act: Callable[[], bool],
        now_s: Callable[[], float],
        wrote: Callable[[], None],
    ) -> None:
        """Prepare; `place` is the namespace and the name of the ring, `wrote` hears of every answer."""
        self._client, self._instances, self._counts, self._place = client, instances, counts, place
        self._session, self._may_act, self._now_s, self._wrote = session, may_act, now_s, wrote
        self._queue: WorkQueue[str] = WorkQueue(_PACE)
        self._workers = Workers(self._queue, self._work, tell=self._failed)
        self._missing_rights: dict[str, str] = {}

    @property
    def faults(self) -> tuple[str, ...]:
        """Say which rights are missing."""
        return tuple(dict.fromkeys(self._missing_rights.values()))

    def look(self) -> None:
        """Ask for every Lease that has something to be written."""
        now_s = self._now_s()
        for name in self._missing_rights.keys() - self._instances.watched.keys():
            del self._missing_rights[name]
        for name in self._instances.watched:
            if self._next(name, now_s) is not None:
                self._queue.add(name)

    async def run(self) -> None:
        """Write until cancelled."""
        await self._workers.run()

    def _next(self, name: str, now_s: float) -> LeaseWrite | None:
        session = self._session()
        work, named = session.deciding.works_for(name), name in session.view.named
        return self._instances.next_write(name, now_s, work=work, named=named)

    async def _work(self, name: str) -> float | None:
        """Decide and write; while families are not decided on it is not known whether a hold is still needed."""
        session = self._session()
        if not session.synced:
            return None
        if session.deciding.touched:
            return _UNDECIDED_S
        sent_at_s = self._now_s()
        write = self._next(name, sent_at_s)
        if write is None:
            return None
        if not self._may_act():
            return _NOT_LEADING_S
        sent = self._instances.watched[name]
        if write.kind != "hold":
            self._instances.leaving.add(name)
        try:
            answer = await self._send(write)
        except BaseException:
            self._instances.doubt(name, self._now_s())
            raise
        finally:
            self._instances.leaving.discard(name)
        _log.info("lease.%s ring=%s instance=%s", write.kind, self._place[1], name)
        self._missing_rights.pop(name, None)
        self._counts.lease_writes[write.kind] = self._counts.lease_writes.get(write.kind, 0) + 1
        self._instances.wrote(sent, answer, sent_at_s, self._now_s())
        self._wrote()
        return None

    async def _send(self, write: LeaseWrite) -> Lease | None:
        """Send one write, and wait for less than the margin by which a hold is stopped to be used before its end."""
        ref = ObjectRef(LEASES, write.name, self._place[0])
        async with within(longest_s(self._instances.terms)):
            if write.kind == "delete":
                await self._client.delete(ref, uid=write.uid or "", version=write.version or "")
                return None
            # The time has microseconds, so that no write leaves the Lease as it was.
            told = clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            old = None if write.version is None else self._instances.leases[write.name]
            lease = sharder_lease(write, old, self._place, told)
            if old is None:
                return await self._client.create(ref, lease, Lease)
            return await self._client.replace(ref, lease, Lease)

    def _failed(self, name: str, error: PoiseError, _wait_s: float) -> None:
        self._counts.failures += 1
        if isinstance(error, Forbidden):
            self._missing_rights[name] = str(error)
        elif self._queue.failures(name) >= _TOLD_AFTER:
            self._instances.notes[name] = str(error)
