"""Small worlds of each kind, and what events make of them."""

from __future__ import annotations

from poise.documents.faults import Faults
from poise.model.replica_division import Cluster
from poise.sim.events import Event
from poise.sim.worlds import FleetWorld, ItemWorld, Member, World, happen

POOL = ItemWorld(
    "TargetPool",
    "core",
    {"pod-0": Member(), "pod-1": Member(), "pod-2": Member(draining=True)},
    dict.fromkeys(["router1", "router2", "router3"]),
    joins_as=Member(capacity=40),
)
SET = ItemWorld("PartitionSet", "orders", {"n1": Member()}, dict.fromkeys("012"), numbered=True)
FLEET = FleetWorld(
    "ReplicaDivision",
    "shop",
    {"east": Cluster("east", weight=2), "west": Cluster("west")},
    {"cart": 7, "mail": 3},
    draining=frozenset({"west"}),
)


def after(world: World, *events: Event) -> World:
    faults = Faults("")
    for event in events:
        world = happen(world, event, faults)
    faults.raise_any()
    return world
