"""The laws of capacity, by exhaustion for small numbers and by chance for large; each is also broken on purpose."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from poise.decide.capacity_check import check_next_action, check_pools, check_split
from poise.decide.pools import split_pools
from poise.decide.shares import Shares
from poise.decide.split import Action, Split, after, next_action, split, steps
from poise.model.capacity_split import Pool

# The package exports functions of the same names, so the modules are asked for by their full names.
pools_module = import_module("poise.decide.pools")
split_module = import_module("poise.decide.split")
honest_action = next_action


def pair(counts: Split) -> tuple[int, int]:
    return counts.spot, counts.on_demand


# The split


def split_is_exact() -> None:
    for total in range(201):
        for percentage in range(101):
            assert split(total, percentage, 0).spot == (total * percentage + 99) // 100, (total, percentage)


def split_keeps_its_laws() -> None:
    for total in range(31):
        for percentage in (*range(-1, 102, 3), 50, 100):
            for minimum in range(total + 3):
                result = split(total, percentage, minimum)
                assert check_split(pair(result), total, percentage, minimum) == []


def test_the_split_equals_exact_integers() -> None:
    split_is_exact()


def test_the_split_keeps_its_laws() -> None:
    split_keeps_its_laws()


def test_a_split_in_floats_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_module, "by_percentage", lambda total, percentage: math.ceil(total * (percentage / 100)))
    with pytest.raises(AssertionError):
        split_is_exact()


def test_a_split_that_rounds_down_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_module, "by_percentage", lambda total, percentage: total * percentage // 100)
    with pytest.raises(AssertionError, match="too few"):
        split_keeps_its_laws()


@pytest.mark.parametrize(
    ("result", "broken"),
    [
        ((7, 2), "are not 10 replicas"),
        ((11, -1), "below zero"),
        ((8, 2), "fewer than the minimum"),
        ((6, 4), "too few"),
        ((7, 3), "more than 60 percent"),
    ],
)
def test_the_checker_names_every_broken_law(result: tuple[int, int], broken: str) -> None:
    percentage = 60 if "60" in broken else 70
    assert any(broken in line for line in check_split(result, 10, percentage, 3))


def test_the_checker_wants_no_spot_at_zero_percent() -> None:
    assert check_split((0, 10), 10, 0, 0) == []
    assert "more than 0 percent" in check_split((1, 9), 10, 0, 0)[0]


# The next action


def goals(total: int) -> set[tuple[int, Split]]:
    """All (minimum, desired split) that the formula gives for a total."""
    return {(m, split(total, percentage, m)) for m in range(total + 2) for percentage in range(0, 101, 7)}


def walks_reach_their_goal() -> None:
    for total in range(6):
        for minimum, desired in goals(total):
            for start in (Split(spot, on_demand) for spot in range(8) for on_demand in range(8)):
                walk_one(total, minimum, start, desired)


def walk_one(total: int, minimum: int, current: Split, desired: Split) -> None:
    for _ in range(steps(current, desired)):
        action = next_action(total, current, desired)
        assert action is not Action.NONE, "a step is left"
        assert check_next_action(action, total, minimum, current=pair(current), desired=pair(desired)) == []
        current = after(action, current)
    assert current == desired
    assert next_action(total, current, desired) is Action.NONE


def test_repeating_the_action_reaches_desired_in_exactly_so_many_steps_and_safely() -> None:
    walks_reach_their_goal()


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_walks_of_large_workloads(data: st.DataObject) -> None:
    total = data.draw(st.integers(0, 400))
    minimum, percentage = data.draw(st.integers(0, 450)), data.draw(st.integers(-10, 110))
    start = Split(data.draw(st.integers(0, 400)), data.draw(st.integers(0, 400)))
    walk_one(total, minimum, start, split(total, percentage, minimum))


def migrate_first(total: int, current: Split, desired: Split) -> Action:
    """Migrate whatever the total is: the order of safety turned round."""
    if current.on_demand > desired.on_demand and current.spot < desired.spot:
        return Action.MIGRATE_TO_SPOT
    return honest_action(total, current, desired)


def spot_first(total: int, current: Split, desired: Split) -> Action:
    """Scale up spot before on-demand."""
    if current.total < total and current.spot < desired.spot:
        return Action.SCALE_UP_SPOT
    return honest_action(total, current, desired)


def on_demand_down_first(total: int, current: Split, desired: Split) -> Action:
    """Scale down on-demand before spot, and one too far."""
    if current.total > total and current.on_demand > 0:
        return Action.SCALE_DOWN_ON_DEMAND
    return honest_action(total, current, desired)


@pytest.mark.parametrize("wrong", [migrate_first, spot_first, on_demand_down_first, lambda *_: Action.NONE])
def test_an_action_out_of_order_breaks_the_law(
    monkeypatch: pytest.MonkeyPatch, wrong: Callable[[int, Split, Split], Action]
) -> None:
    monkeypatch.setitem(globals(), "next_action", wrong)
    with pytest.raises(AssertionError):
        walks_reach_their_goal()


def test_steps_that_always_add_up_break_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "steps", lambda a, b: abs(a.spot - b.spot) + abs(a.on_demand - b.on_demand))
    with pytest.raises(AssertionError):
        walks_reach_their_goal()


def test_the_checker_names_unsafe_actions() -> None:
    def broken(action: str, current: tuple[int, int], desired: tuple[int, int]) -> str:
        return " ".join(check_next_action(action, 4, 2, current=current, desired=desired))

    assert "below zero" in broken("scale-down-spot", (0, 5), (2, 2))
    assert "below the minimum of 2" in broken("migrate-to-spot", (2, 2), (2, 2))
    assert "spot grows before on-demand" in broken("scale-up-spot", (1, 1), (2, 2))
    assert "on-demand shrinks before spot" in broken("scale-down-on-demand", (3, 3), (2, 2))
    assert "while the total is 6" in broken("migrate-to-spot", (1, 5), (2, 2))
    assert "leaves 1 of 1 steps" in broken("none", (1, 3), (2, 2))
    assert "is no action" in broken("explode", (1, 3), (2, 2))
    assert broken("none", (2, 2), (2, 2)) == ""


# Pools


def two_pools_equal_the_formula(totals: range) -> None:
    for total in totals:
        for percentage in range(101):
            for minimum in range(total + 3):
                pools = [Pool("on", 100 - percentage, minimum), Pool("spot", percentage)]
                result = split_pools(total, pools, order=("spot", "on"))
                assert (result.replicas["spot"], result.replicas["on"]) == pair(split(total, percentage, minimum))
                assert result.unplaced == 0


def test_two_small_pools_equal_the_formula() -> None:
    two_pools_equal_the_formula(range(11))


@pytest.mark.slow
def test_two_pools_equal_the_formula() -> None:
    two_pools_equal_the_formula(range(11, 41))


def test_a_leftover_to_the_wrong_pool_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools_module, "_ranks", lambda names, _order: dict.fromkeys(names, 0))
    with pytest.raises(AssertionError):
        two_pools_equal_the_formula(range(11))


names = st.sampled_from("abcdefg")


@st.composite
def pool_lists(draw: st.DrawFn) -> list[Pool]:
    pools = []
    for name in draw(st.lists(names, unique=True, max_size=6)):
        least = draw(st.integers(0, 4))
        most = draw(st.none() | st.integers(least, 12))
        pools.append(Pool(name, draw(st.integers(0, 6)), least, most))
    return pools


def pools_keep_their_laws(total: int, pools: list[Pool], data: st.DataObject) -> None:
    some = st.lists(st.sampled_from([pool.name for pool in pools]), unique=True) if pools else st.just([])
    order, down = data.draw(st.none() | some), data.draw(some)
    previous = data.draw(st.dictionaries(names, st.integers(0, 9)))
    result = split_pools(total, pools, order=order, previous=previous, down=down)
    plain = [(pool.name, pool.weight, pool.min, pool.max) for pool in pools]
    broken = check_pools(result.replicas, result.unplaced, total, plain, order=order, previous=previous, down=down)
    assert broken == []
    again = split_pools(total, pools, order=order, previous=result.replicas, down=down)
    assert again.replicas == split_pools(total, pools, order=order, previous=again.replicas, down=down).replicas
    if total >= sum(pool.min for pool in pools if pool.name not in down):
        turned = split_pools(total, pools[::-1], order=order, previous=previous, down=down)
        assert (turned.replicas, turned.unplaced) == (result.replicas, result.unplaced)
        assert again == result


@given(st.integers(0, 60), pool_lists(), st.data())
@settings(max_examples=examples(200), deadline=None)
def test_pools_keep_their_laws(total: int, pools: list[Pool], data: st.DataObject) -> None:
    pools_keep_their_laws(total, pools, data)


def unbounded_shares(total: int, weights: list[int], *_bounds: object) -> Shares:
    """Share without bounds: the water-filling left out."""
    return Shares([total * weight for weight in weights], max(1, sum(weights)))


def no_leftovers(*_: object) -> list[str]:
    return []


def last_name_first(
    total: int, ups: list[Pool], shares: Shares, _ranks: dict[str, int], _held: dict[str, int]
) -> list[str]:
    """Give leftovers by name, backwards: the tie-breaks dropped."""
    cut = [pool.name for pool, rest in zip(ups, shares.remainders(), strict=True) if rest]
    return sorted(cut, reverse=True)[: max(0, total - sum(shares.floors()))]


@pytest.mark.parametrize(
    ("piece", "wrong"),
    [("fair_shares", unbounded_shares), ("_leftovers", no_leftovers), ("_leftovers", last_name_first)],
)
def test_a_broken_piece_of_the_pools_is_found(
    monkeypatch: pytest.MonkeyPatch, piece: str, wrong: Callable[..., object]
) -> None:
    monkeypatch.setattr(pools_module, piece, wrong)
    plain = [("a", 1, 0, None), ("b", 2, 3, 4), ("c", 2, 0, None)]
    pools = [Pool(*each) for each in plain]
    results = {total: split_pools(total, pools) for total in range(30)}
    assert any(check_pools(result.replicas, result.unplaced, total, plain) for total, result in results.items())


def test_minimums_out_of_order_are_found() -> None:
    plain = [("a", 1, 2, None), ("b", 1, 2, None)]
    assert check_pools({"a": 2, "b": 1}, 0, 3, plain) == []
    assert check_pools({"a": 1, "b": 2}, 0, 3, plain) != []
    assert check_pools({"a": 3, "b": 1}, 0, 4, plain) != []
    assert check_pools({"a": 2}, 2, 4, plain) != []
    assert check_pools({"a": 2, "b": 1}, 1, 3, plain) == ["3 placed and 1 unplaced are not 3"]
    assert check_pools({"a": 3, "b": 1}, 0, 4, [("a", 1, 0, None), ("b", 1, 0, None)]) != []
    assert check_pools({"a": 4, "b": 0}, 0, 4, plain, down=["a"]) != []


def test_leftovers_out_of_order_are_found() -> None:
    plain = [("a", 1, 0, None), ("b", 2, 0, None), ("c", 2, 0, None)]
    assert check_pools({"a": 1, "b": 3, "c": 2}, 0, 6, plain) == []
    assert check_pools({"a": 2, "b": 2, "c": 2}, 0, 6, plain) == ["a was rounded up before b"]
    assert check_pools({"a": 2, "b": 2, "c": 2}, 0, 6, plain, order=["a"]) == []
    assert check_pools({"a": 1, "b": 2, "c": 3}, 0, 6, plain) == ["c was rounded up before b"]
    assert check_pools({"a": 1, "b": 2, "c": 3}, 0, 6, plain, previous={"c": 1}) == []


def test_counts_off_their_share_are_found() -> None:
    plain = [("on", 2, 2, None), ("spot-a", 5, 0, 3), ("spot-b", 3, 0, None)]
    assert check_pools({"on": 3, "spot-a": 3, "spot-b": 4}, 0, 10, plain) == []
    assert "outside of its bounds 0 to 3" in check_pools({"on": 3, "spot-a": 4, "spot-b": 3}, 0, 10, plain)[0]
    assert "neither floor nor ceiling" in check_pools({"on": 4, "spot-a": 3, "spot-b": 3}, 0, 10, plain)[0]
    assert "have a place" in " ".join(check_pools({"on": 3, "spot-a": 3, "spot-b": 3}, 1, 10, plain))
