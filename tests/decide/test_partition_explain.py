"""Explanations of single partitions: where it is, what is done now, what it waits for, what would move it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.partition_driver import ASSIGNED, PENDING, REQUESTED, UNASSIGNED, assigned, nodes, rows, sound_plan, write

from poise.decide.partition_explain import explain_partition
from poise.decide.partition_values import Node, Partition, PartitionPolicy
from poise.errors import InvalidSpec

FIVE = nodes("n1 n2 n3 n4 n5")
TWO_PHASE = assigned(n1=5, n2=4, n3=4)


def said(
    partition: str, before: list[Partition], known: list[Node], policy: PartitionPolicy, now_s: float = 0.0
) -> list[str]:
    return explain_partition(partition, before, known, now_s=now_s, policy=policy)


def test_a_partition_that_must_leave() -> None:
    assert said("4", TWO_PHASE, FIVE, PartitionPolicy(14)) == [
        "4 is Assigned: n1 (active) holds it at epoch 1.",
        "Now: n1 is asked to let go of it, reserved for n5, within 30 s, since n1 over its share (5 of 3).",
        "It ends on n5, which has 3 of its quota 3, the ceiling of its share 14/5.",
        "Not on: n4 (2 of 2, full), n1 (3 of 3, it leaves there), n2 (3 of 3, full), and 1 more.",
        "It would move if n5 were draining or gone.",
    ]


def test_a_partition_that_stays() -> None:
    confirmed = [replace(row, confirmed=True) for row in TWO_PHASE]
    assert said("0", confirmed, FIVE, PartitionPolicy(14)) == [
        "0 is Assigned: n1 (active) holds it at epoch 1.",
        "Now: nothing is written for it; n1 has 3 of its quota 3, the ceiling of its share 14/5.",
        "It stays on n1.",
        "Not on: n5 (3 of 3, full), n4 (2 of 2, full), n2 (3 of 3, full), and 1 more.",
        "It would move if the quota of n1 fell to 0, after 2 that go first.",
        "It would move if n1 were draining or gone.",
    ]


def test_what_is_said_would_move_it_does_move_it() -> None:
    """Partition 2 is the first to go: lower the quota of its node by one and it goes."""
    confirmed = [replace(row, confirmed=True) for row in TWO_PHASE]
    told = said("2", confirmed, FIVE, PartitionPolicy(14))
    assert "It would move if the quota of n1 fell to 2, as the first to go." in told
    plan = sound_plan(confirmed, nodes("n1 n2 n3 n4 n5 n6 n7"), PartitionPolicy(14))
    assert plan.quotas["n1"] == 2
    assert plan.assignment["2"] != "n1"
    assert (plan.assignment["0"], plan.assignment["1"]) == ("n1", "n1")


def test_a_new_partition() -> None:
    assert said("13", TWO_PHASE, FIVE, PartitionPolicy(14))[:3] == [
        "13 is Unassigned; nobody holds it.",
        "Now: it is given to n5, since nobody holds it; n5 is furthest below its share (0 of 3).",
        "It ends on n5, which has 3 of its quota 3, the ceiling of its share 14/5.",
    ]


def test_a_move_that_waits_for_a_budget() -> None:
    told = said("50", assigned(n1=99, n2=1), nodes("n1 n2"), PartitionPolicy(100))
    assert told == [
        "50 is Assigned: n1 (active) holds it at epoch 1.",
        "Now: nothing is written for it; n1 has 95 of its quota 50, exactly its share.",
        "It waits: 4 of 4 moves from n1 in flight.",
        "It ends on n2, which has 5 of its quota 50, exactly its share.",
        "Not on: n1 (95 of 50, it leaves there).",
        "It would begin to move once a move in flight ends (4 of 4 moves from n1 in flight).",
        "It would move if n2 were draining or gone.",
    ]


def test_an_owner_that_is_gone() -> None:
    row = Partition("0", ASSIGNED, "n1", epoch=7, confirmed=True, lease_until_s=9.0)
    known = nodes("n2", gone="n1")
    assert said("0", [row], known, PartitionPolicy(1), 6.0)[:4] == [
        "0 is Assigned: n1 (gone) held it last, at epoch 7.",
        "Now: nothing is written for it.",
        "Nobody holds it: n1 is gone, its lease ends in 3 s.",
        "It ends on n2, which has 0 of its quota 1, exactly its share.",
    ]
    assert said("0", [row], known, PartitionPolicy(1), 11.0)[1:3] == [
        "Now: it is taken from n1, since n1 is gone, lease and grace have ended.",
        "Nobody holds it: n1 is gone, it is free to be given once this plan is written.",
    ]


def test_an_offer_that_is_not_confirmed() -> None:
    row = Partition("0", ASSIGNED, "n1", epoch=7, offers={"n1": 2})
    first = said("0", [row], nodes("n1"), PartitionPolicy(1))[0]
    assert first == "0 is Assigned: n1 (active) holds it at epoch 7, offered 2 times and not confirmed yet."


def test_no_active_node() -> None:
    assert said("0", [], [], PartitionPolicy(1)) == [
        "0 is Unassigned; nobody holds it.",
        "Now: nothing is written for it.",
        "Nobody holds it: no active node.",
        "It ends nowhere while things are as they are.",
        "It would be given to any other node that becomes active.",
    ]


def test_a_release_under_way_and_one_past_its_deadline() -> None:
    before = [*assigned(n1=1), Partition("1", PENDING, "n1", "n2", 4, deadline_s=30.0)]
    assert said("1", before, nodes("n1 n2"), PartitionPolicy(2), 5.0)[:2] == [
        "1 is PendingRelease: n1 (active) holds it at epoch 4 and is to let go of it for n2, within 25 s.",
        "Now: nothing is written for it.",
    ]
    late = said("1", before, nodes("n1 n2"), PartitionPolicy(2), 31.0)
    assert "Look at it: n1 is 1 s past its deadline to let go; its lease is not renewed any more." in late


def test_a_cancelled_request_and_a_retirement() -> None:
    cancelled = assigned(n1=1) + rows([1], REQUESTED, "n1", "n9")
    assert said("1", cancelled, nodes("n1"), PartitionPolicy(2))[1:3] == [
        "Now: the request is cancelled, since its target n9 is gone; n1 keeps it.",
        "It stays on n1.",
    ]
    assert said("1", assigned(n1=2), nodes("n1"), PartitionPolicy(1)) == [
        "1 is Assigned: n1 (active) holds it at epoch 1.",
        "Now: n1 is asked to let go of it, reserved for nobody, within 30 s, since the set shrank to 1.",
    ]


def test_a_node_that_refused_is_named() -> None:
    before = [*assigned(n1=1, n2=2), Partition("3", UNASSIGNED, offers={"n1": 4})]
    told = said("3", before, nodes("n1 n2"), PartitionPolicy(4))
    assert "Not on: n1 (1 of 2, offered 4 times and never confirmed)." in told
    assert "Look at it: offered 3 times to n1 and never confirmed." in told


def test_the_plan_may_be_given_and_later_states_follow_it() -> None:
    policy = PartitionPolicy(14)
    plan = sound_plan(TWO_PHASE, FIVE, policy)
    given = explain_partition("4", TWO_PHASE, FIVE, now_s=0.0, policy=policy, plan=plan)
    assert given == said("4", TWO_PHASE, FIVE, policy)
    asked = write(TWO_PHASE, plan.steps, policy, 0.0)
    assert said("4", asked, FIVE, policy, 1.0)[0] == (
        "4 is RequestedRelease: n1 (active) holds it at epoch 1 and is to let go of it for n5, within 29 s."
    )


@pytest.mark.parametrize("name", ["14", "x", ""])
def test_an_unknown_partition_is_refused(name: str) -> None:
    with pytest.raises(InvalidSpec, match=r"^\$\.partition: .* is not among the 14 partitions"):
        said(name, TWO_PHASE, FIVE, PartitionPolicy(14))
