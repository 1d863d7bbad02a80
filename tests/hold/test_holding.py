"""What one member may do: act until sent_at + lease_s - margin, stop before it speaks, and begin nothing twice."""

from __future__ import annotations

import msgspec
import pytest

from poise.hold.holding import (
    Finish,
    Holding,
    Order,
    Phase,
    Piece,
    Start,
    Stop,
    busy,
    end,
    hear,
    leave,
    next_fence_s,
    overdue,
    speak,
    stopped,
    watch,
)
from poise.model.ownership import Granted, Hold, Release, Reply, Word

replace = msgspec.structs.replace
SENT, NOW = 100.0, 101.0
NEW = Holding(process="p", incarnation=2, margin_s=1.0, seq=3)
GRANT = Reply(2, 3, granted=(Granted("0", 5, 10.0),))
RELEASE = Reply(2, 3, release=(Release("0", 5, 10.0, 30.0),))
NOTHING = Reply(2, 3)
UNTIL = SENT + 10 - 1


def holding(phase: Phase, epoch: int = 5, until_s: float = 105.0) -> Holding:
    """Make a member that does something with item 0."""
    return replace(NEW, pieces={"0": Piece(epoch, phase, until_s)})


def phase(known: Holding) -> Phase | None:
    """Say what it does with item 0."""
    return known.pieces["0"].phase if "0" in known.pieces else None


@pytest.mark.parametrize(
    ("before", "reply", "reached", "orders"),
    [
        pytest.param(NEW, GRANT, Phase.ACTING, [Start("0", 5)], id="granted"),
        pytest.param(NEW, RELEASE, Phase.STOPPED, [], id="to be released, and never begun"),
        pytest.param(holding(Phase.ACTING), GRANT, Phase.ACTING, [], id="goes on"),
        pytest.param(holding(Phase.ACTING), RELEASE, Phase.FINISHING, [Finish("0", 5)], id="asked to release"),
        pytest.param(holding(Phase.FINISHING), RELEASE, Phase.FINISHING, [], id="asked again"),
        pytest.param(holding(Phase.FINISHING), GRANT, Phase.FINISHING, [], id="the request is taken back"),
        pytest.param(holding(Phase.STOPPING), GRANT, Phase.STOPPING, [], id="stopping goes on"),
        pytest.param(holding(Phase.STOPPED), GRANT, Phase.STOPPED, [], id="stopped, and not yet known"),
        pytest.param(holding(Phase.STOPPED), RELEASE, Phase.STOPPED, [], id="stopped when asked, and not yet known"),
        pytest.param(holding(Phase.ACTING), NOTHING, Phase.STOPPING, [Stop("0", 5)], id="no longer named"),
        pytest.param(holding(Phase.FINISHING), NOTHING, Phase.STOPPING, [Stop("0", 5)], id="finishing, not named"),
        pytest.param(holding(Phase.STOPPING), NOTHING, Phase.STOPPING, [], id="stopping, not named"),
        pytest.param(holding(Phase.STOPPED), NOTHING, None, [], id="stopped, and known"),
        pytest.param(holding(Phase.ACTING, 4), GRANT, Phase.STOPPING, [Stop("0", 4)], id="an old epoch ends first"),
        pytest.param(holding(Phase.STOPPING, 4), GRANT, Phase.STOPPING, [], id="an old epoch is ending"),
        pytest.param(holding(Phase.STOPPED, 4), GRANT, Phase.ACTING, [Start("0", 5)], id="an old epoch has ended"),
    ],
)
def test_hearing(before: Holding, reply: Reply, reached: Phase | None, orders: list[Order]) -> None:
    after, told = hear(before, reply, SENT, NOW)
    assert (phase(after), told, after.used_seq) == (reached, orders, 3)


@pytest.mark.parametrize("before", [NEW, holding(Phase.ACTING), holding(Phase.FINISHING)])
def test_time_counts_from_when_the_heartbeat_was_sent(before: Holding) -> None:
    assert hear(before, GRANT, SENT, NOW)[0].pieces["0"].until_s == UNTIL


def test_what_has_ended_when_the_reply_comes_is_not_begun() -> None:
    after, orders = hear(NEW, GRANT, SENT, UNTIL)
    assert (after.pieces, orders) == ({}, [])
    assert hear(NEW, GRANT, SENT, UNTIL - 0.001)[1] == [Start("0", 5)]


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(replace(NEW, used_seq=3), id="heard already"),
        pytest.param(replace(NEW, used_seq=4), id="older than the newest used"),
        pytest.param(replace(NEW, incarnation=3), id="for another incarnation"),
        pytest.param(replace(NEW, ended=True), id="superseded"),
    ],
)
def test_a_reply_that_is_ignored(before: Holding) -> None:
    assert hear(before, GRANT, SENT, NOW) == (before, [])


def test_having_said_released_it_never_starts_that_epoch_again() -> None:
    gone, _ = hear(holding(Phase.STOPPED), NOTHING, SENT, NOW)
    again, orders = hear(gone, replace(GRANT, seq=4), SENT, NOW)
    assert (phase(again), orders) == (Phase.STOPPED, [])
    assert speak(again)[1].holds == (Hold("0", 5, Word.RELEASED),)
    onward, orders = hear(again, Reply(2, 5, granted=(Granted("0", 6, 10.0),)), SENT, NOW)
    assert (phase(onward), orders) == (Phase.ACTING, [Start("0", 6)])


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (Phase.ACTING, (Hold("0", 5, Word.HELD),)),
        (Phase.FINISHING, (Hold("0", 5, Word.RELEASING),)),
        (Phase.STOPPING, ()),
        (Phase.STOPPED, (Hold("0", 5, Word.RELEASED),)),
    ],
)
def test_speaking(known: Phase, said: tuple[Hold, ...]) -> None:
    after, heartbeat = speak(holding(known), weight=2, leaving="stop")
    assert heartbeat.holds == said
    assert (heartbeat.process, heartbeat.incarnation, heartbeat.weight, heartbeat.leaving) == ("p", 2, 2, "stop")
    assert after.seq == heartbeat.seq == 4
    assert speak(after)[1].seq == 5


@pytest.mark.parametrize("known", [Phase.ACTING, Phase.FINISHING])
def test_it_fences_itself_exactly_when_its_time_is_over(known: Phase) -> None:
    before = holding(known)
    assert watch(before, 104.999) == (before, [])
    after, orders = watch(before, 105.0)
    assert (phase(after), orders) == (Phase.STOPPING, [Stop("0", 5)])
    assert watch(after, 106.0) == (after, [])


@pytest.mark.parametrize("reply", [NOTHING, Reply(2, 3, granted=(Granted("0", 6, 10.0),))], ids=["lost", "regranted"])
def test_what_a_reply_ends_may_not_be_acted_on_from_then_on(reply: Reply) -> None:
    after, orders = hear(holding(Phase.ACTING), reply, SENT, NOW)
    assert orders == [Stop("0", 5)]
    assert after.pieces["0"].until_s == NOW


def test_what_runs_is_never_forgotten_for_an_epoch_that_was_let_go_of_before() -> None:
    before = replace(holding(Phase.ACTING, 6), let_go={"0": 5})
    after, orders = hear(before, GRANT, SENT, NOW)
    assert (phase(after), after.pieces["0"].epoch, orders) == (Phase.STOPPING, 6, [Stop("0", 6)])


def test_each_item_is_fenced_by_its_own_time() -> None:
    reply = Reply(2, 3, granted=(Granted("0", 5, 10.0), Granted("1", 7, 4.0)))
    after, orders = watch(hear(NEW, reply, SENT, NOW)[0], SENT + 3.0)
    assert orders == [Stop("1", 7)]
    assert phase(after) is Phase.ACTING


@pytest.mark.parametrize("known", list(Phase))
def test_a_superseded_process_stops_everything(known: Phase) -> None:
    after, orders = end(holding(known))
    assert after.ended
    assert phase(after) is (known if known is Phase.STOPPED else Phase.STOPPING)
    assert orders == ([Stop("0", 5)] if known in (Phase.ACTING, Phase.FINISHING) else [])


def test_a_process_that_ends_may_act_on_nothing_from_then_on() -> None:
    assert end(holding(Phase.ACTING), NOW)[0].pieces["0"].until_s == NOW


def test_work_that_has_stopped_is_noted_for_its_own_epoch_only() -> None:
    assert phase(stopped(holding(Phase.STOPPING), "0", 5)) is Phase.STOPPED
    assert phase(stopped(holding(Phase.ACTING), "0", 4)) is Phase.ACTING
    assert stopped(NEW, "0", 5) == NEW


def asked(**changes: bool) -> Holding:
    """Make a member that has heard a request, with its deadline."""
    return hear(replace(holding(Phase.ACTING), **changes), RELEASE, SENT, NOW)[0]


DEADLINE = SENT + 30.0
LATER = replace(GRANT, seq=4)


def test_a_deadline_counts_from_when_the_heartbeat_was_sent_and_is_set_once() -> None:
    assert asked().pieces["0"].finish_by_s == DEADLINE
    again = replace(RELEASE, seq=4, release=(Release("0", 5, 10.0, 99.0),))
    assert hear(asked(), again, SENT + 5, NOW + 5)[0].pieces["0"].finish_by_s == DEADLINE


@pytest.mark.parametrize(
    ("reply", "now_s", "revoke", "reached"),
    [
        pytest.param(LATER, DEADLINE - 0.001, True, Phase.FINISHING, id="taken back before its deadline"),
        pytest.param(LATER, DEADLINE, True, Phase.STOPPING, id="taken back, and its deadline is over"),
        pytest.param(LATER, DEADLINE, False, Phase.FINISHING, id="wait: it is only reported"),
        pytest.param(replace(RELEASE, seq=4), DEADLINE, True, Phase.FINISHING, id="it stands: the lease will run out"),
        pytest.param(replace(RELEASE, seq=4), DEADLINE, False, Phase.FINISHING, id="it stands, and wait"),
    ],
)
def test_work_that_was_asked_to_end_and_does_not(reply: Reply, now_s: float, revoke: bool, reached: Phase) -> None:
    after, orders = hear(asked(revoke=revoke), reply, now_s - 1, now_s)
    assert (phase(after), orders) == (reached, [Stop("0", 5)] if reached is Phase.STOPPING else [])


def test_what_acts_has_no_deadline_however_late_it_is() -> None:
    assert phase(hear(holding(Phase.ACTING), GRANT, 1e9, 1e9)[0]) is Phase.ACTING


def test_work_past_its_deadline_is_named_until_it_is_being_stopped() -> None:
    assert overdue(asked(), DEADLINE - 0.001) == frozenset()
    assert overdue(asked(), DEADLINE) == frozenset({("0", 5)})
    assert overdue(stopped(asked(), "0", 5), DEADLINE) == frozenset()


def test_one_that_leaves_finishes_everything_by_a_deadline() -> None:
    after, orders = leave(holding(Phase.ACTING), DEADLINE)
    assert (after.pieces["0"], orders) == (Piece(5, Phase.FINISHING, 105.0, DEADLINE), [Finish("0", 5)])
    assert leave(asked(), 1.0) == (asked(), [])
    assert phase(hear(after, GRANT, DEADLINE - 1, DEADLINE)[0]) is Phase.STOPPING


@pytest.mark.parametrize("known", list(Phase))
def test_a_member_is_busy_until_all_has_stopped(known: Phase) -> None:
    assert busy(holding(known)) == (known is not Phase.STOPPED)
    assert not busy(NEW)


def test_the_next_fence_is_the_first_end_of_what_is_worked_on() -> None:
    pieces = {"0": Piece(1, Phase.ACTING, 9.0), "1": Piece(1, Phase.FINISHING, 7.0), "2": Piece(1, Phase.STOPPING, 1.0)}
    assert next_fence_s(replace(NEW, pieces=pieces)) == 7.0
    assert next_fence_s(holding(Phase.STOPPED)) is None
