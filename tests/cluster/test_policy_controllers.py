"""Kubernetes' own controllers go on under the policy: rollouts, and EndpointSlices that copy labels of Services."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest
from tests.cluster.controllers import PROGRAM, running_controllers
from tests.cluster.policy_rows import read_labels
from tests.cluster.policy_world import SHARDER, PolicyWorld, done, make_policy, make_ring, read, told, wait
from tests.cluster.world import Cluster, make_namespace

from poise.jobs.sharder.policy import Terms, Writers, protect
from poise.kube import NAMESPACES, Client, Meta, ObjectRef
from poise.kube.objects import Page
from poise.model.sharding import Marks, read_marks

_MERGE, _APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
ROLLOUT, SLICES, STRICT = "rollout", "slices", "strict"
# By ConfigMaps it is seen when a policy is in force.
_WORKLOADS = [{"group": "apps", "resource": "replicasets"}, {"resource": "pods"}, {"resource": "configmaps"}]
_SLICED = [{"group": "discovery.k8s.io", "resource": "endpointslices"}, {"resource": "configmaps"}]


class Counts(msgspec.Struct, rename="camel"):
    """How a workload stands."""

    replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    observed_generation: int = 0


class Seen(msgspec.Struct, rename="camel"):
    """An object of which metadata and counts are looked at."""

    metadata: Meta
    status: Counts = msgspec.field(default_factory=Counts)


@pytest.fixture(scope="module")
def world(cluster: Cluster) -> Iterator[PolicyWorld]:
    """Two namespaces, and the controllers that matter here."""
    names = ("poise-rollout", "poise-rollout-other")

    async def make(client: Client) -> list[str]:
        return [(await make_namespace(client, name)).metadata.uid for name in names]

    async def remove(client: Client) -> None:
        for name, uid in zip(names, uids, strict=True):
            await client.delete(ObjectRef(NAMESPACES, name), uid=uid)

    uids = cluster.run(make)
    run = ("deployment-controller", "replicaset-controller", "endpointslice-controller")
    with PolicyWorld(cluster.plane, *names) as world:
        world.install([make_policy(make_ring(ROLLOUT, names[0], _spec("apps", "deployments", _WORKLOADS)))])
        with running_controllers(cluster.plane, *run, "validatingadmissionpolicy-status-controller"):
            yield world
    cluster.run(remove)


def _spec(group: str, resource: str, controlled: list[dict[str, str]]) -> dict[str, object]:
    return {"resources": [{"group": group, "resource": resource, "controlled": controlled}]}


def _at(world: PolicyWorld, path: str, name: str = "") -> str:
    """Say where objects of the namespace are."""
    return "/" + path.replace("NS", f"namespaces/{world.namespace}") + (f"/{name}" if name else "")


def _listed(world: PolicyWorld, path: str) -> list[Seen]:
    answer = done(world.ask("GET", _at(world, path)))
    return msgspec.json.decode(answer.content, type=Page[Seen]).items or []


def _mark(world: PolicyWorld, path: str, seen: Seen, labels: str, ring: str, who: str = "sharder") -> None:
    """Patch labels of a ring on one object."""
    body = {"metadata": {"labels": read_labels(labels, ring)}}
    done(world.ask("PATCH", _at(world, path, seen.metadata.name), body, who=who, kind=_MERGE))


DEPLOYMENTS, REPLICA_SETS, PODS = "apis/apps/v1/NS/deployments", "apis/apps/v1/NS/replicasets", "api/v1/NS/pods"
FAMILY = (DEPLOYMENTS, REPLICA_SETS, PODS)


def _workload(image: str) -> dict[str, object]:
    container = {"name": "main", "image": image}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "shop"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "shop"}},
            "template": {"metadata": {"labels": {"app": "shop"}}, "spec": {"containers": [container]}},
        },
    }


def _begin(world: PolicyWorld, image: str) -> int:
    """Apply a workload as a person; gives its generation."""
    path = _at(world, DEPLOYMENTS, "shop")
    done(world.ask("PATCH", path, _workload(image), who="a person", kind=_APPLY, fieldManager="carol"))
    return read(world.ask("GET", path)).generation


def _finish(world: PolicyWorld, generation: int) -> None:
    """Play the kubelet until all pods are new and ready."""

    def is_done() -> bool:
        for pod in _ours(world, PODS):
            ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
            answer = world.ask(
                "PATCH", f"{_at(world, PODS, pod.metadata.name)}/status", ready, who="kubelet", kind=_MERGE
            )
            assert answer.status_code in (200, 404), answer.text
        (now,) = _ours(world, DEPLOYMENTS)
        counts = (now.status.replicas, now.status.updated_replicas, now.status.available_replicas)
        return now.status.observed_generation >= generation and counts == (2, 2, 2)

    wait(is_done, f"the rollout of generation {generation}")


def _ours(world: PolicyWorld, path: str) -> list[Seen]:
    """List the objects of the workload; the pods of the instances are not among them."""
    return [each for each in _listed(world, path) if each.metadata.name.startswith("shop")]


def _give(world: PolicyWorld, labels: str) -> None:
    """Mark the whole family as the sharder does: children first."""
    for path in reversed(FAMILY):
        for each in _ours(world, path):
            _mark(world, path, each, labels, ROLLOUT)


def test_a_deployment_rolls_out_while_it_is_in_a_ring(world: PolicyWorld, cluster: Cluster) -> None:
    _finish(world, _begin(world, "one"))
    _give(world, "shard=web-0 epoch=1")
    _finish(world, _begin(world, "two"))
    # The workload and its old ReplicaSet keep their labels; what is new waits for the sharder.
    marks = [read_marks(each.metadata.labels, ROLLOUT) for path in FAMILY for each in _ours(world, path)]
    assert sorted(marks, key=str) == sorted([Marks("web-0", 1)] * 2 + [Marks()] * 3, key=str)
    _give(world, "shard=web-0 epoch=1")

    # In the middle of the next rollout the family is asked for, and handed over by the Pod that holds it.
    generation = _begin(world, "three")
    wait(lambda: len(_ours(world, REPLICA_SETS)) == 3, "a third ReplicaSet")
    _give(world, "shard=web-0 epoch=1")
    (root,) = _ours(world, DEPLOYMENTS)
    _mark(world, DEPLOYMENTS, root, "drain=web-1 until=100", ROLLOUT)
    for path in (PODS, REPLICA_SETS):
        for each in _ours(world, path):
            if read_marks(each.metadata.labels, ROLLOUT).shard == "web-0":
                _mark(world, path, each, "shard=web-1 epoch=2", ROLLOUT, who="web-0")
    _mark(world, DEPLOYMENTS, root, "shard=web-1 epoch=2 -drain -until", ROLLOUT, who="web-0")
    _finish(world, generation)
    assert "denied request" not in cluster.plane.log(PROGRAM)
    for path in FAMILY:
        for each in _ours(world, path):
            refused = {"metadata": {"labels": read_labels("shard=x epoch=9", ROLLOUT)}}
            answer = world.ask("PATCH", _at(world, path, each.metadata.name), refused, who="a person", kind=_MERGE)
            assert answer.status_code == 403
            assert f"the sharder ({SHARDER})" in told(answer)


class Warned(msgspec.Struct, rename="camel"):
    """What Kubernetes itself says about the types in a policy."""

    expression_warnings: list[dict[str, str]] = msgspec.field(default_factory=list)


class Checked(msgspec.Struct, rename="camel"):
    """Whether the types of a policy were checked."""

    observed_generation: int = 0
    type_checking: Warned | None = None


class CheckedPolicy(msgspec.Struct):
    """A policy of which only that is looked at."""

    status: Checked = msgspec.field(default_factory=Checked)


def test_kubernetes_finds_nothing_odd_in_the_types_of_the_expressions(world: PolicyWorld) -> None:
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/poise-{ROLLOUT}"

    def status() -> Checked:
        return msgspec.json.decode(world.ask("GET", path).content, type=CheckedPolicy).status

    wait(lambda: status().observed_generation > 0, "the policy is checked")
    assert status().type_checking == Warned()


ENDPOINT_SLICES = "apis/discovery.k8s.io/v1/NS/endpointslices"


def test_endpoint_slices_copy_the_labels_of_a_service(world: PolicyWorld, cluster: Cluster) -> None:
    spec = _spec("", "services", _SLICED)
    strict = Terms(writers=Writers(sharders=(SHARDER,), exempt=()))
    rings = make_ring(SLICES, world.namespace, spec), make_ring(STRICT, world.namespace, spec)
    world.install([make_policy(rings[0]), *protect([rings[1]], {}, strict)])

    def marks(service: str, ring: str) -> Callable[[], Marks | None]:
        def read() -> Marks | None:
            labelled = (each.metadata.labels for each in _listed(world, ENDPOINT_SLICES))
            return next((read_marks(each, ring) for each in labelled if each.get(_OF) == service), None)

        return read

    def make(service: str, ring: str) -> None:
        labels = read_labels("shard=web-0 epoch=1", ring)
        ports = {"selector": {"app": "shop"}, "ports": [{"port": 80}]}
        body = {"metadata": {"name": service, "labels": labels}, "spec": ports}
        done(world.ask("POST", world.path("services"), body, who="sharder"))

    make("shop", SLICES)
    wait(lambda: marks("shop", SLICES)() == Marks("web-0", 1), "the slice has the labels of its Service")
    (service,) = _ours(world, "api/v1/NS/services")
    _mark(world, "api/v1/NS/services", service, "drain=web-1 until=100", SLICES)
    wait(lambda: marks("shop", SLICES)() == Marks("web-0", 1, "web-1", 100), "the slice is drained, too")
    _mark(world, "api/v1/NS/services", service, "shard=web-1 epoch=2 -drain -until", SLICES, who="web-0")
    wait(lambda: marks("shop", SLICES)() == Marks("web-1", 2), "the slice follows its Service")

    # Without the exemption the controller cannot make a slice for a Service of that ring at all.
    make("refused", STRICT)
    wait(lambda: f"the labels of the ring {STRICT} are" in cluster.plane.log(PROGRAM), "the controller is refused")
    assert marks("refused", STRICT)() is None


_OF = "kubernetes.io/service-name"
