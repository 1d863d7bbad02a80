"""A ring with its objects on a real API server: Secrets that each control a ConfigMap, and an eye on their labels."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType

import msgspec
from tests.cluster.audit_case import Final, Sighting
from tests.cluster.audit_lines import boot_s
from tests.cluster.world import make_namespace

from poise.decide.ring import Ring
from poise.errors import PoiseError
from poise.jobs.sharder.status import BRAKE_ANNOTATION
from poise.kube import Added, Client, Event, Modified, ObjectRef, Partial, Reflector, Selection, connect
from poise.kube.crds import custom_resource
from poise.kube.crds.status import terms_of
from poise.kube.objects import Custom, Meta
from poise.kube.pacing import Pace
from poise.kube.reflector import Following
from poise.kube.resources import CONFIG_MAPS, SECRETS, Resource
from poise.model.shard_ring import ShardRingSpec
from poise.model.sharding import Marks, read_marks
from poise.move.sharding.keys import object_key

RING = "web"
# What a JSON Patch adds to must be there.
NOTED: dict[str, object] = {"labels": {"app": "test"}, "annotations": {"app": "test"}}
RINGS = custom_resource("ShardRing")
_AT_ONCE = 24
_PROBE_S, _SLOW_S = 0.25, 0.25  # A write takes some milliseconds where nobody has to wait.
_QUICK = Following(idle_s=20.0, lasting_s=0.5, pace=Pace(0.05, 0.5))


def ring_document(name: str, namespace: str, **spec: object) -> dict[str, object]:
    """Write a ring of Secrets with ConfigMaps, of one namespace alone."""
    usual: dict[str, object] = {
        "resources": [{"resource": "secrets", "controlled": [{"resource": "configmaps"}]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    }
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {**usual, **spec}} | {
        "apiVersion": "poise.dev/v1alpha1",
        "kind": "ShardRing",
    }


async def make_ring(client: Client, namespace: str, **spec: object) -> Custom:
    """Create a ring in its namespace."""
    ref = ObjectRef(RINGS, RING, namespace)
    return await client.create(ref, ring_document(RING, namespace, **spec), Custom)


async def acknowledge_ring(client: Client, namespace: str, name: str = RING) -> None:
    """Say in the status of a ring that it was looked at, as the operator does: shards wait for that."""
    found = await client.get(ObjectRef(RINGS, name, namespace), Custom)
    told = {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    terms = terms_of(msgspec.json.decode(found.spec, type=ShardRingSpec))
    status = {"observedGeneration": found.metadata.generation, "conditions": [told], "terms": terms}
    await client.merge(ObjectRef(RINGS, name, namespace, "status"), found.metadata, {"status": status}, Custom)


async def release_brake(client: Client, namespace: str) -> None:
    """Say that the brake may open, as people do."""
    ref = ObjectRef(RINGS, RING, namespace)
    seen = await client.get(ref, Partial)
    await client.merge(
        ref, seen.metadata, {"metadata": {"annotations": {BRAKE_ANNOTATION: f"{boot_s():.3f}"}}}, Partial
    )


async def make_world(client: Client, namespace: str, families: int, **spec: object) -> None:
    """Create a namespace with a ring and its families."""
    await make_namespace(client, namespace)
    await make_ring(client, namespace, **spec)
    await make_families(client, namespace, (f"s{number:05}" for number in range(families)))


async def make_families(client: Client, namespace: str, names: Iterable[str]) -> None:
    """Create Secrets, each with a ConfigMap that it controls."""
    await many(lambda name: make_family(client, namespace, name), names)


async def make_family(client: Client, namespace: str, name: str, made: dict[str, float] | None = None) -> None:
    """Create one Secret and its ConfigMap; `made` is told when each was there."""
    body = {"metadata": {"name": name, **NOTED}, "stringData": {"key": name}}
    root = await client.create(ObjectRef(SECRETS, name, namespace), body, Partial)
    root_s = boot_s()
    child = await client.create(ObjectRef(CONFIG_MAPS, name, namespace), owned_map(name, root.metadata), Partial)
    if made is not None:
        made |= {root.metadata.uid: root_s, child.metadata.uid: boot_s()}


def owned_map(name: str, owner: Meta) -> dict[str, object]:
    """Write a ConfigMap that a Secret controls."""
    reference = {"apiVersion": "v1", "kind": "Secret", "name": owner.name, "uid": owner.uid, "controller": True}
    return {"metadata": {"name": name, **NOTED, "ownerReferences": [reference]}, "data": {}}


async def many(act: Callable[[str], Awaitable[object]], names: Iterable[str], at_once: int = _AT_ONCE) -> None:
    """Do something for every name, some at a time."""
    waiting = iter(names)

    async def work() -> None:
        for name in waiting:
            await act(name)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())


async def plain_rate(client: Client, namespace: str, count: int, at_once: int = _AT_ONCE) -> float:
    """Measure how many label patches a second one client writes, back to back, each over the version it saw."""
    listed, _ = await client.list_all(Selection(SECRETS, namespace), Partial)
    chosen = {each.metadata.name: each.metadata for each in listed[:count]}
    began_s = boot_s()
    change = {"metadata": {"labels": {"plain": str(round(began_s * 1000))}}}
    await many(
        lambda name: client.merge(ObjectRef(SECRETS, name, namespace), chosen[name], change, Partial), chosen, at_once
    )
    return len(chosen) / (boot_s() - began_s)


async def read_families(client: Client, namespace: str) -> dict[str, tuple[Partial, list[Partial]]]:
    """Read every Secret with its ConfigMaps, by name."""
    secrets, _ = await client.list_all(Selection(SECRETS, namespace), Partial)
    maps, _ = await client.list_all(Selection(CONFIG_MAPS, namespace), Partial)
    owned: dict[str, list[Partial]] = {}
    for each in maps:
        if each.metadata.controller is not None:
            owned.setdefault(each.metadata.controller.uid, []).append(each)
    return {each.metadata.name: (each, owned.get(each.metadata.uid, [])) for each in secrets}


async def read_finals(client: Client, namespace: str, ring: str = RING) -> tuple[Final, ...]:
    """Read what the API shows of every object now."""
    families = (await read_families(client, namespace)).values()
    return tuple(_final(each, secret, ring) for secret, owned in families for each in (secret, *owned))


def _final(each: Partial, root: Partial, ring: str) -> Final:
    marks = read_marks(each.metadata.labels, ring)
    return Final(each.metadata.uid, root.metadata.uid, marks.shard, marks.epoch, marks.drain)


async def wanted_owners(client: Client, namespace: str, instances: Iterable[str], tokens: int = 100) -> dict[str, str]:
    """Compute whom the ring gives each Secret to, by its uid."""
    ring = Ring(instances, tokens)
    secrets, _ = await client.list_all(Selection(SECRETS, namespace), Partial)
    keys = [object_key("", "Secret", namespace, each.metadata.name) for each in secrets]
    owners = zip(secrets, ring.owners(keys), strict=True)
    return {each.metadata.uid: owner for each, owner in owners if owner is not None}


def _told(name: str, at_s: float) -> dict[str, object]:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"at": f"{at_s:.3f}"}}


class Observer:
    """Watches the labels of a ring beside a test, in a thread of its own; it survives what the test does.

    It also writes an object of its own all the time: `stalls` is when the API server was slow to answer a bystander.
    `writes` counts how often each object was written, its creation included; `refs` names each by its uid.
    """

    def __init__(self, kubeconfig: Path, namespace: str, ring: str = RING) -> None:
        """Watch as the user of a kubeconfig."""
        self._namespace, self._ring = namespace, ring
        # Read at once: others write this file anew while they begin.
        self._client = connect(kubeconfig)
        self.sightings: list[Sighting] = []
        self.writes: Counter[str] = Counter()
        self.refs: dict[str, ObjectRef] = {}
        self.stalls: list[tuple[float, float]] = []
        self._marks: dict[str, Marks] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> Observer:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the thread."""
        assert self._thread.is_alive(), f"the observer has ended: {self._task}"
        self._loop.call_soon_threadsafe(lambda: self._task.cancel() if self._task is not None else None)
        self._thread.join(10)
        assert not self._thread.is_alive(), "the observer ends when it is told to"

    @property
    def marks(self) -> dict[str, Marks]:
        """The labels of every object as last seen, by uid."""
        return dict(self._marks)

    def _watch(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._task = self._loop.create_task(self._follow())
        try:
            self._loop.run_until_complete(asyncio.wait([self._task]))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    async def _follow(self) -> None:
        async with self._client, asyncio.TaskGroup() as group:
            group.create_task(self._probe())
            for resource in (SECRETS, CONFIG_MAPS):
                chosen = Selection(resource, self._namespace)
                see = partial(self._see, resource)
                group.create_task(Reflector(self._client, chosen, Partial, see, following=_QUICK).run())

    async def _probe(self) -> None:
        """Write again and again, as one that has nothing to do with the ring."""
        ref = ObjectRef(CONFIG_MAPS, f"bystander-{self._namespace}", "default")
        with suppress(PoiseError):
            await self._client.create(ref, {"metadata": {"name": ref.name}}, Partial)
        while True:
            sent_s = boot_s()
            with suppress(PoiseError):
                await self._client.apply(ref, _told(ref.name, sent_s), Partial, manager="bystander")
            if boot_s() - sent_s > _SLOW_S:
                self.stalls.append((sent_s, boot_s()))
            await asyncio.sleep(_PROBE_S)

    def _see(self, resource: Resource, event: Event[Partial]) -> None:
        if not isinstance(event, Added | Modified):
            return
        meta = event.object.metadata
        self.refs[meta.uid] = ObjectRef(resource, meta.name, meta.namespace)
        self.writes[meta.uid] += 1
        marks = read_marks(meta.labels, self._ring)
        if self._marks.get(meta.uid) != marks:
            self._marks[meta.uid] = marks
            self.sightings.append(Sighting(meta.uid, boot_s(), marks.shard, marks.epoch, marks.drain))
