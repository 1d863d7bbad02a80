"""The sharder killed after every single write resumes to the same end."""

from __future__ import annotations

import asyncio
import uuid

from tests.cluster.played_shard import D
from tests.cluster.sharder_world import bare_lease, make_config_map, state, tamper, world
from tests.cluster.world import Cluster, make_namespace, make_secret, until

from poise.kube import NAMESPACES, Client, ObjectRef
from poise.kube.resources import CONFIG_MAPS, SECRETS
from poise.model.sharding import Marks, label_names


def test_the_sharder_killed_after_every_write_resumes_to_the_same_end(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        async with world(client, namespace) as w:
            await w.shard("a-0")
            root = await make_secret(client, "root", namespace)
            for name in ("one", "two"):
                await make_config_map(client, name, root, namespace)
            await w.settled(["a-0"])
            epoch = 1
            for allowed in range(4):
                # It may send so many writes; then it is as dead as after kill -9.
                await w.stop_sharder()
                shard = label_names(w.name)[0]
                await tamper(client, SECRETS, "root", namespace, {shard: None})
                w.leads = sent = _Allowed(allowed)
                await w.start_sharder()
                while not (sent.asked and w.sharder.counts.label_writes == min(allowed, 3)):
                    await asyncio.sleep(0.02)
                await asyncio.sleep(0.2)
                assert w.sharder.counts.label_writes == min(allowed, 3), "no write beyond"
                await w.stop_sharder()
                w.leads = lambda: True
                await w.start_sharder()
                while len(ends := {*(await w.marks()).values(), *(await w.marks(CONFIG_MAPS)).values()}) > 1:
                    await asyncio.sleep(0.05)
                (end,) = ends
                assert end == Marks("a-0", end.epoch)
                assert (end.epoch or 0) > epoch, f"after {allowed} writes"
                epoch = end.epoch or 0

    cluster.run(scenario)


def test_the_sharder_killed_after_every_write_of_a_take_resumes_to_the_same_end(cluster: Cluster) -> None:
    async def scenario(client: Client) -> None:
        await asyncio.gather(*(_killed_while_taking(client, allowed) for allowed in range(6)))

    cluster.run(scenario)


async def _killed_while_taking(client: Client, allowed: int) -> None:
    """Kill the sharder after so many of: hold the Lease, two children, the root, empty the Lease."""
    namespace = f"poise-test-{uuid.uuid4().hex[:8]}"
    made = await make_namespace(client, namespace)
    async with world(client, namespace) as w:
        await bare_lease(w, "a-0", duration_s=600)
        root = await make_secret(client, "root", namespace)
        for name in ("one", "two"):
            await make_config_map(client, name, root, namespace)
        await w.settled(["a-0"])
        await w.stop_sharder()
        await bare_lease(w, "a-1", duration_s=600)
        shard, epoch, _, _ = label_names(w.name)
        for resource, name in ((SECRETS, "root"), (CONFIG_MAPS, "one"), (CONFIG_MAPS, "two")):
            await tamper(client, resource, name, namespace, {shard: "gone", epoch: "5"})
        await bare_lease(w, "gone", "gone_1", duration_s=1)
        w.leads = sent = _Allowed(allowed)
        await w.start_sharder()
        await until(lambda: sent.left < 0 or "empty" in w.sharder.counts.lease_writes)
        await asyncio.sleep(0.2)
        await w.stop_sharder()
        if allowed < 4:
            assert (await w.owners())["root"] == "gone", f"after {allowed} writes"
        w.leads = lambda: True
        await w.start_sharder()
        owners = await w.settled(["a-0", "a-1"], 6 * D)
        assert len(set(owners.values())) == 1
        marks = {*(await w.marks()).values(), *(await w.marks(CONFIG_MAPS)).values()}
        assert marks == {Marks(owners["root"], 6)}, f"after {allowed} writes"
        await until(lambda: state(w, "gone") == "dead")
    await client.delete(ObjectRef(NAMESPACES, namespace), uid=made.metadata.uid)


class _Allowed:
    """Lets so many writes be sent."""

    def __init__(self, left: int) -> None:
        self.left, self.asked = left, 0

    def __call__(self) -> bool:
        self.asked += 1
        self.left -= 1
        return self.left >= 0
