"""`poise operator` keeps the policies of its rings, unless it is told not to."""

from __future__ import annotations

import asyncio
import signal

import pytest
from tests.cluster.operator_process import OperatorProcess, awaited, put_ring, read_ring, remove_ring, shown
from tests.cluster.world import Cluster

from poise.errors import NotFound
from poise.jobs.sharder.policy_keeper import BINDINGS, POLICIES
from poise.kube import Client, Partial, Selection

pytestmark = pytest.mark.usefixtures("definitions")


async def kept(client: Client, name: str) -> int:
    """Count policies and bindings of a name."""
    listed = [(await client.list_all(Selection(kind), Partial))[0] for kind in (POLICIES, BINDINGS)]
    return sum(each.metadata.name == name for found in listed for each in found)


async def counted(client: Client, name: str, wanted: int) -> None:
    async def holds() -> bool:
        return await kept(client, name) == wanted

    await awaited(holds, lambda: f"{wanted} of {name}", 30.0)


async def ended(client: Client, namespace: str, name: str) -> None:
    """Wait until a ring is gone, no longer than that."""
    while True:
        try:
            await read_ring(client, namespace, name)
        except NotFound:
            return
        await asyncio.sleep(0.01)


def test_policies_follow_the_rings_of_an_operator(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        name = f"poise-web.{namespace}"
        await put_ring(client, namespace, "web")
        with OperatorProcess(cluster.kubeconfig(), "--namespace", namespace) as operator:
            await counted(client, name, 2)
            await shown(client, namespace, "web", "Ready", "False", "NoInstances")
            assert await operator.end() == 0
        assert await kept(client, name) == 2
        with OperatorProcess(cluster.kubeconfig(), "--namespace", namespace, "--no-protect") as operator:
            await counted(client, name, 0)
            assert await operator.end(signal.SIGINT) == 0
        with OperatorProcess(cluster.kubeconfig(), "--namespace", namespace) as operator:
            await counted(client, name, 2)
            await remove_ring(client, namespace, "web")
            await ended(client, namespace, "web")
            assert await kept(client, name) == 0, "its policy goes before the ring does"
            assert "not protected" not in operator.said

    cluster.run(scenario)
