"""The partition planner by example: the scenarios of the design by their names."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import NamedTuple

import pytest
from msgspec.structs import replace
from tests.partition_driver import (
    ASSIGNED,
    PENDING,
    REQUESTED,
    UNASSIGNED,
    Settled,
    answer,
    assigned,
    kinds,
    nodes,
    rows,
    sound_plan,
    told,
    write,
)

from poise.decide.partition_check import check_partitions
from poise.decide.partition_values import (
    Node,
    NodeState,
    Partition,
    PartitionPolicy,
)
from poise.decide.partitions import plan_partitions

FIVE = nodes("n1 n2 n3 n4 n5")


class Scenario(NamedTuple):
    size: int
    before: list[Partition]
    known: list[Node]
    loads: list[int]
    releases: int


SCENARIOS = {
    "Even": Scenario(15, [], FIVE, [3, 3, 3, 3, 3], 0),
    "Remainder": Scenario(16, [], FIVE, [3, 3, 3, 3, 4], 0),
    "Over-allocated": Scenario(15, assigned(n1=5, n2=5), FIVE, [3, 3, 3, 3, 3], 4),
    "Inactive owners": Scenario(
        12, assigned(n1=3, n2=3, n3=2, n4=2, n5=2), nodes("n1 n2 n3", gone="n4 n5"), [4, 4, 4], 0
    ),
    "No active node": Scenario(6, assigned(n1=3, n2=3), nodes("", gone="n1 n2"), [], 0),
    "One node": Scenario(7, assigned(n2=3), nodes("n1"), [7], 0),
    "Zero partitions": Scenario(0, [], FIVE, [0, 0, 0, 0, 0], 0),
    "More nodes than partitions": Scenario(3, [], FIVE, [0, 0, 1, 1, 1], 0),
    "Two-phase": Scenario(14, assigned(n1=5, n2=4, n3=4), FIVE, [2, 3, 3, 3, 3], 4),
    "Sticky when a node goes down": Scenario(15, assigned(n1=5, n2=5, n3=5), nodes("n1 n2", gone="n3"), [7, 8], 0),
    "7 on loads 2,2,3": Scenario(7, assigned(n1=2, n2=2, n3=3), nodes("n1 n2 n3"), [2, 2, 3], 0),
    "99 and 1": Scenario(100, assigned(n1=99, n2=1), nodes("n1 n2"), [50, 50], 49),
    "All draining": Scenario(4, assigned(n1=4), nodes("", draining="n1"), [], 0),
    "Drained": Scenario(6, assigned(n1=3, n2=3), nodes("n2 n3", draining="n1"), [3, 3], 3),
    "By weight": Scenario(12, assigned(n1=6, n2=6), nodes("n1 n2", n2=3), [3, 9], 3),
    "No weight anywhere": Scenario(4, [], nodes("n1 n2", n1=0, n2=0), [2, 2], 0),
    "A node that takes nothing": Scenario(4, assigned(n1=2), nodes("n1 n2", n1=0), [0, 4], 2),
    "Shrunk": Scenario(5, assigned(n1=5, n2=5), nodes("n1 n2"), [2, 3], 7),
    "Grown": Scenario(9, assigned(n1=2, n2=2), nodes("n1 n2"), [4, 5], 0),
    "Deleted": Scenario(0, assigned(n1=5, n2=5), nodes("n1 n2"), [0, 0], 10),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_settles_at(name: str) -> None:
    scenario = SCENARIOS[name]
    settled = Settled(scenario.before, scenario.known, PartitionPolicy(scenario.size))
    active = [node.name for node in scenario.known if node.state == NodeState.ACTIVE]
    loads = settled.loads()
    assert sorted(loads.get(node, 0) for node in active) == scenario.loads
    assert settled.releases.total() == scenario.releases
    assert len(settled.rows) == scenario.size


def test_no_active_node_leaves_all_unassigned_with_the_reason() -> None:
    before = assigned(n1=2)
    policy, known = PartitionPolicy(3), nodes("", gone="n1")
    settled = Settled(before, known, policy)
    assert {row.state for row in settled.rows} == {UNASSIGNED}
    assert settled.plans[-1].unowned == {"0": "no active node", "1": "no active node", "2": "no active node"}
    assert settled.plans[-1].assignment == {"0": None, "1": None, "2": None}


def test_sticky_when_a_node_goes_down() -> None:
    settled = Settled(assigned(n1=5, n2=5, n3=5), nodes("n1 n2", gone="n3"), PartitionPolicy(15))
    owners = [row.owner for row in settled.rows]
    assert owners[:10] == ["n1"] * 5 + ["n2"] * 5
    assert set(owners[10:]) == {"n1", "n2"}


@pytest.mark.parametrize("targets", [[None] * 5, ["n3", "n4", "n5", "n3", "n4"]])
def test_release_states(targets: list[str | None]) -> None:
    """3, 4, 7, 8 and 9 stay with their owners until they are released or timed out."""
    before = rows(range(3), ASSIGNED, "n1") + rows([5, 6], ASSIGNED, "n2")
    before += [Partition(str(n), PENDING, "n1", target, 1) for n, target in zip([3, 4], targets, strict=False)]
    before += [Partition(str(n), REQUESTED, "n2", target, 1) for n, target in zip([7, 8, 9], targets[2:], strict=True)]
    plan = sound_plan(before, FIVE, PartitionPolicy(15))
    assert {step.partition for step in plan.steps} == {"10", "11", "12", "13", "14"}
    assert kinds(plan) == {"assign": 5}
    settled = Settled(before, FIVE, PartitionPolicy(15))
    assert set(settled.loads().values()) == {3}


def test_mixed() -> None:
    """The 14 that are free or assigned settle at 4,4,3,3 while 2-7 stay with n1."""
    before = rows([0, 1], ASSIGNED, "n1") + rows([2, 3, 4], PENDING, "n1") + rows([5, 6, 7], REQUESTED, "n1")
    before += rows(range(8, 12), ASSIGNED, "n2") + rows([12, 13], ASSIGNED, "n3")
    known, policy = nodes("n1 n2 n3 n4"), PartitionPolicy(20)
    plan = sound_plan(before, known, policy)
    after = write(before, plan.steps, policy, 0.0)
    assert sorted(Counter(row.owner for row in after if row.state == ASSIGNED).values()) == [3, 3, 4, 4]
    assert sorted(plan.loads.values()) == [3, 3, 4, 4]
    assert [row for row in after if row.owner == "n1" and 2 <= int(row.id) <= 7] == before[2:8]
    assert set(Settled(before, known, policy).loads().values()) == {5}


def test_two_phase() -> None:
    """Releases equal placeholders, loads with placeholders are 2 or 3; after the releases 3,3,3,3,2."""
    before, policy = assigned(n1=5, n2=4, n3=4), PartitionPolicy(14)
    plan = sound_plan(before, FIVE, policy)
    released = told(plan, "release")
    assert len(released) == 4
    assert {target for _, target in released.values()} <= {"n4", "n5"}
    assert sorted(plan.loads.values()) == [2, 3, 3, 3, 3]
    assert plan.held == {"n1": 5, "n2": 4, "n3": 4, "n4": 0, "n5": 0}
    after = write(before, plan.steps, policy, 0.0)
    assert Counter(row.target for row in after if row.state == REQUESTED).total() == 4
    done = sound_plan(answer(after, FIVE), FIVE, policy, 1.0)
    assert told(done, "assign") == {name: (None, target) for name, (_, target) in released.items()}


def test_99_and_1_move_within_the_budget() -> None:
    before, known = assigned(n1=99, n2=1), nodes("n1 n2")
    plan = sound_plan(before, known, PartitionPolicy(100))
    assert (len(told(plan, "release")), len(plan.moves_waiting)) == (4, 45)
    assert plan.certificate.moves == plan.certificate.moves_min == 49
    assert plan.certificate.spread == 0
    assert {wait.reason for wait in plan.moves_waiting} == {"4 of 4 moves from n1 in flight"}
    assert Settled(before, known, PartitionPolicy(100)).releases == {"n1": 49}


def test_target_dies_before_the_acknowledgement() -> None:
    """Back to Assigned, same epoch, no move."""
    before = assigned(n1=4, n2=5) + rows([9], REQUESTED, "n1", "n3")
    policy = PartitionPolicy(10)
    plan = sound_plan(before, nodes("n1 n2", gone="n3"), policy)
    assert told(plan, "cancel") == {"9": ("n1", None)}
    assert kinds(plan) == {"cancel": 1}
    assert plan.certificate.moves == 0
    assert write(before, plan.steps, policy, 0.0)[9] == Partition("9", ASSIGNED, "n1", None, 1)


@pytest.mark.parametrize("dead", ["n4", "n5"])
def test_target_dies_before_the_acknowledgement_of_the_two_phase_scenario(dead: str) -> None:
    """Whatever was reserved for the dead node goes back; the others go on."""
    before, policy = assigned(n1=5, n2=4, n3=4), PartitionPolicy(14)
    asked = write(before, sound_plan(before, FIVE, policy).steps, policy, 0.0)
    known = [replace(node, state=NodeState.GONE) if node.name == dead else node for node in FIVE]
    plan = sound_plan(asked, known, policy, 1.0)
    assert set(told(plan, "cancel")) == {row.id for row in asked if row.state == REQUESTED and row.target == dead}
    assert kinds(plan)["release"] == 0


def test_source_dies_while_releasing() -> None:
    """To the target after lease and grace, epoch + 1."""
    before = [*assigned(n2=2), Partition("2", PENDING, "n1", "n3", 7, lease_until_s=10.0)]
    known, policy = nodes("n2 n3", gone="n1"), PartitionPolicy(3)
    early = sound_plan(before, known, policy, 11.9)
    assert early.steps == []
    assert early.unowned == {"2": "n1 is gone, its grace ends in 1 s"}
    assert (early.assignment["2"], early.loads) == ("n3", {"n2": 2, "n3": 1})
    due = sound_plan(before, known, policy, 12.0)
    assert told(due, "unassign") == {"2": ("n1", "n3")}
    after = write(before, due.steps, policy, 12.0)
    assert told(sound_plan(after, known, policy, 12.0), "assign") == {"2": (None, "n3")}
    settled = Settled(before, known, policy, 11.0)
    assert (settled.rows[2].owner, settled.rows[2].epoch) == ("n3", 8)


def test_debt_of_30_sets_on_40_nodes() -> None:
    """Fresh, they end within 1 of each other; without the debt they drift apart."""
    known = [Node(f"n{index}") for index in range(40)]

    def total(*, indebted: bool) -> list[int]:
        loads, debt = Counter[str](), {node.name: Fraction(0) for node in known}
        for number in range(30):
            policy = PartitionPolicy(50 + 7 * number, debt=dict(debt) if indebted else {}, seed=f"set-{number}")
            plan = sound_plan([], known, policy)
            loads.update(plan.loads)
            debt = {name: debt[name] + owed for name, owed in plan.owed.items()}
        return sorted(loads.values())

    fair, drifting = total(indebted=True), total(indebted=False)
    assert fair[-1] - fair[0] <= 1
    assert drifting[-1] - drifting[0] > 5


def test_what_was_never_confirmed_leaves_first_then_the_highest_numbers() -> None:
    before = [Partition(str(n), ASSIGNED, "n1", epoch=1, confirmed=n != 1) for n in range(6)]
    plan = sound_plan(before, nodes("n1 n2"), PartitionPolicy(6))
    assert [step.partition for step in plan.steps] == ["1", "5", "4"]


def test_free_partitions_are_given_in_numeric_order() -> None:
    plan = sound_plan(rows([10, 9, 1, 2, 0], UNASSIGNED), nodes("n1"), PartitionPolicy(12))
    assert [step.partition for step in plan.steps] == [str(number) for number in range(12)]


def test_surplus_goes_to_a_light_node_as_to_a_new_one() -> None:
    plan = sound_plan(assigned(n1=5, n2=1, n3=3), nodes("n1 n2 n3"), PartitionPolicy(9))
    assert told(plan, "release") == {"4": ("n1", "n2"), "3": ("n1", "n2")}


def test_draining_with_nobody_to_take_over_keeps_what_it_has() -> None:
    plan = sound_plan(assigned(n1=2), nodes("", draining="n1"), PartitionPolicy(2))
    assert plan.steps == []
    assert [(wait.reason, wait.target) for wait in plan.moves_waiting] == [("no active node", None)] * 2


def test_a_second_plan_before_anybody_answers_is_empty_and_so_are_the_next_ten() -> None:
    policy, before = PartitionPolicy(100), assigned(n1=99, n2=1)
    written = write(before, sound_plan(before, nodes("n1 n2"), policy).steps, policy, 0.0)
    for second in range(10):
        plan = sound_plan(written, nodes("n1 n2"), policy, float(second))
        assert plan.steps == []


def test_the_input_may_be_in_any_order_and_is_not_changed() -> None:
    before, known = assigned(n1=9, n2=2, n9=3), nodes("n1 n2 n3", draining="n4")
    policy = PartitionPolicy(17)
    plan = plan_partitions(before, known, now_s=0.0, policy=policy)
    assert plan_partitions(before[::-1], known[::-1], now_s=0.0, policy=policy) == plan
    assert plan_partitions(iter(before), iter(known), now_s=0, policy=policy) == plan


def test_seed_and_debt_choose_who_gets_the_ceiling() -> None:
    winners = set()
    for seed in "abcdefgh":
        quotas = sound_plan([], nodes("n1 n2"), PartitionPolicy(3, seed=seed)).quotas
        winners.add(max(quotas, key=quotas.__getitem__))
    assert winners == {"n1", "n2"}
    for name in ("n1", "n2"):
        assert sound_plan([], nodes("n1 n2"), PartitionPolicy(3, debt={name: Fraction(1, 2)})).quotas[name] == 2


def test_weights_of_the_policy_go_over_those_of_the_nodes() -> None:
    known = nodes("n1 n2", n1=3)
    assert sound_plan([], known, PartitionPolicy(8)).quotas == {"n1": 6, "n2": 2}
    assert sound_plan([], known, PartitionPolicy(8, weights={"n1": 1, "elsewhere": 7})).quotas == {"n1": 4, "n2": 4}


@pytest.mark.parametrize("lost", [0, 1])
def test_ten_thousand_partitions_on_four_hundred_nodes(lost: int) -> None:
    known = [Node(f"n{index}") for index in range(400)]
    before = [Partition(str(n), ASSIGNED, f"n{n % 400}", epoch=1) for n in range(10_000)]
    plan = plan_partitions(before, known[lost:], now_s=0.0, policy=PartitionPolicy(10_000))
    assert kinds(plan) == ({"unassign": 25} if lost else {})
    assert check_partitions(plan, before, known[lost:], now_s=0.0, policy=PartitionPolicy(10_000)) == []
