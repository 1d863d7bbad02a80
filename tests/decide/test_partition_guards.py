"""Every transition of the partition protocol at the edge of its guard."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.partition_driver import (
    ASSIGNED,
    PENDING,
    REQUESTED,
    UNASSIGNED,
    Settled,
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
    Node,
    Partition,
    PartitionPolicy,
    PartitionState,
    ReleaseTimeout,
)
from poise.model.ownership import RESTART, RETIREMENT

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
