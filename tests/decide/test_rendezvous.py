"""Policy `hashed`: the rule by example, both forms side by side, its plan, and what it cannot do."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from poise.decide import rendezvous
from poise.decide.rendezvous import NOBODY, fill, place, place_one_by_one, plan_hashed
from poise.decide.scores import Hashes, hashes, score

PODS = [f"pod-{index}" for index in range(8)]
Capacity = int | dict[str, int] | None


def routers(count: int) -> list[str]:
    return [f"router{index}" for index in range(count)]


def loads_of(assignment: Mapping[str, str | None], members: list[str]) -> list[int]:
    counted = Counter(assignment.values())
    return [counted[member] for member in members]


def moved(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> list[str]:
    return [item for item in before if item in after and before[item] != after[item]]


@pytest.mark.parametrize(
    ("count", "pods", "capacity"),
    [
        pytest.param(10, 3, 4, id="10 on 3: capacity 4"),
        pytest.param(100, 7, 15, id="100 on 7: capacity 15"),
        pytest.param(5, 3, 2, id="5 on 3: capacity 2"),
    ],
)
def test_seed_examples_of_the_capacity(count: int, pods: int, capacity: int) -> None:
    placed = place(routers(count), PODS[:pods])
    assert placed == place(routers(count), PODS[:pods], capacity=capacity)
    assert placed != place(routers(count), PODS[:pods], capacity=capacity - 1)
    assert max(loads_of(placed, PODS)) <= capacity
    assert None not in placed.values()


def test_router1_is_tried_at_pod0_then_pod2_then_pod1(monkeypatch: pytest.MonkeyPatch) -> None:
    given_scores = {"pod0": 892341, "pod1": 234567, "pod2": 567890}
    monkeypatch.setattr(rendezvous, "score", lambda item, member: given_scores[member] if item == "router1" else 0)
    full: dict[str, int] = {}
    tried = []
    while (pod := place_one_by_one(["router1"], given_scores, capacity=full)["router1"]) is not None:
        tried.append(pod)
        full[pod] = 0
    assert tried == ["pod0", "pod2", "pod1"]


def test_equal_scores_go_to_the_bytewise_smaller_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xxhash, "xxh3_64_intdigest", lambda _: 7)
    expected = {"x1": "B", "x2": "a", "x3": "é"}
    assert place(["x1", "x2", "x3"], ["é", "a", "B"]) == expected
    assert place_one_by_one(["x1", "x2", "x3"], ["é", "a", "B"]) == expected


@pytest.mark.parametrize(
    ("names", "first"),
    [
        pytest.param(["target2", "target1", "target10"], ["target1", "target10"], id="target1, target10, target2"),
        pytest.param(["a", "B", "é"], ["B", "a"], id="capitals before small letters before accents"),
        pytest.param(["\U0001f600", "\uffee", "z"], ["z", "\uffee"], id="by UTF-8, not by UTF-16"),
    ],
)
def test_targets_are_taken_in_bytewise_order(names: list[str], first: list[str]) -> None:
    assert sorted(names, key=str.encode)[:2] == first
    for placed in (place(names, ["pod-0"], capacity=2), place_one_by_one(names, ["pod-0"], capacity=2)):
        assert [name for name, pod in placed.items() if pod is not None] == first
        assert list(placed) == sorted(names, key=str.encode)


def test_a_full_pod_is_passed_over_for_the_next_best() -> None:
    """Each target, in its turn, is at the best pod that still had room: told by the scores alone."""
    left = dict.fromkeys(PODS[:3], 4)
    for item, pod in place(routers(10), PODS[:3]).items():
        best = max((member for member in left if left[member]), key=lambda member: score(item, member))
        assert pod == best
        left[best] -= 1


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        pytest.param(None, [2, 2, 1], id="none: ceil(n / p)"),
        pytest.param(1, [1, 1, 1], id="one number, too small"),
        pytest.param(0, [0, 0, 0], id="0 takes nothing"),
        pytest.param(10**30, None, id="one number, huge"),
        pytest.param({"pod-0": 0, "pod-1": 0}, [0, 0, 2], id="a pod that is missing has ceil(n / p)"),
        pytest.param({"pod-0": 5, "pod-1": 0, "pod-2": 0}, [5, 0, 0], id="each its own"),
        pytest.param({"pod-0": 1, "pod-1": 1, "pod-2": 10**30}, [1, 1, 3], id="each its own, one huge"),
    ],
)
def test_capacities(capacity: Capacity, expected: list[int] | None) -> None:
    placed = place(routers(5), PODS[:3], capacity=capacity)
    assert placed == place_one_by_one(routers(5), PODS[:3], capacity=capacity)
    if expected is None:
        assert placed == {item: max(PODS[:3], key=lambda pod: score(item, pod)) for item in routers(5)}
    else:
        assert sorted(loads_of(placed, PODS[:3])) == sorted(expected)
        assert Counter(placed.values())[None] == 5 - sum(expected)


@pytest.mark.parametrize("form", [place, place_one_by_one])
def test_nobody_and_nothing_are_ordinary(form: Callable[..., dict[str, str | None]]) -> None:
    assert form([], []) == {}
    assert form([], PODS) == {}
    assert form(["a", "b"], []) == {"a": None, "b": None}
    assert form(["a", "b"], [], capacity=3) == {"a": None, "b": None}
    assert form(iter(["a"]), (pod for pod in PODS)) == form(["a"], PODS)


def some_names(prefix: str, most: int) -> st.SearchStrategy[list[str]]:
    named = st.one_of(
        st.integers(0, 40).map(lambda index: f"{prefix}{index}"), st.text("aBé😀", min_size=1, max_size=3)
    )
    return st.lists(named, max_size=most, unique=True)


def some_capacity(members: list[str]) -> st.SearchStrategy[Capacity]:
    if not members:
        return st.none() | st.integers(0, 5)
    own = st.dictionaries(st.sampled_from(members), st.integers(0, 8) | st.just(10**30))
    return st.none() | st.integers(0, 12) | st.just(10**30) | own


@given(st.data())
@settings(max_examples=examples(120), deadline=None)
def test_law_the_rounds_say_what_the_sequence_says(data: st.DataObject) -> None:
    items, members = data.draw(some_names("router", 40)), data.draw(some_names("pod", 8))
    capacity = data.draw(some_capacity(members))
    placed = place(items, members, capacity=capacity)
    assert placed == place_one_by_one(items, members, capacity=capacity)
    assert placed == place(items[::-1], members[::-1], capacity=capacity)


@pytest.mark.parametrize(
    ("count", "pods", "capacity"),
    [
        pytest.param(20_000, 37, None, id="20,000 on 37, many items at a time"),
        pytest.param(3_000, 7, 400, id="3,000 on 7, short by 200"),
        pytest.param(1_500, 150, {f"pod-{index}": index % 20 for index in range(150)}, id="1,500 on 150, each its own"),
        pytest.param(300, 300, None, id="300 on 300, room for one each"),
    ],
)
def test_the_rounds_say_what_the_sequence_says_at_size(count: int, pods: int, capacity: Capacity) -> None:
    items, members = [f"default/router{index}" for index in range(count)], [f"pod-{index}" for index in range(pods)]
    assert place(items, members, capacity=capacity) == place_one_by_one(items, members, capacity=capacity)


@given(st.data())
@settings(max_examples=examples(80), deadline=None)
def test_law_the_forms_agree_where_hashes_collide(data: st.DataObject) -> None:
    """A hash with four values makes ties of members, ties of items, and ties of an item with a member."""
    items, members = data.draw(some_names("router", 30)), data.draw(some_names("p", 9))
    capacity = data.draw(some_capacity(members))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(xxhash, "xxh3_64_intdigest", lambda name: len(name) % 4)
        placed = place(items, members, capacity=capacity)
        assert placed == place_one_by_one(items, members, capacity=capacity)
        assert placed == place(items[::-1], members[::-1], capacity=capacity)


def test_mutation_a_larger_name_first_breaks_the_agreement_on_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = rendezvous._OpenFloor.__init__

    def backwards(floor: rendezvous._OpenFloor, hashed: Hashes, members: list[int]) -> None:
        opened(floor, hashed, members[::-1])

    monkeypatch.setattr(xxhash, "xxh3_64_intdigest", lambda name: len(name) % 4)
    agreed = place_one_by_one(routers(9), PODS)
    assert place(routers(9), PODS) == agreed
    monkeypatch.setattr(rendezvous._OpenFloor, "__init__", backwards)
    assert place(routers(9), PODS) != agreed


def test_mutation_a_member_that_closes_late_breaks_the_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    agreed = place_one_by_one(routers(400), PODS)
    monkeypatch.setattr(heapq, "heappop", lambda heap: heap.pop(heap.index(max(heap))))
    assert place(routers(400), PODS) != agreed


def test_fill_answers_positions_in_the_order_it_was_asked() -> None:
    """The order is the caller's: `sticky` puts items that had a member before new ones."""
    asked = ["z", "a", "m"]
    assert fill(hashes(asked), ["pod-0"], [2]).tolist() == [0, 0, NOBODY]
    assert fill(hashes(asked), ["pod-0", "pod-1"], [0, 1]).tolist() == [1, NOBODY, NOBODY]
    assert fill(hashes(asked), [], []).tolist() == [NOBODY] * 3
    assert fill(np.empty(0, np.uint64), PODS, [1] * 8).tolist() == []


def test_hashed_cannot_keep_the_spread_at_one() -> None:
    """It bounds only the maximum: 100 targets on 7 pods often spread by 2 or more."""
    spreads = []
    for site in range(20):
        loads = loads_of(place([f"site{site}/{name}" for name in routers(100)], PODS[:7]), PODS[:7])
        spreads.append(max(loads) - min(loads))
    assert sum(spread >= 2 for spread in spreads) > 10


def test_hashed_moves_innocents_when_a_pod_is_removed() -> None:
    before = place(routers(100), PODS[:7])
    innocent = [item for item in moved(before, place(routers(100), PODS[:6])) if before[item] != "pod-6"]
    assert innocent


def test_hashed_moves_more_than_its_share_to_a_new_pod() -> None:
    before, after = place(routers(100), PODS[:7]), place(routers(100), PODS)
    elsewhere = [item for item in moved(before, after) if after[item] != "pod-7"]
    assert elsewhere
    assert len(moved(before, after)) > 100 / 8


def test_hashed_moves_dozens_for_one_new_target_at_a_capacity_step() -> None:
    pods = [f"pod-{index}" for index in range(50)]
    assert len(moved(place(routers(1_000), pods), place(routers(1_001), pods))) >= 24


def test_the_plan_of_hashed_is_where_place_puts_it() -> None:
    current: dict[str, str | None] = {"router0": "pod-0", "router1": "pod-9", "router2": None, "stranger": "pod-1"}
    plan = plan_hashed(routers(20), PODS[:3], current)
    assert plan.assignment == place(routers(20), PODS[:3])
    assert plan.loads == dict(zip(PODS, loads_of(plan.assignment, PODS[:3]), strict=False))
    told = {move.item: (move.source, move.target) for move in plan.moves}
    assert told == {
        item: (current.get(item), plan.assignment[item])
        for item in routers(20)
        if current.get(item) != plan.assignment[item]
    }
    counted = [move.item for move in plan.moves if move.source is not None]
    assert plan.certificate.moves == len(counted)
    assert plan.moves == sorted(plan.moves, key=lambda move: (move.source is None, move.item))


def test_the_fewest_moves_of_hashed_are_what_capacities_force() -> None:
    """8 of a full pod's 12 and all 3 of a gone one must move; the rule itself moves more."""
    current: dict[str, str | None] = dict.fromkeys(routers(12), "pod-0")
    current |= {f"switch{index}": "gone" for index in range(3)}
    plan = plan_hashed(current, PODS[:4], current)
    assert plan.certificate.moves_min == (12 - 4) + 3
    assert plan.certificate.moves_min <= plan.certificate.moves
    assert plan_hashed(current, PODS[:4], current, capacity={"pod-0": 0}).certificate.moves_min == 15
    assert plan_hashed(current, PODS[:4], current, capacity=10**30).certificate.moves_min == 3


def test_a_plan_of_the_result_of_hashed_is_empty() -> None:
    before = plan_hashed(routers(30), PODS[:4], {}, capacity=7)
    again = plan_hashed(routers(30)[::-1], PODS[:4][::-1], before.assignment, capacity=7)
    assert again.moves == []
    assert again.assignment == before.assignment
    assert again.unassigned == before.unassigned == sorted(routers(30))[28:]


def test_hashed_gives_a_draining_pod_nothing() -> None:
    before = place(routers(30), PODS[:4])
    plan = plan_hashed(routers(30), PODS[:4], before, draining=["pod-3"])
    assert plan.assignment == place(routers(30), PODS[:3])
    assert list(plan.loads) == PODS[:3]
    reasons = {move.reason for move in plan.moves if move.source == "pod-3"}
    assert reasons == {"pod-3 is draining"}


@pytest.mark.parametrize(
    ("current", "members", "capacity", "reason"),
    [
        pytest.param(None, ["pod-0"], 1, "new item", id="new"),
        pytest.param("gone", ["pod-0"], 1, "gone is gone", id="gone"),
        pytest.param("gone", ["pod-0"], 0, "gone is gone; no member has room", id="gone, and no room"),
        pytest.param("pod-0", ["pod-0", "pod-1"], {"pod-0": 0}, "pod-1 is its best member with room", id="better"),
    ],
)
def test_reasons_of_hashed(current: str | None, members: list[str], capacity: Capacity, reason: str) -> None:
    (move,) = plan_hashed(["router0"], members, {"router0": current}, capacity=capacity).moves
    assert move.reason == reason


def test_a_live_member_without_room_is_not_said_to_be_gone() -> None:
    (move,) = plan_hashed(["router0", "router1"], ["pod-0"], dict.fromkeys(routers(2), "pod-0"), capacity=1).moves
    assert (move.item, move.source, move.target) == ("router1", "pod-0", None)
    assert "no member has room" in move.reason
    assert "gone" not in move.reason
    assert "draining" not in move.reason
