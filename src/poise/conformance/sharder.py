"""The sharder as the check plays it: it gives, asks back, redirects and mends, by the rules that bind the real one."""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import Callable
from contextlib import suppress

import msgspec

from poise import clock
from poise.clock import boot_s
from poise.conformance.stage import DRAIN_S, Stage
from poise.errors import Conflict, NotFound, Unavailable
from poise.hold.ring_leases import sharder_lease
from poise.kube import Lease, Meta, ObjectRef, Partial
from poise.kube.patches import Operation, pointer
from poise.kube.resources import CONFIG_MAPS, LEASES, SECRETS, Resource
from poise.model.sharding import LeaseWrite, Marks, holder_identity, label_patch, read_marks

TRIES_MAX = 50
SWEEP_S, PATIENCE_S = 0.2, 0.8  # How often children are looked at, and how long the shard itself may take to mend one.


class PlayedSharder:
    """Writes labels and Leases; every write is noted as the check's own."""

    def __init__(self, stage: Stage) -> None:
        """Play on a stage."""
        self.stage = stage
        self.me = holder_identity(f"poise-sharder-check-{stage.run}", uuid.uuid4().hex)
        self._turns = 0
        self._amiss: dict[str, float] = {}

    # Objects.

    async def make_root(self, name: str, marks: Marks | None = None, children: int = 0) -> None:
        """Make a Secret, and ConfigMaps that it controls, with the same labels."""
        labels = _labels(self.stage.ring, marks or Marks())
        root = await self._create(SECRETS, name, {"metadata": {"name": name, "labels": labels}, "data": {}})
        owner = {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": root.uid, "controller": True}
        for number in range(1, children + 1):
            child = {"name": f"{name}-child-{number}", "labels": labels, "ownerReferences": [owner]}
            await self._create(CONFIG_MAPS, f"{name}-child-{number}", {"metadata": child, "data": {}})
        while ("secrets", name) not in self.stage.metas or len(self.children(name)) < children:
            await asyncio.sleep(0.02)  # What is not seen yet would be forgotten when the root is given away.

    async def _create(self, resource: Resource, name: str, body: object) -> Meta:
        made = await self.stage.client.create(ObjectRef(resource, name, self.stage.namespace), body, Partial)
        self.stage.note_own(resource.plural, made.metadata)
        return made.metadata

    async def give(self, name: str, to: str) -> float:
        """Give a root away, children first; gives when the root's write was sent."""
        epoch = self.stage.marks("secrets", name).next_epoch
        for child in self.children(name):
            await self._mark(CONFIG_MAPS, child, lambda _: Marks(to, epoch))
        sent_s = boot_s()
        await self._mark(SECRETS, name, lambda _: Marks(to, epoch))
        return sent_s

    async def ask_back(self, name: str, target: str) -> None:
        """Write the drain label, or redirect it; drain-until stays as it was first said."""
        until = int(clock.now().timestamp()) + DRAIN_S

        def drained(marks: Marks) -> Marks:
            return msgspec.structs.replace(marks, drain=target, drain_until=marks.drain_until or until)

        await self._mark(SECRETS, name, drained)

    async def keep(self, name: str) -> None:
        """Take a request back."""
        await self._mark(SECRETS, name, lambda marks: Marks(marks.shard, marks.epoch))

    async def touch(self, name: str) -> None:
        """Change the data of a Secret: whoever has it has something to do."""
        self._turns += 1
        value = base64.b64encode(f"turn {self._turns}".encode()).decode()
        ref = ObjectRef(SECRETS, name, self.stage.namespace)
        change = Operation("add", pointer("data"), {"turn": value})
        with suppress(NotFound):
            self.stage.note_own("secrets", (await self.stage.client.patch(ref, [change], Partial)).metadata)

    def children(self, name: str) -> list[str]:
        """Name what a root controls."""
        root = self.stage.metas.get(("secrets", name))
        return [
            child
            for (plural, child), meta in self.stage.metas.items()
            if root is not None and plural == "configmaps" and meta.controller and meta.controller.uid == root.uid
        ]

    async def _mark(self, resource: Resource, name: str, after: Callable[[Marks], Marks]) -> None:
        """Write labels over the version that was just read; whoever was faster is looked at again."""
        ref = ObjectRef(resource, name, self.stage.namespace)
        for _ in range(TRIES_MAX):
            meta = (await self.stage.client.get(ref, Partial)).metadata
            change = label_patch(meta.labels, self.stage.ring, after(read_marks(meta.labels, self.stage.ring)))
            if not change:
                return
            with suppress(Conflict):
                written = await self.stage.client.merge(ref, meta, {"metadata": {"labels": change}}, Partial)
                self.stage.note_own(resource.plural, written.metadata)
                return
        raise Unavailable(f"{ref}: somebody else writes it all the time")

    async def mend_on(self) -> None:
        """Let children be copies of their roots, until cancelled; never while the root is asked for."""
        while True:
            await asyncio.sleep(SWEEP_S)
            for name in [name for plural, name in self.stage.metas if plural == "secrets" and self.stage.run in name]:
                root = self.stage.marks("secrets", name)
                if root.shard is None or root.drain is not None:
                    continue
                for child in self.children(name):
                    await self._mend(child, Marks(root.shard, root.epoch))

    async def _mend(self, child: str, wanted: Marks) -> None:
        marks = self.stage.marks("configmaps", child)
        if marks == wanted:
            self._amiss.pop(child, None)
            return
        since_s = self._amiss.setdefault(child, boot_s())
        if marks.shard is None or boot_s() >= since_s + PATIENCE_S:
            with suppress(NotFound, Conflict, Unavailable):
                await self._mark(CONFIG_MAPS, child, lambda _: wanted)

    # Leases.

    async def hold(self, instance: str, duration_s: float) -> float:
        """Hold the Lease of an instance, or hold it longer; gives when that was sent."""
        old = await self._lease(instance)
        version = None if old is None else old.metadata.resource_version
        write = LeaseWrite("hold", instance, version, holder=self.me, duration_s=duration_s)
        told = clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        body = sharder_lease(write, old, (self.stage.namespace, self.stage.ring), told)
        ref, sent_s = ObjectRef(LEASES, instance, self.stage.namespace), boot_s()
        if old is None:
            written = await self.stage.client.create(ref, body, Lease)
        else:
            written = await self.stage.client.replace(ref, body, Lease)
        self.stage.note_own("leases", written.metadata)
        return sent_s

    async def _lease(self, instance: str) -> Lease | None:
        try:
            return await self.stage.client.get(ObjectRef(LEASES, instance, self.stage.namespace), Lease)
        except NotFound:
            return None


def _labels(ring: str, marks: Marks) -> dict[str, str]:
    return {name: value for name, value in label_patch({}, ring, marks).items() if value is not None}
