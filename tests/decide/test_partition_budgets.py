"""What bounds the moves of a partition plan: refusals, a changing count, and budgets."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace
from tests.partition_driver import (
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

from poise.decide.partition_values import (
    MoveBudgets,
    Partition,
    PartitionPolicy,
)
from poise.model.ownership import RETIREMENT

UNLIMITED = MoveBudgets(None, None, None)


class TestPoisonGuard:
    """Offered three times to one node and never confirmed: not offered to it again, and reported."""

    def test_the_next_node_gets_it(self) -> None:
        before = [*assigned(n1=1, n2=2), Partition("3", offers={"n1": 3})]
        plan = sound_plan(before, nodes("n1 n2"), PartitionPolicy(4))
        assert told(plan, "assign") == {"3": (None, "n2")}
        assert plan.notices == {"3": "offered 3 times to n1 and never confirmed"}

    def test_only_that_partition_passes_the_node_by(self) -> None:
        before = [Partition("0", offers={"n1": 3}), Partition("1", offers={"n2": 3})]
        plan = sound_plan(before, nodes("n1 n2"), PartitionPolicy(2))
        assert told(plan, "assign") == {"0": (None, "n2"), "1": (None, "n1")}

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
        assert [(wait.code, wait.reason) for wait in plan.moves_waiting] == [
            ("refused", "offered 3 times to n2 and never confirmed; no other node has room")
        ]
        one_refused = [assigned(n1=2)[0], before[1]]
        plan = sound_plan(one_refused, nodes("n1 n2"), PartitionPolicy(2))
        assert told(plan, "release") == {"0": ("n1", "n2")}


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

    def test_another_target_keeps_the_budget_of_that_target(self) -> None:
        """Of two releases for a node that is gone one gets the only free slot; the other goes back, or to nobody."""
        policy = PartitionPolicy(4, budgets=MoveBudgets(None, None, 1))
        pending = sound_plan(rows(range(4), PENDING, "n1", "n9"), nodes("n1 n2"), policy)
        assert sorted(told(pending, "release").values(), key=str) == [("n1", "n2"), *[("n1", None)] * 3]
        asked = sound_plan(rows(range(4), REQUESTED, "n1", "n9"), nodes("n1 n2"), policy)
        assert told(asked, "release") == {"3": ("n1", "n2")}
        assert [wait.reason for wait in asked.moves_waiting] == ["1 of 1 moves to n2 in flight"]

    def test_no_more_is_released_than_needed_though_there_is_room(self) -> None:
        before = assigned(n1=5) + rows(range(5, 9), PENDING, "n2")
        plan = sound_plan(before, nodes("n1 n2 n3"), PartitionPolicy(9))
        assert told(plan, "release").keys() == {"4", "3"}

    def test_the_fullest_node_lets_go_first(self) -> None:
        before = assigned(n1=6, n2=9)
        plan = sound_plan(before, nodes("n1 n2 n3"), PartitionPolicy(15, budgets=MoveBudgets(3, None, None)))
        assert {source for source, _ in told(plan, "release").values()} == {"n2"}

    def test_what_is_lost_is_recovery_and_not_in_flight(self) -> None:
        lost = [Partition(str(n), PENDING, "n9", "n2", 1, lease_until_s=5.0) for n in (6, 20)]
        policy = PartitionPolicy(8, budgets=MoveBudgets(1, None, 1))
        plan = sound_plan([*assigned(n1=6), *lost], nodes("n1 n2"), policy)
        assert len(told(plan, "release")) == 1

    def test_a_cancelled_request_makes_room_for_another(self) -> None:
        before = assigned(n1=2, n2=6) + rows([8], REQUESTED, "n1", "n3")
        policy = PartitionPolicy(9, budgets=MoveBudgets(1, None, None))
        plan = sound_plan(before, nodes("n1 n2", gone="n3"), policy)
        assert kinds(plan) == {"cancel": 1, "release": 1}
