"""Every transition of the partition protocol at the edge of its guard."""

from __future__ import annotations

from collections import Counter

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

from poise.decide.partition_values import (
    RESTART,
    RETIREMENT,
    MoveBudgets,
    Node,
    Partition,
    PartitionPolicy,
    PartitionState,
    ReleaseTimeout,
)

UNLIMITED = MoveBudgets(None, None, None)


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

    def test_only_as_many_get_other_targets_as_the_node_has_too_much(self) -> None:
        before = rows(range(4), REQUESTED, "n1", "n9") + rows(range(4, 8), PENDING, "n2")
        plan = sound_plan(before, nodes("n1 n2 n3"), PartitionPolicy(8))
        assert (plan.quotas["n1"], list(told(plan, "release")), kinds(plan)["cancel"]) == (3, ["3"], 3)

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

    def test_only_as_many_requests_are_recalled_as_the_target_has_too_much(self) -> None:
        before = rows(range(3), REQUESTED, "n1", "n2") + rows([3, 4], ASSIGNED, "n3")
        plan = sound_plan(before, nodes("n1 n2 n3", n1=2, n2=2, n3=1), PartitionPolicy(5))
        assert plan.quotas == {"n1": 2, "n2": 2, "n3": 1}
        assert told(plan, "cancel") == {"2": ("n1", None)}

    def test_only_as_many_requests_are_recalled_as_the_owner_has_room_for(self) -> None:
        before = assigned(n1=2) + rows([2, 3, 4], REQUESTED, "n1", "n2")
        plan = sound_plan(before, nodes("n1 n2 n3", n1=3), PartitionPolicy(5))
        assert plan.quotas == {"n1": 3, "n2": 1, "n3": 1}
        assert told(plan, "cancel") == {"4": ("n1", None)}

    def test_what_is_acknowledged_is_not_recalled(self) -> None:
        before = rows(range(4), PENDING, "n1", "n2") + rows(range(4, 8), ASSIGNED, "n2")
        assert kinds(sound_plan(before, nodes("n1 n2"), PartitionPolicy(8)))["cancel"] == 0

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

    def test_a_deadline_means_nothing_to_a_row_that_is_not_asked_for(self) -> None:
        row = Partition("0", ASSIGNED, "n1", deadline_s=-100.0)
        plan = sound_plan([row], nodes("n1"), PartitionPolicy(1))
        assert (plan.steps, plan.notices, plan.unowned) == ([], {}, {})

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
        assert (early.loads, early.assignment["0"]) == ({"n1": 2, "n2": 2}, "n1")
        due = sound_plan(before, known, policy, 11.0)
        assert told(due, "unassign") == {"0": ("n1", "n1"), "1": ("n1", "n1")}
        settled = Settled(before, known, policy, 5.0)
        assert [(row.owner, row.epoch) for row in settled.rows[:2]] == [("n1", 5), ("n1", 5)]
        assert settled.releases.total() == 0

    @pytest.mark.parametrize(
        ("target", "reason", "heir"), [(None, "", "n1"), ("n2", "", "n2"), (None, RETIREMENT, None), ("n9", "", "n9")]
    )
    def test_a_superseded_process_that_was_letting_go(self, target: str | None, reason: str, heir: str | None) -> None:
        """Its own name is the target only where none is set, and never for a retirement."""
        row = Partition("0", PENDING, "n1", target, 4, owner_incarnation=1, lease_until_s=0.0, reason=reason)
        known = [Node("n1", incarnation=2), Node("n2")]
        plan = sound_plan([row], known, PartitionPolicy(1), 5.0)
        assert told(plan, "unassign") == {"0": ("n1", heir)}

    @pytest.mark.parametrize("name", ["n1", "n2"])
    def test_the_ceiling_waits_for_what_comes_back(self, name: str) -> None:
        """Three rows of an earlier process of one of two nodes, two on the other: neither seed nor order matters."""
        other = "n2" if name == "n1" else "n1"
        before = [Partition(str(n), ASSIGNED, name, owner_incarnation=1, lease_until_s=9.0) for n in range(3)]
        before += rows([3, 4], ASSIGNED, other)
        for seed in "abcd":
            plan = sound_plan(before, [Node(name, incarnation=2), Node(other)], PartitionPolicy(5, seed=seed))
            assert (plan.quotas[name], plan.loads[name]) == (3, 3)


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
