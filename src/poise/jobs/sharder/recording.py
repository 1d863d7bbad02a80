"""Events of Kubernetes for what happens to the instances of rings: a few, counted, and never one an object.

Events inform people: one that cannot be written is counted and forgotten, and nothing waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable

import xxhash

from poise import clock
from poise.errors import PoiseError
from poise.jobs.sharder.happenings import Entry, Happening, Ledger
from poise.kube import Client, Meta, ObjectRef, Partial
from poise.kube.crds import custom_resource
from poise.kube.resources import EVENTS

COMPONENT = "poise-operator"
_WAITING_MAX = 500
_RING = custom_resource("ShardRing")
_log = logging.getLogger("poise.operator")


class Recorder:
    """Writes the Events of all rings of this process, one after the other."""

    def __init__(self, client: Client, me: str, may_act: Callable[[], bool], now_s: Callable[[], float]) -> None:
        """Begin; only a leader writes."""
        self._client, self._me, self._may_act, self._now_s = client, me, may_act, now_s
        self._ledgers: dict[str, Ledger] = {}
        self._waiting: deque[tuple[Meta, Entry]] = deque()
        self._woken = asyncio.Event()
        self.written = 0
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """How many were only counted: too many at once, or refused by the API server."""
        return self._dropped + sum(ledger.withheld for ledger in self._ledgers.values())

    def record(self, ring: Meta, happened: Iterable[Happening]) -> None:
        """Note what happened to a ring; does not wait."""
        for happening in happened:
            ledger = self._ledgers.setdefault(ring.uid, Ledger(self._now_s()))
            entry = ledger.enter(happening, self._now_s(), clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"))
            if entry is None:
                continue
            if len(self._waiting) >= _WAITING_MAX:
                self._waiting.popleft()
                self._dropped += 1
            self._waiting.append((ring, entry))
            self._woken.set()

    def forget(self, uid: str) -> None:
        """Forget a ring that is gone."""
        ledger = self._ledgers.pop(uid, None)
        self._dropped += 0 if ledger is None else ledger.withheld

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            self._woken.clear()
            while self._waiting:
                await self._write(*self._waiting.popleft())
            await self._woken.wait()

    async def _write(self, ring: Meta, entry: Entry) -> None:
        """Write one Event; the same thing happening again changes its count."""
        if not self._may_act():
            return
        ref = ObjectRef(EVENTS, event_name(ring, entry.happening, self._me), ring.namespace)
        try:
            await self._client.apply(ref, event_body(ref, ring, entry, self._me), Partial, force=True)
            self.written += 1
        except PoiseError as error:
            self._dropped += 1
            _log.warning("event.dropped ring=%s/%s reason=%s", ring.namespace, ring.name, error)


def event_name(ring: Meta, happening: Happening, me: str) -> str:
    """Name the Event of one kind of happening: every process has its own, so that none counts for another."""
    parts = "\n".join((ring.uid, happening.reason, happening.about, me))
    return f"{ring.name}.{xxhash.xxh3_64_hexdigest(parts.encode())}"


def event_body(ref: ObjectRef, ring: Meta, entry: Entry, me: str) -> dict[str, object]:
    """Write the Event as the API server and kubectl know it."""
    happening = entry.happening
    subject = {"apiVersion": _RING.api_version, "kind": _RING.kind, "name": ring.name, "namespace": ring.namespace}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": ref.name, "namespace": ref.namespace},
        "involvedObject": subject | {"uid": ring.uid},
        "reason": happening.reason,
        "message": happening.told,
        "type": happening.type,
        "count": entry.count,
        "firstTimestamp": entry.first,
        "lastTimestamp": entry.last,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": me[:128],
    }
