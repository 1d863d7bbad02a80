"""A shard played by tests: it holds a Lease and hands over by the very functions of the shard library.

It runs as a task beside the sharder. An auditor notes who may act on which object; two at once is a failure.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

import msgspec
from tests.cluster.told import QUICK
from tests.cluster.world import until

from poise import clock
from poise.errors import Conflict, NotFound
from poise.hold import sharding as hold
from poise.hold.ring_leases import read_lease, sharder_lease
from poise.hold.sharding import Claimant, Grip, Knowledge, SeenOwnLease, Take, Verdict
from poise.kube import LEASES, Client, Deleted, Event, Lease, ObjectRef, Partial, Reflector, Resource, Selection, Synced
from poise.kube.objects import Meta
from poise.kube.resources import CONFIG_MAPS, SECRETS
from poise.model.sharding import (
    RING_LABEL,
    TOKENS_LABEL,
    LeaseWrite,
    SeenObject,
    holder_identity,
    label_names,
    label_patch,
    read_marks,
)

D = 2  # The lease duration of most tests, in seconds.


class Audit:
    """Who may act on what, as the shards themselves judge; an overlap is kept as a sentence."""

    def __init__(self) -> None:
        """Begin with nobody acting."""
        self.acting: dict[str, str] = {}
        self.overlaps: list[str] = []

    def note(self, name: str, uids: set[str]) -> None:
        """Take what one process may act on now."""
        for uid in [uid for uid, who in self.acting.items() if who == name and uid not in uids]:
            del self.acting[uid]
        for uid in uids:
            if self.acting.setdefault(uid, name) != name:
                self.overlaps.append(f"{uid}: {self.acting[uid]} and {name}")


class PlayedShard:
    """One process of an instance. What it may do is decided by `poise.hold.sharding` alone."""

    def __init__(
        self,
        client: Client,
        ring: str,
        name: str,
        namespace: str,
        audit: Audit,
        *,
        duration_s: float = D,
        tokens: int | None = None,
        short: bool = True,
        stubborn: bool = False,
        scope: str | None = None,
    ) -> None:
        """Prepare; `stubborn` never acknowledges, `short=False` knows only the long form."""
        self.name, self.ring, self.namespace = name, ring, namespace
        self.stubborn, self.short, self.cut = stubborn, short, False
        self.me = holder_identity(name, uuid.uuid4().hex[:8])
        self._client, self._audit, self._tokens = client, audit, tokens
        self._who = Claimant(name=name, me=self.me, duration_s=duration_s)
        self._metas: dict[str, tuple[Resource, Meta]] = {}
        self._known: dict[str, Knowledge] = {}
        self._lease: Lease | None = None
        self.grip: Grip | None = None
        self._fences = False
        chosen = f"{label_names(ring)[0]}={name}"
        where = namespace if scope is None else scope
        self._mirrors = [
            Reflector(client, Selection(each, where, labels=chosen), Partial, self._taker(each), following=QUICK)
            for each in (SECRETS, CONFIG_MAPS)
        ]
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> PlayedShard:
        """Run beside the test."""
        self._task = asyncio.create_task(self._run())
        return self

    async def holding(self, within_s: float = 60.0) -> PlayedShard:
        """Wait until it holds its Lease and has listed its objects."""
        await until(lambda: self.grip is not None and self.grip.listed, within_s)
        return self

    async def crash(self) -> None:
        """End without a word."""
        if self._task is not None:
            self._task.cancel()
            ended = await asyncio.gather(self._task, return_exceptions=True)
            assert isinstance(ended[0], asyncio.CancelledError | None), f"{self.name} failed: {ended[0]!r}"
        self._audit.note(self.me, set())
        self._task = None

    async def release(self, reason: str = "stop") -> None:
        """End as at termination: stop, then give the Lease back."""
        await self.crash()
        # A renewal that was under way may have arrived, and its answer was not heard.
        self._lease = await self._client.get(ObjectRef(LEASES, self.name, self.namespace), Lease)
        assert self.grip is not None
        self.grip = hold.read_again(self.grip, read_lease(self._lease))
        assert self.grip is not None
        given = hold.release(self.grip, "restart" if reason == "restart" else "stop")
        await self._write(given)

    @property
    def mine(self) -> set[str]:
        """The names of the objects that it may act on now."""
        return {self._metas[uid][1].name for uid in self._acting()}

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            await self._acquire()
            for mirror in self._mirrors:
                group.create_task(mirror.run())
            await until(lambda: all(mirror.lists for mirror in self._mirrors))
            assert self.grip is not None
            self.grip = msgspec.structs.replace(self.grip, listed=True)
            while True:
                await self._tick()
                await asyncio.sleep(0.03)

    async def _acquire(self) -> None:
        """Wait for the Lease as the contract says, and take it."""
        seen: SeenOwnLease | None = None
        while self.grip is None:
            try:
                self._lease = await self._client.get(ObjectRef(LEASES, self.name, self.namespace), Lease)
            except NotFound:
                self._lease = None
            fact = None if self._lease is None else read_lease(self._lease)
            seen = hold.see_own_lease(seen, fact, clock.boot_s())
            named = fact is None and bool(await self._named())
            decided = hold.claim(self._who, seen, clock.boot_s(), named=named)
            if isinstance(decided, Take):
                await self._take_lease(decided)
            else:
                await asyncio.sleep(0.1)

    async def _named(self) -> list[Partial]:
        chosen = Selection(SECRETS, self.namespace, labels=f"{label_names(self.ring)[0]}={self.name}")
        return (await self._client.list_all(chosen, Partial))[0]

    async def _take_lease(self, take: Take) -> None:
        sent_at_s = clock.boot_s()
        try:
            await self._write(take.write)
        except Conflict:
            return
        assert self._lease is not None
        version = self._lease.metadata.resource_version
        self.grip = hold.grasp(self._who, take, version, sent_at_s, margin_s=0.3)

    async def _write(self, write: LeaseWrite) -> None:
        old = self._lease if write.version is not None else None
        made = sharder_lease(write, old, (self.namespace, self.ring), clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
        labels = {RING_LABEL: self.ring} | ({} if self._tokens is None else {TOKENS_LABEL: str(self._tokens)})
        made = msgspec.structs.replace(
            made, metadata=msgspec.structs.replace(made.metadata, labels=made.metadata.labels | labels)
        )
        ref = ObjectRef(LEASES, self.name, self.namespace)
        if old is None:
            self._lease = await self._client.create(ref, made, Lease)
        else:
            self._lease = await self._client.replace(ref, made, Lease)

    def _taker(self, resource: Resource) -> Callable[[Event[Partial]], None]:
        def take(event: Event[Partial]) -> None:
            if isinstance(event, Deleted):
                uid = event.old.metadata.uid
                self._metas.pop(uid, None)
                self._known.pop(uid, None)
            elif not isinstance(event, Synced):
                self._see(resource, event.object.metadata)

        return take

    def _see(self, resource: Resource, meta: Meta) -> None:
        known = self._metas.get(meta.uid)
        if known is not None and int(known[1].resource_version) > int(meta.resource_version):
            return
        self._metas[meta.uid] = (resource, meta)
        inherited = self.grip is None or not self.grip.listed
        self._known[meta.uid] = hold.learn(
            self._known.get(meta.uid), self._seen(meta.uid), clock.boot_s(), inherited=inherited
        )

    def _seen(self, uid: str) -> SeenObject:
        meta = self._metas[uid][1]
        owner = meta.controller
        parent = owner.uid if owner is not None and owner.kind in ("Secret", "ConfigMap") else None
        return SeenObject(uid, meta.name, meta.resource_version, read_marks(meta.labels, self.ring), parent)

    def _family(self, uid: str) -> tuple[SeenObject, SeenObject | None, SeenObject | None]:
        """Give an object, its root in sight, and itself again where it is a child."""
        each = root = self._seen(uid)
        while root.parent is not None:
            if root.parent not in self._metas:
                return each, None, each
            root = self._seen(root.parent)
        return each, root, None if root.uid == uid else each

    def _acting(self) -> set[str]:
        now_s = clock.boot_s()
        acting = set()
        for uid in self._metas:
            _, root, child = self._family(uid)
            known = None if root is None else self._known.get(root.uid)
            if hold.verdict(self.grip, root, child, known, now_s) is Verdict.ACT:
                acting.add(uid)
        return acting

    async def _tick(self) -> None:
        assert self.grip is not None
        self._audit.note(self.me, self._acting())
        newest_s = max((known.gained_at_s for known in self._known.values()), default=None)
        if not self.cut and clock.boot_s() >= hold.next_renewal_s(self.grip, newest_s, 0.2):
            sent_at_s = clock.boot_s()
            await self._write(hold.renewal(self.grip))
            assert self._lease is not None
            self.grip = hold.renewed(self.grip, self._lease.metadata.resource_version, sent_at_s)
        if not self.stubborn:
            await asyncio.gather(*(self._hand_over(uid) for uid in list(self._metas)))

    async def _hand_over(self, uid: str) -> None:
        """Hand over what is drained; or fence what was inherited and must be."""
        if uid not in self._metas:
            return
        each = self._seen(uid)
        children = [self._seen(other) for other in self._metas if self._family(other)[1] == each and other != uid]
        known, now_s = self._known.get(uid), clock.boot_s()
        step = hold.hand_over(self.grip, each, children, known, now_s, busy=False, short=self.short)
        if step is None and self.grip is not None and self.grip.eager and each.parent is None:
            step = hold.fence(self.grip, each, children, known, now_s)
        if step is None:
            return
        # Nothing of the family is acted on from here on.
        self._audit.note(self.me, self._acting() - {uid} - {child.uid for child in children})
        for write in step.writes:
            if write.uid not in self._metas:
                return
            resource, meta = self._metas[write.uid]
            change = label_patch(meta.labels, self.ring, write.marks)
            ref = ObjectRef(resource, meta.name, meta.namespace)
            try:
                answer = await self._client.merge(ref, meta, {"metadata": {"labels": change}}, Partial)
            except (Conflict, NotFound):
                return
            if write.marks.shard == self.name:
                self._see(resource, answer.metadata)
                if step.kind == "fence" and (noted := self._known.get(write.uid)) is not None:
                    self._known[write.uid] = msgspec.structs.replace(noted, inherited=False)
            else:
                self._metas.pop(write.uid, None)
                self._known.pop(write.uid, None)
