"""The partition planner by example: the scenarios of the design by their names, and every guard of the table."""

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
    nodes,
    rows,
    sound_plan,
    write,
)

from poise.decide.partition_check import check_partitions
from poise.decide.partition_values import (
    RESTART,
    RETIREMENT,
    MoveBudgets,
    Node,
    NodeState,
    Partition,
    PartitionPlan,
    PartitionPolicy,
    PartitionState,
    ReleaseTimeout,
)
from poise.decide.partitions import plan_partitions
from poise.errors import InvalidSpec

FIVE = nodes("n1 n2 n3 n4 n5")
UNLIMITED = MoveBudgets(None, None, None)


def kinds(plan: PartitionPlan) -> Counter[str]:
    return Counter(step.kind for step in plan.steps)


def told(plan: PartitionPlan, kind: str) -> dict[str, tuple[str | None, str | None]]:
    return {step.partition: (step.source, step.target) for step in plan.steps if step.kind == kind}


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


class TestGuards:
    """Each transition at the edge of its guard."""

    def test_lease_and_grace_end_before_a_row_is_taken(self) -> None:
        row = Partition("0", ASSIGNED, "n1", epoch=3, lease_until_s=10.0)
        known, policy = nodes("n2", gone="n1"), PartitionPolicy(1)
        assert sound_plan([row], known, policy, 7.0).unowned == {"0": "n1 is gone, its lease ends in 3 s"}
        assert sound_plan([row], known, policy, 11.99).steps == []
        assert told(sound_plan([row], known, policy, 12.0), "unassign") == {"0": ("n1", None)}

    def test_a_live_owner_that_does_not_renew_loses_the_row_too(self) -> None:
        row = Partition("0", ASSIGNED, "n1", epoch=3, lease_until_s=10.0)
        late = sound_plan([row], nodes("n1"), PartitionPolicy(1), 10.0)
        assert (late.steps, late.unowned) == ([], {"0": "n1 has not renewed it, its grace ends in 2 s"})
        assert kinds(sound_plan([row], nodes("n1"), PartitionPolicy(1), 12.0)) == {"unassign": 1}

    def test_an_unknown_owner_is_gone(self) -> None:
        plan = sound_plan(assigned(n9=1), nodes("n1"), PartitionPolicy(1))
        assert told(plan, "unassign") == {"0": ("n9", None)}
        assert plan.certificate.moves == plan.certificate.moves_min == 1

    def test_an_acknowledged_release_is_not_cancelled_but_gets_another_target(self) -> None:
        before = assigned(n1=2, n2=3) + rows([5], PENDING, "n1", "n3")
        plan = sound_plan(before, nodes("n1 n2 n4", gone="n3"), PartitionPolicy(6))
        assert told(plan, "release")["5"] == ("n1", "n4")
        assert kinds(plan)["cancel"] == 0

    def test_an_acknowledged_release_that_nobody_else_can_take_loses_its_target(self) -> None:
        before = assigned(n1=2) + rows([2], PENDING, "n1", "n3")
        plan = sound_plan(before, nodes("n1", gone="n3"), PartitionPolicy(3))
        assert told(plan, "release") == {"2": ("n1", None)}
        assert plan.assignment["2"] == "n1"
        settled = Settled(before, nodes("n1", gone="n3"), PartitionPolicy(3))
        assert settled.loads() == {"n1": 3}

    def test_the_deadline_stays_when_a_target_is_replaced(self) -> None:
        before = [*assigned(n2=1), Partition("1", PENDING, "n1", "n3", 4, deadline_s=30.0)]
        policy = PartitionPolicy(2)
        plan = sound_plan(before, nodes("n1 n2", gone="n3"), policy, 5.0)
        after = write(before, plan.steps, policy, 5.0)
        assert (after[1].deadline_s, after[1].epoch, after[1].state) == (30.0, 4, PENDING)

    def test_a_draining_source_keeps_its_request_and_gets_another_target(self) -> None:
        before = assigned(n2=1) + rows([1], REQUESTED, "n1", "n3")
        plan = sound_plan(before, nodes("n2 n4", draining="n1", gone="n3"), PartitionPolicy(2))
        assert told(plan, "release") == {"1": ("n1", "n4")}
        assert kinds(plan)["cancel"] == 0

    def test_a_draining_target_is_superseded_but_not_gone(self) -> None:
        before = assigned(n1=1, n2=2) + rows([3], REQUESTED, "n1", "n3")
        assert told(sound_plan(before, nodes("n1 n2", draining="n3"), PartitionPolicy(4)), "cancel") == {
            "3": ("n1", None)
        }
        pending = assigned(n1=1, n2=2) + rows([3], PENDING, "n1", "n3")
        assert sound_plan(pending, nodes("n1 n2", draining="n3"), PartitionPolicy(4)).steps == []

    def test_a_release_for_a_draining_node_goes_on_while_its_source_has_too_much(self) -> None:
        before = assigned(n1=2, n2=1) + rows([3], REQUESTED, "n1", "n3")
        known, policy = nodes("n1 n2", draining="n3"), PartitionPolicy(4)
        plan = sound_plan(before, known, policy)
        assert (plan.steps, plan.assignment["3"]) == ([], "n2")
        assert Settled(before, known, policy).loads() == {"n1": 2, "n2": 2}

    def test_a_node_with_too_much_and_only_requests_gets_other_targets_for_them(self) -> None:
        before = rows(range(4), REQUESTED, "n1", "n3")
        plan = sound_plan(before, nodes("n1 n2", gone="n3"), PartitionPolicy(4))
        assert told(plan, "release") == {"2": ("n1", "n2"), "3": ("n1", "n2")}
        assert told(plan, "cancel") == {"0": ("n1", None), "1": ("n1", None)}

    def test_a_lost_row_is_never_revived_at_its_epoch(self) -> None:
        row = Partition("1", REQUESTED, "n1", "n3", 4, lease_until_s=5.0)
        plan = sound_plan([*assigned(n1=1), row], nodes("n1", gone="n3"), PartitionPolicy(2), 6.0)
        assert plan.steps == []
        assert plan.unowned == {"1": "n1 has not renewed it, its grace ends in 1 s"}

    def test_a_drain_that_is_taken_back_recalls_its_requests(self) -> None:
        before = rows(range(4), REQUESTED, "n1", "n2") + rows(range(4, 8), ASSIGNED, "n2")
        plan = sound_plan(before, nodes("n1 n2"), PartitionPolicy(8))
        assert kinds(plan) == {"cancel": 4}
        assert plan.certificate.moves == 0

    def test_a_request_whose_target_has_room_stands(self) -> None:
        before = assigned(n1=2) + rows([2, 3], REQUESTED, "n1", "n2")
        assert sound_plan(before, nodes("n1 n2"), PartitionPolicy(4)).steps == []


class TestTimeouts:
    """T8: an owner that is alive and does not let go."""

    LATE = Partition("1", PENDING, "n1", "n2", 4, deadline_s=30.0)

    @pytest.mark.parametrize(("now_s", "steps"), [(29.0, 0), (30.0, 0), (41.9, 0), (42.0, 1)])
    def test_revoke_takes_the_row_once_its_last_lease_must_have_ended(self, now_s: float, steps: int) -> None:
        plan = sound_plan([*assigned(n1=1), self.LATE], nodes("n1 n2"), PartitionPolicy(2), now_s)
        assert len(plan.steps) == steps
        assert ("1" in plan.notices) == (30.0 <= now_s < 40.0)
        assert ("1" in plan.unowned) == (now_s >= 40.0)

    def test_revoke_goes_by_the_lease_where_it_is_known(self) -> None:
        late = replace(self.LATE, lease_until_s=33.0)
        plan = sound_plan([*assigned(n1=1), late], nodes("n1 n2"), PartitionPolicy(2), 31.0)
        assert plan.notices == {"1": "n1 is 1 s past its deadline to let go; its lease is not renewed any more"}
        assert kinds(sound_plan([*assigned(n1=1), late], nodes("n1 n2"), PartitionPolicy(2), 35.0)) == {"unassign": 1}

    def test_wait_reports_and_writes_nothing(self) -> None:
        policy = PartitionPolicy(2, on_release_timeout=ReleaseTimeout.WAIT)
        plan = sound_plan([*assigned(n1=1), self.LATE], nodes("n1 n2"), policy, 1000.0)
        assert plan.steps == []
        assert plan.notices == {"1": "n1 is 970 s past its deadline to let go; the policy waits for it"}


class TestReservations:
    """Placeholders count as load of their target, and are kept while there is room."""

    def test_a_free_row_goes_to_its_target_and_its_own_placeholder_is_not_in_the_way(self) -> None:
        before = assigned(n1=3, n2=2) + rows([5], UNASSIGNED, None, "n2")
        assert told(sound_plan(before, nodes("n1 n2"), PartitionPolicy(6)), "assign") == {"5": (None, "n2")}

    def test_the_ceiling_follows_the_placeholder(self) -> None:
        for target in ("n1", "n2"):
            before = assigned(n1=2, n2=2) + rows([4], UNASSIGNED, None, target)
            plan = sound_plan(before, nodes("n1 n2"), PartitionPolicy(5))
            assert told(plan, "assign") == {"4": (None, target)}
            assert plan.quotas[target] == 3

    def test_a_target_that_is_full_without_it_costs_no_release(self) -> None:
        before = assigned(n1=3, n2=3, n3=2) + rows([8], UNASSIGNED, None, "n1")
        plan = sound_plan(before, nodes("n1 n2 n3"), PartitionPolicy(9))
        assert told(plan, "assign") == {"8": (None, "n3")}
        assert kinds(plan) == {"assign": 1}

    @pytest.mark.parametrize("state", [REQUESTED, PENDING])
    def test_a_releasing_row_counts_on_its_target_only(self, state: PartitionState) -> None:
        before = assigned(n1=3) + rows([3, 4, 5], state, "n1", "n2")
        plan = sound_plan(before, nodes("n1 n2"), PartitionPolicy(6))
        assert (plan.steps, plan.loads, plan.held) == ([], {"n1": 3, "n2": 3}, {"n1": 6, "n2": 0})

    def test_what_a_full_node_will_get_moves_on_once_it_is_there(self) -> None:
        before, known = rows(range(4), PENDING, "n1", "n2"), nodes("n2 n3", draining="n1")
        plan = sound_plan(before, known, PartitionPolicy(4))
        assert [(wait.partition, wait.source, wait.target, wait.code) for wait in plan.moves_waiting] == [
            ("3", "n2", "n3", "arrival"),
            ("2", "n2", "n3", "arrival"),
        ]
        assert Settled(before, known, PartitionPolicy(4), fused=True).releases == {"n2": 2}
        assert Settled(before, known, PartitionPolicy(4)).releases == {}

    def test_a_superseded_process_gets_its_rows_back(self) -> None:
        """The same id with epoch + 1, and no move."""
        before = [Partition(str(n), ASSIGNED, "n1", None, 4, owner_incarnation=1, lease_until_s=9.0) for n in range(2)]
        before += rows([2, 3], ASSIGNED, "n2")
        known, policy = [Node("n1", incarnation=2), Node("n2")], PartitionPolicy(4)
        early = sound_plan(before, known, policy, 5.0)
        assert (early.steps, early.certificate.moves) == ([], 0)
        assert early.unowned["0"] == "n1 has started again, its lease ends in 4 s"
        due = sound_plan(before, known, policy, 11.0)
        assert told(due, "unassign") == {"0": ("n1", "n1"), "1": ("n1", "n1")}
        settled = Settled(before, known, policy, 5.0)
        assert [(row.owner, row.epoch) for row in settled.rows[:2]] == [("n1", 5), ("n1", 5)]
        assert settled.releases.total() == 0


class TestRestart:
    """A row with the reason "restart" waits for its inactive target until its deadline."""

    ROW = Partition("0", UNASSIGNED, None, "n1", 3, deadline_s=20.0, reason=RESTART)

    def test_it_waits_for_a_node_that_is_away(self) -> None:
        for known in (nodes("n2", gone="n1"), nodes("n2", draining="n1"), nodes("n2")):
            plan = sound_plan([self.ROW], known, PartitionPolicy(1), 8.0)
            assert (plan.steps, plan.unowned) == ([], {"0": "waits 12 s more for n1 to restart"})

    def test_it_goes_back_to_a_node_that_returned(self) -> None:
        plan = sound_plan([self.ROW], nodes("n1 n2"), PartitionPolicy(1), 8.0)
        assert told(plan, "assign") == {"0": (None, "n1")}

    def test_it_waits_no_longer_than_its_deadline(self) -> None:
        plan = sound_plan([self.ROW], nodes("n2", gone="n1"), PartitionPolicy(1), 20.0)
        assert told(plan, "assign") == {"0": (None, "n2")}

    def test_no_other_row_waits_for_an_inactive_target(self) -> None:
        plan = sound_plan([replace(self.ROW, reason="")], nodes("n2", gone="n1"), PartitionPolicy(1), 8.0)
        assert told(plan, "assign") == {"0": (None, "n2")}


class TestPoisonGuard:
    """Offered three times to one node and never confirmed: not offered to it again, and reported."""

    def test_the_next_node_gets_it(self) -> None:
        before = [*assigned(n1=1, n2=2), Partition("3", offers={"n1": 3})]
        plan = sound_plan(before, nodes("n1 n2"), PartitionPolicy(4))
        assert told(plan, "assign") == {"3": (None, "n2")}
        assert plan.notices == {"3": "offered 3 times to n1 and never confirmed"}

    def test_two_offers_are_not_enough(self) -> None:
        before = [*assigned(n1=1, n2=2), Partition("3", offers={"n1": 2})]
        plan = sound_plan(before, nodes("n1 n2"), PartitionPolicy(4))
        assert (told(plan, "assign"), plan.notices) == ({"3": (None, "n1")}, {})

    def test_another_row_makes_the_loads_even(self) -> None:
        before = [*assigned(n1=1, n2=2), Partition("3", offers={"n1": 3})]
        settled = Settled(before, nodes("n1 n2"), PartitionPolicy(4))
        assert (settled.loads(), settled.rows[3].owner) == ({"n1": 2, "n2": 2}, "n2")

    def test_a_target_that_never_confirmed_is_not_waited_for(self) -> None:
        row = Partition("0", UNASSIGNED, None, "n1", 3, offers={"n1": 3})
        assert told(sound_plan([row], nodes("n1 n2"), PartitionPolicy(1)), "assign") == {"0": (None, "n2")}

    def test_where_all_refuse_it_stays_unowned_with_the_reason(self) -> None:
        row = Partition("0", offers={"n1": 3, "n2": 4})
        plan = sound_plan([row], nodes("n1 n2"), PartitionPolicy(1))
        assert (plan.steps, plan.assignment) == ([], {"0": None})
        assert plan.unowned == {"0": "offered 3 times to n1, n2 and never confirmed"}

    def test_a_release_is_not_aimed_at_a_node_that_refused(self) -> None:
        before = [replace(row, offers={"n2": 3}) for row in assigned(n1=2)]
        plan = sound_plan(before, nodes("n1 n2"), PartitionPolicy(2))
        assert plan.steps == []
        assert [wait.code for wait in plan.moves_waiting] == ["refused"]
        assert told(sound_plan([*before[:1], *assigned(n1=2)[1:]], nodes("n1 n2"), PartitionPolicy(2)), "release") == {
            "1": ("n1", "n2")
        }


class TestCount:
    """T9: the set shrinks, grows, and grows again before anybody answered."""

    def test_shrinking_releases_for_nobody_then_retires(self) -> None:
        before, known, policy = assigned(n1=2, n2=2), nodes("n1 n2"), PartitionPolicy(3)
        plan = sound_plan(before, known, policy)
        assert told(plan, "release") == {"3": ("n2", None)}
        assert plan.certificate.moves == 0
        after = answer(write(before, plan.steps, policy, 0.0), known)
        assert told(sound_plan(after, known, policy, 1.0), "retire") == {"3": (None, None)}

    def test_a_retirement_is_never_cancelled_or_given(self) -> None:
        before = assigned(n1=2) + [replace(row, reason=RETIREMENT) for row in rows([2], REQUESTED, "n1")]
        assert sound_plan(before, nodes("n1 n2"), PartitionPolicy(1)).steps != []
        assert all(step.kind != "cancel" for step in sound_plan(before, nodes("n1 n2"), PartitionPolicy(2)).steps)
        moving = assigned(n1=2) + rows([2], REQUESTED, "n1", "n2")
        assert told(sound_plan(moving, nodes("n1 n2"), PartitionPolicy(2)), "release")["2"] == ("n1", None)

    def test_growing_again_cancels_a_retirement(self) -> None:
        before = assigned(n1=2, n2=3) + [replace(row, reason=RETIREMENT) for row in rows([5], REQUESTED, "n1")]
        plan = sound_plan(before, nodes("n1 n2"), PartitionPolicy(6))
        assert told(plan, "cancel") == {"5": ("n1", None)}
        unknown = assigned(n1=2, n2=3) + rows([5], REQUESTED, "n1")
        assert sound_plan(unknown, nodes("n1 n2"), PartitionPolicy(6)).steps == []

    def test_a_lost_row_beyond_the_count_is_freed_then_retired(self) -> None:
        before = assigned(n1=1, n9=1)
        plan = sound_plan(before, nodes("n1"), PartitionPolicy(1))
        assert told(plan, "unassign") == {"1": ("n9", None)}
        assert Settled(before, nodes("n1"), PartitionPolicy(1)).loads() == {"n1": 1}

    def test_growing_makes_new_rows(self) -> None:
        plan = sound_plan(assigned(n1=1), nodes("n1"), PartitionPolicy(3))
        assert told(plan, "assign") == {"1": (None, "n1"), "2": (None, "n1")}
        assert plan.certificate.moves == plan.certificate.moves_min == 0


class TestBudgets:
    """Moves in flight for the cluster, a source, a target; recovery never waits."""

    @pytest.mark.parametrize(
        ("budgets", "released", "reason"),
        [
            (MoveBudgets(2, None, None), 2, "2 of 2 moves in flight"),
            (MoveBudgets(None, 1, None), 2, "1 of 1 moves from n1 in flight"),
            (MoveBudgets(None, None, 3), 3, "3 of 3 moves to n3 in flight"),
            (MoveBudgets(0, None, None), 0, "0 of 0 moves in flight"),
            (UNLIMITED, 4, None),
        ],
    )
    def test_each_limit(self, budgets: MoveBudgets, released: int, reason: str | None) -> None:
        before = assigned(n1=6, n2=6)
        policy = PartitionPolicy(12, budgets=budgets)
        plan = sound_plan(before, nodes("n1 n2 n3"), policy)
        assert (len(told(plan, "release")), len(plan.moves_waiting)) == (released, 4 - released)
        assert reason in {wait.reason for wait in plan.moves_waiting} or reason is None
        assert plan.certificate.moves == plan.certificate.moves_min == 4

    def test_what_is_under_way_counts(self) -> None:
        before = assigned(n1=6) + rows([6, 7], PENDING, "n1", "n2")
        plan = sound_plan(before, nodes("n1 n2"), PartitionPolicy(8, budgets=MoveBudgets(2, None, None)))
        assert plan.steps == []
        assert [wait.reason for wait in plan.moves_waiting] == ["2 of 2 moves in flight"] * 2

    def test_recovery_never_waits_for_balancing(self) -> None:
        before = assigned(n1=6) + rows([6, 7], PENDING, "n1", "n2") + rows(range(8, 20), UNASSIGNED)
        plan = sound_plan(before, nodes("n1 n2"), PartitionPolicy(20, budgets=MoveBudgets(0, 0, 0)))
        assert kinds(plan) == {"assign": 12}

    def test_draining_comes_first_then_retirement_then_balance(self) -> None:
        before = assigned(n1=6, n2=3, n3=1)
        known = nodes("n1 n3", draining="n2")
        for limit, sources in [(3, {"n2": 3}), (4, {"n2": 3, "n3": 1}), (5, {"n2": 3, "n3": 1, "n1": 1})]:
            plan = sound_plan(before, known, PartitionPolicy(9, budgets=MoveBudgets(limit, None, None)))
            assert Counter(source for source, _ in told(plan, "release").values()) == sources

    def test_a_cancelled_request_makes_room_for_another(self) -> None:
        before = assigned(n1=2, n2=6) + rows([8], REQUESTED, "n1", "n3")
        policy = PartitionPolicy(9, budgets=MoveBudgets(1, None, None))
        plan = sound_plan(before, nodes("n1 n2", gone="n3"), policy)
        assert kinds(plan) == {"cancel": 1, "release": 1}


def test_what_was_never_confirmed_leaves_first_then_the_highest_numbers() -> None:
    before = [Partition(str(n), ASSIGNED, "n1", epoch=1, confirmed=n != 1) for n in range(6)]
    plan = sound_plan(before, nodes("n1 n2"), PartitionPolicy(6))
    assert [step.partition for step in plan.steps] == ["1", "5", "4"]


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
        ({"count": 10**30}, f"$.policy.count: expected <= 1000000, got {10**30}"),
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
