"""Cluster-scoped objects work like all others: a real sharder and real shards on roots that are in no namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from tests.cluster import sharder_world
from tests.cluster.shard_library_world import Living, Notes, World
from tests.cluster.world import Cluster, until

from poise.decide.ring import Ring
from poise.errors import NotFound
from poise.hold.shard import Held, Shard
from poise.jobs.sharder.accepting import read_ring
from poise.jobs.sharder.orders import Orders
from poise.kube import Client, Meta, ObjectRef, Partial, Resource
from poise.kube.objects import Custom
from poise.kube.patches import Operation, pointer
from poise.kube.resources import CONFIG_MAPS
from poise.model.sharding import Marks, read_marks
from poise.move.sharding.keys import object_key

# The ring takes every IngressClass that there is: those of a cluster of the user's own are not touched.
pytestmark = pytest.mark.usefixtures("rig", "definitions")
CLASSES = Resource("networking.k8s.io", "v1", "ingressclasses", "IngressClass", namespaced=False)
RESOURCES = [{"group": CLASSES.group, "resource": CLASSES.plural, "controlled": [{"resource": "configmaps"}]}]


def class_key(name: str) -> str:
    """Name an IngressClass as rings do: it has no namespace."""
    return object_key(CLASSES.group, CLASSES.kind, "", name)


def homes_of(prefix: str, instances: tuple[str, ...] = ("a", "b"), each: int = 2) -> dict[str, str]:
    """Choose names of which the ring gives some to every instance; gives whom each belongs to."""
    names = [f"{prefix}-{number}" for number in range(100)]
    owners = dict(zip(names, Ring(instances).owners(map(class_key, names)), strict=True))
    return {name: who for who in instances for name in [name for name in names if owners[name] == who][:each]}


class Classes:
    """IngressClasses under a real sharder, with shards that make a ConfigMap for each and note on both who they are."""

    def __init__(self, world: World, sharding: sharder_world.World) -> None:
        """Look at one ring; nothing runs yet."""
        self.world, self.sharding, self.client = world, sharding, world.client
        self.homes = homes_of(world.namespace)

    def given_to(self, instance: str) -> list[str]:
        return [name for name, owner in self.homes.items() if owner == instance]

    def root(self, name: str) -> ObjectRef:
        return ObjectRef(CLASSES, name)

    def child(self, name: str) -> ObjectRef:
        return ObjectRef(CONFIG_MAPS, name, self.world.namespace)

    async def make(self) -> None:
        for name in self.homes:
            body = {"metadata": {"name": name}, "spec": {"controller": "example.com/none"}}
            await self.client.create(self.root(name), body, Partial)

    async def remove(self) -> None:
        """Leave none behind: no namespace takes them along."""
        for name in self.homes:
            try:
                uid = (await self.world.meta(self.root(name))).uid
                await self.client.delete(self.root(name), uid=uid)
            except NotFound:
                continue

    async def reconcile(self, held: Held) -> None:
        """Make the child, and once it is held note on it and on the root who acts, and at which epoch."""
        child = self.child(held.meta.name)
        if await held.find(child, Partial) is None:
            await held.create(child, {"data": {}})
        if held.children:
            note = Operation("add", pointer("metadata", "annotations"), {"by": noted(held.instance, held.epoch)})
            await held.patch(note)
            await held.patch(note, on=child)

    async def start(self, name: str, scope: str = "") -> Living:
        """Start an instance."""
        shard = Shard(
            ring=self.world.ring,
            resources=[f"{CLASSES.plural}.{CLASSES.group}"],
            name=name,
            namespace=self.world.namespace,
            scope=scope,
            client=self.client,
            on_hang="raise",
        )
        return await Living(shard, Notes(self.reconcile)).holds()

    async def family(self, name: str) -> tuple[Meta, Meta]:
        return await self.world.meta(self.root(name)), await self.world.meta(self.child(name))

    async def has(self, name: str, owner: str, epoch: int) -> bool:
        """Say whether a root and its child are an instance's, and were written by it at this epoch."""
        try:
            family = await self.family(name)
        except NotFound:
            return False
        marks = {read_marks(meta.labels, self.world.ring) for meta in family}
        return marks == {Marks(owner, epoch)} and {written(meta) for meta in family} == {noted(owner, epoch)}

    def is_acting(self, living: Living) -> bool:
        """Say whether an instance may act on exactly the families that the ring gives it."""
        own = self.given_to(living.shard.name)
        return set(living.shard.held) == {ref for name in own for ref in (self.root(name), self.child(name))}

    async def settled(self, owners: dict[str, tuple[str, int]]) -> None:
        """Wait until every family has this owner, at this epoch."""
        for name, (owner, epoch) in owners.items():
            await self.world.eventually(partial(self.has, name, owner, epoch))

    def order(self, *, removing: bool = False, drained: str = "") -> None:
        """Ask something of the ring, as people do."""
        orders = Orders(drained=frozenset(drained))
        self.sharding.sharder.update(self.sharding.document, removing=removing, brake_released="", orders=orders)


def noted(owner: str, epoch: int) -> str:
    return f"{owner} at {epoch}"


def written(meta: Meta) -> str:
    return meta.annotations.get("by", "")


@asynccontextmanager
async def sharing(client: Client, namespace: str) -> AsyncIterator[tuple[Classes, Living, Living]]:
    """Give four families that two instances share; one of them follows no other namespace than this."""
    world = await World(client, namespace).make_ring(accepted=False)
    await world.change_ring(resources=RESOURCES)
    await world.accept()
    ring = read_ring(await client.get(world.ring_ref, Custom))
    classes = Classes(world, sharder_world.World(client, namespace, ring, scope=None))
    try:
        await classes.sharding.start_sharder()
        first, second = await classes.start("a", namespace), await classes.start("b")
        await until(lambda: {sharder_world.state(classes.sharding, name) for name in "ab"} == {"ready"})
        await classes.make()
        await classes.settled({name: (owner, 1) for name, owner in classes.homes.items()})
        yield classes, first, second
        for living in (first, second):
            if not living.task.done():
                await living.end()
    finally:
        await classes.sharding.close()
        await classes.remove()


def test_cluster_scoped_roots_are_shared_out_and_reconciled_with_the_children_made_for_them(
    cluster: Cluster, namespace: str
) -> None:
    async def scenario(client: Client) -> None:
        async with sharing(client, namespace) as (classes, *shards):
            for living in shards:
                await until(partial(classes.is_acting, living))
                own = classes.given_to(living.shard.name)
                assert {note.name for note in living.notes.all} == {class_key(name) for name in own}
            name = next(iter(classes.homes))
            root, child = await classes.family(name)
            assert child.controller is not None
            assert (child.controller.kind, child.controller.uid) == (CLASSES.kind, root.uid)
            # A child that is gone wakes its root, wherever that is.
            await client.delete(classes.child(name), uid=child.uid)
            await classes.settled({name: (classes.homes[name], 1)})
            assert classes.sharding.sharder.counts.writes == {"assign": 4, "mend": 5}

    cluster.run(scenario)


@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "is drained"])
def test_a_cluster_scoped_root_and_its_namespaced_child_change_hands_together(
    cluster: Cluster, namespace: str, leaves: bool
) -> None:
    async def scenario(client: Client) -> None:
        async with sharing(client, namespace) as (classes, first, second):
            if leaves:
                await first.end()
            else:
                classes.order(drained="a")
            await classes.settled({name: ("b", 2 if owner == "a" else 1) for name, owner in classes.homes.items()})
            assert first.shard.counts.handed_over == (0 if leaves else 2)
            for name in classes.given_to("a"):
                assert second.notes.of(name)[0].begun_s > (first.notes.of(name)[-1].ended_s or 0.0)
            assert not any(note.cancelled for living in (first, second) for note in living.notes.all)

    cluster.run(scenario)


def test_removing_the_ring_takes_the_labels_off_cluster_scoped_roots_and_their_children(
    cluster: Cluster, namespace: str
) -> None:
    async def scenario(client: Client) -> None:
        async with sharing(client, namespace) as (classes, first, second):
            classes.order(removing=True)
            await until(lambda: classes.sharding.sharder.report.clear)
            for name in classes.homes:
                root, child = (read_marks(meta.labels, classes.world.ring) for meta in await classes.family(name))
                assert root == Marks(epoch=1), "the epoch stays for a ring of that name"
                assert (child.shard, child.drain) == (None, None)
            await until(lambda: first.shard.held == second.shard.held == ())
            assert classes.sharding.sharder.faults == ()

    cluster.run(scenario)
