"""Two installations that see one ring: exactly one runs it, and the other neither acts nor writes its status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.cluster.operator_process import awaited, event, put_ring, read_ring, remove_ring, ring_ref, shown
from tests.cluster.world import Cluster, install_definitions, make_namespace, until

from poise.errors import NotFound
from poise.jobs.sharder.accepting import OPERATOR_ANNOTATION
from poise.jobs.sharder.rings import Lookout, Rings
from poise.kube import Client
from poise.kube.objects import Custom

pytestmark = pytest.mark.usefixtures("definitions")


@asynccontextmanager
async def running(client: Client, namespace: str | None, home: str) -> AsyncIterator[Rings]:
    """Run the rings of a namespace, or of all of them, as the leader of one installation."""
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
            warning = await event(client, namespace, "RunElsewhere", f"the namespace {home} runs this ring")
            assert warning.type == "Warning"
            assert f"kubectl annotate shardring web --namespace {namespace} poise.dev/operator-" in warning.message
            await asyncio.sleep(2)
            assert (await event(client, namespace, "RunElsewhere")).count == 1
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


def test_a_ring_that_another_installation_runs_has_its_name_wherever_both_are_seen(breakable: Cluster) -> None:
    async def scenario(client: Client) -> None:
        await install_definitions(client)
        for name in ("alpha", "beta"):
            await make_namespace(client, name)
        await put_ring(client, "alpha", "web")
        async with running(client, None, "central") as central:
            await until(lambda: run_by(central) == ["web"])
            await put_ring(client, "beta", "web")
            await shown(client, "beta", "web", "Ready", "False", "NameTaken")
            assert run_by(central) == ["web"], "the older one is run"
            # This one sees only its own namespace, and so cannot know of the other ring.
            async with running(client, "beta", "local") as local:
                await until(lambda: run_by(local) == ["web"] and run_by(central) == [])
                refused = await shown(client, "alpha", "web", "Ready", "False", "NameTaken")
                told = "the ring beta/web has this name already, and the operator of the namespace local runs it"
                assert told in refused.status.of("Ready").message
                await shown(client, "beta", "web", "Ready", "False", "NoInstances")
                assert await claimed(client, "alpha") is None
                assert await claimed(client, "beta") == "local"
                assert central.refused == 2
                assert local.refused == 0

    breakable.run(scenario)
