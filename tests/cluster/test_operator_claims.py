"""Two installations that see one ring: exactly one runs it, and the other neither acts nor writes its status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.cluster.operator_process import awaited, put_ring, read_ring, remove_ring, ring_ref, shown
from tests.cluster.world import Cluster, until

from poise.errors import NotFound
from poise.jobs.sharder.accepting import OPERATOR_ANNOTATION
from poise.jobs.sharder.rings import Lookout, Rings
from poise.kube import Client
from poise.kube.objects import Custom

pytestmark = pytest.mark.usefixtures("definitions")


@asynccontextmanager
async def running(client: Client, namespace: str, home: str) -> AsyncIterator[Rings]:
    """Run the rings of a namespace as the leader of one installation."""
    me = f"poise-sharder-{home}_1"
    rings = Rings(Lookout(client=client, me=me, home=home, may_act=lambda: True, scope=namespace))
    task = asyncio.create_task(rings.run())
    try:
        yield rings
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def claimed(client: Client, namespace: str) -> str | None:
    """Read which installation runs the ring."""
    return (await client.get(ring_ref(namespace, "web"), Custom)).metadata.annotations.get(OPERATOR_ANNOTATION)


def run_by(rings: Rings) -> list[str]:
    return [each.name for each in rings.numbers()]


def test_a_ring_is_run_by_one_installation(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await put_ring(client, namespace, "web")
        async with running(client, namespace, "one") as one, running(client, namespace, "two") as two:
            await until(lambda: len(run_by(one) + run_by(two)) == 1 and one.refused + two.refused == 1)
            first, home = (one, "one") if run_by(one) else (two, "two")
            second = two if first is one else one
            assert await claimed(client, namespace) == home
            await shown(client, namespace, "web", "Ready", "False", "NoInstances")
            before = (await read_ring(client, namespace, "web")).metadata.resource_version
            told = second.looks()[0].refusal
            assert told is not None
            assert (told.reason, f"the namespace {home} runs this ring" in told.message) == ("RunElsewhere", True)
            await asyncio.sleep(2)
            assert (await read_ring(client, namespace, "web")).metadata.resource_version == before
            assert run_by(second) == []
            await remove_ring(client, namespace, "web")

            async def gone() -> bool:
                try:
                    await read_ring(client, namespace, "web")
                except NotFound:
                    return True
                return False

            await awaited(gone, lambda: "the ring ends")

    cluster.run(scenario)


def test_a_ring_whose_installation_is_gone_is_given_free_by_people(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await put_ring(client, namespace, "web")
        async with running(client, namespace, "one") as one:
            await until(lambda: run_by(one) == ["web"])
        async with running(client, namespace, "one") as again:
            await until(lambda: run_by(again) == ["web"])
        async with running(client, namespace, "two") as two:
            await until(lambda: two.refused == 1)
            assert run_by(two) == []
            found = await client.get(ring_ref(namespace, "web"), Custom)
            change = {"metadata": {"annotations": {OPERATOR_ANNOTATION: None}}}
            await client.merge(ring_ref(namespace, "web"), found.metadata, change, Custom)
            await until(lambda: run_by(two) == ["web"])
            assert await claimed(client, namespace) == "two"

    cluster.run(scenario)
