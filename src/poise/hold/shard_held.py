"""What a reconcile gets: one object that is held, and the writes that a stale process cannot make.

Patches carry tests of the uid and of the epoch as it was when the reconcile began; it is never read again. Creates have
a name of their own that is the same each time, deletes carry uid and resourceVersion. None is waited for, by the server
either, longer than the Lease surely lasts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Protocol, TypeVar

import msgspec

from poise.errors import Fenced, NotFound, NotHeld, PatchRefused, PoiseError, invalid
from poise.hold.shard_runs import Run
from poise.hold.shard_view import Entry, View
from poise.kube.client import Client, within
from poise.kube.objects import Meta, OwnerReference, Partial
from poise.kube.patches import Operation, same_label, same_uid
from poise.kube.resources import ObjectRef, Resource
from poise.model.sharding import Marks, label_names, read_marks

Shape = TypeVar("Shape")
Reconcile = Callable[["Held"], Awaitable[float | None]]


class Child(msgspec.Struct, frozen=True):
    """An object in sight that the held one controls, at any depth."""

    ref: ObjectRef
    meta: Meta


class Holder(Protocol):
    """What a held object needs of its shard."""

    def may_act(self) -> bool:
        """Say whether the Lease allows anything now."""

    def left_s(self) -> float:
        """Give how long a write may take that is sent now."""

    async def fence_first(self, uid: str) -> None:
        """Fence an earlier process of this name, where that was not done yet."""


class Held:
    """One object, while it is reconciled."""

    def __init__(self, run: Run, ring: str, view: View, client: Client, holder: Holder) -> None:
        """Speak for one run."""
        self._run, self._ring, self._view, self._client, self._holder = run, ring, view, client, holder

    @property
    def ref(self) -> ObjectRef:
        """Where the object is."""
        return self._run.entry.ref

    @property
    def resource(self) -> Resource:
        """What it is."""
        return self._run.entry.ref.resource

    @property
    def meta(self) -> Meta:
        """Its metadata as it was when the reconcile began, without annotations and finalizers."""
        return self._run.entry.meta

    @property
    def key(self) -> str:
        """Its name everywhere: `group/Kind/namespace/name`."""
        return self._run.entry.seen.key

    @property
    def instance(self) -> str:
        """The instance that holds it."""
        return self._view.name

    @property
    def root(self) -> ObjectRef:
        """The object whose key decides who holds it: itself, or the one that controls it."""
        return self._run.root.ref

    @property
    def epoch(self) -> int:
        """The epoch as it was when the reconcile began, or as this process raised it since: side effects carry it."""
        return self._run.epoch

    @property
    def asked(self) -> asyncio.Event:
        """Set once a hand-over, or the end of this shard, waits for this reconcile: a long one ends early then."""
        return self._run.asked

    @property
    def children(self) -> tuple[Child, ...]:
        """What it controls, as far as it carries the own name and is in sight."""
        below = sorted(self._view.below(self._run.entry.uid), key=lambda entry: entry.seen.key)
        return tuple(Child(entry.ref, entry.meta) for entry in below)

    def check(self) -> None:
        """Raise NotHeld where this reconcile may not act any more; every write asks by itself."""
        if self._run.over or self._run.cancelled_at_s is not None or not self._holder.may_act():
            raise NotHeld(f"{self.instance} may not act on {self.key} now")

    async def read(self, shape: type[Shape], ref: ObjectRef | None = None) -> Shape:
        """Read the whole object as it is now, or another one."""
        return await self._client.get(ref or self.ref, shape)

    async def find(self, ref: ObjectRef, shape: type[Shape]) -> Shape | None:
        """Read another object; None where there is none."""
        try:
            return await self._client.get(ref, shape)
        except NotFound:
            return None

    async def patch(self, *operations: Operation, on: ObjectRef | None = None) -> Partial:
        """Patch the object, or (`on`) one of its family; Fenced where somebody else has it by now, nothing is written.

        NotHeld where it may not be acted on: also a child whose labels do not equal its root's, such as a new one. The
        sharder labels it, and then its owner is looked at again.
        """
        self.check()
        await self._holder.fence_first(self._run.entry.uid)
        self.check()
        entry, ref = self._target(on), on or self.ref
        tests = (same_uid(entry.uid), same_label(label_names(self._ring)[1], str(self._run.epoch)))
        try:
            async with within(self._holder.left_s()):
                return await self._client.patch(ref, (*tests, *operations), Partial)
        except PatchRefused as refused:
            raise await self._why(entry, refused) from refused

    async def create(self, ref: ObjectRef, body: Mapping[str, object]) -> Partial:
        """Create an object that this one controls, under exactly this name; Conflict where there is one."""
        self.check()
        given = body.get("metadata", {})
        if not isinstance(given, Mapping) or "generateName" in given or not ref.name:
            raise invalid("$.metadata", "expected a mapping without generateName: the name must be the same each time")
        resource, meta = self.resource, self.meta
        owner = OwnerReference(resource.api_version, resource.kind, meta.name, meta.uid, controller=True)
        named = {**given, "name": ref.name, "ownerReferences": [owner]}
        full = {**body, "apiVersion": ref.resource.api_version, "kind": ref.resource.kind, "metadata": named}
        async with within(self._holder.left_s()):
            return await self._client.create(ref, full, Partial)

    async def delete(self, on: ObjectRef | None = None) -> None:
        """Delete the object, or one of its family, in exactly the version that is in sight; else Conflict."""
        self.check()
        entry = self._target(on)
        entry = self._view.entries.get(entry.uid, entry)
        async with within(self._holder.left_s()):
            await self._client.delete(entry.ref, uid=entry.uid, version=entry.meta.resource_version)

    def _target(self, on: ObjectRef | None) -> Entry:
        """Find what is to be written: itself as it began, or one of the family whose shard and epoch are its own."""
        plain = None if on is None else msgspec.structs.replace(on, subresource="")
        if plain is None or plain == self.ref:
            return self._run.entry
        uids = self._view.family(self._run.entry.uid)
        found = next((entry for uid in uids if (entry := self._view.entries.get(uid)) and entry.ref == plain), None)
        if found is None or found.seen.marks != Marks(self.instance, self._run.epoch):
            raise NotHeld(f"{plain} is not held with {self.key} at epoch {self._run.epoch}, or not yet")
        return found

    async def _why(self, entry: Entry, refused: PatchRefused) -> PoiseError:
        """Say why a patch was refused: by the epoch or the uid, or by a test of the caller's own."""
        with suppress(PoiseError):
            now = (await self._client.get(entry.ref, Partial)).metadata
            seen = read_marks(now.labels, self._ring).epoch
            if now.uid != entry.uid:
                return NotHeld(f"{entry.ref} is another object of that name by now")
            if seen != self._run.epoch:
                return Fenced(entry.seen.key, self._run.epoch, seen or 0)
        return refused
