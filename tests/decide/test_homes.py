"""The steps of a ring by example: what the brake holds, what a request becomes, and whom an item passes by."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.partition_driver import ASSIGNED, PENDING, REQUESTED, UNASSIGNED, kinds, nodes, told

from poise.decide.homes import Homes, plan_homes
from poise.decide.partition_facts import Facts
from poise.decide.partition_values import MoveBudgets, Node, NodeState, Partition, PartitionPlan, PartitionPolicy
from poise.decide.ring import Ring

FREE = MoveBudgets(None, None, None)
KEYS = [f"key-{number}" for number in range(40)]


def plan(
    listed: Iterable[Partition],
    known: list[Node],
    *,
    beyond: Iterable[Partition] = (),
    policy: str = "ring",
    budgets: MoveBudgets = FREE,
    braked: bool = False,
) -> PartitionPlan:
    facts = Facts(
        rows=list(listed),
        beyond=list(beyond),
        nodes={node.name: node for node in known},
        active=[node.name for node in known if node.state is NodeState.ACTIVE],
        now_s=0.0,
        policy=PartitionPolicy(0, budgets=budgets),
    )
    homes = Homes(policy, {node.name: 100 for node in known})
    return plan_homes(facts, homes, braked=braked)


def home(key: str, *members: str) -> str:
    found = Ring(members).owner(key)
    assert found is not None
    return found


def held(owner: str, keys: Iterable[str] = KEYS) -> list[Partition]:
    return [Partition(key, ASSIGNED, owner, epoch=1, confirmed=True) for key in keys]


def at_home_with(member: str, *members: str) -> str:
    return next(key for key in KEYS if home(key, *members) == member)


def test_the_brake_holds_moves_back_and_gives_what_is_free() -> None:
    free = Partition("free", UNASSIGNED)
    braked = plan([*held("a"), free], nodes("a b"), braked=True)
    assert set(told(braked, "assign")) == {"free"}
    assert kinds(braked) == {"assign": 1}
    assert {wait.code for wait in braked.moves_waiting} == {"brake"}
    assert kinds(plan([*held("a"), free], nodes("a b")))["release"] == len(braked.moves_waiting) > 0


def test_a_home_that_never_confirmed_an_item_is_passed_by() -> None:
    key = at_home_with("a", "a", "b")
    assert told(plan([Partition(key, UNASSIGNED, offers={"a": 3})], nodes("a b")), "assign") == {key: (None, "b")}
    assert told(plan([Partition(key, UNASSIGNED, offers={"a": 2})], nodes("a b")), "assign") == {key: (None, "a")}
    lonely = plan([Partition(key, UNASSIGNED, offers={"a": 3})], nodes("a"))
    assert lonely.steps == []
    assert lonely.unowned == {key: "offered 3 times to a and never confirmed"}


def test_nothing_is_asked_for_on_behalf_of_a_home_that_never_confirmed_it() -> None:
    key = at_home_with("a", "a", "b")
    assert plan([Partition(key, ASSIGNED, "b", epoch=4, offers={"a": 3})], nodes("a b")).steps == []


def test_a_release_for_a_target_that_is_gone_gets_another_one() -> None:
    key = at_home_with("b", "a", "b")
    for state in (PENDING, REQUESTED):
        row = Partition(key, state, "c", "x", 1)
        after = plan([row], nodes("a b", draining="c", gone="x"))
        assert told(after, "release") == {key: ("c", "b")}


def test_an_acknowledged_release_for_a_target_that_is_gone_and_whose_home_is_its_owner_loses_the_target() -> None:
    key = at_home_with("a", "a", "b")
    assert told(plan([Partition(key, PENDING, "a", "x", 1)], nodes("a b", gone="x")), "release") == {key: ("a", None)}


@pytest.mark.parametrize(
    ("budgets", "most"),
    [
        (MoveBudgets(3, None, None), 3),
        (MoveBudgets(None, 2, None), 2),
        (MoveBudgets(None, None, 1), 1),
        (MoveBudgets(0, 0, 0), 0),
    ],
)
def test_each_limit(budgets: MoveBudgets, most: int) -> None:
    asked = plan(held("a"), nodes("a b"), budgets=budgets)
    assert kinds(asked)["release"] == most
    assert {wait.code for wait in asked.moves_waiting} == {"budget"}


def test_what_the_ring_no_longer_lists_is_given_up_within_the_budget() -> None:
    asked = plan([], nodes("a"), beyond=held("a", KEYS[:5]), budgets=MoveBudgets(2, None, None))
    assert kinds(asked) == {"release": 2}
    assert len(asked.moves_waiting) == 3
    assert kinds(plan([], nodes("a"), beyond=[Partition("x", UNASSIGNED)])) == {"retire": 1}


def test_nothing_new_is_meant_for_a_member_that_is_late_and_nothing_of_its_own_is_moved() -> None:
    late = [Partition(key, ASSIGNED, "late", epoch=1, lease_until_s=5.0) for key in KEYS[:10]]
    even = [*held("a", KEYS[10:20]), *held("b", KEYS[20:30])]
    assert plan([*late, *even], nodes("a b", gone="late"), policy="balanced").steps == []


def test_what_waits_for_a_restart_says_so() -> None:
    row = Partition("key-0", UNASSIGNED, target="x", epoch=1, deadline_s=20.0, reason="restart")
    waits = plan([row], nodes("a", gone="x"))
    assert waits.steps == []
    assert waits.unowned == {"key-0": "waits 20 s more for x to restart"}
