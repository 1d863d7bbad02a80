"""A world for the shard library: a ring with its status, a sharder that is played by the test, and shards that note."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal

import msgspec
from tests.cluster.faulty_proxy import FaultyProxy
from tests.cluster.world import make_secret, until

from poise.clock import boot_s
from poise.errors import Conflict, NotFound
from poise.hold.shard import Held, Shard
from poise.hold.shard_view import Entry, entry_of
from poise.kube import LEASES, Client, Lease, Meta, ObjectRef, Partial, Resource, Selection
from poise.kube.crds import custom_resource
from poise.kube.crds.status import terms_of
from poise.kube.objects import Custom
from poise.kube.resources import CONFIG_MAPS, SECRETS
from poise.model.shard_ring import ShardRingSpec
from poise.model.sharding import Marks, Standing, Step, label_patch, read_marks
from poise.move.sharding.decide import Outlook, next_steps
from poise.move.sharding.families import Relatives, Trace, find_families

RINGS = custom_resource("ShardRing")
KINDS = frozenset({("", "Secret"), ("", "ConfigMap")})
RESOURCES = [{"group": "", "resource": "secrets", "controlled": [{"group": "", "resource": "configmaps"}]}]
D = 3


class World:
    """One ring, of a name of its own, in one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.ring = f"ring-{uuid.uuid4().hex[:8]}"
        self.ring_ref = ObjectRef(RINGS, self.ring, namespace)
        self._traces: dict[str, Trace] = {}

    # The ring.

    async def make_ring(self, lease_s: int = D, drain_s: int = 60, *, accepted: bool = True) -> World:
        spec = {"resources": RESOURCES, "leaseSeconds": lease_s, "drainTimeoutSeconds": drain_s}
        body = {"apiVersion": "poise.dev/v1alpha1", "kind": "ShardRing", "metadata": {"name": self.ring}, "spec": spec}
        await self.client.create(self.ring_ref, body, Custom)
        if accepted:
            await self.accept()
        return self

    async def accept(self, reason: str = "Running") -> None:
        """Write the status that an operator writes when it has looked at the ring."""
        ring = await self.client.get(self.ring_ref, Custom)
        condition = {
            "type": "Ready",
            "status": "True" if reason == "Running" else "False",
            "reason": reason,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        taken = {"terms": terms_of(msgspec.json.decode(ring.spec, type=ShardRingSpec))} if reason == "Running" else {}
        status = {"observedGeneration": ring.metadata.generation, "conditions": [condition], **taken}
        ref = msgspec.structs.replace(self.ring_ref, subresource="status")
        await self.client.merge(ref, ring.metadata, {"status": status}, Custom)

    async def change_ring(self, reason: str = "Running", **spec: object) -> None:
        ring = await self.client.get(self.ring_ref, Custom)
        await self.client.merge(self.ring_ref, ring.metadata, {"spec": spec}, Custom)
        await self.accept(reason)

    # The objects.

    def secret(self, name: str) -> ObjectRef:
        return ObjectRef(SECRETS, name, self.namespace)

    def config(self, name: str) -> ObjectRef:
        return ObjectRef(CONFIG_MAPS, name, self.namespace)

    async def make(self, *names: str) -> None:
        for name in names:
            await make_secret(self.client, name, self.namespace, {"kept": "yes"})

    async def make_child(self, name: str, owner: str, *, of: Resource = SECRETS) -> None:
        uid = (await self.meta(ObjectRef(of, owner, self.namespace))).uid
        reference = {"apiVersion": "v1", "kind": of.kind, "name": owner, "uid": uid, "controller": True}
        body = {"metadata": {"name": name, "ownerReferences": [reference]}, "data": {}}
        await self.client.create(self.config(name), body, Partial)

    async def meta(self, ref: ObjectRef) -> Meta:
        return (await self.client.get(ref, Partial)).metadata

    async def marks(self, ref: ObjectRef) -> Marks:
        return read_marks((await self.meta(ref)).labels, self.ring)

    async def mark(self, ref: ObjectRef, marks: Marks) -> None:
        """Write labels as an admin does who knows of no rules."""
        meta = await self.meta(ref)
        change = label_patch(meta.labels, self.ring, marks)
        await self.client.merge(ref, meta, {"metadata": {"labels": change}}, Partial)

    # The sharder.

    async def _entries(self) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        for resource in (SECRETS, CONFIG_MAPS):
            listed, _ = await self.client.list_all(Selection(resource, self.namespace), Partial)
            entries = (entry_of(resource, each.metadata, self.ring, KINDS) for each in listed)
            found |= {entry.uid: entry for entry in entries}
        return found

    def _relatives(self, entries: dict[str, Entry]) -> Relatives:
        found = find_families((entry.seen for entry in entries.values()), self._traces)
        self._traces = found.traces
        return found

    async def share(self, owner: Callable[[str], str | None] | str, ready: Iterable[str] = "ab") -> int:
        """Write what the sharder writes next, for owners by the name of the root; gives how many labels it wrote."""
        entries = await self._entries()
        outlook = Outlook(standings=dict.fromkeys(ready, Standing.READY), drain_until=2_000_000_000)
        writes = 0
        for family in self._relatives(entries).families:
            name = entries[family.root.uid].ref.name
            wanted = owner if isinstance(owner, str) else owner(name)
            for step in next_steps(family, wanted, outlook):
                writes += await self._carry_out(step, entries)
        return writes

    async def _carry_out(self, step: Step, entries: dict[str, Entry]) -> int:
        for write in step.writes:
            entry = entries[write.uid]
            change = label_patch(entry.meta.labels, self.ring, write.marks)
            try:
                await self.client.merge(entry.ref, entry.meta, {"metadata": {"labels": change}}, Partial)
            except (Conflict, NotFound):
                return 0
        return len(step.writes)

    # The Leases.

    def lease_ref(self, name: str) -> ObjectRef:
        return ObjectRef(LEASES, name, self.namespace)

    async def lease(self, name: str) -> Lease | None:
        try:
            return await self.client.get(self.lease_ref(name), Lease)
        except NotFound:
            return None

    async def holder(self, name: str) -> str:
        lease = await self.lease(name)
        return "" if lease is None else lease.spec.holder_identity or ""

    async def hold(self, name: str, holder: str, duration_s: int) -> None:
        """Take a Lease as somebody else."""
        lease = await self.lease(name)
        assert lease is not None
        spec = msgspec.structs.replace(lease.spec, holder_identity=holder, lease_duration_seconds=duration_s)
        try:
            await self.client.replace(self.lease_ref(name), msgspec.structs.replace(lease, spec=spec), Lease)
        except Conflict:
            await self.hold(name, holder, duration_s)

    async def eventually(self, holds: Callable[[], Awaitable[bool]], within_s: float = 60.0) -> None:
        end_s = boot_s() + within_s
        while not await holds():
            assert boot_s() < end_s, f"not within {within_s} s"
            await asyncio.sleep(0.05)

    def shard(
        self,
        name: str = "a",
        *,
        client: Client | None = None,
        trust_stable_name: bool = False,
        fence_restarts: Literal["lazy", "eager"] = "lazy",
        finish_s: float = 5.0,
        resources: tuple[str, ...] = ("secrets",),
    ) -> Shard:
        """Make a shard that tells when it hangs, instead of ending the tests."""
        return Shard(
            ring=self.ring,
            resources=resources,
            name=name,
            namespace=self.namespace,
            client=client or self.client,
            trust_stable_name=trust_stable_name,
            fence_restarts=fence_restarts,
            finish_s=finish_s,
            on_hang="raise",
        )


class _Late:
    """Writes to a client only after a while."""

    def __init__(self, writer: asyncio.StreamWriter, after_s: float) -> None:
        self._writer, self._after_s, self._held = writer, after_s, b""

    def write(self, chunk: bytes) -> None:
        self._held += chunk

    async def drain(self) -> None:
        await asyncio.sleep(self._after_s)
        self._writer.write(self._held)
        self._held = b""
        await self._writer.drain()


class LateAnswers(FaultyProxy):
    """A proxy by which watches outrun the answers to patches."""

    async def _pass_on(
        self, head: str, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        late = _Late(writer, 0.4) if head.startswith("PATCH") else writer
        await super()._pass_on(head, body, reader, late)  # type: ignore[arg-type]  # It only writes and drains.


class Note(msgspec.Struct):
    """One reconcile: of what, at which epoch, from when to when."""

    name: str
    epoch: int
    begun_s: float
    ended_s: float | None = None
    cancelled: bool = False


class Notes:
    """A reconcile that notes what it does; where `gate` is closed it waits there."""

    def __init__(self, act: Callable[[Held], Awaitable[None]] | None = None) -> None:
        self.all: list[Note] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self._act = act

    async def __call__(self, held: Held) -> None:
        assert not any(note.ended_s is None and note.name == held.key for note in self.all), "one at a time"
        note = Note(held.key, held.epoch, boot_s())
        self.all.append(note)
        try:
            await self.gate.wait()
            if self._act is not None:
                await self._act(held)
        except asyncio.CancelledError:
            note.cancelled = True
            raise
        finally:
            note.ended_s = boot_s()

    def of(self, name: str) -> list[Note]:
        return [note for note in self.all if note.name.endswith(f"/{name}")]

    @property
    def running(self) -> list[Note]:
        return [note for note in self.all if note.ended_s is None]


class Living:
    """A shard that runs beside a test."""

    def __init__(self, shard: Shard, notes: Notes) -> None:
        self.shard, self.notes = shard, notes
        self.entered = asyncio.Event()
        self.task = asyncio.create_task(self._live())
        self.ended_s: float | None = None

    async def _live(self) -> None:
        try:
            async with self.shard:
                self.entered.set()
                await self.shard.run(self.notes)
        finally:
            self.ended_s = boot_s()

    async def holds(self, within_s: float = 60.0) -> Living:
        """Wait until it has listed, too: what it is given earlier it takes for inherited, and may fence."""
        await until(lambda: self.task.done() or (self.entered.is_set() and self._has_listed()), within_s)
        if self.task.done():
            await self.task
        return self

    def _has_listed(self) -> bool:
        return self.shard._lease.grip is not None and self.shard._lease.grip.listed

    async def end(self) -> None:
        """Leave in peace."""
        self.shard.leave()
        await self.task

    async def crash(self) -> None:
        """End without a word to anybody: nothing is released, nothing runs on."""
        self.shard._lease.grip = None  # Like kill -9: the API server hears nothing.
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
