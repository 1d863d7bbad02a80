"""Each guard of the protocol is taken away once: the exploration must find what goes wrong, by the shortest way."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from math import inf

import pytest
from tests.model.explore import Exploration, explore
from tests.model.facts import FactsTransaction, replace
from tests.model.fair import FairSchedule
from tests.model.world import Scene, Universe

from poise.decide.partition_values import Step
from poise.hold import holding as hold
from poise.hold.holding import Holding, Order, Piece
from poise.model.ownership import (
    RELEASING,
    Heartbeat,
    Hold,
    MemberRow,
    OwnerState,
    Reply,
    Row,
    SetRow,
    Terms,
    Word,
)
from poise.move import executor, handoff, heartbeat
from poise.move.executor import Applied
from poise.move.handoff import Event, Expire, Grant, Outcome, Retire, Say, Standing
from poise.move.heartbeat import Stale, Superseded
from poise.stores.base import Transaction

STATES_MAX = 200_000
FURTHER = 60_000  # More than any of the violations below needs to be found.
PAIR = Scene(names=("a", "b"), unborn=(), grants_max=2, messages_max=1, each_max=1)
TWINS = replace(PAIR, names=("a", "a"), unborn=(1,), faults={"start": 1})
TERMS = PAIR.terms
Patch = pytest.MonkeyPatch


def search(scene: Scene, *, fair: bool = False, states_max: int = STATES_MAX) -> Exploration:
    """Explore a scene as the code is now, with its guard taken away."""
    universe = Universe(scene)
    if not fair:
        return explore(universe, states_max=states_max)
    return explore(universe, states_max=states_max, judge=FairSchedule(universe, stubborn=True).judge)


def expect(law: str, found: Exploration) -> None:
    """Hold a search to its violation, and print the shortest trace."""
    assert found.violation is not None, f"nothing found in {found.states} states"
    sys.stdout.write(f"\n{found.states} states: {found.violation.story()}\n")
    assert law in found.violation.law
    assert found.violation.trace


def expect_nothing(found: Exploration) -> None:
    """Hold a search to finding nothing although a guard is gone: another line still stands."""
    assert found.violation is None, found.violation.story()
    assert found.states > 1_000


def grant_anything(original: Callable[[Row, Grant], Outcome]) -> Callable[[Row, Grant], Outcome]:
    return lambda row, event: original(replace(row, state=OwnerState.UNASSIGNED), event)


def test_direct_reassignment(monkeypatch: Patch) -> None:
    monkeypatch.setattr(handoff, "_grant", grant_anything(handoff._grant))
    expect("two owners", search(replace(PAIR, rash=True, follows_table=False)))


def test_a_transition_outside_the_table_is_seen_at_once(monkeypatch: Patch) -> None:
    monkeypatch.setattr(handoff, "_grant", grant_anything(handoff._grant))
    expect("assigned from Assigned", search(replace(PAIR, rash=True)))


def without_term(monkeypatch: Patch) -> None:
    original = executor.apply_plan

    def apply(
        tx: Transaction, name: str, _term: int, seen: Mapping[str, int], steps: Iterable[Step], number: int
    ) -> Applied:
        return original(tx, name, tx.leader().term, seen, steps, number)

    monkeypatch.setattr(executor, "apply_plan", apply)


def without_revisions(monkeypatch: Patch) -> None:
    original = executor.apply_plan

    def apply(
        tx: Transaction, name: str, term: int, _seen: Mapping[str, int], steps: Iterable[Step], number: int
    ) -> Applied:
        current = {item: row.revision for item, row in tx.rows().items()}
        return original(tx, name, term, current, steps, number)

    monkeypatch.setattr(executor, "apply_plan", apply)


LATE = replace(PAIR, faults={"late plan": 1, "election": 1})


@pytest.mark.slow
def test_no_term_and_no_compare_and_set(monkeypatch: Patch) -> None:
    without_term(monkeypatch)
    expect("two owners", search(replace(LATE, keeps_view=True, follows_table=False)))


@pytest.mark.slow
def test_a_second_line_the_term_alone(monkeypatch: Patch) -> None:
    without_term(monkeypatch)
    expect_nothing(search(LATE, states_max=FURTHER))


@pytest.mark.slow
def test_a_second_line_the_revision_alone(monkeypatch: Patch) -> None:
    without_revisions(monkeypatch)
    expect_nothing(search(LATE, states_max=FURTHER))


@pytest.mark.slow
def test_second_lines_together_while_the_store_judges_again(monkeypatch: Patch) -> None:
    without_term(monkeypatch)
    without_revisions(monkeypatch)
    expect_nothing(search(LATE, states_max=FURTHER))


def test_no_self_fencing(monkeypatch: Patch) -> None:
    def blink(holding: Holding, _now_s: float) -> tuple[Holding, list[Order]]:
        return holding, []

    monkeypatch.setattr(hold, "watch", blink)
    expect("two owners", search(PAIR))


def test_grace_smaller_than_the_clock_error() -> None:
    expect("two owners", search(replace(PAIR, terms=replace(TERMS, grace_s=0.0))))


def test_a_deadline_rewritten_each_pass(monkeypatch: Patch) -> None:
    original = executor.apply_plan

    def apply(
        tx: Transaction, name: str, term: int, _seen: Mapping[str, int], steps: Iterable[Step], number: int
    ) -> Applied:
        asked = [row for row in tx.rows().values() if row.state in RELEASING]
        later = [replace(row, deadline_s=tx.now_s + TERMS.release_s, revision=row.revision + 1) for row in asked]
        tx.write_rows(later)
        return original(tx, name, term, {item: row.revision for item, row in tx.rows().items()}, steps, number)

    monkeypatch.setattr(executor, "apply_plan", apply)
    expect("not settled", search(replace(PAIR, follows_table=False), fair=True))


def test_a_request_that_is_taken_back_and_nobody_minds_its_deadline(monkeypatch: Patch) -> None:
    original = hold._finishing

    def finish(item: str, piece: Piece, _finish_by_s: float) -> tuple[Piece, Order]:
        return original(item, piece, inf)

    monkeypatch.setattr(hold, "_finishing", finish)
    expect("not settled", search(PAIR, fair=True))


def test_a_member_that_leaves_and_never_ends_its_work(monkeypatch: Patch) -> None:
    original = hold.leave

    def leave(holding: Holding, _finish_by_s: float) -> tuple[Holding, list[Order]]:
        return original(holding, inf)

    monkeypatch.setattr(hold, "leave", leave)
    expect("not settled", search(replace(PAIR, faults={"leave": 1}), fair=True))


def test_absence_read_as_release(monkeypatch: Patch) -> None:
    original = executor.take_heartbeat

    def take(tx: Transaction, name: str, member: str, said: Heartbeat) -> Reply | Superseded | Stale:
        named = {each.item for each in said.holds}
        mine = [row for row in tx.rows().values() if (row.owner, row.owner_incarnation) == (member, said.incarnation)]
        unnamed = tuple(Hold(row.id, row.epoch, Word.RELEASED) for row in mine if row.confirmed and row.id not in named)
        return original(tx, name, member, replace(said, holds=said.holds + unnamed))

    monkeypatch.setattr(executor, "take_heartbeat", take)
    expect("two owners", search(PAIR))


@pytest.mark.slow
def test_a_lease_judged_per_node_instead_of_per_item(monkeypatch: Patch) -> None:
    original = executor._event

    def event(
        job: SetRow, row: Row, wanted: Step, standings: Mapping[str, Standing], now_s: float, number: int
    ) -> Event:
        judged = original(job, row, wanted, standings, now_s, number)
        if not isinstance(judged, Expire):
            return judged
        alive = standings[row.owner or ""].active
        return replace(judged, now_s=row.lease_until_s - 1 if alive else row.lease_until_s + judged.grace_s)

    monkeypatch.setattr(executor, "_event", event)
    expect("two owners", search(replace(PAIR, faults={"leave": 1})))
    expect("not settled", search(PAIR, fair=True))


def test_a_restart_that_inherits_rows_at_their_epoch(monkeypatch: Patch) -> None:
    original = heartbeat._reply

    def reply(member: MemberRow, rows: Mapping[str, Row], now_s: float) -> Reply:
        inherited = {
            item: replace(row, owner_incarnation=member.incarnation) if row.owner == member.name else row
            for item, row in rows.items()
        }
        return original(member, inherited, now_s)

    monkeypatch.setattr(heartbeat, "_reply", reply)
    expect("two owners", search(TWINS))


def hear_in_any_order(monkeypatch: Patch) -> None:
    original = hold.hear

    def hear(holding: Holding, reply: Reply, sent_at_s: float, now_s: float) -> tuple[Holding, list[Order]]:
        return original(replace(holding, used_seq=0), reply, sent_at_s, now_s)

    monkeypatch.setattr(hold, "hear", hear)


def forget_what_was_let_go(monkeypatch: Patch) -> None:
    original = hold.hear

    def hear(holding: Holding, reply: Reply, sent_at_s: float, now_s: float) -> tuple[Holding, list[Order]]:
        heard, orders = original(replace(holding, let_go={}), reply, sent_at_s, now_s)
        return replace(heard, let_go={}), orders

    monkeypatch.setattr(hold, "hear", hear)


def test_work_begun_by_a_reply_that_comes_too_late(monkeypatch: Patch) -> None:
    original = hold.hear

    def hear(holding: Holding, reply: Reply, sent_at_s: float, _now_s: float) -> tuple[Holding, list[Order]]:
        return original(holding, reply, sent_at_s, 0.0)

    monkeypatch.setattr(hold, "hear", hear)
    expect("two owners", search(replace(PAIR, messages_max=2)))


TALK = replace(PAIR, messages_max=3, each_max=2, timeless=True)


@pytest.mark.slow
def test_replies_accepted_out_of_order(monkeypatch: Patch) -> None:
    forget_what_was_let_go(monkeypatch)
    hear_in_any_order(monkeypatch)
    expect("two owners", search(TALK))


@pytest.mark.slow
def test_a_second_line_the_order_of_replies(monkeypatch: Patch) -> None:
    hear_in_any_order(monkeypatch)
    expect_nothing(search(TALK))


@pytest.mark.slow
def test_a_second_line_what_was_let_go(monkeypatch: Patch) -> None:
    forget_what_was_let_go(monkeypatch)
    expect_nothing(search(TALK))


RESIZED = replace(PAIR, faults={"resize": 2})


def test_rows_dropped_instead_of_tombstoned(monkeypatch: Patch) -> None:
    original = FactsTransaction.bury_rows

    def drop(tx: FactsTransaction, rows: Iterable[Row]) -> None:
        gone = list(rows)
        original(tx, gone)
        for row in gone:
            del tx._tombstones[row.id]

    monkeypatch.setattr(FactsTransaction, "bury_rows", drop)
    expect("granted again at epoch 1", search(RESIZED))


def test_a_set_deleted_while_owned(monkeypatch: Patch) -> None:
    original = handoff._retire

    def retire(row: Row, event: Retire) -> Outcome:
        return original(replace(row, state=OwnerState.UNASSIGNED), event)

    monkeypatch.setattr(handoff, "_retire", retire)
    expect("two owners", search(replace(RESIZED, rash=True, follows_table=False)))


def test_two_processes_given_one_incarnation(monkeypatch: Patch) -> None:
    original = heartbeat.register

    def register(member: MemberRow | None, name: str, process: str, now_s: float, lease_s: float) -> MemberRow:
        return replace(original(member, name, process, now_s, lease_s), incarnation=1)

    monkeypatch.setattr(executor, "register", register)
    expect("two owners", search(TWINS))


@pytest.mark.slow
def test_leases_that_keep_their_old_end_after_a_reboot(monkeypatch: Patch) -> None:
    def keep(_job: SetRow, row: Row, _now_s: float) -> Row:
        return row

    def shorten(row: Row, event: Say) -> Row:
        ended = event.revoke and row.deadline_s is not None and event.now_s >= row.deadline_s
        return row if ended else replace(row, lease_until_s=event.now_s + event.lease_s)

    # That a promised lease is never shortened is a second line here: only without both do two owners follow.
    monkeypatch.setattr(heartbeat, "after_reboot", keep)
    monkeypatch.setattr(handoff, "_renewed", shorten)
    expect("two owners", search(replace(PAIR, faults={"reboot": 1})))


@pytest.mark.slow
def test_a_second_line_the_second_look_at_an_expired_lease(monkeypatch: Patch) -> None:
    original = handoff._expire

    def expire(row: Row, event: Expire) -> Outcome:
        return original(row, replace(event, now_s=row.lease_until_s + event.grace_s))

    monkeypatch.setattr(handoff, "_expire", expire)
    expect_nothing(search(replace(LATE, careful=True), states_max=FURTHER))


def test_an_expiry_that_the_store_does_not_judge_and_the_leader_guesses(monkeypatch: Patch) -> None:
    original = handoff._expire

    def expire(row: Row, event: Expire) -> Outcome:
        return original(row, replace(event, now_s=row.lease_until_s + event.grace_s))

    monkeypatch.setattr(handoff, "_expire", expire)
    expect("two owners", search(PAIR))


@pytest.mark.slow
def test_a_lease_that_a_renewal_makes_shorter(monkeypatch: Patch) -> None:
    def renew(row: Row, event: Say) -> Row:
        return replace(row, lease_until_s=event.now_s + event.lease_s)

    monkeypatch.setattr(handoff, "_renewed", renew)
    longer = replace(PAIR, terms=Terms(lease_s=3.0, grace_s=1.0, release_s=1.0), faults={"shorten": 1})
    expect("two owners", search(longer))
