"""A pause and a drain change whom the planner wants, and nothing else: what is shown of them, and what is decided."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.jobs_operator.ring_reports import CALM, seen
from tests.jobs_sharder.sharder_events import FOLLOWING, RING, SHARED, Drop, Put, events, known_of
from tests.jobs_sharder.test_sharder_deciding import NOW_S, UNTIL, deciding_on, instances, standings

from poise.clock import now
from poise.jobs.sharder.happenings import happenings
from poise.jobs.sharder.metrics import OperatorMetrics, RingNumbers
from poise.jobs.sharder.orders import Orders, Paused, drain_change, pause_change, read_orders
from poise.jobs.sharder.report import RingCounts, RingReport
from poise.jobs.sharder.status import JUDGES, Known, Looked, Verdict, shown_ring, summary
from poise.jobs.sharder.view import View
from poise.model.sharding import Marks, Standing, Step
from poise.observe.leases import Health

READY = {"x-0": Standing.READY, "x-1": Standing.READY, "x-2": Standing.READY}


@pytest.mark.parametrize(
    ("annotations", "orders"),
    [
        ({}, Orders()),
        ({"poise.dev/paused": ""}, Orders()),
        ({"poise.dev/paused": "false"}, Orders()),
        ({"poise.dev/paused": " No "}, Orders()),
        ({"poise.dev/paused": "true"}, Orders("moves")),
        ({"poise.dev/paused": "moves"}, Orders("moves")),
        ({"poise.dev/paused": "since lunch"}, Orders("moves")),
        ({"poise.dev/paused": "All"}, Orders("all")),
        ({"poise.dev/drained": "a"}, Orders(drained=frozenset({"a"}))),
        ({"poise.dev/drained": " b, a  c,,"}, Orders(drained=frozenset({"a", "b", "c"}))),
        ({"poise.dev/drained": ""}, Orders()),
    ],
)
def test_annotations_are_read_whoever_wrote_them(annotations: Mapping[str, str], orders: Orders) -> None:
    assert read_orders(annotations) == orders


@given(st.sampled_from(("", "moves", "all")), st.frozensets(st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True)))
def test_what_is_written_is_read_again(paused: Paused, drained: frozenset[str]) -> None:
    change = pause_change(paused) | drain_change(drained)
    assert read_orders({name: value for name, value in change.items() if value is not None}) == Orders(paused, drained)


def steps_under(orders: Orders, wanted: Mapping[str, Standing], *objects: Put, policy: str = "ring") -> list[Step]:
    """Decide once on objects, with these orders."""
    view, stand = View(RING, (SHARED, FOLLOWING)), instances(dict(wanted))
    stand.orders = orders
    for number, each in enumerate(objects):
        view.take(known_of(each, number + 100), NOW_S - 1)
    deciding = deciding_on(view, stand, policy)
    return [step for root in list(deciding.touched) for step in deciding.decide(root, NOW_S, UNTIL)]


def kinds(steps: list[Step]) -> list[tuple[str, str | None]]:
    return [(step.kind, step.target) for step in steps]


@pytest.mark.parametrize("policy", ["ring", "balanced"])
def test_a_drained_instance_is_asked_for_all_it_has_and_given_nothing(policy: str) -> None:
    objects = [Put(uid, None, Marks("x-0", 1)) for uid in "abcdef"] + [Put("g", None, Marks())]
    steps = steps_under(Orders(drained=frozenset({"x-0"})), READY, *objects, policy=policy)
    assert len(steps) == 7, "each is asked for, and the new one is given away"
    assert {step.kind for step in steps} == {"drain", "assign"}
    assert {step.target for step in steps} <= {"x-1", "x-2"}


def test_who_is_drained_keeps_what_nobody_can_take() -> None:
    orders = Orders(drained=frozenset({"x-0"}))
    assert steps_under(orders, {"x-0": Standing.READY, "x-1": Standing.LATE}, Put("a", None, Marks("x-0", 1))) == []
    assert steps_under(orders, {"x-0": Standing.READY}, Put("a", None, Marks())) == [], "it waits, and is shown"


def test_a_move_towards_a_drained_instance_is_turned_round() -> None:
    asked = Put("a", None, Marks("x-1", 1, "x-0", 9))
    ((kind, target),) = kinds(steps_under(Orders(drained=frozenset({"x-0"})), READY, asked))
    assert kind in ("redirect", "keep")
    assert target != "x-0"
    assert kinds(steps_under(Orders("moves", frozenset({"x-0"})), READY, asked)) == [("keep", None)]


def elsewhere(uid: str) -> Put:
    """Make an object that is with somebody whom the ring does not choose."""
    ((_, target),) = kinds(steps_under(Orders(), READY, Put(uid, None, Marks())))
    return Put(uid, None, Marks(next(name for name in READY if name != target), 1))


@pytest.mark.parametrize("paused", ["moves", "all"])
def test_a_pause_asks_nobody_for_anything(paused: Paused) -> None:
    misplaced = elsewhere("a")
    assert kinds(steps_under(Orders(), READY, misplaced))[0][0] == "drain"
    assert steps_under(Orders(paused), READY, misplaced) == []
    begun = Put("a", None, Marks(misplaced.marks.shard, 1, "x-2" if misplaced.marks.shard != "x-2" else "x-1", 9))
    assert steps_under(Orders(paused), READY, begun) == [], "what was begun goes on, and is not turned round"


def test_recovery_goes_on_unless_all_is_paused() -> None:
    held = {"x-0": Standing.HELD, "x-1": Standing.READY, "x-2": Standing.READY}
    lost, new = Put("a", None, Marks("x-0", 1)), Put("b", None, Marks())
    assert {step.kind for step in steps_under(Orders("moves"), held, lost, new)} == {"take", "assign"}
    assert steps_under(Orders("all"), held, lost, new) == []


def test_a_pause_forces_nobody() -> None:
    overdue = Put("a", None, Marks("x-0", 1, "x-1", 9))
    view, stand = View(RING, (SHARED, FOLLOWING)), instances(READY)
    view.take(known_of(overdue, 100), NOW_S - 60)
    deciding = deciding_on(view, stand, "ring")
    assert [step.kind for step in deciding.decide("a", NOW_S, UNTIL)] == ["force"]
    stand.orders = Orders("moves")
    assert deciding.decide("a", NOW_S, UNTIL) == ()


def test_what_a_pause_keeps_is_counted_until_it_ends() -> None:
    view, stand = View(RING, (SHARED, FOLLOWING)), instances(READY)
    view.take(known_of(elsewhere("a"), 100), NOW_S - 1)
    stand.orders = Orders("moves")
    deciding = deciding_on(view, stand, "ring")
    deciding.decide("a", NOW_S, UNTIL)
    assert deciding.withheld == {"a"}
    stand.orders = Orders()
    deciding.decide("a", NOW_S, UNTIL)
    assert not deciding.withheld


@settings(max_examples=80, deadline=None)
@given(events, standings, st.sampled_from(("ring", "balanced")), st.frozensets(st.sampled_from(("x-0", "x-1", "x-2"))))
def test_law_nobody_is_ever_asked_to_give_to_one_who_is_drained(
    happened: list[Put | Drop], wanted: dict[str, Standing], policy: str, drained: frozenset[str]
) -> None:
    puts = [each for each in happened if isinstance(each, Put)]
    for paused in ("", "moves"):
        steps = steps_under(Orders(paused, drained), wanted, *puts, policy=policy)
        assert not [step for step in steps if step.kind != "keep" and step.target in drained], steps


@settings(max_examples=80, deadline=None)
@given(events, standings, st.sampled_from(("ring", "balanced")))
def test_law_under_a_pause_no_family_changes_hands_but_by_recovery(
    happened: list[Put | Drop], wanted: dict[str, Standing], policy: str
) -> None:
    puts = [each for each in happened if isinstance(each, Put)]
    moving = {"drain", "redirect", "force"}
    for paused in ("moves", "all"):
        steps = steps_under(Orders(paused), wanted, *puts, policy=policy)
        asked = {(each.uid, each.marks.drain) for each in puts}  # What was begun may get the deadline that it lacks.
        begun = [step for step in steps if step.kind in moving and step.target not in (None, "")]
        families = {write.uid for step in begun for write in step.writes if (write.uid, step.target) not in asked}
        children = {each.uid for each in puts if each.parent is not None or not each.shared}
        assert families <= children, "only a child that was adopted follows its root"
        if paused == "all":
            assert not [step for step in steps if step.kind in ("take", "assign") and step.target is not None]


# What is shown.

DRAINED = replace(CALM, instances=(replace(seen("web-0"), drained=True), seen("web-1")))


def verdicts(report: RingReport) -> dict[str, tuple[str, str]]:
    shown = shown_ring(Looked(generation=1, report=report), Known(), now()).conditions
    return {each.type: (each.status, each.reason) for each in shown}


def test_orders_are_conditions_as_long_as_they_are_given() -> None:
    assert verdicts(CALM).keys() == {"Ready", "Balanced", "Progressing"}
    paused = verdicts(replace(CALM, paused="moves", withheld=2))
    assert paused["Paused"] == ("True", "MovesPaused")
    assert paused["Balanced"] == paused["Progressing"] == ("False", "Paused")
    assert paused["Ready"] == ("True", "Sharding")
    assert verdicts(replace(CALM, paused="all"))["Paused"] == ("True", "AllPaused")
    assert verdicts(replace(CALM, paused="moves"))["Balanced"] == ("True", "Settled"), "nothing waits"
    assert verdicts(DRAINED)["Drained"] == ("False", "Draining")
    assert verdicts(DRAINED)["Balanced"] == ("False", "Draining"), "nobody takes it"
    empty = replace(CALM, instances=(replace(seen("web-0", objects=0), drained=True), seen("web-1")))
    assert verdicts(empty)["Drained"] == ("True", "Empty")
    assert verdicts(empty)["Balanced"] == ("True", "Settled")


def test_a_condition_that_is_no_longer_asked_for_goes() -> None:
    before = shown_ring(Looked(generation=1, report=replace(DRAINED, paused="all")), Known(), now())
    assert {"Paused", "Drained"} <= {each.type for each in before.conditions}
    after = shown_ring(Looked(generation=1, report=CALM), Known(before.conditions), now())
    assert {each.type for each in after.conditions} == set(JUDGES)


def test_the_messages_say_who_and_how_much() -> None:
    shown = shown_ring(Looked(generation=1, report=replace(DRAINED, paused="moves", withheld=1)), Known(), now())
    told = {each.type: each.message for each in shown.conditions}
    assert "web-0 (2)" in told["Drained"]
    assert "poise.dev/drained" in told["Drained"]
    assert told["Paused"].endswith("nothing moves that is well; 1 object would move")
    assert summary(replace(CALM, paused="all")).endswith(", paused")
    waiting = replace(CALM, paused="all", unassigned=1, withheld=1)
    assert JUDGES["Progressing"](Looked(generation=1, report=waiting)) == Verdict(
        "False",
        "Paused",
        "paused by the annotation poise.dev/paused: nothing moves, and nothing is recovered; 1 object would move",
    )


def told(before: RingReport, after: RingReport) -> list[tuple[str, str]]:
    return [(each.reason, each.about) for each in happenings(before, after)]


def test_events_tell_of_drains_and_pauses() -> None:
    empty = replace(CALM, instances=(replace(seen("web-0", objects=0), drained=True), seen("web-1")))
    bare = replace(CALM, instances=(seen("web-0", objects=0), seen("web-1")))
    assert told(CALM, DRAINED) == [("InstanceDraining", "web-0")]
    assert told(DRAINED, DRAINED) == []
    assert told(DRAINED, empty) == [("InstanceDrained", "web-0")]
    assert told(bare, empty) == [("InstanceDrained", "web-0")], "one that has nothing is drained at once"
    assert told(empty, empty) == []
    assert told(DRAINED, CALM) == [("InstanceUndrained", "web-0")]
    assert told(CALM, replace(CALM, paused="moves")) == [("Paused", "")]
    assert told(replace(CALM, paused="moves"), replace(CALM, paused="all")) == [("Paused", "")]
    assert told(replace(CALM, paused="all"), CALM) == [("Resumed", "")]
    late = replace(CALM, instances=(replace(seen("web-0", Health.EXPIRED), drained=True), seen("web-1")))
    assert told(CALM, late) == [("InstanceExpired", "web-0"), ("InstanceDraining", "web-0")]


def test_metrics_tell_of_drains_and_pauses() -> None:
    report = replace(DRAINED, paused="moves", withheld=3)
    text = OperatorMetrics(lambda: [RingNumbers("web", report, RingCounts())], {}).exposition().decode()
    assert 'poise_paused{job="ShardRing/web"} 1.0' in text
    assert 'poise_moves_withheld{job="ShardRing/web"} 3.0' in text
    assert 'poise_members_drained{job="ShardRing/web"} 1.0' in text


# Each law, broken on purpose.


def test_mutant_a_pause_that_is_not_obeyed_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from poise.jobs.sharder.deciding import Deciding

    monkeypatch.setattr(Deciding, "_wanted", Deciding._home)
    with pytest.raises(AssertionError):
        test_a_pause_asks_nobody_for_anything("moves")


def test_mutant_a_drain_that_is_not_obeyed_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from poise.jobs.sharder.instances import Instances

    monkeypatch.setattr(Instances, "tokens", Instances.members)
    with pytest.raises(AssertionError):
        test_a_drained_instance_is_asked_for_all_it_has_and_given_nothing("ring")
