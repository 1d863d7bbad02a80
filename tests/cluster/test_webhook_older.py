"""The operator with its webhook on clusters that lack something: what that is, is told, and everything else works."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.control_plane import ControlPlane, free_port
from tests.cluster.operator_process import OperatorProcess
from tests.cluster.test_policy_keeper import OlderPlane
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
from tests.cluster.world import Cluster, install_definitions


class NamelessPlane(ControlPlane):
    """A control plane that cannot be asked who somebody is, as Kubernetes was before 1.28."""

    def _run(self, name: str, *arguments: str) -> None:
        """Leave that out of what the API server serves."""
        less = "--runtime-config=authentication.k8s.io/v1/selfsubjectreviews=false"
        super()._run(name, *arguments, *([less] if name == "kube-apiserver" else []))


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
def running(cluster: Cluster, plane: ControlPlane) -> Iterator[Older]:
    """Run everything while the block does."""
    assert cluster.plane.url, "only the rig has control planes of its own"
    older, port = Cluster(plane), free_port()
    try:
        plane.start()
        older.run(install_definitions)
        older.run(lambda client: make_masters(client, SHARDER))
        older.run(lambda client: put_ring(client, "default"))
        world = HookWorld(plane, "default")
        with (
            Service((port,)) as service,
            Beats(older, "default"),
            operator(older, "default", *hook_options(port, service)) as process,
        ):
            yield Older(older, world, process)
        world.close()
    finally:
        plane.stop()


def test_a_cluster_that_cannot_be_asked_who_we_are_is_told(cluster: Cluster, tmp_path: Path) -> None:
    with running(cluster, NamelessPlane(tmp_path, (SHARDER,))) as older:
        told = "this cluster has no SelfSubjectReview of authentication.k8s.io/v1, which Kubernetes has since 1.28"
        wait(lambda: older.said.count(told) == 2, lambda: older.said)
        older.wait_for_condition("WebhookTrusted")
        older.wait_for_condition("Protected")
        for first in ("the webhook does not work", "the labels of rings are not protected"):
            assert older.said.count(first) == 1
        assert older.said.count(told) == 2, "each is told once"
        made = older.world.make()
        wait(lambda: older.world.marks(older.world.get(made.name)).shard is not None, lambda: older.said)


def test_a_cluster_without_policies_is_told_and_everything_else_works(cluster: Cluster, tmp_path: Path) -> None:
    with running(cluster, OlderPlane(tmp_path, (SHARDER,))) as older:
        wait(older.world.assigns, lambda: older.said)
        wait(lambda: "has no ValidatingAdmissionPolicy" in older.said, lambda: older.said)
        assert older.said.count("has no ValidatingAdmissionPolicy") == 1
        assert older.number("poise_policy_trouble") == 1
        older.wait_for_condition("Protected")
        made = older.world.make()
        assert older.world.marks(made).shard == older.world.home(made.name)
