"""Rings that cannot be run, and clusters that are not as they should be: each is told, and the others go on."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from tests.cluster.operator_process import (
    OperatorProcess,
    awaited,
    change_ring,
    event,
    eventually,
    put_ring,
    read_ring,
    remove_ring,
    ring_ref,
    shown,
)
from tests.cluster.puppet import LASTING_S, Puppet
from tests.cluster.ring_world import make_families, read_families
from tests.cluster.world import Cluster, grant, install_definitions, make_namespace

from poise.errors import NotFound
from poise.kube import Client
from poise.kube.objects import Custom
from poise.model.sharding import read_marks

D = 3
# What the schema lets through and the rules of documents do not.
UNHEARD_OF: dict[str, object] = {
    "windows": [{"schedule": "0 2 * * *", "duration": "4h", "timezone": "Nowhere/City"}],
}


def operator(cluster: Cluster, namespace: str, user: str = "admin") -> OperatorProcess:
    return OperatorProcess(cluster.kubeconfig(user), "--namespace", namespace)


async def goes_on(client: Client, namespace: str, ring: str, family: str) -> None:
    """See that a ring still gives new objects to its instance."""
    await make_families(client, namespace, [family])

    async def given() -> bool:
        root, _ = (await read_families(client, namespace))[family]
        return read_marks(root.metadata.labels, ring).shard is not None

    await awaited(given, lambda: family)


async def gone(client: Client, namespace: str, name: str) -> bool:
    try:
        await read_ring(client, namespace, name)
    except NotFound:
        return True
    return False


@pytest.mark.usefixtures("definitions")
def test_a_resource_that_does_not_exist_is_told_and_other_rings_go_on(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await put_ring(client, namespace, "odd", resources=[{"group": "nosuch.dev", "resource": "foos"}])
        await put_ring(client, namespace, "web", leaseSeconds=D)
        with operator(cluster, namespace) as process:
            async with Puppet(client, namespace, "a", duration_s=LASTING_S).playing():
                seen = await shown(client, namespace, "odd", "Ready", "False", "ResourceFault")
                assert seen.status.of("Ready").message == 'the API server has no group "nosuch.dev"'
                assert seen.status.observed_generation == seen.metadata.generation
                assert seen.status.of("Balanced").status == "Unknown"
                await process.ready()
                assert (await process.numbers())["poise_faults ShardRing/odd"] == 1
                await goes_on(client, namespace, "web", "s1")
                # What does not exist carries no labels: nothing keeps the ring from ending.
                await remove_ring(client, namespace, "odd")
                await awaited(lambda: gone(client, namespace, "odd"), lambda: process.said)
                await goes_on(client, namespace, "web", "s2")

    cluster.run(scenario)


# Exactly what the docs say that it needs.
RIGHTS: list[dict[str, list[str]]] = [
    {"apiGroups": ["poise.dev"], "resources": ["shardrings"], "verbs": ["list", "watch", "patch"]},
    {"apiGroups": ["poise.dev"], "resources": ["shardrings/status"], "verbs": ["patch"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "list", "watch", "create", "update", "delete"],
    },
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch", "patch"]},
]


@pytest.mark.usefixtures("definitions")
def test_a_missing_right_is_named_in_the_condition_and_other_rings_go_on(cluster: Cluster, namespace: str) -> None:
    everywhere: dict[str, object] = {"namespaceSelector": {}}

    async def scenario(client: Client) -> None:
        await grant(client, "alice", namespace, RIGHTS)
        secrets = [{"resource": "secrets"}]
        await put_ring(client, namespace, "web", leaseSeconds=D, resources=secrets, **everywhere)
        await put_ring(client, namespace, "maps", resources=[{"resource": "configmaps"}], **everywhere)
        with operator(cluster, namespace, "alice") as process:
            async with Puppet(client, namespace, "a", duration_s=LASTING_S).playing():
                seen = await shown(client, namespace, "maps", "Ready", "False", "ResourceFault")
                wanted = f'may not list configmaps of the group "" in the namespace {namespace}'
                assert seen.status.of("Ready").message.startswith(wanted)
                await shown(client, namespace, "web", "Ready", "True", "Sharding")
                await goes_on(client, namespace, "web", "s1")
                await process.ready()
                second = Puppet(client, namespace, "b", duration_s=LASTING_S)
                async with second.playing():
                    await event(client, namespace, "InstanceReady", "b is ready")
                    await shown(client, namespace, "web", "Balanced", "True", "Settled")
                await second.release()
                await event(client, namespace, "InstanceReleased", "b has released")
                await shown(client, namespace, "web", "Balanced", "True", "Settled")
                await remove_ring(client, namespace, "web")
                await awaited(lambda: gone(client, namespace, "web"), lambda: process.said)
                assert (await process.numbers())["poise_kube_events_dropped"] == 0
                assert "reason=" not in process.said, "nothing was refused"

    cluster.run(scenario)


@pytest.mark.usefixtures("definitions")
def test_an_invalid_document_is_told_and_changes_nothing(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await put_ring(client, namespace, "bad", guards=UNHEARD_OF)
        await put_ring(client, namespace, "web", leaseSeconds=D)
        with operator(cluster, namespace) as process:
            async with Puppet(client, namespace, "a", duration_s=LASTING_S).playing():
                bad = await shown(client, namespace, "bad", "Ready", "False", "InvalidSpec")
                assert bad.status.of("Ready").message.startswith("$.spec.guards.windows[0].timezone: ")
                assert not bad.metadata.finalizers, "what was never run has nothing to clean up"
                await shown(client, namespace, "web", "Ready", "True", "Sharding")
                await change_ring(client, namespace, "web", {"spec": {"guards": UNHEARD_OF}})
                kept = await shown(client, namespace, "web", "Ready", "False", "InvalidSpec")
                assert "until this is mended the ring is run as it was before" in kept.status.of("Ready").message
                await goes_on(client, namespace, "web", "s1")
                assert (await process.numbers())["poise_rings_refused"] == 2
                await change_ring(client, namespace, "web", {"spec": {"guards": {"windows": None}}})
                mended = await shown(client, namespace, "web", "Ready", "True", "Sharding")
                assert mended.status.observed_generation == mended.metadata.generation
                await remove_ring(client, namespace, "bad")
                await awaited(lambda: gone(client, namespace, "bad"), lambda: process.said)

    cluster.run(scenario)


@pytest.mark.usefixtures("definitions")
def test_rights_that_it_cannot_do_without_end_it_with_one_line(cluster: Cluster, namespace: str) -> None:
    async def scenario(_client: Client) -> None:
        with operator(cluster, namespace, "bob") as process:
            assert await process.ended() == 1
            assert len(process.lines) == 2
            where = f"in the namespace {namespace}"
            assert process.lines[1] == (
                f'poise: may not get, create, update leases of the group "coordination.k8s.io" {where}: '
                f'may not list, watch, patch shardrings of the group "poise.dev" {where}; '
                f'may not patch shardrings/status of the group "poise.dev" {where}'
            )

    cluster.run(scenario)


def test_without_definitions_it_says_how_to_install_them(breakable: Cluster) -> None:
    async def scenario(client: Client) -> None:
        with OperatorProcess(breakable.kubeconfig()) as process:
            assert await process.ended() == 1
            assert len(process.lines) == 2
            assert process.lines[1] == (
                'poise: the cluster does not know ShardRing (the API server has no group "poise.dev"); '
                "install the definitions first: poise operator --definitions | kubectl apply -f -"
            )
        await install_definitions(client)

    breakable.run(scenario)


def test_two_rings_of_one_name_the_younger_is_refused_until_the_older_is_gone(breakable: Cluster) -> None:
    async def scenario(client: Client) -> None:
        await install_definitions(client)
        for name in ("older", "younger"):
            await make_namespace(client, name)
        await put_ring(client, "older", "web", leaseSeconds=D)
        with OperatorProcess(breakable.kubeconfig()) as process:
            async with Puppet(client, "older", "a", duration_s=LASTING_S).playing():
                await shown(client, "older", "web", "Ready", "True", "Sharding")
                await put_ring(client, "younger", "web", leaseSeconds=D)
                refused = await shown(client, "younger", "web", "Ready", "False", "NameTaken")
                assert "the ring older/web has this name already" in refused.status.of("Ready").message
                assert refused.status.observed_generation == 1
                assert not refused.metadata.finalizers
                await make_families(client, "younger", ["s1"])
                await goes_on(client, "older", "web", "s1")
                root, _ = (await read_families(client, "younger"))["s1"]
                assert read_marks(root.metadata.labels, "web").shard is None, "a refused ring gives nothing away"
                assert (await process.numbers())["poise_rings"] == 1
                await remove_ring(client, "older", "web")
                await awaited(lambda: gone(client, "older", "web"), lambda: process.said)
            async with Puppet(client, "younger", "b", duration_s=LASTING_S).playing():
                await shown(client, "younger", "web", "Ready", "True", "Sharding")
                await goes_on(client, "younger", "web", "s2")

    breakable.run(scenario)


def test_the_api_server_restarts_and_the_operator_goes_on(breakable: Cluster, broken_namespace: str) -> None:
    namespace = broken_namespace

    async def before(client: Client) -> None:
        await install_definitions(client)
        await put_ring(client, namespace, "ring", leaseSeconds=D, resources=[{"resource": "secrets"}])

    async def after(client: Client) -> None:
        async with Puppet(client, namespace, "a", duration_s=LASTING_S, ring="ring").playing():
            await shown(client, namespace, "ring", "Ready", "True", "Sharding", within_s=40)
            await goes_on(client, namespace, "ring", "s1")
            await process.ready()
            assert await process.end() == 0

    breakable.run(before)
    with OperatorProcess(breakable.kubeconfig(), "--namespace", namespace) as process:

        async def accepted(client: Client) -> None:
            await shown(client, namespace, "ring", "Ready", "False", "NoInstances")

        breakable.run(accepted)
        breakable.plane.end("kube-apiserver")
        time.sleep(8)
        assert process.process.poll() is None, process.said
        breakable.plane.start_api()
        breakable.run(after)


STUBBORN = """
import asyncio, sys, time
from poise.cli.main import run
from poise.jobs import operating
from poise.jobs.sharder.rings import Rings

class Stubborn(Rings):
    async def run(self):
        try:
            await super().run()
        finally:
            {does}

operating.JOBS["ShardRing"] = Stubborn
sys.exit(run(["operator", *sys.argv[1:]]))
"""


def _program(folder: Path, does: str) -> tuple[str, ...]:
    path = folder / "stubborn.py"
    path.write_text(STUBBORN.format(does=does))
    return (str(path),)


@pytest.mark.usefixtures("definitions")
def test_work_that_does_not_stop_ends_the_process_with_a_code(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    async def scenario(_client: Client) -> None:
        stubborn = _program(tmp_path, "await asyncio.sleep(60)")
        with OperatorProcess(cluster.kubeconfig(), "--namespace", namespace, program=stubborn) as process:
            await process.ready()
            assert await process.end() == 1
            assert process.lines[-1].endswith("did not stop before its Lease ends: this process ends now")

    cluster.run(scenario)


HANGING = """
import asyncio, sys, time
from poise.cli.main import run
from poise.jobs import operating
from poise.jobs.sharder.rings import Rings

class Hanging(Rings):
    async def run(self):
        await asyncio.sleep(2)
        time.sleep(600)

operating.JOBS["ShardRing"] = Hanging
sys.exit(run(["operator", *sys.argv[1:]]))
"""


@pytest.mark.usefixtures("definitions")
def test_a_loop_that_hangs_does_not_say_that_it_lives(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    path = tmp_path / "hanging.py"
    path.write_text(HANGING)

    async def scenario(_client: Client) -> None:
        with OperatorProcess(cluster.kubeconfig(), "--namespace", namespace, program=(str(path),)) as process:
            await eventually(lambda: "leads as" in process.said, lambda: process.said)
            assert (await process.get("/livez")).status_code == 200
            await asyncio.sleep(2.5)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await process.get("/livez", timeout_s=30)

    cluster.run(scenario)


FAILING = """
import asyncio, sys
from poise.cli.main import run
from poise.jobs.sharder import sharder

healthy = sharder.RingSharder.run

async def run_or_fail(self):
    if self._ring.metadata.name == "odd":
        raise RuntimeError("a fault of ours")
    await healthy(self)

sharder.RingSharder.run = run_or_fail
sys.exit(run(["operator", *sys.argv[1:]]))
"""


@pytest.mark.usefixtures("definitions")
def test_a_sharder_that_fails_is_told_and_other_rings_go_on(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    path = tmp_path / "failing.py"
    path.write_text(FAILING)

    async def scenario(client: Client) -> None:
        await put_ring(client, namespace, "odd", leaseSeconds=D)
        await put_ring(client, namespace, "web", leaseSeconds=D)
        with OperatorProcess(cluster.kubeconfig(), "--namespace", namespace, program=(str(path),)) as process:
            async with Puppet(client, namespace, "a", duration_s=LASTING_S).playing():
                seen = await shown(client, namespace, "odd", "Ready", "False", "SharderFailed")
                assert "RuntimeError: a fault of ours" in seen.status.of("Ready").message
                await shown(client, namespace, "web", "Ready", "True", "Sharding")
                await goes_on(client, namespace, "web", "s1")
                await eventually(lambda: process.said.count("ring.failed name=odd") >= 3, lambda: process.said)
                assert process.process.poll() is None

    cluster.run(scenario)


@pytest.mark.usefixtures("definitions")
def test_a_finalizer_taken_off_by_hand_is_put_on_again(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        await put_ring(client, namespace, "web", leaseSeconds=D)
        with operator(cluster, namespace) as process:
            await shown(client, namespace, "web", "Ready", "False", "NoInstances")
            await change_ring(client, namespace, "web", {"metadata": {"finalizers": []}})

            async def back() -> bool:
                return bool((await client.get(ring_ref(namespace, "web"), Custom)).metadata.finalizers)

            await awaited(back, lambda: process.said)
            assert (await process.numbers())["poise_rings"] == 1

    cluster.run(scenario)
