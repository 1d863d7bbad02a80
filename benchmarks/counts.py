"""Division of replicas, the partition planner and the start of the command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

from benchmarks.measure import Row, command_cpu_s, cpu_s
from poise.decide.divide import divide
from poise.decide.fleet import divide_fleet
from poise.decide.partition_values import Node, Partition, PartitionPolicy, PartitionState
from poise.decide.partitions import plan_partitions


def rows() -> Iterator[Row]:
    """Measure what is not about items."""
    draw = Random(1)
    fleet = {f"workload-{number}": draw.randrange(1, 50) for number in range(10_000)}
    weights = {name: {f"cluster-{number}": draw.randrange(1, 10) for number in range(10)} for name in fleet}
    yield Row("divide_fleet, 10,000 workloads x 10 clusters", cpu_s(lambda: divide_fleet(fleet, weights)), 2, "s")
    wide = {f"cluster-{number}": draw.randrange(1, 10) for number in range(1000)}
    yield Row("divide, 1,000,000 replicas over 1,000 clusters", cpu_s(lambda: divide(1_000_000, wide)) * 1000, 20, "ms")
    yield from _partitions()
    command = str(Path(sys.executable).with_name("poise"))
    yield Row("poise --help, CPU", command_cpu_s(command, "--help"), 0.3, "s")


def _partitions() -> Iterator[Row]:
    nodes = [Node(f"n{number}") for number in range(400)]
    policy = PartitionPolicy(count=10_000, seed="bench")
    fresh = cpu_s(lambda: plan_partitions([], nodes, now_s=0, policy=policy))
    yield Row("plan_partitions, 10,000 on 400 nodes, nothing assigned yet", fresh * 1000, 300, "ms")
    placed = plan_partitions([], nodes, now_s=0, policy=policy).assignment
    held = [Partition(item, PartitionState.ASSIGNED, owner, epoch=1, confirmed=True) for item, owner in placed.items()]
    lost = cpu_s(lambda: plan_partitions(held, nodes[1:], now_s=0, policy=policy))
    yield Row("plan_partitions, 10,000 on 400 nodes, one lost", lost * 1000, 300, "ms")
    idle = cpu_s(lambda: plan_partitions(held, nodes, now_s=0, policy=policy))
    yield Row("plan_partitions, 10,000 on 400 nodes, nothing to do", idle * 1000, 300, "ms")
