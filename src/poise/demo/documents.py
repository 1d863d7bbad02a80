"""The five jobs of the demo. Leases are short, so that what is broken heals while somebody looks.

Law: (lease - margin)·(1 + clock rate error) + stop <= lease + grace, as for every set; here 5 + 1 <= 7.
"""

from __future__ import annotations

from collections.abc import Mapping

from poise.demo.names import FLEET, GATEWAY, ORDERS, ROUTERS, SPOT
from poise.model import (
    Budget,
    CapacitySplit,
    Cluster,
    Delivery,
    DividedWorkload,
    Document,
    Endpoint,
    Metadata,
    PartitionSet,
    Pods,
    ReplicaDivision,
    ShardRing,
    SplitWorkload,
    Target,
    TargetPool,
    Targets,
)
from poise.model.capacity_split import CapacityGuards, CapacitySplitSpec
from poise.model.partition_set import PartitionGuards, PartitionSetSpec
from poise.model.replica_division import ReplicaDivisionSpec
from poise.model.shard_ring import ShardRingSpec
from poise.model.target_pool import PoolGuards, TargetPoolSpec

CLUSTERS = {"eu-west": 3, "eu-north": 2, "us-east": 2, "us-west": 1, "ap-south": 1}
RISING, RISEN = "us-west", 3  # The cluster whose weight the demo changes, and to what.
GRACE_S = 1
_SITES = ("paris", "london", "madrid", "oslo", "berlin")
_TEAMS = ("cart", "search", "stock", "mail", "login", "prices", "orders", "reviews", "images", "reports")
_SERVICES = 20
_ABOUT = {"poise.dev/demo": "true"}
_SIMULATED = {**_ABOUT, "simulated": "true"}


def documents(ports: Mapping[str, int]) -> list[Document]:
    """Give the five documents; `ports` says where each collector listens."""
    return [_orders(), _routers(ports), _gateway(), _fleet(), _spot()]


def endpoints(ports: Mapping[str, int]) -> list[Endpoint]:
    """Name the collectors with their addresses on this machine."""
    return [Endpoint(name, f"http://127.0.0.1:{port}") for name, port in ports.items()]


def _orders() -> PartitionSet:
    spec = PartitionSetSpec(
        partitions=64,
        lease_seconds=6,
        grace_seconds=GRACE_S,
        release_seconds=10,
        margin_seconds=1,
        stop_seconds=1,
        restart_grace_seconds=5,
        guards=PartitionGuards(moves_in_flight_max=12, per_source_max=6, per_target_max=6),
    )
    return PartitionSet(metadata=Metadata(ORDERS, labels=_ABOUT), spec=spec)


def _routers(ports: Mapping[str, int]) -> TargetPool:
    """The routers themselves are made up: collectors count readings of them, and no network is asked."""
    targets = [
        Target(f"router-{number:02}", f"192.0.2.{number}:57400", {"site": _SITES[number % len(_SITES)]})
        for number in range(1, 61)
    ]
    spec = TargetPoolSpec(
        pods=Pods(endpoints=endpoints(ports)),
        targets=Targets(listed=targets),
        gone_after_seconds=6,
        delivery=Delivery("gnmic", subscriptions={"interfaces": {"paths": ["/interfaces"]}}),
        guards=PoolGuards(moves_in_flight_max=3),
    )
    return TargetPool(metadata=Metadata(ROUTERS, labels=_ABOUT), spec=spec)


def _gateway() -> ShardRing:
    objects = [f"apps/Deployment/{team}/{name}" for team in _TEAMS for name in ("api", "cache", "web", "worker")]
    spec = ShardRingSpec(
        objects=objects, lease_seconds=6, drain_timeout_seconds=10, restart_grace_seconds=5, brake_percent=60
    )
    return ShardRing(metadata=Metadata(GATEWAY, labels=_ABOUT), spec=spec)


def _fleet() -> ReplicaDivision:
    workloads = [
        DividedWorkload(f"{team}-{number:02}", 1 + (7 * number + 3 * place) % 11)
        for place, team in enumerate(_TEAMS)
        for number in range(1, _SERVICES + 1)
    ]
    clusters = [Cluster(name, weight) for name, weight in CLUSTERS.items()]
    spec = ReplicaDivisionSpec(clusters=clusters, workloads=workloads, moves_max=40)
    return ReplicaDivision(metadata=Metadata(FLEET, labels=_ABOUT), spec=spec)


def _spot() -> CapacitySplit:
    """Nothing of this one runs: a replayed trace takes spot replicas away, and what would be started is counted."""
    workloads = [
        SplitWorkload("api", 20, spot_percentage=70, min_on_demand=4),
        SplitWorkload("batch", 12, spot_percentage=100, min_on_demand=0),
        SplitWorkload("web", 10, spot_percentage=60, min_on_demand=3),
    ]
    guards = CapacityGuards(cooldown_seconds=3, budgets=[Budget("50%", 60)])
    spec = CapacitySplitSpec(workloads=workloads, guards=guards)
    return CapacitySplit(metadata=Metadata(SPOT, labels=_SIMULATED), spec=spec)
