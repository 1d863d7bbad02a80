"""Documents become worlds."""

from __future__ import annotations

from poise.documents import load
from poise.model.replica_division import Cluster
from poise.sim.reading import world_of
from poise.sim.worlds import FleetWorld, ItemWorld, Member

DOCUMENTS = """
kind: TargetPool
apiVersion: poise.dev/v1alpha1
metadata: {name: core}
spec:
  capacity: 40
  pods: {endpoints: [{name: g1, weight: 2}, {name: g0, capacity: 60}, {name: g2}, {name: g3}]}
  targets: {list: [{name: r2}, {name: r1}]}
status:
  members: [{name: g2, state: draining}, {name: g3, state: gone}]
  assignment: {r1: g0}
---
kind: PartitionSet
apiVersion: poise.dev/v1alpha1
metadata: {name: orders}
spec: {partitions: 3, weights: {n1: 3}}
status:
  nodes: [{name: n2, state: draining}, {name: n1, weight: 2}, {name: n0, state: gone}]
  partitions: [{id: "1", state: Assigned, owner: n1, epoch: 1}]
---
kind: ShardRing
apiVersion: poise.dev/v1alpha1
metadata: {name: web}
spec: {objects: [b, a], tokens: 50}
status: {instances: [{name: w1, tokens: 80}, {name: w0}, {name: w2, state: dead}], assignment: {a: w0}}
---
kind: ReplicaDivision
apiVersion: poise.dev/v1alpha1
metadata: {name: shop}
spec:
  clusters: [{name: west, weight: 2, max: 9}, {name: east}]
  workloads: [{name: cart, replicas: 7}]
  movesMax: 3
  mix: 0.5
  seed: s
status: {divisions: {cart: {replicas: 7, weights: {east: 1}, strategy: StaticWeight, result: {east: 7}}}}
"""


def test_documents_become_worlds() -> None:
    pool_, set_, ring, shop = (world_of(document) for document in load(DOCUMENTS, "x.yaml"))
    assert pool_ == ItemWorld(
        "TargetPool",
        "core",
        {"g0": Member(capacity=60), "g1": Member(weight=2, capacity=40), "g2": Member(capacity=40, draining=True)},
        dict.fromkeys(["r1", "r2"]),
        joins_as=Member(capacity=40),
        start={"r1": "g0"},
    )
    assert set_ == ItemWorld(
        "PartitionSet",
        "orders",
        {"n1": Member(weight=3), "n2": Member(draining=True)},
        dict.fromkeys("012"),
        numbered=True,
        start={"1": "n1"},
    )
    assert ring == ItemWorld(
        "ShardRing",
        "web",
        {"w0": Member(tokens=50), "w1": Member(tokens=80)},
        dict.fromkeys("ab"),
        joins_as=Member(tokens=50),
        start={"a": "w0"},
    )
    assert shop == FleetWorld(
        "ReplicaDivision",
        "shop",
        {"east": Cluster("east"), "west": Cluster("west", weight=2, max=9)},
        {"cart": 7},
        mix=0.5,
        moves_max=3,
        seed="s",
        start={"cart": {"east": 7}},
    )
