"""Every row of the table of transitions: what it does, and each guard that refuses it."""

from __future__ import annotations

import msgspec
import pytest

from poise.model.ownership import OWNED, RESTART, RETIREMENT, OwnerState, Row, Word
from poise.move.handoff import (
    Ask,
    Cancel,
    Event,
    Expire,
    Grant,
    Outcome,
    Refused,
    Retarget,
    Retire,
    Say,
    Standing,
    Transition,
    Wrote,
    step,
)

replace = msgspec.structs.replace
NOW = 100.0
A, B = Standing("a", 3, active=True), Standing("b", 1, active=True)
GONE, DRAINING = replace(B, active=False), replace(B, draining=True)
FREE = Row(id="7", epoch=4, revision=9)
HELD = Row(
    id="7",
    state=OwnerState.ASSIGNED,
    owner="a",
    owner_incarnation=3,
    epoch=5,
    lease_until_s=NOW + 6,
    granted_s=10.0,
    offers={"a": 1, "b": 2},
    revision=9,
)
ASKED = replace(HELD, state=OwnerState.REQUESTED_RELEASE, target="b", deadline_s=NOW + 20, reason="a over its share")
ENDING = replace(ASKED, state=OwnerState.PENDING_RELEASE, confirmed=True)
GRANT = Grant(to=B, now_s=NOW, lease_s=10.0, plan=2, reason="nobody holds it")
SAY = Say(member="a", incarnation=3, epoch=5, word=Word.HELD, now_s=NOW, lease_s=10.0, revoke=True)
RELEASING, RELEASED = replace(SAY, word=Word.RELEASING), replace(SAY, word=Word.RELEASED)
ASK = Ask(target="b", now_s=NOW, release_s=30.0, reason="a over its share", plan=2)
CANCEL = Cancel(source=A, within_count=True, now_s=NOW, reason="b is gone")
RETARGET = Retarget(target=Standing("c", 1, active=True), gone=GONE, now_s=NOW, reason="b is gone")
EXPIRE = Expire(now_s=NOW + 8, grace_s=2.0, reason="a is gone")


def wrote(outcome: Outcome, transition: Transition) -> Row:
    """Hold a step to one transition with its line and a new revision, and give the row after it."""
    row, actions = outcome
    assert row is not None
    (action,) = actions
    assert isinstance(action, Wrote)
    assert (action.transition, action.epoch, row.revision) == (transition, row.epoch, 10)
    return row


def test_t1_grants_a_free_item_with_the_next_epoch_and_a_full_lease() -> None:
    row = wrote(step(replace(FREE, target="b", deadline_s=1.0, offers={"b": 1}), GRANT), Transition.T1)
    assert (row.state, row.owner, row.owner_incarnation, row.confirmed) == (OwnerState.ASSIGNED, "b", 1, False)
    assert (row.epoch, row.lease_until_s, row.granted_s) == (5, NOW + 10, 10.0)
    assert (row.target, row.deadline_s, row.offers, row.plan) == (None, None, {"b": 2}, 2)
    assert (row.reason, row.since_s) == ("nobody holds it", NOW)


def test_t2_confirms_what_is_held_renews_it_and_forgets_the_offers() -> None:
    row = wrote(step(HELD, SAY), Transition.T2)
    assert (row.confirmed, row.lease_until_s, row.offers, row.epoch) == (True, NOW + 10, {"b": 2}, 5)


def test_renewing_is_no_transition() -> None:
    row, actions = step(replace(HELD, confirmed=True), replace(SAY, lease_s=12.0))
    assert actions == ()
    assert row == replace(HELD, confirmed=True, lease_until_s=NOW + 12, granted_s=12.0)


def test_t3_asks_for_a_release_and_sets_the_deadline() -> None:
    row = wrote(step(HELD, ASK), Transition.T3)
    assert (row.state, row.target, row.deadline_s) == (OwnerState.REQUESTED_RELEASE, "b", NOW + 30)
    assert (row.owner, row.epoch, row.lease_until_s) == ("a", 5, HELD.lease_until_s)


@pytest.mark.parametrize("row", [ASKED, ENDING], ids=lambda row: row.state)
def test_t3_never_rewrites_a_deadline(row: Row) -> None:
    assert step(row, replace(ASK, now_s=NOW + 5)) == (row, (Refused(f"it is {row.state}"),))


def test_t4_acknowledges_a_request_and_renews() -> None:
    row = wrote(step(ASKED, RELEASING), Transition.T4)
    assert (row.state, row.target, row.deadline_s) == (OwnerState.PENDING_RELEASE, "b", NOW + 20)
    assert row.lease_until_s == NOW + 10


@pytest.mark.parametrize("row", [replace(HELD, confirmed=True), ENDING], ids=lambda row: row.state)
def test_t4_on_any_other_row_only_renews(row: Row) -> None:
    assert step(row, RELEASING) == (replace(row, lease_until_s=NOW + 10), ())


@pytest.mark.parametrize("row", [HELD, ASKED, ENDING], ids=lambda row: row.state)
def test_t5_frees_any_owned_item_and_keeps_its_target(row: Row) -> None:
    after = wrote(step(row, RELEASED), Transition.T5)
    assert (after.state, after.owner, after.owner_incarnation) == (OwnerState.UNASSIGNED, None, None)
    assert (after.target, after.epoch, after.deadline_s, after.confirmed) == (row.target, 5, None, False)


def test_t5_is_believed_after_the_lease_has_ended() -> None:
    wrote(step(ASKED, replace(RELEASED, now_s=ASKED.lease_until_s + 1)), Transition.T5)


@pytest.mark.parametrize(
    ("row", "event", "target", "deadline_s", "reason"),
    [
        pytest.param(HELD, replace(RELEASED, restart_until_s=NOW + 5), "a", NOW + 5, RESTART, id="it restarts"),
        pytest.param(HELD, replace(RELEASED, successor=True), "a", None, RESTART, id="its successor is there"),
        pytest.param(ASKED, replace(RELEASED, restart_until_s=NOW + 5), "b", None, ASKED.reason, id="it has a target"),
        pytest.param(
            replace(ASKED, target=None, reason=RETIREMENT),
            replace(RELEASED, restart_until_s=NOW + 5, successor=True),
            None,
            None,
            RETIREMENT,
            id="a retirement comes back to nobody",
        ),
    ],
)
def test_t5_of_a_member_that_comes_back(
    row: Row, event: Say, target: str | None, deadline_s: float | None, reason: str
) -> None:
    after = wrote(step(row, event), Transition.T5)
    assert (after.target, after.deadline_s, after.reason) == (target, deadline_s, reason)


def test_t6_takes_a_request_back_at_the_same_epoch() -> None:
    row = wrote(step(ASKED, CANCEL), Transition.T6)
    assert (row.state, row.owner, row.epoch) == (OwnerState.ASSIGNED, "a", 5)
    assert (row.target, row.deadline_s, row.lease_until_s) == (None, None, ASKED.lease_until_s)


@pytest.mark.parametrize("row", [ASKED, ENDING], ids=lambda row: row.state)
@pytest.mark.parametrize("target", [RETARGET.target, None], ids=["another", "none"])
def test_t6b_replaces_or_clears_a_target_that_is_gone(row: Row, target: Standing | None) -> None:
    after = wrote(step(row, replace(RETARGET, target=target)), Transition.T6B)
    assert after.target == (target.name if target else None)
    assert (after.state, after.owner, after.epoch, after.deadline_s) == (row.state, "a", 5, row.deadline_s)


@pytest.mark.parametrize("row", [HELD, ASKED, ENDING], ids=lambda row: row.state)
def test_t7_frees_what_was_not_renewed_exactly_when_lease_and_grace_have_ended(row: Row) -> None:
    after = wrote(step(row, EXPIRE), Transition.T7)
    assert (after.state, after.owner, after.target, after.epoch) == (OwnerState.UNASSIGNED, None, row.target, 5)
    assert step(row, replace(EXPIRE, now_s=NOW + 7.999))[1] == (Refused("its lease and grace are not over"),)


def test_t7_leaves_the_rows_of_an_earlier_process_to_its_name() -> None:
    assert wrote(step(HELD, replace(EXPIRE, successor=True)), Transition.T7).target == "a"
    assert wrote(step(ASKED, replace(EXPIRE, successor=True)), Transition.T7).target == "b"
    retired = replace(ASKED, target=None, reason=RETIREMENT)
    assert wrote(step(retired, replace(EXPIRE, successor=True)), Transition.T7).target is None


@pytest.mark.parametrize("row", [ASKED, ENDING], ids=lambda row: row.state)
@pytest.mark.parametrize("word", [Word.HELD, Word.RELEASING])
def test_t8_under_revoke_a_lease_is_left_alone_from_its_deadline_on(row: Row, word: Word) -> None:
    late = replace(SAY, word=word, now_s=NOW + 5, lease_s=10.0)
    due = replace(row, deadline_s=NOW + 5)
    for revoke, until_s in ((True, row.lease_until_s), (False, NOW + 15)):
        after, _ = step(due, replace(late, revoke=revoke))
        assert after is not None
        assert after.lease_until_s == until_s
    before, _ = step(replace(row, deadline_s=NOW + 5.001), late)
    assert before is not None
    assert before.lease_until_s == NOW + 15


def test_t9_buries_a_free_item_beyond_the_count() -> None:
    assert step(FREE, Retire(within_count=False)) == (None, (Wrote(Transition.T9, None, RETIREMENT, 4),))


@pytest.mark.parametrize(
    ("row", "event", "reason"),
    [
        *(pytest.param(row, GRANT, f"it is {row.state}", id=f"T1 {row.state}") for row in (HELD, ASKED, ENDING)),
        pytest.param(FREE, replace(GRANT, to=GONE), "b is not active", id="T1 not active"),
        pytest.param(FREE, replace(GRANT, to=DRAINING), "b is draining", id="T1 draining"),
        pytest.param(FREE, replace(GRANT, blocked="a quarantine"), "a quarantine", id="T1 quarantine"),
        *(
            pytest.param(
                row, replace(SAY, word=word, **wrong), "it belongs to a at epoch 5", id=f"{row.state} {word} {wrong}"
            )
            for row in (HELD, ASKED, ENDING)
            for word in Word
            for wrong in ({"member": "b"}, {"incarnation": 2}, {"epoch": 4}, {"epoch": 6})
        ),
        *(pytest.param(FREE, replace(SAY, word=word), "it is Unassigned", id=f"free {word}") for word in Word),
        *(
            pytest.param(
                row,
                replace(SAY, word=word, now_s=row.lease_until_s),
                "its lease has ended, and is never renewed at its epoch",
                id=f"{row.state} {word} past its lease",
            )
            for row in (HELD, ASKED, ENDING)
            for word in (Word.HELD, Word.RELEASING)
        ),
        pytest.param(HELD, replace(SAY, successor=True), "a newer process of a has registered", id="T2 superseded"),
        pytest.param(FREE, ASK, "it is Unassigned", id="T3 free"),
        pytest.param(HELD, replace(ASK, target="a"), "a has it already", id="T3 to its owner"),
        *(pytest.param(row, CANCEL, f"it is {row.state}", id=f"T6 {row.state}") for row in (FREE, HELD, ENDING)),
        pytest.param(ASKED, replace(CANCEL, source=replace(A, draining=True)), "a is draining", id="T6 draining"),
        pytest.param(
            ASKED, replace(CANCEL, within_count=False), "the set has shrunk below it", id="T6 of a retirement"
        ),
        *(pytest.param(row, RETARGET, f"it is {row.state}", id=f"T6b {row.state}") for row in (FREE, HELD)),
        pytest.param(ASKED, replace(RETARGET, gone=B), "b is there", id="T6b target is there"),
        pytest.param(ASKED, replace(RETARGET, target=GONE), "b is not active", id="T6b to one that is gone"),
        pytest.param(FREE, EXPIRE, "it is Unassigned", id="T7 free"),
        *(
            pytest.param(row, Retire(within_count=False), f"it is {row.state}", id=f"T9 {row.state}")
            for row in (HELD, ASKED, ENDING)
        ),
        pytest.param(FREE, Retire(within_count=True), "it is within the count of the set", id="T9 within the count"),
    ],
)
def test_a_guard_refuses_and_the_row_is_as_it_was(row: Row, event: Event, reason: str) -> None:
    assert step(row, event) == (row, (Refused(reason),))


def test_only_a_grant_raises_the_epoch() -> None:
    events: list[Event] = [SAY, RELEASING, RELEASED, ASK, CANCEL, RETARGET, EXPIRE]
    for row in (HELD, ASKED, ENDING):
        assert row.state in OWNED
        assert {after.epoch for event in events if (after := step(row, event)[0]) is not None} == {5}


def test_a_renewal_never_shortens_a_lease_that_was_promised() -> None:
    row, _ = step(replace(HELD, confirmed=True), replace(SAY, lease_s=2.0))
    assert row is not None
    assert row.lease_until_s == HELD.lease_until_s
