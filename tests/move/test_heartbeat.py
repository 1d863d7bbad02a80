"""Registrations and heartbeats: who speaks, in which order, what is believed, and what is answered."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from poise.model.ownership import (
    GENERATION,
    RESTART,
    Granted,
    Heartbeat,
    Hold,
    MemberRow,
    OwnerState,
    Release,
    Reply,
    Row,
    SetRow,
    Terms,
    Word,
)
from poise.move.handoff import Transition, Wrote
from poise.move.heartbeat import (
    Beaten,
    Stale,
    Superseded,
    after_reboot,
    beat,
    next_generation,
    register,
    standing,
)

replace = msgspec.structs.replace
NOW = 100.0
JOB = SetRow(name="s", count=9, terms=Terms(lease_s=10.0, grace_s=2.0, release_s=30.0, restart_grace_s=20.0))
A = MemberRow(name="a", incarnation=2, process="pa", lease_until_s=NOW + 5, seq=6)
B = MemberRow(name="b", incarnation=1, process="pb", lease_until_s=NOW + 5, seq=1)
HELD = Row(
    id="0",
    state=OwnerState.ASSIGNED,
    confirmed=True,
    owner="a",
    owner_incarnation=2,
    epoch=5,
    lease_until_s=NOW + 4,
    granted_s=10.0,
    revision=9,
)
ASKED = replace(HELD, id="1", state=OwnerState.REQUESTED_RELEASE, target="b", deadline_s=NOW + 20)
SAID = Heartbeat(process="pa", incarnation=2, seq=7)


def say(
    *holds: Hold, rows: tuple[Row, ...] = (HELD, ASKED), said: Heartbeat = SAID, job: SetRow = JOB, b: MemberRow = B
) -> Beaten:
    """Let a speak."""
    known = {row.id: row for row in rows}
    return beat(job, {"a": A, "b": b}, known, "a", replace(said, holds=holds), NOW)


def transitions(taken: Beaten) -> list[tuple[str, Transition]]:
    """List what was written."""
    return [(item, action.transition) for item, action in taken.journal if isinstance(action, Wrote)]


def test_a_registration_gives_the_next_incarnation_and_forgets_the_earlier_process() -> None:
    leaving = replace(A, leaving="stop", draining=True, weight=3)
    after = register(leaving, "a", "new", NOW, 10.0)
    assert (after.incarnation, after.process, after.seq, after.leaving) == (3, "new", 0, None)
    assert (after.lease_until_s, after.draining, after.weight) == (NOW + 10, True, 3)
    assert register(None, "c", "pc", NOW, 10.0).incarnation == 1


def test_a_registration_repeated_by_the_same_process_changes_nothing() -> None:
    assert register(A, "a", "pa", NOW, 10.0) is A


@pytest.mark.parametrize(
    ("member", "active", "takes"),
    [
        pytest.param(A, True, True, id="heard"),
        pytest.param(replace(A, lease_until_s=NOW), False, False, id="heard a lease ago"),
        pytest.param(replace(A, leaving="stop"), False, False, id="leaving"),
        pytest.param(replace(A, leaving="restart"), False, False, id="restarting"),
        pytest.param(replace(A, draining=True), True, False, id="draining"),
    ],
)
def test_a_member_is_active_while_it_was_heard_and_does_not_leave(member: MemberRow, active: bool, takes: bool) -> None:
    judged = standing(member, NOW)
    assert (judged.active, judged.takes) == (active, takes)


def test_the_reply_names_everything_with_what_is_left_of_its_lease() -> None:
    taken = say()
    assert taken.answer == Reply(2, 7, (Granted("0", 5, 4.0),), (Release("1", 5, 4.0, 20.0),))
    assert taken.member == replace(A, seq=7, lease_until_s=NOW + 10)
    assert (taken.rows, taken.journal) == ({}, ())


def test_a_heartbeat_renews_only_what_it_names() -> None:
    taken = say(Hold("0", 5, Word.HELD))
    assert taken.rows == {"0": replace(HELD, lease_until_s=NOW + 10)}
    assert isinstance(taken.answer, Reply)
    assert taken.answer.granted == (Granted("0", 5, 10.0),)
    assert taken.answer.release == (Release("1", 5, 4.0, 20.0),)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(replace(HELD, lease_until_s=NOW), id="past its lease"),
        pytest.param(replace(HELD, owner_incarnation=1), id="of an earlier process"),
        pytest.param(replace(HELD, owner="b"), id="of another member"),
    ],
)
def test_the_reply_does_not_name_what_the_process_may_not_hold(row: Row) -> None:
    assert say(Hold("0", 5, Word.HELD), rows=(row,)).answer == Reply(2, 7)


def test_the_same_number_is_answered_again_and_does_nothing() -> None:
    taken = say(Hold("0", 5, Word.RELEASED), said=replace(SAID, seq=6))
    assert taken == Beaten(Reply(2, 6, (Granted("0", 5, 4.0),), (Release("1", 5, 4.0, 20.0),)), A)


def test_an_older_number_is_stale_and_does_nothing() -> None:
    assert say(Hold("0", 5, Word.RELEASED), said=replace(SAID, seq=5)) == Beaten(Stale(6), A)


@pytest.mark.parametrize("said", [replace(SAID, incarnation=1), replace(SAID, process="other")])
@pytest.mark.parametrize("word", [Word.HELD, Word.RELEASING])
def test_a_superseded_process_renews_nothing(said: Heartbeat, word: Word) -> None:
    mine = replace(HELD, owner_incarnation=said.incarnation)
    assert say(Hold("0", 5, word), rows=(mine,), said=said) == Beaten(Superseded(2), A)


def test_a_superseded_process_is_believed_when_it_has_stopped_and_its_successor_gets_the_item() -> None:
    mine = replace(HELD, owner_incarnation=1)
    taken = say(Hold("0", 5, Word.RELEASED), rows=(mine,), said=replace(SAID, incarnation=1))
    assert (taken.answer, taken.member) == (Superseded(2), A)
    assert transitions(taken) == [("0", Transition.T5), ("0", Transition.T1)]
    after = taken.rows["0"]
    assert (after.owner, after.owner_incarnation, after.epoch, after.reason) == ("a", 2, 6, RESTART)


def test_released_and_granted_to_the_target_in_one_write() -> None:
    taken = say(Hold("1", 5, Word.RELEASED))
    assert transitions(taken) == [("1", Transition.T5), ("1", Transition.T1)]
    after = taken.rows["1"]
    assert (after.owner, after.owner_incarnation, after.epoch, after.lease_until_s) == ("b", 1, 6, NOW + 10)
    assert after.revision == ASKED.revision + 1
    assert taken.answer == Reply(2, 7, (Granted("0", 5, 4.0),))


@pytest.mark.parametrize(
    ("job", "b"),
    [
        pytest.param(JOB, replace(B, lease_until_s=NOW), id="the target is gone"),
        pytest.param(JOB, replace(B, draining=True), id="the target drains"),
        pytest.param(JOB, replace(B, leaving="restart"), id="the target leaves"),
        pytest.param(replace(JOB, paused=True), B, id="the set is paused"),
        pytest.param(replace(JOB, quarantine_until_s=NOW + 1), B, id="a quarantine"),
    ],
)
def test_released_stays_free_where_the_target_cannot_have_it_now(job: SetRow, b: MemberRow) -> None:
    taken = say(Hold("1", 5, Word.RELEASED), job=job, b=b)
    assert transitions(taken) == [("1", Transition.T5)]
    after = taken.rows["1"]
    assert (after.state, after.target, after.epoch) == (OwnerState.UNASSIGNED, "b", 5)


@pytest.mark.parametrize(
    ("leaving", "target", "deadline_s"), [("stop", None, None), ("restart", "a", NOW + 20.0)], ids=["stop", "restart"]
)
def test_leaving_releases_as_usual(
    leaving: Literal["stop", "restart"], target: str | None, deadline_s: float | None
) -> None:
    taken = say(Hold("0", 5, Word.RELEASED), said=replace(SAID, leaving=leaving))
    after = taken.rows["0"]
    assert transitions(taken) == [("0", Transition.T5)], "what leaves is not given back in the same breath"
    assert (after.target, after.deadline_s, after.reason == RESTART) == (target, deadline_s, leaving == "restart")
    assert taken.member.leaving == leaving
    assert taken.member.lease_until_s == NOW + 10, "its leases are not voided"


def test_leaving_to_restart_means_nothing_without_a_grace_for_it() -> None:
    job = replace(JOB, terms=replace(JOB.terms, restart_grace_s=0.0))
    assert say(Hold("0", 5, Word.RELEASED), said=replace(SAID, leaving="restart"), job=job).rows["0"].target is None


def test_an_item_that_was_buried_is_passed_over_and_one_that_was_never_there_tells_that_commits_were_lost() -> None:
    said = replace(SAID, holds=(Hold("8", 3, Word.HELD),))
    members, rows = {"a": A, "b": B}, {"0": HELD}
    assert beat(JOB, members, rows, "a", said, NOW, {"8": 3}).ahead is None
    assert beat(JOB, members, rows, "a", said, NOW, {"8": 2}).ahead == 0
    assert beat(JOB, members, rows, "a", said, NOW).ahead == 0


@pytest.mark.parametrize("word", list(Word))
def test_an_epoch_that_was_never_granted_tells_that_commits_were_lost(word: Word) -> None:
    taken = say(Hold("0", 5, Word.HELD), Hold("1", GENERATION + 3, word))
    assert (taken.ahead, taken.rows, taken.journal) == (1, {}, ())


def test_a_superseded_process_starts_no_generation() -> None:
    assert say(Hold("0", GENERATION, Word.RELEASED), said=replace(SAID, incarnation=1)).ahead is None


def test_a_new_generation_frees_everything_and_waits_for_the_longest_lease() -> None:
    job = replace(JOB, generation=1, granted_max_s=40.0)
    old = replace(HELD, epoch=GENERATION + 5, target=None)
    changed, rows = next_generation(job, {"0": old, "1": ASKED}, 2, NOW)
    assert (changed.generation, changed.quarantine_until_s, changed.revision) == (3, NOW + 42, 1)
    assert {row.state for row in rows.values()} == {OwnerState.UNASSIGNED}
    assert rows["0"].epoch == 3 * GENERATION + 5 > old.epoch
    assert (rows["0"].owner, rows["0"].target, rows["0"].revision) == (None, "a", 10)
    assert next_generation(JOB, {}, 0, NOW)[0].quarantine_until_s == NOW + 12


@pytest.mark.parametrize(
    ("row", "lease_until_s", "deadline_s"),
    [
        pytest.param(HELD, 10.0 + 3.0, None, id="held"),
        pytest.param(replace(HELD, granted_s=60.0), 60.0 + 3.0, None, id="held, with a longer lease than is given now"),
        pytest.param(ASKED, 10.0 + 3.0, 30.0 + 3.0, id="being released"),
        pytest.param(Row(id="2", deadline_s=NOW, reason=RESTART, target="a"), 0.0, 20.0 + 3.0, id="awaited"),
        pytest.param(Row(id="2"), 0.0, None, id="free"),
    ],
)
def test_after_a_reboot_every_time_starts_again_at_full_length(
    row: Row, lease_until_s: float, deadline_s: float | None
) -> None:
    after = after_reboot(JOB, row, 3.0)
    assert (after.lease_until_s, after.deadline_s) == (lease_until_s, deadline_s)
    assert replace(after, lease_until_s=row.lease_until_s, deadline_s=row.deadline_s) == row
