"""Members against their exact share: floor and ceiling are those from which the planner chooses its quotas."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.serve.live_server import DIVISION, ORDERS, POOL
from tests.serve.told_store import ToldStore

from poise.decide.shares import Shares, fair_shares
from poise.jobs.snapshots import plan_snapshot
from poise.move.executor import put_set, snapshot
from poise.serve import parties
from poise.serve.facade import MemberView
from poise.stores.base import Transaction


def bounds(views: list[MemberView]) -> dict[str, tuple[int | None, int | None]]:
    return {view.name: (view.floor, view.ceiling) for view in views}


def test_a_set_shares_by_weight_over_who_takes() -> None:
    told = ToldStore()
    told.put(ORDERS, partitions=10, weights={"n1": 2})
    told.join("orders", "n1", "n2", "n3")
    told.settle("orders", "n1", "n2", "n3")
    views = told.api.members("PartitionSet", "orders")
    assert bounds(views) == {"n1": (5, 5), "n2": (2, 3), "n3": (2, 3)}
    told.api.drain("PartitionSet", "orders", "n3", True)
    views = told.api.members("PartitionSet", "orders")
    assert bounds(views) == {"n1": (6, 7), "n2": (3, 4), "n3": (0, 0)}, "who drains has no share"


def test_bounds_that_ignore_weights_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def equal(total: int, weights: list[int], lower: list[int], upper: list[int | None]) -> Shares:
        return fair_shares(total, [1] * len(weights), lower, upper)

    monkeypatch.setattr(parties, "fair_shares", equal)
    with pytest.raises(AssertionError):
        test_a_set_shares_by_weight_over_who_takes()


@given(st.integers(0, 30), st.lists(st.integers(0, 5), min_size=1, max_size=6))
@settings(max_examples=40, deadline=None)
def test_every_quota_of_the_planner_lies_between_floor_and_ceiling(count: int, weights: list[int]) -> None:
    told = ToldStore()
    names = [f"n{number}" for number in range(len(weights))]
    told.put(ORDERS, partitions=count, weights=dict(zip(names, weights, strict=True)))
    told.join("orders", *names)
    plan = plan_snapshot(told.store.view("orders", lambda tx: snapshot(tx, "orders")))
    ends = Counter(plan.assignment.values())
    for view in told.api.members("PartitionSet", "orders"):
        assert view.floor is not None
        assert view.ceiling is not None
        assert view.floor <= ends[view.name] <= view.ceiling <= view.floor + 1


@pytest.mark.parametrize(
    ("policy", "expected"), [("sticky", {"a": (2, 2), "b": (8, 8)}), ("hashed", {"a": (None, None), "b": (None, None)})]
)
def test_a_pool_shares_within_capacities(policy: str, expected: dict[str, tuple[int | None, int | None]]) -> None:
    told = ToldStore()
    endpoints = [{"name": "a", "url": "http://127.0.0.1:9", "capacity": 2}, {"name": "b", "url": "http://127.0.0.1:8"}]
    told.put(POOL, policy=policy, pods={"endpoints": endpoints})
    where = "TargetPool/core"

    def list_targets(tx: Transaction) -> None:
        job = tx.job()
        assert job is not None
        put_set(tx, job, [f"t{number}" for number in range(10)])

    told.store.transact(where, list_targets)
    told.join(where, "a", "b", process="pod")
    assert bounds(told.api.members("TargetPool", "core")) == expected


@pytest.mark.parametrize(("policy", "expected"), [("ring", (None, None)), ("balanced", (2, 3))])
def test_a_ring_knows_no_shares_unless_it_is_balanced(policy: str, expected: tuple[int | None, int | None]) -> None:
    told = ToldStore()
    told.put({"kind": "ShardRing", "metadata": {"name": "web"}, "spec": {"policy": policy, "objects": list("abcde")}})
    told.join("web", "x", "y")
    assert bounds(told.api.members("ShardRing", "web")) == {"x": expected, "y": expected}


def test_a_cluster_says_its_exact_share_as_a_fraction() -> None:
    told = ToldStore()
    told.put(DIVISION, clusters=[{"name": "m1", "weight": 2}, {"name": "m2"}])
    views = told.api.members("ReplicaDivision", "shop")
    assert [(view.name, view.quota, view.floor, view.ceiling) for view in views] == [
        ("m1", "14/3", 4, 5),
        ("m2", "7/3", 2, 3),
    ]


def test_who_is_gone_says_since_when() -> None:
    told = ToldStore()
    told.put(ORDERS)
    told.join("orders", "n1")
    assert told.api.members("PartitionSet", "orders")[0].since is None
    told.now_s += 60
    gone = told.api.members("PartitionSet", "orders")[0]
    assert gone.since is not None
    assert (told.now() - gone.since).total_seconds() == 50
