"""A ring on the rig: its sharder as a task, its shards as played ones, and everything that tests look at."""

from __future__ import annotations

import asyncio
import gc
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import msgspec
from tests.cluster.played_shard import Audit, D, PlayedShard
from tests.cluster.told import QUICK
from tests.cluster.world import make_secret, until

from poise import clock
from poise.errors import NotFound, PoiseError
from poise.jobs.sharder.sharder import RingSharder
from poise.kube import LEASES, Client, Deleted, Event, Lease, ObjectRef, Partial, Reflector, Resource, Selection, Synced
from poise.kube.resources import CONFIG_MAPS, SECRETS
from poise.model import ShardRing
from poise.model.sharding import (
    RING_LABEL,
    TOKENS_LABEL,
    Marks,
    Standing,
    label_names,
    read_marks,
)

SECRET_RING = {"resources": [{"resource": "secrets", "controlled": [{"resource": "configmaps"}]}]}


def ring(name: str, **spec: object) -> ShardRing:
    """Make a ring of Secrets with their ConfigMaps, with short leases."""
    body = {
        "apiVersion": "poise.dev/v1alpha1",
        "kind": "ShardRing",
        "metadata": {"name": name},
        "spec": {**SECRET_RING, "leaseSeconds": D, **spec},
    }
    return msgspec.convert(body, ShardRing)


class World:
    """One ring with its sharder and its shards, in a namespace of the rig."""

    def __init__(self, client: Client, namespace: str, document: ShardRing, scope: str | None = "") -> None:
        """Prepare; nothing runs yet. An empty scope is the namespace itself, None the whole cluster."""
        self._scope = namespace if scope == "" else scope
        self.client, self.namespace, self.document = client, namespace, document
        self.name = document.metadata.name
        self.audit = Audit()
        self.shards: dict[str, PlayedShard] = {}
        self.leads: Callable[[], bool] = lambda: True
        self.clock: Callable[[], float] = clock.boot_s
        self.sharder = self._make()
        self._task: asyncio.Task[None] | None = None

    def _make(self) -> RingSharder:
        me = f"poise-sharder-test_{uuid.uuid4().hex[:8]}"
        return RingSharder(
            self.client,
            self.document,
            namespace=self.namespace,
            me=me,
            may_act=self.leads,
            scope=self._scope,
            now_s=self.clock,
        )

    @property
    def running(self) -> bool:
        """Whether the sharder runs."""
        return self._task is not None

    async def start_sharder(self) -> None:
        """Run a new process of the sharder: it knows nothing."""
        self.sharder = self._make()
        self._task = asyncio.create_task(self.sharder.run())
        await until(lambda: self.sharder.report.synced or bool(self.sharder.report.faults))

    async def stop_sharder(self) -> None:
        """End the sharder as a kill does; no task of it is left."""
        if self._task is not None:
            assert not self._task.done(), f"the sharder ended: {self._task}"
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def shard(self, name: str, *, duration_s: float = 600, **how: object) -> PlayedShard:
        """Start an instance and wait until it holds its Lease, which by default outlasts every test."""
        made = PlayedShard(
            self.client,
            self.name,
            name,
            self.namespace,
            self.audit,
            duration_s=duration_s,
            **how,  # type: ignore[arg-type]
        )
        self.shards[name] = await made.start()
        return await made.holding()

    async def mortal(self, name: str, **how: object) -> PlayedShard:
        """Start an instance whose Lease ends soon after it."""
        return await self.shard(name, duration_s=D, **how)

    async def marks(self, resource: Resource = SECRETS) -> dict[str, Marks]:
        """Read the labels of all objects as they are now."""
        found, _ = await self.client.list_all(Selection(resource, self.namespace), Partial)
        return {each.metadata.name: read_marks(each.metadata.labels, self.name) for each in found}

    async def owners(self, resource: Resource = SECRETS) -> dict[str, str | None]:
        """Read who has what."""
        return {name: marks.shard for name, marks in (await self.marks(resource)).items()}

    async def settled(self, names: Iterable[str] | None = None, within_s: float = 60.0) -> dict[str, str | None]:
        """Wait until every object has an owner (among these, who are all ready) and no move is under way."""
        wanted = None if names is None else set(names)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + within_s
        while True:
            wrote = self.sharder.counts.label_writes if self._rests(wanted) else -1
            marks = {**await self.marks(), **await self.marks(CONFIG_MAPS)}
            done = all(
                each.shard is not None and each.drain is None and (wanted is None or each.shard in wanted)
                for each in marks.values()
            )
            if done and self._rests(wanted) and self.sharder.counts.label_writes == wrote:
                return {name: each.shard for name, each in marks.items()}
            assert loop.time() < end_s, f"not settled within {within_s} s: {marks} {self.sharder.report}"
            await asyncio.sleep(0.05)

    def _rests(self, names: set[str] | None) -> bool:
        """Whether the sharder has judged these as ready, has decided on all that it saw, and has nothing to do."""
        sharder, report = self.sharder, self.sharder.report
        ready = {name for name, each in sharder._instances.standings.items() if each is Standing.READY}
        undecided = sharder._woken.is_set() or sharder.session.deciding.touched or not sharder._families.idle
        busy = report.drains or report.delayed or report.unassigned or report.in_flight
        return not (undecided or busy) and (names is None or names <= ready)

    async def close(self) -> None:
        """End everything; whoever failed is told."""
        try:
            for shard in self.shards.values():
                await shard.crash()
        finally:
            await self.stop_sharder()
            gc.collect()  # Stray sockets are found here, and not in the middle of another test.
        assert not self.audit.overlaps, self.audit.overlaps


@asynccontextmanager
async def world(client: Client, namespace: str, **spec: object) -> AsyncIterator[World]:
    """Give a ring with a running sharder."""
    made = World(client, namespace, ring(f"r{uuid.uuid4().hex[:6]}", **spec))
    try:
        await made.start_sharder()
        yield made
    finally:
        await made.close()


async def make_config_map(client: Client, name: str, owner: Partial, namespace: str, kind: str = "Secret") -> Partial:
    """Create a ConfigMap that a Secret (or another ConfigMap) controls."""
    return await client.create(
        ObjectRef(CONFIG_MAPS, name, namespace), {"metadata": {"name": name, **controlled_by(owner, kind)}}, Partial
    )


def controlled_by(owner: Partial, kind: str = "Secret") -> dict[str, object]:
    """Write the ownerReference of a controller."""
    reference = {
        "apiVersion": "v1",
        "kind": kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
    }
    return {"ownerReferences": [reference]}


async def make_families(client: Client, count: int, namespace: str) -> list[str]:
    """Create Secrets `s00` … with one ConfigMap `c00` … each."""

    async def one(number: int) -> None:
        made = await make_secret(client, f"s{number:02}", namespace)
        await make_config_map(client, f"c{number:02}", made, namespace)

    await asyncio.gather(*(one(number) for number in range(count)))
    return [f"s{number:02}" for number in range(count)]


async def labelled(world: World, name: str, shard: str, epoch: int = 1) -> None:
    """Create a Secret that an instance holds already."""
    shard_label, epoch_label, _, _ = label_names(world.name)
    await make_secret(world.client, name, world.namespace, {shard_label: shard, epoch_label: str(epoch)})


async def tamper(client: Client, resource: Resource, name: str, namespace: str, labels: dict[str, str | None]) -> None:
    """Change labels as an admin does, whoever else writes meanwhile."""
    ref = ObjectRef(resource, name, namespace)
    while True:
        meta = (await client.get(ref, Partial)).metadata
        try:
            await client.merge(ref, meta, {"metadata": {"labels": labels}}, Partial)
            return
        except PoiseError:
            await asyncio.sleep(0.01)


async def bare_lease(world: World, name: str, holder: str = "", *, duration_s: int = 600, tokens: str = "") -> Lease:
    """Create the Lease of an instance that needs no process: it lasts for longer than any test."""
    labels = {RING_LABEL: world.name} | ({TOKENS_LABEL: tokens} if tokens else {})
    told = "1999-12-31T23:59:59.000001Z"  # Nobody reads the time of others.
    spec = {"holderIdentity": holder or f"{name}_bare", "leaseDurationSeconds": duration_s, "renewTime": told}
    body = {"metadata": {"name": name, "labels": labels}, "spec": spec}
    made = await world.client.create(ObjectRef(LEASES, name, world.namespace), body, Lease)
    if world.running:
        await until(lambda: state(world, name) != "")
    return made


async def lease_of(world: World, name: str) -> Lease | None:
    """Read a Lease as it is now."""
    try:
        return await world.client.get(ObjectRef(LEASES, name, world.namespace), Lease)
    except NotFound:
        return None


def state(world: World, name: str) -> str:
    """Give how the sharder judges an instance; empty where it knows none."""
    return next((str(each.state) for each in world.sharder.report.instances if each.name == name), "")


class Story:
    """Every change of objects in the order of their versions, with the labels of one ring."""

    def __init__(self, client: Client, ring: str, namespace: str) -> None:
        """Prepare; nothing is watched yet."""
        self.changes: list[tuple[str, Marks]] = []
        self._ring, self._seen = ring, dict[str, Marks]()
        self._mirrors = [
            Reflector(client, Selection(each, namespace), Partial, self._take, following=QUICK)
            for each in (SECRETS, CONFIG_MAPS)
        ]
        self._versions: list[tuple[int, str, Marks]] = []

    def _take(self, event: Event[Partial]) -> None:
        if isinstance(event, Synced | Deleted):
            return
        meta = event.object.metadata
        marks = read_marks(meta.labels, self._ring)
        if self._seen.get(meta.name, Marks()) != marks:
            self._seen[meta.name] = marks
            self._versions.append((int(meta.resource_version), meta.name, marks))
            self.changes = [(name, marks) for _, name, marks in sorted(self._versions, key=lambda each: each[0])]

    def of(self, name: str) -> list[Marks]:
        """Give the changes of one object."""
        return [marks for changed, marks in self.changes if changed == name]

    def forget(self) -> None:
        """Begin anew from here."""
        self._versions, self.changes = [], []

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Story]:
        """Watch while the block runs."""
        tasks = [asyncio.create_task(mirror.run()) for mirror in self._mirrors]
        try:
            await until(lambda: all(mirror.lists for mirror in self._mirrors))
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
