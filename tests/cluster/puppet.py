"""An instance of the tests' own: it holds its Lease as the contract says, and answers drains only as the test wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec
from tests.cluster.ring_world import RING

from poise.errors import Conflict, NotFound, Unavailable
from poise.kube import LEASES, Client, Event, Lease, Meta, ObjectRef, Partial, Reflector, Selection
from poise.kube.mirror import Added, Modified
from poise.kube.objects import LeaseSpec
from poise.kube.patches import label_change
from poise.kube.resources import CONFIG_MAPS, SECRETS, Resource
from poise.model.sharding import (
    RELEASED_ANNOTATION,
    RING_LABEL,
    TOKENS_LABEL,
    Marks,
    holder_identity,
    label_names,
    label_patch,
    read_marks,
)

Answers = Literal["short", "long", "never"]
LASTING_S = 60  # The lease of who does not die here, however busy the machine is.


class Puppet:
    """One instance without a reconcile: tests write its Lease, and it hands over what it is asked for.

    `answers`: short (children, then the root, in one patch each), long (let go of the root), or never.
    `clock_off_s` shifts the times that it writes into its Lease: nobody may read them.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        *,
        duration_s: int,
        ring: str = RING,
        answers: Answers = "short",
        clock_off_s: float = 0.0,
        tokens: str = "",
        process: str = "1",
    ) -> None:
        """Prepare; it holds nothing yet."""
        self._client, self.namespace, self.name, self.ring = client, namespace, name, ring
        self._duration_s, self._tokens, self._off_s = duration_s, tokens, clock_off_s
        self.answers = answers
        self.holder = holder_identity(name, process)
        self.written = 0
        self._lease: Lease | None = None
        self._busy: set[str] = set()

    @property
    def ref(self) -> ObjectRef:
        """Where its Lease is."""
        return ObjectRef(LEASES, self.name, self.namespace)

    def body(self, holder: str | None = None) -> Lease:
        """Write its Lease, over the version that it wrote last."""
        told = (datetime.now(UTC) + timedelta(seconds=self._off_s)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        labels = {RING_LABEL: self.ring} | ({TOKENS_LABEL: self._tokens} if self._tokens else {})
        version = "" if self._lease is None else self._lease.metadata.resource_version
        uid = "" if self._lease is None else self._lease.metadata.uid
        meta = Meta(name=self.name, namespace=self.namespace, labels=labels, uid=uid, resource_version=version)
        spec = LeaseSpec(self.holder if holder is None else holder, self._duration_s, told, told, 0)
        return Lease(meta, spec)

    async def renew(self) -> None:
        """Take its Lease, or renew it."""
        act = self._client.create if self._lease is None else self._client.replace
        self._lease = await act(self.ref, self.body(), Lease)

    async def release(self, reason: str = "stop") -> None:
        """Give its Lease back, with the reason; a renewal that was cut short may have landed."""
        try:
            await self._release(reason)
        except Conflict:
            self._lease = await self._client.get(self.ref, Lease)
            assert self._lease.spec.holder_identity == self.holder
            await self._release(reason)

    async def _release(self, reason: str) -> None:
        body = self.body(holder="")
        meta = msgspec.structs.replace(body.metadata, annotations={RELEASED_ANNOTATION: reason})
        self._lease = await self._client.replace(self.ref, msgspec.structs.replace(body, metadata=meta), Lease)

    @asynccontextmanager
    async def playing(self) -> AsyncIterator[Puppet]:
        """Hold the Lease and answer drains while the block runs; afterwards it is dead, and says nothing."""
        await self.renew()
        tasks = [asyncio.create_task(self._renewing())]
        tasks += [asyncio.create_task(self._following(resource)) for resource in (SECRETS, CONFIG_MAPS)]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _renewing(self) -> None:
        while True:
            await asyncio.sleep(self._duration_s / 3)
            with suppress(Unavailable, NotFound):
                try:
                    await self.renew()
                except (Conflict, Unavailable):  # A renewal without an answer may have landed.
                    found = await self._client.get(self.ref, Lease)
                    if found.spec.holder_identity == self.holder:
                        self._lease = found

    async def _following(self, resource: Resource) -> None:
        """Watch what carries its name, as a shard does."""
        asked: asyncio.Queue[Partial] = asyncio.Queue()

        def see(event: Event[Partial]) -> None:
            if isinstance(event, Added | Modified):
                marks = read_marks(event.object.metadata.labels, self.ring)
                if marks.drain is not None and self.answers != "never":
                    asked.put_nowait(event.object)

        chosen = Selection(resource, self.namespace, labels=f"{label_names(self.ring)[0]}={self.name}")
        async with asyncio.TaskGroup() as group:
            group.create_task(Reflector(self._client, chosen, Partial, see).run())
            for _ in range(8):
                group.create_task(self._answering(resource, asked))

    async def _answering(self, resource: Resource, asked: asyncio.Queue[Partial]) -> None:
        while True:
            seen = await asked.get()
            with suppress(NotFound, Unavailable):
                try:
                    await self.hand_over(resource, seen)
                except (Conflict, Unavailable):  # What was asked has changed meanwhile, or nobody answered.
                    await asyncio.sleep(0.05)
                    now = await self._client.get(ObjectRef(resource, seen.metadata.name, self.namespace), Partial)
                    marks = read_marks(now.metadata.labels, self.ring)
                    if marks.shard == self.name and marks.drain is not None:
                        asked.put_nowait(now)

    async def hand_over(self, resource: Resource, seen: Partial, *, children_max: int | None = None) -> None:
        """Hand one root over, or with `children_max` only so many of its children and then nothing more."""
        marks = read_marks(seen.metadata.labels, self.ring)
        if not marks.drain or self.answers == "long":
            await self.write(resource, seen, Marks(epoch=marks.epoch))
            return
        goal = Marks(marks.drain, marks.next_epoch)
        owned = [each for each in await self._children(seen) if read_marks(each.metadata.labels, self.ring) != goal]
        for child in owned[:children_max]:
            await self.write(CONFIG_MAPS, child, goal)
        if children_max is None:
            await self.write(resource, seen, goal)

    async def _children(self, root: Partial) -> list[Partial]:
        """Find the ConfigMaps of a Secret."""
        maps, _ = await self._client.list_all(Selection(CONFIG_MAPS, self.namespace), Partial)
        return [
            each
            for each in maps
            if each.metadata.controller is not None and each.metadata.controller.uid == root.metadata.uid
        ]

    async def write(self, resource: Resource, seen: Partial, marks: Marks) -> None:
        """Write the labels of one object over the version that was seen."""
        ref = ObjectRef(resource, seen.metadata.name, self.namespace)
        change = label_change(seen.metadata, label_patch(seen.metadata.labels, self.ring, marks))
        await self._client.merge(ref, seen.metadata, change, Partial)
        self.written += 1
