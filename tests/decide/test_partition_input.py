"""What the partition planner refuses, each with its place."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.partition_driver import (
    ASSIGNED,
)

from poise.decide.partition_values import (
    MoveBudgets,
    Node,
    Partition,
    PartitionPolicy,
)
from poise.decide.partitions import plan_partitions
from poise.errors import InvalidSpec

GOOD_ROW, GOOD_NODE, GOOD_POLICY = Partition("0"), Node("n1"), PartitionPolicy(1)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"id": "x"}, "$.partitions[0].id: expected a number such as '7', got 'x'"),
        ({"id": "007"}, "$.partitions[0].id: expected a number such as '7', got '007'"),
        ({"id": "٣"}, "$.partitions[0].id: expected a number such as '7', got '٣'"),
        ({"id": "9" * 5000}, "$.partitions[0].id: expected a number such as '7', got '" + "9" * 39),
        ({"id": 7}, "$.partitions[0].id: expected a number such as '7', got 7"),
        ({"state": "Lost"}, "$.partitions[0].state: expected one of Assigned, PendingRelease, Requested"),
        ({"state": ["Lost"]}, "$.partitions[0].state: expected one of Assigned"),
        ({"state": ASSIGNED}, "$.partitions[0].owner: expected an owner while Assigned"),
        ({"owner": "n1"}, "$.partitions[0].owner: expected no owner while Unassigned"),
        ({"state": ASSIGNED, "owner": ""}, "$.partitions[0].owner: expected the name of a node, got ''"),
        ({"target": 3}, "$.partitions[0].target: expected the name of a node, got 3"),
        ({"epoch": -1}, "$.partitions[0].epoch: expected >= 0, got -1"),
        ({"epoch": True}, "$.partitions[0].epoch: expected a whole number, got True"),
        ({"owner_incarnation": 1.5}, "$.partitions[0].owner_incarnation: expected a whole number, got 1.5"),
        ({"lease_until_s": float("nan")}, "$.partitions[0].lease_until_s: expected seconds, got nan"),
        ({"deadline_s": "soon"}, "$.partitions[0].deadline_s: expected seconds, got 'soon'"),
        ({"offers": {"n1": 0.5}}, "$.partitions[0].offers['n1']: expected a whole number, got 0.5"),
        ({"offers": []}, "$.partitions[0].offers: expected a mapping of names, got list"),
        ({"offers": 3}, "$.partitions[0].offers: expected a mapping of names, got int"),
    ],
)
def test_a_bad_row_is_refused_with_its_place(changes: dict[str, object], fault: str) -> None:
    bad = replace(GOOD_ROW, **changes)
    with pytest.raises(InvalidSpec) as caught:
        plan_partitions([bad], [GOOD_NODE], now_s=0.0, policy=GOOD_POLICY)
    assert str(caught.value).startswith(fault)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"state": "asleep"}, "$.nodes[0].state: expected one of active, draining, gone, got 'asleep'"),
        ({"weight": -1}, "$.nodes[0].weight: expected >= 0, got -1"),
        ({"weight": 1.0}, "$.nodes[0].weight: expected a whole number, got 1.0"),
        ({"incarnation": "2"}, "$.nodes[0].incarnation: expected a whole number, got '2'"),
        ({"name": ""}, "$.nodes[0]: a name may not be empty"),
        ({"name": "\ud800"}, "$.nodes[0]: a name must be text that UTF-8 can hold"),
    ],
)
def test_a_bad_node_is_refused_with_its_place(changes: dict[str, object], fault: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        plan_partitions([GOOD_ROW], [replace(GOOD_NODE, **changes)], now_s=0.0, policy=GOOD_POLICY)
    assert str(caught.value) == fault


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"count": -1}, "$.policy.count: expected >= 0, got -1"),
        ({"count": 1e308}, "$.policy.count: expected a whole number, got 1e+308"),
        ({"count": 10**30}, f"$.policy.count: expected <= 100000, got {10**30}"),
        ({"lease_s": -1}, "$.policy.lease_s: expected >= 0, got -1"),
        ({"grace_s": True}, "$.policy.grace_s: expected seconds, got True"),
        ({"release_s": 10**400}, "$.policy.release_s: expected seconds, got 1000"),
        ({"on_release_timeout": "hope"}, "$.policy.on_release_timeout: expected one of revoke, wait, got 'hope'"),
        ({"budgets": 8}, "$.policy.budgets: expected MoveBudgets, got int"),
        ({"budgets": MoveBudgets(-1)}, "$.policy.budgets.moves_in_flight_max: expected >= 0, got -1"),
        ({"weights": {"n1": -2}}, "$.policy.weights['n1']: expected >= 0, got -2"),
        ({"weights": ["n1"]}, "$.policy.weights: expected a mapping of names, got list"),
        ({"debt": {"n1": float("inf")}}, "$.policy.debt['n1']: expected a number, got inf"),
        ({"debt": {"n1": True}}, "$.policy.debt['n1']: expected a number, got True"),
        ({"debt": 1}, "$.policy.debt: expected a mapping of names, got int"),
        ({"seed": None}, "$.policy.seed: expected text that UTF-8 can hold, got None"),
        ({"seed": "\udfff"}, "$.policy.seed: expected text that UTF-8 can hold, got "),
    ],
)
def test_a_bad_policy_is_refused_with_its_place(changes: dict[str, object], fault: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        plan_partitions([GOOD_ROW], [GOOD_NODE], now_s=0.0, policy=replace(GOOD_POLICY, **changes))
    assert str(caught.value).startswith(fault)


def test_duplicates_and_strangers_are_refused_with_their_place() -> None:
    for bad_rows, bad_nodes, fault in [
        ([GOOD_ROW, GOOD_ROW], [GOOD_NODE], "$.partitions[1].id: duplicate of [0]"),
        ([GOOD_ROW], [GOOD_NODE, GOOD_NODE], "$.nodes[1]: duplicate of [0]"),
        ([{"id": "0"}], [GOOD_NODE], "$.partitions[0]: expected a Partition, got dict"),
        ([GOOD_ROW], ["n1"], "$.nodes[0]: expected a Node, got str"),
    ]:
        with pytest.raises(InvalidSpec) as caught:
            plan_partitions(bad_rows, bad_nodes, now_s=0.0, policy=GOOD_POLICY)  # type: ignore[arg-type]  # on purpose
        assert str(caught.value) == fault
    for now_s in (float("nan"), float("inf"), True, "now"):
        with pytest.raises(InvalidSpec, match=r"^\$\.now_s: expected seconds"):
            plan_partitions([], [], now_s=now_s, policy=GOOD_POLICY)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(InvalidSpec, match=r"^\$\.policy: expected a PartitionPolicy, got int"):
        plan_partitions([], [], now_s=0.0, policy=3)  # type: ignore[arg-type]  # on purpose
