"""Explanations of items, and the claims they make: each "would move" is tried by planning again."""

from __future__ import annotations

import re
from importlib import import_module

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from poise.decide.balance import rebalance
from poise.decide.explain import Explanation, explain
from poise.decide.plan import Plan
from poise.decide.rendezvous import fill, place, plan_hashed
from poise.decide.ring import Ring, plan_ring
from poise.decide.scores import hashes, score
from poise.errors import InvalidSpec


def test_a_library_call_with_an_unknown_item_is_invalid() -> None:
    plan = rebalance(["a"], ["m"], {})
    with pytest.raises(InvalidSpec, match="not among the 1 items"):
        explain(plan, "b", ["m"], {})


def member_and_count(sentence: str) -> tuple[str, int]:
    """Read `… if m2 had room for 3 more (…)` or `… if m2 could keep one more`."""
    found = re.search(r" if (\S+) (?:had room for|could keep) (one|\d+) more", sentence)
    assert found, sentence
    return found[1], 1 if found[2] == "one" else int(found[2])


class Facts(msgspec.Struct, frozen=True):
    """A fleet in any state: some items are new, some on a member that is gone, some members take nothing."""

    items: list[str]
    members: list[str]
    current: dict[str, str | None]
    capacity: dict[str, int]


@st.composite
def facts(draw: st.DrawFn) -> Facts:
    salt = draw(st.integers(0, 10**6))
    items = sorted(f"i{salt}-{number}" for number in range(draw(st.integers(1, 25))))
    members = [f"m{number}" for number in range(draw(st.integers(1, 5)))]
    holders = st.sampled_from([None, "gone", *members[: draw(st.integers(1, 5))]])
    current = {item: draw(holders) for item in items}
    return Facts(items, members, current, draw(st.dictionaries(st.sampled_from(members), st.integers(0, 6))))


def attracting(why: Explanation) -> list[str]:
    return [text for text in why.would_move if "had room for" in text]


@settings(max_examples=examples(200), deadline=None)
@given(facts())
def test_with_room_for_so_many_more_the_preferred_member_takes_it(known: Facts) -> None:
    """What attracts an item is tried: its queue is placed again with that much more room."""
    items, members, current = known.items, known.members, known.current
    plan = rebalance(items, members, current, capacity=known.capacity)
    kept = {item for item in items if current[item] == plan.assignment[item] is not None}
    queue = sorted((item for item in items if item not in kept), key=lambda item: (current[item] is None, item))
    room = [plan.loads[member] - sum(current[item] == member for item in kept) for member in members]
    for item in queue:
        for sentence in attracting(explain(plan, item, members, current, capacity=known.capacity)):
            member, more = member_and_count(sentence)
            assert known.capacity.get(member) != 0, sentence
            wider = [free + more * (members[at] == member) for at, free in enumerate(room)]
            assert members[fill(hashes(queue), members, wider)[queue.index(item)]] == member, sentence


@settings(max_examples=examples(150), deadline=None)
@given(facts())
def test_with_a_larger_capacity_the_hashed_member_takes_it(known: Facts) -> None:
    """By hash alone room is the capacity: with that much more of it the item goes to the named member, or stays."""
    items, members = known.items, known.members
    plan = plan_hashed(items, members, known.current, capacity=known.capacity)
    for item in items:
        why = explain(plan, item, members, known.current, capacity=known.capacity, policy="hashed")
        assert not any("could keep" in text or "lets it go" in text for text in why.would_move + why.because)
        for sentence in attracting(why):
            member, more = member_and_count(sentence)
            even = -(-len(items) // len(members))
            wider = {name: known.capacity.get(name, even) + more * (name == member) for name in members}
            assert place(items, members, capacity=wider)[item] == member, sentence
            assert sentence.startswith("it would stay") == (known.current[item] == member)


@settings(max_examples=examples(150), deadline=None)
@given(facts())
def test_an_item_stays_if_its_member_can_keep_so_many_more(known: Facts) -> None:
    """A member keeps its best items up to its quota: the sentence gives the exact distance of the item's rank."""
    plan = rebalance(known.items, known.members, known.current, capacity=known.capacity)
    for move in plan.moves:
        why = explain(plan, move.item, known.members, known.current, capacity=known.capacity)
        sentences = [text for text in why.would_move if "could keep" in text]
        assert len(sentences) == (move.source in known.members)
        for sentence in sentences:
            member, more = member_and_count(sentence)
            held = [item for item in known.items if known.current[item] == member]
            best = sorted(held, key=lambda item: -score(item, member))
            kept = sum(plan.assignment[item] == member for item in held)
            assert (member, best.index(move.item)) == (move.source, kept + more - 1), sentence


def test_a_full_member_that_is_preferred_is_named_with_the_room_it_lacks() -> None:
    items, members, capacity = [f"i{number}" for number in range(12)], ["a", "b", "c"], {"a": 1}
    plan = rebalance(items, members, {}, capacity=capacity)
    told = [text for item in items for text in attracting(explain(plan, item, members, {}, capacity=capacity))]
    assert any(sentence.endswith("had room for one more") for sentence in told)
    assert any("had room for 2 more (1 that comes before it wants" in sentence for sentence in told)


def test_a_member_that_takes_nothing_attracts_nobody() -> None:
    items, members = [f"i{number}" for number in range(12)], ["a", "b"]
    plan = rebalance(items, members, {}, capacity={"a": 0})
    for item in items:
        why = explain(plan, item, members, {}, capacity={"a": 0})
        assert why.would_move == ["it would move if b were drained or gone"]
        assert why.because[-1] in ("b has the highest score for it, and room", "b is the best of those with room")


def test_one_leaves_and_two_leave() -> None:
    items = [f"i{number}" for number in range(4)]
    for current, sentence in (
        (dict(zip(items, ["p0", "p0", "p0", "p1"], strict=True)), "1 leaves p0: its score there is lower"),
        (dict.fromkeys(items, "p0"), "2 leave p0: their score there is lower"),
    ):
        plan = rebalance(items, ["p0", "p1"], current)
        stayer = next(item for item in items if current[item] == plan.assignment[item] == "p0")
        assert explain(plan, stayer, ["p0", "p1"], current).because[1] == sentence


@pytest.mark.parametrize(
    ("policy", "plan"),
    [
        ("sticky", rebalance(["a"], [], {"a": "old"})),
        ("hashed", plan_hashed(["a"], [], {"a": "old"})),
        ("ring", plan_ring(["a"], [], {"a": "old"})),
    ],
)
def test_without_any_member_nobody_is_said_to_lack_room(policy: str, plan: Plan) -> None:
    why = explain(plan, "a", [], {"a": "old"}, policy=policy)
    nobody = "the ring has no member with a token" if policy == "ring" else "there is no member to take it"
    assert why.because == ["old is gone", nobody]


def test_a_full_fleet_says_why_the_item_left_and_that_nobody_has_room() -> None:
    plan = rebalance(["a", "b"], ["m"], {"a": "m", "b": "m"}, capacity=1)
    [lost] = plan.unassigned
    why = explain(plan, lost, ["m"], {"a": "m", "b": "m"}, capacity=1)
    assert why.because == ["m over its share (2 of 1)", "no member has room for it"]
    assert why.would_move == [
        "it would stay if m could keep one more",
        "it would be placed if a member joined that has room at its turn",
    ]


def test_the_heir_of_a_key_is_who_gets_it_when_the_owner_leaves() -> None:
    keys, members = [f"k{n}" for n in range(200)], ["a", "b", "c", "d"]
    plan = plan_ring(keys, members, {})
    for key in keys:
        heirs = Ring(members).successors(key)
        why = explain(plan, key, members, {}, policy="ring")
        assert [row.member for row in why.alternatives] == heirs
        assert Ring([member for member in members if member != heirs[0]]).owner(key) == heirs[1]


def leaving_first(plan: Plan, item: str, member: str) -> tuple[int, int]:
    """Count in the plain, slow form who would leave a member before an item, and how many it has."""
    beside = [name for name, holder in plan.assignment.items() if holder == member]
    return 1 + sum(score(name, member) < score(item, member) for name in beside), len(beside)


@settings(max_examples=examples(150), deadline=None)
@given(facts())
def test_what_uproots_an_item_is_what_the_slow_form_counts(known: Facts) -> None:
    plan = rebalance(known.items, known.members, known.current, capacity=known.capacity)
    for item in known.items:
        member = plan.assignment[item]
        if member is None or member != known.current[item]:
            continue
        why = explain(plan, item, known.members, known.current, capacity=known.capacity)
        turn, held = leaving_first(plan, item, member)
        assert why.would_move[0].startswith(f"it would leave if {member} had to give up {turn} of its {held},")


def test_holders_that_are_equal_but_not_the_same_text_are_found() -> None:
    plan = rebalance(["a", "b", "c"], ["m", "n"], {})
    copied = {item: "".join(list(holder or "")) for item, holder in plan.assignment.items()}
    told = [
        explain(each, item, ["m", "n"], copied)
        for each in (plan, msgspec.structs.replace(plan, assignment=copied))
        for item in copied
    ]
    assert told[:3] == told[3:]


def test_above_a_hundred_thousand_who_else_wants_a_place_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    items, members = [f"i{number}" for number in range(40)], ["a", "b"]
    plan = plan_hashed(items, members, {}, capacity=20)
    few = [explain(plan, item, members, {}, capacity=20, policy="hashed").would_move[0] for item in items]
    assert any("had room for" in text for text in few)
    monkeypatch.setattr(import_module("poise.decide.explain"), "_COUNTED_MAX", 39)
    many = [explain(plan, item, members, {}, capacity=20, policy="hashed").would_move[0] for item in items]
    assert not any("had room for" in text for text in many)
    assert any(text.endswith("had room at its turn") for text in many)
