"""The operator and its parts on clusters that lack something: what that is, is told, and everything else works."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.control_plane import ControlPlane, free_port
from tests.cluster.operator_process import OperatorProcess
from tests.cluster.test_policy_keeper import CountingClient, keeping, ring_of
from tests.cluster.webhook_world import (
    RING,
    SHARDER,
    Beats,
    HookWorld,
    Service,
    hook_options,
    make_masters,
    operator,
    put_ring,
    wait,
)
from tests.cluster.world import Cluster, install_definitions, started

from poise.jobs.sharder import policy_keeper
from poise.jobs.sharder.policy_keeper import BINDINGS, POLICIES, PolicyKeeper
from poise.kube import Client, ObjectRef, Partial
from poise.kube.resources import CONFIG_MAPS

pytestmark = pytest.mark.usefixtures("rig")


class NamelessPlane(ControlPlane):
    """A control plane that cannot be asked who somebody is, as Kubernetes was before 1.28."""

    def _run(self, name: str, *arguments: str) -> None:
        """Leave that out of what the API server serves."""
        less = "--runtime-config=authentication.k8s.io/v1/selfsubjectreviews=false"
        super()._run(name, *arguments, *([less] if name == "kube-apiserver" else []))


class OlderPlane(ControlPlane):
    """A control plane without policies, as Kubernetes was before 1.30."""

    def _run(self, name: str, *arguments: str) -> None:
        """Leave the policies out of what the API server serves."""
        older = [f"--runtime-config={POLICIES.api_version}/{each.plural}=false" for each in (POLICIES, BINDINGS)]
        more = [*older, "--disable-admission-plugins=ValidatingAdmissionPolicy"] if name == "kube-apiserver" else []
        super()._run(name, *arguments, *more)


@pytest.fixture(scope="module")
def without_policies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without policies."""
    with started(OlderPlane(tmp_path_factory.mktemp("older"), (SHARDER,))) as cluster:
        yield cluster


class Older:
    """An operator with its webhook on a control plane of its own, and a ring with instances."""

    def __init__(self, cluster: Cluster, world: HookWorld, process: OperatorProcess) -> None:
        """Keep what the test asks."""
        self.cluster, self.world, self._process = cluster, world, process

    @property
    def said(self) -> str:
        """Give what the operator has said so far."""
        return self._process.said

    def wait_for_condition(self, kind: str) -> None:
        """Wait until the status of the ring has a condition."""
        path = f"/apis/poise.dev/v1alpha1/namespaces/default/shardrings/{RING}"
        wait(lambda: f'"type":"{kind}"' in self.world.ask("GET", path).text, lambda: self.said)

    def number(self, name: str) -> float:
        """Read one of its metrics."""
        return self.cluster.run(lambda _client: self._process.numbers())[name]


@contextmanager
def running(cluster: Cluster) -> Iterator[Older]:
    """Run everything while the block does."""
    port = free_port()
    cluster.run(install_definitions)
    cluster.run(lambda client: make_masters(client, SHARDER))
    cluster.run(lambda client: put_ring(client, "default"))
    world = HookWorld(cluster.plane, "default")
    with (
        Service((port,)) as service,
        Beats(cluster, "default"),
        operator(cluster, "default", *hook_options(port, service)) as process,
    ):
        yield Older(cluster, world, process)
    world.close()


def test_a_cluster_that_cannot_be_asked_who_we_are_is_told(tmp_path: Path) -> None:
    with started(NamelessPlane(tmp_path, (SHARDER,))) as nameless, running(nameless) as older:
        told = "this cluster has no SelfSubjectReview of authentication.k8s.io/v1, which Kubernetes has since 1.28"
        wait(lambda: older.said.count(told) == 2, lambda: older.said)
        older.wait_for_condition("WebhookTrusted")
        older.wait_for_condition("Protected")
        for first in ("the webhook does not work", "the labels of rings are not protected"):
            assert older.said.count(first) == 1
        assert older.said.count(told) == 2, "each is told once"
        made = older.world.make()
        wait(lambda: older.world.marks(older.world.get(made.name)).shard is not None, lambda: older.said)


def test_a_cluster_that_is_too_old_is_one_sentence(without_policies: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_keeper, "_AGAIN_S", 0.2)
    told: list[str] = []

    async def scenario(client: Client) -> None:
        counted = CountingClient(client, monkeypatch)
        for protecting in (True, False):
            async with keeping(
                PolicyKeeper(client, may_act=lambda: True, protecting=protecting, tell=told.append)
            ) as keeper:
                keeper.update([ring_of("web", "default", [{"resource": "secrets"}])])
                await asyncio.sleep(1.0)
        assert counted.writes == 0
        body = {"metadata": {"name": "goes-on"}}
        await client.create(ObjectRef(CONFIG_MAPS, "", "default"), body, Partial)

    without_policies.run(scenario)
    assert len(told) == 1
    assert "has no ValidatingAdmissionPolicy, which Kubernetes has since 1.30" in told[0]
    assert "v1." in told[0]


def test_a_cluster_without_policies_is_told_and_everything_else_works(without_policies: Cluster) -> None:
    with running(without_policies) as older:
        wait(older.world.assigns, lambda: older.said)
        wait(lambda: "has no ValidatingAdmissionPolicy" in older.said, lambda: older.said)
        assert older.said.count("has no ValidatingAdmissionPolicy") == 1
        assert older.number("poise_policy_trouble") == 1
        older.wait_for_condition("Protected")
        made = older.world.make()
        assert older.world.marks(made).shard == older.world.home(made.name)
