"""Instances in Pods, beside the garbage collector of Kubernetes: whoever leaves with its Pod has left, not vanished."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.cluster.controllers import running_controllers
from tests.cluster.puppet_world import sharding
from tests.cluster.ring_world import RING, acknowledge_ring, make_families, make_ring
from tests.cluster.shard_library_world import Living, Notes
from tests.cluster.world import Cluster, until

from poise.errors import NotFound
from poise.hold.shard import Shard
from poise.jobs.sharder.sharder import RingSharder
from poise.kube import Client, ObjectRef, Partial, Selection
from poise.kube.resources import CONFIG_MAPS, SECRETS, Resource
from poise.model.sharding import Marks, read_marks

pytestmark = pytest.mark.usefixtures("definitions")
PODS = Resource("", "v1", "pods", "Pod")
FAMILIES = 16


@pytest.fixture(scope="module", autouse=True)
def _collector(cluster: Cluster) -> Iterator[None]:
    """What a Pod owns is deleted after it."""
    with running_controllers(cluster.plane, "garbage-collector-controller"):
        yield


class Pods:
    """Instances of one ring, each in a Pod of its own that owns its Lease and one more object."""

    def __init__(self, client: Client, namespace: str, setting: pytest.MonkeyPatch) -> None:
        """Share some families out."""
        self._client, self._namespace, self._setting = client, namespace, setting
        self._uids: dict[str, str] = {}
        self._living: dict[str, Living] = {}

    def _ref(self, resource: Resource, name: str) -> ObjectRef:
        return ObjectRef(resource, name, self._namespace)

    async def start(self, name: str) -> None:
        """Make a Pod, and a shard that runs in it until it holds its Lease."""
        spec = {"containers": [{"name": "c", "image": "none"}]}
        made = await self._client.create(self._ref(PODS, name), {"metadata": {"name": name}, "spec": spec}, Partial)
        uid = self._uids[name] = made.metadata.uid
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
        mark = {"metadata": {"name": f"of-{name}", "ownerReferences": [owner]}}
        await self._client.create(self._ref(CONFIG_MAPS, f"of-{name}"), mark, Partial)
        for variable, value in (("NAME", name), ("UID", uid), ("NAMESPACE", self._namespace)):
            self._setting.setenv(f"POD_{variable}", value)
        shard = Shard(
            ring=RING,
            resources=["secrets"],
            namespace=self._namespace,
            scope=self._namespace,
            client=self._client,
            on_hang="raise",
        )
        self._living[name] = await Living(shard, Notes()).holds()

    async def end(self, name: str, *, restart: bool = False) -> None:
        """Let a shard leave, delete its Pod, and wait until all that it owned is collected."""
        living = self._living.pop(name)
        living.shard.leave("restart" if restart else "stop")
        await living.task
        await self._client.delete(self._ref(PODS, name), uid=self._uids.pop(name))
        while await self._is_there(self._ref(CONFIG_MAPS, f"of-{name}")):
            await asyncio.sleep(0.1)

    async def _is_there(self, ref: ObjectRef) -> bool:
        try:
            await self._client.get(ref, Partial)
        except NotFound:
            return False
        return True

    async def close(self) -> None:
        """End whoever is left."""
        for living in self._living.values():
            living.shard.leave()
            await living.task

    async def marks(self) -> dict[str, Marks]:
        """Read who has what."""
        found, _ = await self._client.list_all(Selection(SECRETS, self._namespace), Partial)
        return {each.metadata.name: read_marks(each.metadata.labels, RING) for each in found}

    async def settled(self, sharder: RingSharder, *names: str) -> dict[str, Marks]:
        """Wait until these are ready, all is with them and nothing moves; the brake never holds meanwhile."""
        while True:
            assert sharder.report.vanished == (), "nobody has vanished"
            marks = await self.marks()
            ready = {each.name for each in sharder.report.instances if each.state == "ready"}
            rests = all(each.shard in names and each.drain is None for each in marks.values())
            if rests and ready >= set(names) and not sharder.report.drains and not sharder.report.in_flight:
                return marks
            await asyncio.sleep(0.1)


async def made_pods(client: Client, namespace: str, setting: pytest.MonkeyPatch, **spec: object) -> Pods:
    """Make a ring with some families."""
    await make_ring(client, namespace, **spec)
    await acknowledge_ring(client, namespace)
    await make_families(client, namespace, (f"s{number:02}" for number in range(FAMILIES)))
    return Pods(client, namespace, setting)


def test_pods_that_are_deleted_give_their_objects_at_once_and_set_no_brake(
    cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(client: Client) -> None:
        # With a lease of this length nothing that waits for it would end in time.
        pods = await made_pods(client, namespace, monkeypatch, leaseSeconds=600)
        names = ("w-0", "w-1", "w-2", "w-3")
        async with sharding(client, namespace) as sharder:
            for name in names:
                await pods.start(name)
            await pods.settled(sharder, *names)
            for name in names[1:]:
                await pods.end(name)
            await pods.settled(sharder, "w-0")
        await pods.close()

    cluster.run(scenario)


def test_a_pod_that_restarts_under_its_name_keeps_everything(
    cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(client: Client) -> None:
        pods = await made_pods(client, namespace, monkeypatch, leaseSeconds=3, restartGraceSeconds=60)
        async with sharding(client, namespace) as sharder:
            for name in ("w-0", "w-1"):
                await pods.start(name)
            before = await pods.settled(sharder, "w-0", "w-1")
            await pods.end("w-0", restart=True)
            await asyncio.sleep(2.5 * 3)
            assert await pods.marks() == before, "its grace goes on"
            await pods.start("w-0")
            await until(lambda: all(each.state == "ready" for each in sharder.report.instances))
            assert await pods.settled(sharder, "w-0", "w-1") == before
        await pods.close()

    cluster.run(scenario)
