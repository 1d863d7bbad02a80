"""The sharder and the shard library live under the policy: nothing that they write is refused, as Pods of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from tests.cluster.operator_process import awaited
from tests.cluster.policy_world import PolicyWorld
from tests.cluster.shard_library_world import World
from tests.cluster.world import Cluster

from poise.errors import Forbidden
from poise.hold.shard import Held, Shard
from poise.jobs.sharder.accepting import read_ring
from poise.jobs.sharder.policy_keeper import POLICIES, PolicyKeeper
from poise.jobs.sharder.sharder import RingSharder
from poise.kube import Client, Meta, ObjectRef, Partial, Resource, Selection
from poise.kube.objects import Custom
from poise.kube.resources import CONFIG_MAPS, SECRETS
from poise.model.sharding import Marks, read_marks

pytestmark = pytest.mark.usefixtures("definitions", "instances", "sharder_rights")
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False)
SHARDER = "alice"
D = 4


@pytest.fixture
def instances(cluster: Cluster, namespace: str) -> Iterator[None]:
    """Users web-0 and web-1 by tokens that are bound to Pods, and a sharder that is not the admin."""
    plane = cluster.plane
    with PolicyWorld(plane, namespace, "default") as world:
        for name in ("web-0", "web-1"):
            plane.users[name] = world.headers(name)["Authorization"].removeprefix("Bearer ")
        yield
        for name in ("web-0", "web-1"):
            del plane.users[name]


async def reconcile(held: Held) -> None:
    """Write as the library does: the epoch is raised before the first patch."""
    assert held.epoch > 0


@pytest.fixture
def sharder_rights(cluster: Cluster) -> Iterator[None]:
    """The sharder may do anything that no policy forbids."""
    role = {"apiGroup": BINDINGS.group, "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"apiGroup": BINDINGS.group, "kind": "User", "name": SHARDER}
    body = {"metadata": {"generateName": "poise-test-"}, "roleRef": role, "subjects": [subject]}
    made = cluster.run(lambda admin: admin.create(ObjectRef(BINDINGS, ""), body, Partial)).metadata
    yield
    cluster.run(lambda admin: admin.delete(ObjectRef(BINDINGS, made.name), uid=made.uid))


@asynccontextmanager
async def running(*tasks: asyncio.Task[None]) -> AsyncIterator[None]:
    """Let tasks run while the block does."""
    try:
        yield
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Life:
    """A ring with its families, and the instances that come and go."""

    def __init__(self, cluster: Cluster, world: World) -> None:
        """Look at the world as the admin does, who may not write labels of the ring."""
        self.cluster, self.world = cluster, world
        self.shards: dict[str, tuple[Shard, asyncio.Task[None], Client]] = {}

    async def start(self, name: str) -> None:
        """Start an instance as the Pod of its name."""
        client = self.cluster.connect(name)
        shard = Shard(
            ring=self.world.ring,
            resources=["secrets", "configmaps"],
            name=name,
            namespace=self.world.namespace,
            scope=self.world.namespace,
            client=client,
            fence_restarts="eager",
            on_hang="raise",
        )

        entered = asyncio.Event()

        async def live() -> None:
            async with shard:
                entered.set()
                await shard.run(reconcile)

        self.shards[name] = shard, asyncio.create_task(live()), client
        await entered.wait()

    async def stop(self, name: str) -> None:
        """Let an instance release its Lease and end."""
        shard, task, client = self.shards.pop(name)
        shard.leave("stop")
        await task
        await client.close()

    async def crash(self, name: str) -> None:
        """Let an instance vanish: it cannot release its Lease any more."""
        _, task, client = self.shards.pop(name)
        await client.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def families(self) -> list[tuple[Marks, list[Marks]]]:
        """Read the labels of each root and its children."""
        world = self.world
        listed = {
            kind: (await world.client.list_all(Selection(kind, world.namespace), Partial))[0]
            for kind in (SECRETS, CONFIG_MAPS)
        }

        def marks(meta: Meta) -> Marks:
            return read_marks(meta.labels, world.ring)

        return [
            (
                marks(root.metadata),
                [
                    marks(each.metadata)
                    for each in listed[CONFIG_MAPS]
                    if each.metadata.controller and each.metadata.controller.uid == root.metadata.uid
                ],
            )
            for root in listed[SECRETS]
        ]

    async def settled(self, *owners: str) -> None:
        """Wait until every family has an owner, all owners have some, and no child differs from its root."""

        async def holds() -> bool:
            families = await self.families()
            calm = all(
                root.epoch and root.drain is None and all(child == root for child in children)
                for root, children in families
            )
            return calm and {root.shard for root, _ in families} == set(owners)

        await awaited(holds, self.shards.keys, within_s=40.0)


async def adopt(life: Life) -> None:
    """Give a child of one instance to a root of the other."""
    world, roots = life.world, dict[str, Meta]()
    for each in (await world.client.list_all(Selection(SECRETS, world.namespace), Partial))[0]:
        roots.setdefault(read_marks(each.metadata.labels, world.ring).shard or "", each.metadata)
    child = await world.meta(world.config(f"{roots['web-0'].name}-child"))
    new = roots["web-1"]
    owner = {"apiVersion": "v1", "kind": "Secret", "name": new.name, "uid": new.uid, "controller": True}
    change = {"metadata": {"ownerReferences": [owner]}}
    await world.client.merge(world.config(child.name), child, change, Partial)


def test_everything_that_sharder_and_shards_write_is_allowed(
    cluster: Cluster, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "poise")

    async def scenario(admin: Client) -> None:
        world = await World(admin, namespace).make_ring(lease_s=D)
        ring, life = read_ring(await admin.get(world.ring_ref, Custom)), Life(cluster, world)
        names = [f"s{number}" for number in range(12)]
        await world.make(*names)
        for name in names:
            await world.make_child(f"{name}-child", name)
        async with cluster.connect(SHARDER) as client:
            keeper = PolicyKeeper(client, may_act=lambda: True)
            sharder = RingSharder(
                client, ring, namespace=namespace, me="poise-sharder-a_1", may_act=lambda: True, scope=namespace
            )
            async with running(asyncio.create_task(keeper.run())):
                keeper.update([ring])
                await awaited(lambda: is_refused(admin, world), lambda: "the policy is not in force")
                async with running(asyncio.create_task(sharder.run())):
                    await lifetime(life, sharder)
                    sharder.update(ring, removing=True, brake_released="")
                    await awaited(lambda: is_clear(sharder), lambda: sharder.report, within_s=40.0)
                await life.stop("web-0")
                assert {root.shard for root, _ in await life.families()} == {None}
                assert sharder.faults == ()
                await client.delete(world.ring_ref, uid=(await world.meta(world.ring_ref)).uid)
                keeper.update([])
                await awaited(lambda: is_unprotected(admin, world), lambda: "the policy is still there")

    cluster.run(scenario)
    assert not [record for record in caplog.records if "denied request" in record.getMessage()]


async def lifetime(life: Life, sharder: RingSharder) -> None:
    """Let instances come, adopt, restart and go."""
    await life.start("web-0")
    await life.settled("web-0")
    await life.start("web-1")
    await life.settled("web-0", "web-1")
    shard = life.shards["web-0"][0]
    assert shard.counts.handed_over > 0
    await adopt(life)
    await life.settled("web-0", "web-1")
    assert sharder.counts.writes.get("drain", 0) > 0

    # Who comes back after a crash raises the epochs of what it holds.
    await life.crash("web-1")
    await life.start("web-1")
    await awaited(lambda: fenced(life), life.shards.keys)
    await life.settled("web-0", "web-1")
    await life.stop("web-1")
    await life.settled("web-0")


async def fenced(life: Life) -> bool:
    return life.shards["web-1"][0].counts.fenced > 0


async def is_clear(sharder: RingSharder) -> bool:
    return sharder.report.clear


async def is_unprotected(admin: Client, world: World) -> bool:
    policies = (await admin.list_all(Selection(POLICIES), Partial))[0]
    return f"poise-{world.ring}" not in {each.metadata.name for each in policies}


async def is_refused(admin: Client, world: World) -> bool:
    """Try to write a label as the admin."""
    meta = await world.meta(world.secret("s0"))
    labels = {f"shard.poise.dev/{world.ring}": "nobody"}
    try:
        await admin.merge(world.secret("s0"), meta, {"metadata": {"labels": labels}}, Partial)
    except Forbidden:
        return True
    mended = await world.meta(world.secret("s0"))
    await admin.merge(world.secret("s0"), mended, {"metadata": {"labels": dict.fromkeys(labels)}}, Partial)
    return False
