"""The rules of the kinds that hold items: TargetPool, PartitionSet, ShardRing."""

from __future__ import annotations

from collections.abc import Iterable

from poise.documents.faults import Faults, at_key
from poise.documents.rules.guards import check_guards
from poise.documents.rules.open_values import check_open
from poise.documents.rules.shared import exactly_one, in_calendar, unique
from poise.model import KeySource, PartitionRow, PartitionSet, ShardRing, Target, TargetPool

_TOKENS_MAX = 2_000_000
_LABEL_LENGTH_MAX = 63  # Ring names and instance ids become label values on Kubernetes.


def target_pool(pool: TargetPool, faults: Faults) -> None:
    """One source of pods and one of targets; no weights with `hashed`; addresses where something is delivered."""
    pods, targets = pool.spec.pods, pool.spec.targets
    sources = {"endpoints": pods.endpoints, "statefulSet": pods.stateful_set, "selector": pods.selector}
    exactly_one("$.spec.pods", sources, faults)
    exactly_one(
        "$.spec.targets",
        {"list": targets.listed, "file": targets.file, "http": targets.http, "configMap": targets.config_map},
        faults,
    )
    unique("$.spec.pods.endpoints", [endpoint.name for endpoint in pods.endpoints or ()], faults)
    _endpoints(pool, faults)
    listed = targets.listed or []
    unique("$.spec.targets.list", [target.name for target in listed], faults)
    open_configs(((f"$.spec.targets.list[{place}]", target) for place, target in enumerate(listed)), faults)
    if pool.spec.delivery is not None:
        for name, sent in (
            ("subscriptions", pool.spec.delivery.subscriptions),
            ("outputs", pool.spec.delivery.outputs),
        ):
            for key, value in sent.items():
                check_open(value, at_key(f"$.spec.delivery.{name}", key), faults)
    check_guards(pool.spec.guards, faults)
    unique("$.status.members", [member.name for member in pool.status.members], faults)


def _endpoints(pool: TargetPool, faults: Faults) -> None:
    delivery = pool.spec.delivery
    for place, endpoint in enumerate(pool.spec.pods.endpoints or ()):
        path = f"$.spec.pods.endpoints[{place}]"
        if endpoint.weight is not None and pool.spec.policy == "hashed":
            faults.rule(f"{path}.weight", "policy hashed has no weights; use sticky", "$.spec.policy")
        if endpoint.url is None and delivery is not None and delivery.kind != "pull":
            message = f"required field is missing: delivery {delivery.kind} sends to it"
            faults.rule(f"{path}.url", message, "$.spec.delivery.kind")


def open_configs(targets: Iterable[tuple[str, Target]], faults: Faults) -> None:
    """Check what each target hands on to its collector."""
    for path, target in targets:
        if target.config:
            check_open(target.config, f"{path}.config", faults)


def partition_set(one: PartitionSet, faults: Faults) -> None:
    """Settings that leave a worker time to act and to stop; rows with an owner exactly where their state has one."""
    spec = one.spec
    if spec.margin_seconds >= spec.lease_seconds:
        message = f"expected < {spec.lease_seconds}, the leaseSeconds, got {spec.margin_seconds}: nobody could ever act"
        faults.rule("$.spec.marginSeconds", message, "$.spec.leaseSeconds")
    room = spec.margin_seconds + spec.grace_seconds
    if spec.stop_seconds > room:
        message = f"expected <= {room}, marginSeconds + graceSeconds, got {spec.stop_seconds}: two could act at once"
        faults.rule("$.spec.stopSeconds", message, "$.spec.marginSeconds", "$.spec.graceSeconds")
    check_guards(spec.guards, faults)
    unique("$.status.nodes", [node.name for node in one.status.nodes], faults)
    unique("$.status.partitions", [row.id for row in one.status.partitions], faults, field=".id")
    for place, row in enumerate(one.status.partitions):
        _row(f"$.status.partitions[{place}]", row, faults)


def _row(path: str, row: PartitionRow, faults: Faults) -> None:
    if row.state == "Unassigned" and row.owner is not None:
        faults.rule(f"{path}.owner", "an Unassigned partition has no owner", f"{path}.state")
    if row.state != "Unassigned" and row.owner is None:
        faults.rule(f"{path}.owner", f"required field is missing: the state is {row.state}", f"{path}.state")
    moments = (("leaseUntil", row.lease_until), ("deadline", row.deadline), ("since", row.since))
    in_calendar(((f"{path}.{name}", moment) for name, moment in moments), faults)


def shard_ring(ring: ShardRing, faults: Faults) -> None:
    """Names that fit into labels; one source of the key; no object, resource or instance twice."""
    instances = ring.status.instances
    _as_label("$.metadata.name", ring.metadata.name, faults)
    for place, instance in enumerate(instances):
        _as_label(f"$.status.instances[{place}].name", instance.name, faults)
    unique("$.status.instances", [instance.name for instance in instances], faults)
    unique("$.spec.objects", ring.spec.objects, faults, field="")
    _resources(ring, faults)
    if isinstance(key := ring.spec.key, KeySource):
        exactly_one("$.spec.key", {"label": key.label, "jsonPath": key.json_path}, faults)
    tokens = sum(instance.tokens or ring.spec.tokens for instance in instances)
    if tokens > _TOKENS_MAX:
        faults.rule("$.status.instances", f"expected at most {_TOKENS_MAX:,} tokens together, got {tokens:,}")
    check_guards(ring.spec.guards, faults)


def _resources(ring: ShardRing, faults: Faults) -> None:
    resources = ring.spec.resources
    unique("$.spec.resources", [(each.group, each.resource) for each in resources], faults, field="")
    for place, resource in enumerate(resources):
        controlled = [(each.group, each.resource) for each in resource.controlled]
        unique(f"$.spec.resources[{place}].controlled", controlled, faults, field="")


def _as_label(path: str, name: str, faults: Faults) -> None:
    if len(name) > _LABEL_LENGTH_MAX:
        faults.rule(path, f"expected at most {_LABEL_LENGTH_MAX} characters, got {len(name)}")
