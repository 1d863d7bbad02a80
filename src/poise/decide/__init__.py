"""Pure functions: facts in, plan out. No clock, I/O, randomness, logging or globals: time and seed are arguments."""

from __future__ import annotations

from poise.decide.balance import rebalance
from poise.decide.divide import divide, replay
from poise.decide.division import Division, Record
from poise.decide.explain import Alternative, Explanation, explain
from poise.decide.fallback import fall_back
from poise.decide.fleet import divide_fleet
from poise.decide.partition_values import (
    MoveBudgets,
    Node,
    NodeState,
    Partition,
    PartitionPlan,
    PartitionPolicy,
    PartitionState,
    Step,
)
from poise.decide.partitions import plan_partitions
from poise.decide.plan import Certificate, Move, Plan
from poise.decide.plan_check import check
from poise.decide.pools import PoolSplit, split_pools
from poise.decide.ramp import Interruption, RampPolicy, RampState, SpotPods, ramp
from poise.decide.rendezvous import place
from poise.decide.ring import Ring
from poise.decide.scores import score
from poise.decide.split import Action, Split, next_action, split
from poise.errors import InvalidSpec
from poise.model.capacity_split import Pool

__all__ = [
    "Action",
    "Alternative",
    "Certificate",
    "Division",
    "Explanation",
    "Interruption",
    "InvalidSpec",
    "Move",
    "MoveBudgets",
    "Node",
    "NodeState",
    "Partition",
    "PartitionPlan",
    "PartitionPolicy",
    "PartitionState",
    "Plan",
    "Pool",
    "PoolSplit",
    "RampPolicy",
    "RampState",
    "Record",
    "Ring",
    "Split",
    "SpotPods",
    "Step",
    "check",
    "divide",
    "divide_fleet",
    "explain",
    "fall_back",
    "next_action",
    "place",
    "plan_partitions",
    "ramp",
    "rebalance",
    "replay",
    "score",
    "split",
    "split_pools",
]
