"""Where a check takes place: a ring of its own in a namespace of its own, what is seen there, and how it is cleaned up.

The check plays the sharder itself. So it refuses a ring that is there already, and ends when an operator takes up the
ring that it made.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import msgspec

from poise.clock import boot_s
from poise.conformance.requests import Place, version_number
from poise.conformance.story import Version
from poise.errors import Conflict, Forbidden, NotFound, PoiseError
from poise.jobs.sharder.accepting import FINALIZER
from poise.kube import Client, Deleted, Event, Lease, Meta, Missing, ObjectRef, Partial, Reflector, Selection, Synced
from poise.kube.crds import custom_resource
from poise.kube.crds.status import terms_of
from poise.kube.discovery import find_resource
from poise.kube.objects import Custom
from poise.kube.resources import CONFIG_MAPS, LEASES, NAMESPACES, SECRETS, Resource
from poise.model.shard_ring import ShardRingSpec
from poise.model.sharding import Marks, read_marks

RINGS = custom_resource("ShardRing")
RESOURCES = [{"group": "", "resource": "secrets", "controlled": [{"group": "", "resource": "configmaps"}]}]
OPERATOR_S = 1.5  # An operator that looks after rings has found a new one by then.
CLEAN_S = 30.0
DRAIN_S = 60


class Stage:
    """One check on one cluster. `run` occurs in every name that is made for it, and nowhere else."""

    def __init__(self, client: Client, ring: str, namespace: str, lease_s: int) -> None:
        """Begin with nothing seen."""
        self.client, self.ring, self.namespace, self.lease_s = client, ring, namespace, lease_s
        self.run = uuid.uuid4().hex[:6]
        self.metas: dict[tuple[str, str], Meta] = {}
        self.leases: dict[str, Lease] = {}
        self.intruder = asyncio.Event()
        self._versions: list[Version] = []
        self._own: set[tuple[str, str]] = set()
        self._marks: dict[tuple[str, str], dict[int, Marks]] = {}
        self._loops: list[asyncio.Task[None]] = []

    # What is seen.

    @property
    def versions(self) -> list[Version]:
        """All versions in the order in which they were written; those that the check wrote are its own."""
        marked = (
            msgspec.structs.replace(each, own=(each.uid, str(each.number)) in self._own) for each in self._versions
        )
        return sorted(marked, key=lambda each: each.number)

    def marks(self, plural: str, name: str) -> Marks:
        """Give the labels of an object as last seen."""
        return self.known(Place("", plural, self.namespace, name))[1]

    def known(self, place: Place, below: float = float("inf")) -> tuple[int, Marks]:
        """Give the newest version of an object that is known, below one where that is said, and its labels."""
        versions = self._marks.get((place.plural, place.name), {}) if place.namespace == self.namespace else {}
        newest = max((number for number in versions if number < below), default=0)
        return newest, versions.get(newest, Marks())

    def learn(self, plural: str, meta: Meta) -> None:
        """Remember a version, from whoever it was heard first: a watch may lag behind answers."""
        self._marks.setdefault((plural, meta.name), {})[version_number(meta)] = read_marks(meta.labels, self.ring)

    def holder(self, instance: str) -> str:
        """Give who holds the Lease of an instance, as last seen."""
        lease = self.leases.get(instance)
        return "" if lease is None else lease.spec.holder_identity or ""

    def note_own(self, plural: str, meta: Meta) -> None:
        """Remember a version that the check itself wrote."""
        self._own.add((meta.uid, meta.resource_version))
        self.learn(plural, meta)

    def _see_object(self, resource: Resource) -> Callable[[Event[Partial]], None]:
        def see(event: Event[Partial]) -> None:
            if isinstance(event, Synced):
                return
            if isinstance(event, Deleted):
                self.metas.pop((resource.plural, event.old.metadata.name), None)
                return
            meta = event.object.metadata
            self.metas[(resource.plural, meta.name)] = meta
            self.learn(resource.plural, meta)
            parent = "" if meta.controller is None else meta.controller.uid
            self._add(resource.plural, meta, marks=read_marks(meta.labels, self.ring), parent=parent)

        return see

    def _see_lease(self, event: Event[Lease]) -> None:
        if isinstance(event, Deleted):
            self.leases.pop(event.old.metadata.name, None)
        elif not isinstance(event, Synced):
            lease = event.object
            self.leases[lease.metadata.name] = lease
            self._add("leases", lease.metadata, holder=lease.spec.holder_identity or "")

    def _add(self, plural: str, meta: Meta, *, marks: Marks | None = None, parent: str = "", holder: str = "") -> None:
        seen = Version(
            plural=plural,
            name=meta.name,
            uid=meta.uid,
            number=version_number(meta),
            seen_s=boot_s(),
            marks=marks or Marks(),
            parent=parent,
            holder=holder,
        )
        self._versions.append(seen)

    def _see_ring(self, event: Event[Custom]) -> None:
        if not isinstance(event, Synced | Deleted) and FINALIZER in event.object.metadata.finalizers:
            self.intruder.set()

    async def watch(self) -> None:
        """Follow objects, Leases and the ring until `close`."""
        name = f"metadata.name={self.ring}"
        ring = Reflector(self.client, Selection(RINGS, self.namespace, fields=name), Custom, self._see_ring)
        leases = Reflector(self.client, Selection(LEASES, self.namespace), Lease, self._see_lease)
        objects = [
            Reflector(self.client, Selection(each, self.namespace), Partial, self._see_object(each))
            for each in (SECRETS, CONFIG_MAPS)
        ]
        loops = [ring.run(), leases.run(), *(each.run() for each in objects)]
        self._loops = [asyncio.create_task(loop) for loop in loops]
        while not (ring.lists and leases.lists and all(each.lists for each in objects)):
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        """Follow nothing more."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)


@asynccontextmanager
async def set_up(
    client: Client, ring: str, namespace: str | None, lease_s: int, tell: Callable[[str], None]
) -> AsyncIterator[Stage]:
    """Make the ring, and where none is named its namespace; whatever happens, all that was made is removed."""
    await _need_definitions(client)
    stage = Stage(client, ring, namespace or f"poise-check-{uuid.uuid4().hex[:8]}", lease_s)
    await _refuse_ring(client, ring, stage.namespace)
    try:
        if namespace is None:
            await client.create(
                ObjectRef(NAMESPACES, stage.namespace), {"metadata": {"name": stage.namespace}}, Partial
            )
        await _make_ring(stage)
        await stage.watch()
        await _refuse_operator(stage)
        await _accept_ring(stage)
        yield stage
    finally:
        await stage.close()
        try:
            async with asyncio.timeout(CLEAN_S):
                await _clean_up(stage, whole=namespace is None)
        except (PoiseError, TimeoutError) as error:
            tell(
                f"could not remove everything that names {stage.run} in {stage.namespace}: {str(error) or 'no answer'}"
            )


async def _need_definitions(client: Client) -> None:
    found = await find_resource(client, RINGS.group, RINGS.plural)
    if isinstance(found, Missing):
        raise PoiseError("the cluster does not know rings: poise operator --definitions | kubectl apply -f -")


async def _refuse_ring(client: Client, ring: str, namespace: str) -> None:
    """Refuse a name that is taken, in any namespace: the labels of a ring do not tell two of one name apart."""
    try:
        rings, _ = await client.list_all(Selection(RINGS), Custom)
    except Forbidden:
        rings, _ = await client.list_all(Selection(RINGS, namespace), Custom)
    for each in rings:
        if each.metadata.name == ring:
            cared = " and is being looked after" if FINALIZER in each.metadata.finalizers else ""
            raise Conflict(
                f"the ring {ring} exists in {each.metadata.namespace}{cared}: the check plays the sharder itself, "
                f"so name a ring that is not there"
            )


async def _make_ring(stage: Stage) -> None:
    spec = {"resources": RESOURCES, "leaseSeconds": stage.lease_s, "drainTimeoutSeconds": DRAIN_S}
    body = {"apiVersion": "poise.dev/v1alpha1", "kind": "ShardRing", "metadata": {"name": stage.ring}, "spec": spec}
    await stage.client.create(ObjectRef(RINGS, stage.ring, stage.namespace), body, Partial)


async def _refuse_operator(stage: Stage) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(OPERATOR_S):
            await stage.intruder.wait()
    refuse_intruder(stage)


def refuse_intruder(stage: Stage) -> None:
    """Refuse to go on beside an operator: both would write labels."""
    if stage.intruder.is_set():
        raise Conflict(
            f"the ring {stage.ring} is being looked after by an operator: the check plays the sharder itself, "
            f"so run it where no operator watches ({stage.namespace} is watched)"
        )


async def _accept_ring(stage: Stage) -> None:
    """Write the status by which shards see that somebody looks after the ring."""
    ref = ObjectRef(RINGS, stage.ring, stage.namespace)
    ring = await stage.client.get(ref, Custom)
    meta, terms = ring.metadata, terms_of(msgspec.json.decode(ring.spec, type=ShardRingSpec))
    ready = {"type": "Ready", "status": "True", "reason": "Conformance", "message": "played by a check"}
    ready["lastTransitionTime"] = meta.creation_timestamp or ""
    status = {"observedGeneration": meta.generation, "conditions": [ready], "terms": terms}
    await stage.client.merge(msgspec.structs.replace(ref, subresource="status"), meta, {"status": status}, Partial)


async def _clean_up(stage: Stage, *, whole: bool) -> None:
    """Remove what was made: objects that name the run or that they control, Leases, the ring; `whole`: the namespace.

    Not every cluster removes what is in a namespace that goes.
    """
    client, uids = stage.client, {each.uid for each in stage.versions if stage.run in each.name}
    for resource in (SECRETS, CONFIG_MAPS, LEASES):
        listed, _ = await client.list_all(Selection(resource, stage.namespace), Partial)
        doomed = [
            each.metadata
            for each in listed
            if stage.run in each.metadata.name or (each.metadata.controller and each.metadata.controller.uid in uids)
        ]
        await asyncio.gather(*(_delete(client, resource, meta) for meta in doomed))
    last = [ObjectRef(RINGS, stage.ring, stage.namespace)]
    for ref in [*last, ObjectRef(NAMESPACES, stage.namespace)] if whole else last:
        with suppress(NotFound):
            await _delete(client, ref.resource, (await client.get(ref, Partial)).metadata)


async def _delete(client: Client, resource: Resource, meta: Meta) -> None:
    with suppress(NotFound, Conflict):
        await client.delete(ObjectRef(resource, meta.name, meta.namespace), uid=meta.uid)
