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
    end,
    hear,
    next_fence_s,
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


@pytest.mark.parametrize("known", list(Phase))
def test_a_superseded_process_stops_everything(known: Phase) -> None:
    after, orders = end(holding(known))
    assert after.ended
    assert phase(after) is (known if known is Phase.STOPPED else Phase.STOPPING)
    assert orders == ([Stop("0", 5)] if known in (Phase.ACTING, Phase.FINISHING) else [])


def test_work_that_has_stopped_is_noted_for_its_own_epoch_only() -> None:
    assert phase(stopped(holding(Phase.STOPPING), "0", 5)) is Phase.STOPPED
    assert phase(stopped(holding(Phase.ACTING), "0", 4)) is Phase.ACTING
    assert stopped(NEW, "0", 5) == NEW


def test_the_next_fence_is_the_first_end_of_what_is_worked_on() -> None:
    pieces = {"0": Piece(1, Phase.ACTING, 9.0), "1": Piece(1, Phase.FINISHING, 7.0), "2": Piece(1, Phase.STOPPING, 1.0)}
    assert next_fence_s(replace(NEW, pieces=pieces)) == 7.0
    assert next_fence_s(holding(Phase.STOPPED)) is None
