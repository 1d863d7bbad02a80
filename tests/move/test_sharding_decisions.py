"""What the sharder writes next: every rule of a move by its name."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poise.model.sharding import NOBODY, Marks, SeenObject, Standing, Step, Write
from poise.move.sharding import decide
from poise.move.sharding.decide import Outlook, next_steps
from poise.move.sharding.families import Family, Relatives, Trace, find_families
from poise.move.sharding.passes import DrainClock, is_clear, overdue, plan_pass, time_drains

UNTIL = 1_800_000_060
STANDINGS = {
    "a": Standing.READY,
    "b": Standing.READY,
    "c": Standing.READY,
    "late": Standing.LATE,
    "lost": Standing.LOST,
    "held": Standing.HELD,
}
OUTLOOK = Outlook(standings=STANDINGS, drain_until=UNTIL)
FORCE = Outlook(standings=STANDINGS, drain_until=UNTIL, force=True, overdue=frozenset({"r", "k"}))
BRAKED = Outlook(standings=STANDINGS, drain_until=UNTIL, braked=True)
BARE = Marks()
replace = msgspec.structs.replace


def root(marks: Marks = BARE, *, selected: bool = True) -> SeenObject:
    return SeenObject("r", "/Root/ns/r", "v-r", marks, None, selected)


def kid(marks: Marks = BARE, uid: str = "k") -> SeenObject:
    return SeenObject(uid, f"/Kid/ns/{uid}", f"v-{uid}", marks, "r")


def steps(
    marks: Marks,
    wanted: str | None,
    *kids: Marks,
    outlook: Outlook = OUTLOOK,
    known: bool = True,
    selected: bool = True,
) -> list[tuple[str, list[list[tuple[str, Marks]]], str | None]]:
    """Decide on one family and tell it shortly: kind, groups of (object, marks afterwards), whose Lease it needs."""
    children = [kid(each, f"k{place or ''}") for place, each in enumerate(kids)]
    traces = {child.uid: Trace("r", None, None, True) for child in children} if known else {}
    (family,) = find_families([root(marks, selected=selected), *children], traces).families
    return [told(step) for step in next_steps(family, wanted, outlook)]


def told(step: Step) -> tuple[str, list[list[tuple[str, Marks]]], str | None]:
    assert all(write.version == f"v-{write.uid}" for write in step.writes), "every write carries the version"
    groups = [[(write.uid, write.marks) for write in group] for group in step.groups]
    return step.kind, groups, step.needs


HELD_BY_A = Marks("a", 4)
ASKED = Marks("a", 4, "b", UNTIL - 9)


@pytest.mark.parametrize(
    ("marks", "wanted", "kids", "expected"),
    [
        pytest.param(BARE, "a", (), [("assign", [[("r", Marks("a", 1))]], None)], id="assign: a new object"),
        pytest.param(
            Marks(None, 4), "b", (), [("assign", [[("r", Marks("b", 5))]], None)], id="assign: goes on from its epoch"
        ),
        pytest.param(
            Marks(None, 4),
            "b",
            (BARE, HELD_BY_A),
            [("assign", [[("k", Marks("b", 5)), ("k1", Marks("b", 5))], [("r", Marks("b", 5))]], None)],
            id="assign: children first, the root last",
        ),
        pytest.param(
            Marks(None, 4),
            "b",
            (Marks("b", 5),),
            [("assign", [[("r", Marks("b", 5))]], None)],
            id="assign: goes on after an interruption",
        ),
        pytest.param(
            Marks(None, 4, "c", UNTIL), "b", (), [("assign", [[("r", Marks("b", 5))]], None)], id="assign: a left drain"
        ),
        pytest.param(BARE, "late", (), [], id="no new objects for an expired instance"),
        pytest.param(BARE, None, (), [], id="nobody to assign it to"),
        pytest.param(HELD_BY_A, "a", (HELD_BY_A,), [], id="nothing to do, nothing written"),
        pytest.param(
            HELD_BY_A, "b", (HELD_BY_A,), [("drain", [[("r", Marks("a", 4, "b", UNTIL))]], None)], id="ask to drain"
        ),
        pytest.param(HELD_BY_A, "late", (), [], id="nothing is asked for an instance that is not ready"),
        pytest.param(ASKED, "b", (HELD_BY_A,), [], id="a request that stands is waited for"),
        pytest.param(
            ASKED,
            "c",
            (),
            [("redirect", [[("r", Marks("a", 4, "c", UNTIL - 9))]], None)],
            id="rewriting drain keeps drain-until",
        ),
        pytest.param(ASKED, "a", (), [("keep", [[("r", HELD_BY_A)]], None)], id="drain removed: it stays"),
        pytest.param(ASKED, None, (), [("keep", [[("r", HELD_BY_A)]], None)], id="drain removed: nobody is ready"),
        pytest.param(
            Marks("a", 4, "b"),
            "b",
            (),
            [("redirect", [[("r", Marks("a", 4, "b", UNTIL))]], None)],
            id="drain and drain-until are written together",
        ),
        pytest.param(Marks("late", 4), "b", (Marks("late", 4),), [], id="from an expired instance nothing moves"),
        pytest.param(
            Marks("late", 4, "lost", UNTIL),
            "b",
            (),
            [("redirect", [[("r", Marks("late", 4, "b", UNTIL))]], None)],
            id="a drain to who is not ready is rewritten also while its owner is late",
        ),
        pytest.param(
            Marks("late", 4, "b", UNTIL), "c", (), [], id="a drain to who is ready is left while owner is late"
        ),
        pytest.param(
            Marks("held", 4, "c", UNTIL),
            "b",
            (Marks("held", 4), Marks("c", 5)),
            [("take", [[("k", Marks("b", 5)), ("k1", Marks("b", 5))], [("r", Marks("b", 5))]], "held")],
            id="dead in mid-drain after some children: by the rule",
        ),
        pytest.param(
            Marks("lost", 4), "b", (), [("take", [[("r", Marks("b", 5))]], "lost")], id="dead: only holding its Lease"
        ),
        pytest.param(Marks("held", 4), None, (), [], id="dead, and nobody to move it to"),
        pytest.param(
            Marks("a"), "a", (Marks("a", 6),), [("repair", [[("r", Marks("a", 7))]], None)], id="an epoch of nonsense"
        ),
    ],
)
def test_the_rules_of_a_root(
    marks: Marks,
    wanted: str | None,
    kids: tuple[Marks, ...],
    expected: list[tuple[str, list[list[tuple[str, Marks]]], str | None]],
) -> None:
    assert steps(marks, wanted, *kids) == expected


@pytest.mark.parametrize(
    ("child", "known", "expected"),
    [
        pytest.param(BARE, True, [("mend", [[("k", HELD_BY_A)]], None)], id="a new child"),
        pytest.param(Marks("a", 2), True, [("mend", [[("k", HELD_BY_A)]], None)], id="a child that was missed"),
        pytest.param(Marks("b", 3), True, [("mend", [[("k", HELD_BY_A)]], None)], id="a child of the last owner"),
        pytest.param(Marks("a", 4, "b", 7), True, [("mend", [[("k", HELD_BY_A)]], None)], id="a drain left on a child"),
        pytest.param(
            Marks("b", 5), True, [("repair", [[("r", Marks("a", 5))]], None)], id="undone: the root is raised first"
        ),
        pytest.param(
            Marks("b", 3), False, [("drain", [[("k", Marks("b", 3, "a", UNTIL))]], None)], id="adopted: drained first"
        ),
        pytest.param(Marks("b", 3, "a", UNTIL), False, [], id="adopted: waited for"),
        pytest.param(
            Marks("b", 3, "c", UNTIL),
            False,
            [("drain", [[("k", Marks("b", 3, "a", UNTIL))]], None)],
            id="adopted: drained to the root's owner",
        ),
        pytest.param(Marks("late", 3), False, [], id="adopted from an expired instance: nothing moves"),
        pytest.param(
            Marks("held", 3),
            False,
            [("mend", [[("k", HELD_BY_A)]], "held")],
            id="adopted from the dead: with its Lease",
        ),
        pytest.param(
            Marks("a", 3),
            False,
            [("drain", [[("k", Marks("a", 3, "a", UNTIL))]], None)],
            id="adopted by the same owner: it says that it has seen it",
        ),
        pytest.param(
            Marks("held", 9), False, [("repair", [[("r", Marks("a", 10))]], None)], id="adopted with a larger epoch"
        ),
        pytest.param(
            Marks("held", 4),
            False,
            [("repair", [[("r", Marks("a", 5))]], None)],
            id="adopted with the same epoch: its holder may be late",
        ),
    ],
)
def test_children_are_mended_by_copying_the_root(
    child: Marks, known: bool, expected: list[tuple[str, list[list[tuple[str, Marks]]], str | None]]
) -> None:
    assert steps(HELD_BY_A, "a", child, known=known) == expected
    assert steps(ASKED, "b", child, known=known) == [], "only while the root has no drain label"


def test_an_adopted_child_does_not_move_with_its_new_root() -> None:
    taken = steps(Marks("held", 4), "b", Marks("c", 9), known=False)
    assert taken == [("take", [[("r", Marks("b", 5))]], "held")]
    assigned = steps(Marks(None, 4), "b", HELD_BY_A, known=False)
    assert assigned == [("assign", [[("r", Marks("b", 5))]], None)]


def test_after_a_restart_the_children_of_the_dead_still_come_first() -> None:
    taken = steps(Marks("held", 4), "b", Marks("held", 4), known=False)
    assert taken == [("take", [[("k", Marks("b", 5))], [("r", Marks("b", 5))]], "held")]
    forced = steps(ASKED, "b", HELD_BY_A, outlook=FORCE, known=False)
    assert forced == [("force", [[("k", Marks(None, 5))], [("r", Marks(None, 5))]], None)]


def test_a_child_that_came_with_a_larger_epoch_does_not_fall() -> None:
    taken = steps(Marks("held", 4), "b", Marks("held", 9))
    assert taken == [("take", [[("k", Marks("b", 9))], [("r", Marks("b", 9))]], "held")]


def test_a_child_that_was_adopted_from_the_dead_changes_hands_with_a_larger_epoch() -> None:
    taken = steps(Marks("held", 4), "b", Marks("held", 9), known=False)
    assert taken == [("take", [[("k", Marks("b", 10))], [("r", Marks("b", 10))]], "held")]


def test_not_handed_over_in_time_wait_and_force() -> None:
    waiting = replace(FORCE, force=False)
    assert steps(ASKED, "b", HELD_BY_A, outlook=waiting) == []
    forced = [("force", [[("k", Marks(None, 5))], [("r", Marks(None, 5))]], None)]
    assert steps(ASKED, "b", HELD_BY_A, outlook=FORCE) == forced
    assert steps(Marks(None, 5), "b", Marks(None, 5), outlook=FORCE) == [
        ("assign", [[("k", Marks("b", 6))], [("r", Marks("b", 6))]], None)
    ], "only then it is assigned"
    adopted = steps(HELD_BY_A, "a", Marks("b", 3, "a", UNTIL), outlook=FORCE, known=False)
    assert adopted == [("force", [[("k", Marks(None, 4))]], None)]


def test_removing_a_ring_or_leaving_the_selector() -> None:
    asked = Marks("a", 4, NOBODY, UNTIL)
    assert steps(HELD_BY_A, "a", selected=False) == [("drain", [[("r", asked)]], None)]
    assert steps(asked, "a", selected=False) == []
    assert steps(ASKED, "b", selected=False) == [("redirect", [[("r", replace(ASKED, drain=NOBODY))]], None)]
    assert steps(asked, "a") == [("keep", [[("r", HELD_BY_A)]], None)], "selected again"
    assert steps(Marks("held", 4), None, selected=False) == [("take", [[("r", Marks(None, 5))]], "held")]
    assert steps(Marks("late", 4), "a", selected=False) == []
    assert steps(Marks(None, 4), "a", HELD_BY_A, selected=False) == [("mend", [[("k", Marks(None, 4))]], None)]
    assert steps(Marks(None, 4), "a", Marks(None, 4), selected=False) == [], "the epoch stays"
    assert steps(Marks(None, 4, "b", 7), "a", selected=False) == [("mend", [[("r", Marks(None, 4))]], None)]


def test_a_ring_has_ended_when_no_root_has_a_shard_label() -> None:
    assert is_clear(find_families([root(Marks(None, 3)), kid(HELD_BY_A)]))
    assert not is_clear(find_families([root(HELD_BY_A)]))


def test_under_the_brake_nothing_moves_but_what_is_free_is_given() -> None:
    for marks in (HELD_BY_A, Marks("held", 4), Marks("lost", 4)):
        assert steps(marks, "b", outlook=BRAKED) == []
    assert steps(ASKED, "b", outlook=replace(BRAKED, force=True, overdue=frozenset({"r"}))) == []
    assert [kind for kind, _, _ in steps(BARE, "b", outlook=BRAKED)] == ["assign"]
    assert [kind for kind, _, _ in steps(ASKED, "a", outlook=BRAKED)] == ["keep"]


@pytest.mark.parametrize("dead", ["held", "lost"])
def test_under_the_brake_no_root_is_raised_for_the_children_of_the_dead(dead: str) -> None:
    assert steps(HELD_BY_A, "a", Marks(dead, 4), outlook=BRAKED, known=False) == []
    raised = [("repair", [[("r", Marks("a", 5))]], None)]
    assert steps(HELD_BY_A, "a", Marks(dead, 5), outlook=BRAKED) == raised, "for its own children it is"


# A whole pass


def rooted(uid: str, marks: Marks) -> SeenObject:
    return SeenObject(uid, uid, "v", marks)


def test_moves_in_flight_are_bounded_and_the_rest_waits() -> None:
    objects = [rooted(f"r{place}", HELD_BY_A) for place in range(5)] + [rooted("r5", ASKED)]
    relatives = find_families(objects)
    wanted = {each.uid: "b" for each in objects}
    decided = plan_pass(relatives, wanted, OUTLOOK, moves_max=3)
    assert [step.writes[0].uid for step in decided.steps] == ["r0", "r1"]
    assert decided.delayed == 3
    assert len(plan_pass(relatives, wanted, OUTLOOK, moves_max=None).steps) == 5
    assert len(plan_pass(relatives, wanted, OUTLOOK, moves_max=9, in_flight=8).steps) == 1, "others of the ring count"
    assert len(plan_pass(relatives, wanted, OUTLOOK, moves_max=0).steps) == 0
    removed = find_families([replace(each, selected=False) for each in objects])
    assert len(plan_pass(removed, wanted, OUTLOOK, moves_max=0).steps) == 6, "letting go for good is not counted"


def test_a_pass_asks_for_the_leases_that_it_needs_and_waits_for_them() -> None:
    relatives = find_families([rooted("r0", Marks("lost", 1)), rooted("r1", Marks("held", 1)), rooted("r2", BARE)])
    decided = plan_pass(relatives, {"r0": "a", "r1": "a", "r2": None}, OUTLOOK)
    assert [step.writes[0].uid for step in decided.steps] == ["r1"]
    assert decided.work == {"lost", "held"}
    assert decided.named == {"lost", "held"}
    assert decided.unassigned == ("r2",)


def test_drains_are_timed_by_the_own_clock_from_when_they_were_seen() -> None:
    relatives = find_families([root(ASKED), kid(HELD_BY_A)])
    clocks = time_drains({}, relatives, 10.0)
    assert clocks == {"r": DrainClock(4, 10.0)}
    redirected = find_families([root(replace(ASKED, drain="c"))])
    assert time_drains(clocks, redirected, 20.0) == clocks, "rewriting does not begin again"
    assert time_drains(clocks, find_families([root(replace(ASKED, epoch=6))]), 20.0) == {"r": DrainClock(6, 20.0)}
    assert time_drains(clocks, find_families([root(HELD_BY_A)]), 20.0) == {}
    assert overdue(clocks, 60.0, 69.9) == frozenset()
    assert overdue(clocks, 60.0, 70.0) == {"r"}
    decided = plan_pass(relatives, {"r": "b"}, replace(OUTLOOK, overdue=frozenset({"r"})), clocks)
    assert (decided.drains, decided.oldest_s, decided.overdue, decided.steps) == (1, 10.0, ("r",), ())


# Laws


NAMES = st.sampled_from([None, *STANDINGS])
MARKS = st.builds(
    Marks,
    NAMES,
    st.none() | st.integers(0, 4),
    st.none() | st.sampled_from([*STANDINGS, NOBODY]),
    st.none() | st.just(5),
)


def fleets() -> st.SearchStrategy[list[SeenObject]]:
    one = st.tuples(MARKS, st.integers(-3, 5), st.booleans())
    return st.lists(one, max_size=6).map(
        lambda facts: [
            SeenObject(f"o{at}", f"o{at}", "v", marks, f"o{parent}" if parent >= 0 else None, selected)
            for at, (marks, parent, selected) in enumerate(facts)
        ]
    )


def written(objects: list[SeenObject], writes: tuple[Write, ...]) -> list[SeenObject]:
    after = {write.uid: write.marks for write in writes}
    return [replace(each, marks=after.get(each.uid, each.marks)) for each in objects]


def check_laws(relatives: Relatives, decided: tuple[Step, ...]) -> None:
    """Hold decisions to what must be true of every write of a sharder."""
    by_uid = {each.uid: each for family in relatives.families for each in (family.root, *family.children)}
    for step in decided:
        for write in step.writes:
            before, after = by_uid[write.uid].marks, write.marks
            assert before != after, "nothing is written that is there already"
            assert (after.drain is None) == (after.drain_until is None), "drain and drain-until go together"
            assert (after.epoch or 0) >= (before.epoch or 0), "no epoch falls"
            if before.shard is not None and after.shard != before.shard:
                freed = STANDINGS[before.shard] in (Standing.HELD, Standing.LOST) and step.needs == before.shard
                assert freed, "a root, or what was one, is taken only from the dead, with their Lease"
                assert (after.epoch or 0) > (before.epoch or 0), "an owner changes with a larger epoch"
            if after.shard is not None and after.shard != before.shard and step.kind in ("assign", "take"):
                assert STANDINGS[after.shard] is Standing.READY, "only who is ready is given something"
        assert len({write.uid for write in step.writes}) == len(step.writes)


@settings(max_examples=400, deadline=None)
@given(fleets(), st.lists(NAMES, min_size=6, max_size=6))
def test_the_laws_of_every_write(objects: list[SeenObject], wanted: list[str | None]) -> None:
    relatives = find_families(objects)
    choice = {f"o{at}": name for at, name in enumerate(wanted)}
    for family in relatives.families:
        check_laws(relatives, next_steps(family, choice[family.root.uid], OUTLOOK))


@settings(max_examples=300, deadline=None)
@given(fleets(), st.sampled_from(["a", "b", None]))
def test_passes_come_to_an_end_and_the_next_one_writes_nothing(objects: list[SeenObject], wanted: str | None) -> None:
    run_passes(objects, wanted)


def run_passes(objects: list[SeenObject], wanted: str | None) -> None:
    """Every instance but the late one acknowledges at once; then so many passes are enough, whatever was there."""
    traces: dict[str, Trace] = {}
    for _ in range(12):
        relatives = find_families(objects, traces)
        traces = relatives.traces
        decided = plan_pass(relatives, {each.uid: wanted for each in objects}, OUTLOOK)
        if not decided.steps:
            break
        for step in decided.steps:
            objects = written(objects, step.writes)
        objects = [acknowledged(each) for each in objects]
    else:
        pytest.fail("it never ends")
    again = plan_pass(find_families(objects, traces), {each.uid: wanted for each in objects}, OUTLOOK)
    assert again.steps == ()


def acknowledged(each: SeenObject) -> SeenObject:
    """Let a ready instance hand over what it is asked for."""
    marks = each.marks
    if marks.drain is None or marks.shard is None or STANDINGS.get(marks.shard) is not Standing.READY:
        return each
    after = Marks(marks.drain, marks.next_epoch) if marks.drain else Marks(epoch=marks.epoch)
    return replace(each, marks=after)


def test_the_laws_catch_a_sharder_that_takes_from_the_living(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(family: Family, target: str | None, outlook: Outlook) -> tuple[Step, ...]:
        del outlook
        return (decide.give(family, target, "take"),)

    monkeypatch.setattr(decide, "_held", take)
    living = find_families([root(HELD_BY_A)])
    with pytest.raises(AssertionError, match="only from the dead"):
        check_laws(living, next_steps(living.families[0], "b", OUTLOOK))


def test_the_end_of_passes_is_missed_by_a_sharder_that_writes_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def mend(child: SeenObject, goal: Marks, strange: bool, outlook: Outlook) -> Step | None:
        del strange, outlook
        return decide._single("mend", child, goal)

    monkeypatch.setattr(decide, "_mend", mend)
    with pytest.raises(pytest.fail.Exception):
        run_passes([root(HELD_BY_A), kid(HELD_BY_A)], "a")
