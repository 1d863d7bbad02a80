"""Policy `sticky` by example: shares, who keeps, where the rest goes, and what the plan says about it."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import pytest
import xxhash

from poise.decide.balance import fewest_releases, quotas, rebalance
from poise.decide.plan import Certificate, Move
from poise.decide.plan_check import check
from poise.decide.rendezvous import place
from poise.decide.scores import score
from poise.decide.shares import fair_shares

PODS = [f"pod-{index}" for index in range(8)]
TARGETS = [f"router{index}" for index in range(30)]
Capacity = int | dict[str, int] | None


def held(**loads: int) -> dict[str, str | None]:
    """Make up who holds what: `held(a=2)` is {"a0": "a", "a1": "a"}."""
    return {f"{member}{index}": member for member, load in loads.items() for index in range(load)}


@pytest.mark.parametrize(
    ("count", "pods", "loads"),
    [
        pytest.param(10, 3, [4, 3, 3], id="10 on 3"),
        pytest.param(100, 7, [15, 15, 14, 14, 14, 14, 14], id="100 on 7: two pods 15 and five 14"),
        pytest.param(5, 3, [2, 2, 1], id="5 on 3"),
        pytest.param(2, 5, [1, 1, 0, 0, 0], id="more pods than targets"),
        pytest.param(0, 3, [0, 0, 0], id="no targets"),
        pytest.param(6, 3, [2, 2, 2], id="even"),
    ],
)
def test_seed_examples(count: int, pods: int, loads: list[int]) -> None:
    targets = [f"router{index}" for index in range(count)]
    fresh = rebalance(targets, PODS[:pods], {})
    after_hashed = rebalance(targets, PODS[:pods], place(targets, PODS[:pods]))
    for plan in (fresh, after_hashed):
        assert sorted(plan.loads.values(), reverse=True) == loads
        assert plan.certificate.spread == max(loads) - min(loads)
    assert fresh.certificate.moves == fresh.certificate.moves_min == 0
    assert [move.source for move in fresh.moves] == [None] * count


def test_a_fourth_pod_takes_two_of_ten() -> None:
    """The plan of the design: 4, 3, 3 becomes 3, 3, 2, 2 with two moves, the fewest possible, and spread 1."""
    current = held(a=4, b=3, c=3)
    plan = rebalance(current, ["a", "b", "c", "d"], current)
    assert plan.certificate == Certificate(moves=2, moves_min=2, spread=1)
    assert sorted(plan.loads.values()) == [2, 2, 3, 3]
    assert {move.target for move in plan.moves} == {"d"}
    assert "a over its share (4 of 3)" in [move.reason for move in plan.moves]


def test_removing_a_pod_moves_only_its_targets() -> None:
    before = place(TARGETS, ["a", "b", "c"])
    plan = rebalance(TARGETS, ["a", "b"], before)
    assert {move.source for move in plan.moves} == {"c"}
    assert plan.certificate.moves == plan.certificate.moves_min == sum(pod == "c" for pod in before.values())


def test_the_targets_with_the_highest_score_stay() -> None:
    current = held(a=6)
    plan = rebalance(current, ["a", "b"], current)
    by_score = sorted(current, key=lambda item: score(item, "a"))
    assert {move.item for move in plan.moves} == set(by_score[:3])


def test_what_had_a_pod_is_placed_before_what_is_new() -> None:
    """One place is left: the newcomer's name is smaller, the one that lost its pod goes first all the same."""
    plan = rebalance(["a-new", "z-old"], ["pod-0"], {"z-old": "gone"}, capacity=1)
    assert plan.assignment == {"a-new": None, "z-old": "pod-0"}
    assert plan.moves == [Move("z-old", "gone", "pod-0", "gone is gone")]
    assert plan.unassigned == ["a-new"]


def test_each_group_is_placed_in_bytewise_order() -> None:
    names = ["é", "a", "B", "target2", "target10", "target1"]
    first = sorted(names, key=str.encode)[:2]
    new = rebalance(names, ["pod-0"], {}, capacity=2)
    uprooted = rebalance(names, ["pod-0"], dict.fromkeys(names, "gone"), capacity=2)
    for plan in (new, uprooted):
        assert [item for item, pod in sorted(plan.assignment.items()) if pod is not None] == first
        assert plan.unassigned == sorted(names, key=str.encode)[2:]


def test_the_rest_goes_to_the_best_pod_with_room() -> None:
    """The two free places are at b and c: the first in bytewise order chooses, the other takes what is left."""
    current = held(a=3, b=2, c=2) | {"x1": "gone", "x2": "gone"}
    plan = rebalance(current, ["a", "b", "c"], current)
    favourite = max("bc", key=lambda member: score("x1", member))
    assert plan.assignment["x1"] == favourite
    assert plan.assignment["x2"] == ({"b", "c"} - {favourite}).pop()


@pytest.mark.parametrize(
    ("current", "debt", "raised"),
    [
        pytest.param(held(a=0, b=4, c=3), {"a": 9}, "b", id="who holds more than the floor now, before any debt"),
        pytest.param(held(a=3, b=3), {"c": 1}, "c", id="then who is owed most"),
        pytest.param(held(a=3, b=3), {"a": 2, "b": 2, "c": Fraction(5, 2)}, "c", id="by a fraction"),
        pytest.param(held(a=3, b=3), {"a": 0.25, "b": 0.5, "c": 0.125}, "b", id="by a binary fraction"),
        pytest.param(held(a=3, b=3), {"a": -1, "b": -2}, "c", id="one that is missing is owed 0"),
        pytest.param(held(a=3, b=3), {"a": -1, "c": -1, "z": 99}, "b", id="a stranger's debt counts for nobody"),
    ],
)
def test_debt_decides_who_gets_the_ceiling(
    current: dict[str, str | None], debt: Mapping[str, int | Fraction | float], raised: str
) -> None:
    items = [*current, *[f"new{index}" for index in range(10 - len(current))]]
    plan = rebalance(items, ["a", "b", "c"], current, debt=debt)
    assert [member for member, load in plan.loads.items() if load == 4] == [raised]


@pytest.mark.parametrize("seed", ["", "TargetPool/core-routers", "TargetPool/edge", "é"])
def test_the_seed_decides_what_is_still_equal(seed: str) -> None:
    ranked = sorted(PODS, key=lambda pod: -score(seed, pod))
    plan = rebalance(TARGETS, PODS, {}, seed=seed, debt=dict.fromkeys(PODS, 3))
    assert [pod for pod in ranked if plan.loads[pod] == 4] == ranked[: len(TARGETS) % 8]


def test_seeds_differ() -> None:
    """Many small pools must not all give their extra target to the same pod."""
    raised = set()
    for pool in range(40):
        plan = rebalance(["x"], PODS, {}, seed=f"TargetPool/{pool}")
        raised |= {pod for pod, load in plan.loads.items() if load}
    assert raised == set(PODS)


@pytest.mark.parametrize(
    ("weights", "loads"),
    [
        pytest.param({"a": 3, "b": 2, "c": 1}, {"a": 15, "b": 10, "c": 5}, id="in proportion"),
        pytest.param({"a": 4}, {"a": 20, "b": 5, "c": 5}, id="one that is missing weighs 1"),
        pytest.param({"a": 0}, {"a": 0, "b": 15, "c": 15}, id="weight 0 takes nothing"),
        pytest.param({"a": 0, "b": 0}, {"a": 0, "b": 0, "c": 30}, id="two of weight 0"),
        pytest.param({"a": 10**30, "b": 10**30, "c": 10**30}, {"a": 10, "b": 10, "c": 10}, id="huge and equal"),
        pytest.param({"a": 2 * 10**30, "b": 10**30, "c": 0}, {"a": 20, "b": 10, "c": 0}, id="huge in proportion"),
        pytest.param({"z": 9}, {"a": 10, "b": 10, "c": 10}, id="a stranger's weight counts for nobody"),
    ],
)
def test_weights(weights: dict[str, int], loads: dict[str, int]) -> None:
    assert rebalance(TARGETS, ["a", "b", "c"], {}, weights=weights).loads == loads
    everything_on_a = rebalance(TARGETS, ["a", "b", "c"], dict.fromkeys(TARGETS, "a"), weights=weights)
    assert everything_on_a.loads == loads
    assert everything_on_a.certificate.moves == everything_on_a.certificate.moves_min == 30 - loads["a"]


def test_all_weights_zero_are_all_equal() -> None:
    current = held(a=2)
    plan = rebalance(current, ["a", "b"], current, weights={"a": 0, "b": 0})
    assert plan.loads == {"a": 1, "b": 1}
    assert plan.certificate == Certificate(moves=1, moves_min=1, spread=0)
    assert check(plan, current, ["a", "b"], current, weights={"a": 0, "b": 0}) == []


def test_a_weight_can_move_an_innocent_and_the_plan_says_so() -> None:
    """A new item raises the shares to 3, 3, 9/2 and 3/2: one ceiling is left for two members that were above."""
    weights = {"a": 2, "b": 2, "c": 3, "d": 1}
    current = held(a=2, b=2, c=5, d=2)
    plan = rebalance([*current, "new"], list("abcd"), current, weights=weights)
    (innocent,) = [move for move in plan.moves if move.source is not None]
    assert innocent.source in {"c", "d"}
    assert innocent.reason in {"c over its share (5 of 4)", "d over its share (2 of 1)"}
    assert plan.certificate.moves == plan.certificate.moves_min == 1


@pytest.mark.parametrize(
    ("capacity", "loads", "unassigned"),
    [
        pytest.param(None, [10, 10, 10], 0, id="none"),
        pytest.param(10, [10, 10, 10], 0, id="one number, just enough"),
        pytest.param(9, [9, 9, 9], 3, id="one number, short"),
        pytest.param(0, [0, 0, 0], 30, id="0 takes nothing"),
        pytest.param(10**30, [10, 10, 10], 0, id="one number, huge"),
        pytest.param({"a": 2}, [2, 14, 14], 0, id="one that is missing has no limit"),
        pytest.param({"a": 2, "b": 3, "c": 4}, [2, 3, 4], 21, id="each its own, short"),
        pytest.param({"a": 0}, [0, 15, 15], 0, id="one takes nothing"),
        pytest.param({"z": 0}, [10, 10, 10], 0, id="a stranger's capacity counts for nobody"),
    ],
)
def test_capacities(capacity: Capacity, loads: list[int], unassigned: int) -> None:
    plan = rebalance(TARGETS, ["a", "b", "c"], {}, capacity=capacity)
    assert list(plan.loads.values()) == loads
    assert len(plan.unassigned) == unassigned
    assert [item for item, pod in sorted(plan.assignment.items()) if pod is None] == plan.unassigned


def test_capacity_and_weight_together() -> None:
    """a would have 15 of 30 by weight, has room for 9, and the others share the 21 that are left by 2 to 1."""
    plan = rebalance(TARGETS, ["a", "b", "c"], {}, capacity={"a": 9}, weights={"a": 3, "b": 2, "c": 1})
    assert plan.loads == {"a": 9, "b": 14, "c": 7}


def test_where_capacity_is_short_a_loss_is_a_move_that_counts_in_both() -> None:
    current = held(a=3)
    plan = rebalance(current, ["a"], current, capacity=2)
    (move,) = plan.moves
    assert (move.source, move.target) == ("a", None)
    assert move.reason == "a over its share (3 of 2); no member has room"
    assert plan.unassigned == [move.item]
    assert plan.certificate == Certificate(moves=1, moves_min=1, spread=0)


def test_one_that_never_had_a_pod_is_only_listed() -> None:
    plan = rebalance(["a0", "a1", "new"], ["a"], held(a=2), capacity=2)
    assert plan.moves == []
    assert plan.unassigned == ["new"]
    assert plan.assignment["new"] is None
    assert plan.certificate == Certificate(moves=0, moves_min=0, spread=0)


def test_a_held_none_is_new() -> None:
    plan = rebalance(["x"], ["a"], {"x": None})
    assert plan.moves == [Move("x", None, "a", "new item")]
    assert plan.certificate.moves == 0


def test_draining() -> None:
    current = held(a=3, b=3, c=3)
    plan = rebalance(current, ["a", "b", "c"], current, draining=["b"])
    assert {(move.source, move.reason) for move in plan.moves} == {("b", "b is draining")}
    assert list(plan.loads) == ["a", "c"]
    assert plan.certificate == Certificate(moves=3, moves_min=3, spread=1)


@pytest.mark.parametrize("draining", [["a", "b"], ["b", "a", "stranger"]])
def test_all_draining_leaves_everything_unassigned(draining: list[str]) -> None:
    current = held(a=1, b=1)
    plan = rebalance([*current, "new"], ["a", "b"], current, draining=draining)
    assert plan.assignment == {"a0": None, "b0": None, "new": None}
    assert plan.moves == [
        Move("a0", "a", None, "a is draining; no member has room"),
        Move("b0", "b", None, "b is draining; no member has room"),
    ]
    assert plan.certificate == Certificate(moves=2, moves_min=2, spread=0)
    assert plan.loads == {}


def test_a_draining_pod_has_weight_capacity_and_debt_for_nobody() -> None:
    current = held(a=2, b=2)
    plain = rebalance(current, ["b"], current)
    drained = rebalance(
        current, ["a", "b"], current, draining=["a"], weights={"a": 9}, capacity={"a": 9}, debt={"a": 9}
    )
    assert (drained.assignment, drained.loads, drained.certificate) == (
        plain.assignment,
        plain.loads,
        plain.certificate,
    )


def test_no_live_member_leaves_everything_unassigned() -> None:
    plan = rebalance(["x", "y"], [], {"x": "gone"})
    assert plan.assignment == {"x": None, "y": None}
    assert plan.moves == [Move("x", "gone", None, "gone is gone; no member has room")]
    assert plan.unassigned == ["x", "y"]
    assert plan.certificate == Certificate(moves=1, moves_min=1, spread=0)


def test_nothing_and_nobody() -> None:
    plan = rebalance([], [], {})
    assert (plan.assignment, plan.moves, plan.unassigned, plan.loads) == ({}, [], [], {})
    assert plan.certificate == Certificate(moves=0, moves_min=0, spread=0)


def test_items_of_current_that_are_not_items_are_ignored() -> None:
    """Ten strangers on a make it neither full nor owing."""
    current = held(a=2, b=2)
    strangers: dict[str, str | None] = {f"stranger{index}": "a" for index in range(10)}
    assert rebalance(current, ["a", "b"], current | strangers) == rebalance(current, ["a", "b"], current)


def test_an_unknown_member_in_current_is_gone() -> None:
    plan = rebalance(["x"], ["a"], {"x": "who"})
    assert plan.moves == [Move("x", "who", "a", "who is gone")]
    assert plan.certificate == Certificate(moves=1, moves_min=1, spread=0)


def test_spread_is_over_live_members_only() -> None:
    """A draining one's 0 does not count; one of weight 0 is live, and its 0 does."""
    current = held(a=4, b=4, c=4)
    assert rebalance(current, ["a", "b", "c"], current, draining=["c"]).certificate.spread == 0
    assert rebalance(current, ["a", "b", "c"], current, weights={"c": 0}).certificate.spread == 6


def test_moves_stand_in_order_and_first_placements_last() -> None:
    current = {"z": "gone", "b": "gone"} | held(q=6)
    plan = rebalance([*current, "y-new", "a-new"], ["p", "q"], current)
    keys = [(move.source is None, move.item) for move in plan.moves]
    assert keys == sorted(keys)
    assert len(keys) == 5


@pytest.mark.parametrize("shape", [list, tuple, set, dict.fromkeys, iter])
def test_any_iterable_will_do(shape: type[list[str]]) -> None:
    current = held(a=4)
    plan = rebalance(shape(current), shape(["a", "b", "c"]), current, draining=shape(["c"]))
    assert plan == rebalance(list(current), ["a", "b", "c"], current, draining=["c"])


def test_equal_scores_of_items_are_settled_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all names have one hash the smaller names stay, whatever the order of the input."""
    monkeypatch.setattr(xxhash, "xxh3_64_intdigest", lambda _: 7)
    names = [f"x{index}" for index in range(9)]
    for listed in (names, names[::-1], names[4:] + names[:4]):
        plan = rebalance(listed, ["a", "b", "c"], dict.fromkeys(listed, "b"))
        assert [move.item for move in plan.moves] == names[3:]
        assert [plan.assignment[name] for name in names[3:]] == ["a", "a", "a", "c", "c", "c"]


@pytest.mark.parametrize("count", [125, 126, 127, 128, 129, 254, 255, 256, 257])
def test_the_last_of_many_pods_gives_up_its_own(count: int) -> None:
    """Indices of members are sorted in the smallest type that holds them: its limits must not be crossed."""
    pods = [f"pod-{index:03}" for index in range(count)]
    current: dict[str, str | None] = {f"x{pod}": pod for pod in pods}
    current |= {"y1": pods[-1], "y2": pods[-1], "y3": "gone"}
    plan = rebalance(current, [*pods, "pod-new"], current)
    counted = [move for move in plan.moves if move.source is not None]
    assert sorted(move.source or "" for move in counted) == ["gone", pods[-1]]
    assert plan.certificate == Certificate(moves=2, moves_min=2, spread=1)


def test_quotas_are_exact_shares_with_a_choice() -> None:
    found = quotas(10, ["a", "b", "c"], [0, 9, 0], capacity=None, weights=None, debt=None, seed="")
    assert found.shares.fractions() == [Fraction(10, 3)] * 3
    assert found.quotas == [3, 4, 3]


@pytest.mark.parametrize(
    ("total", "loads", "fewest"),
    [
        pytest.param(10, [4, 3, 3], 0, id="one ceiling, one above"),
        pytest.param(10, [4, 4, 2], 1, id="one ceiling, two above"),
        pytest.param(10, [10, 0, 0], 6, id="all on one"),
        pytest.param(9, [4, 3, 2], 1, id="whole shares have no ceiling to give"),
        pytest.param(12, [3, 3, 3], 0, id="everyone below"),
    ],
)
def test_fewest_releases(total: int, loads: list[int], fewest: int) -> None:
    assert fewest_releases(loads, fair_shares(total, [1, 1, 1], [0, 0, 0], [None] * 3)) == fewest
