"""Replicas over clusters by weight: the examples of the design by name, and the edges of every rule."""

from __future__ import annotations

from collections import Counter
from math import sqrt
from pathlib import Path

import msgspec
import pytest
from tests.division_asks import listed, named

from poise.decide.divide import divide
from poise.decide.division_check import check_division


class Case(msgspec.Struct, rename="camel"):
    """One row of the example data; lists are in the order of the clusters."""

    id: str
    replicas: int
    weights: list[int]
    last: list[int] | None = None
    last_strategy: str | None = None
    expected: list[int] | None = None
    allowed: list[list[int]] | str | None = None
    allowed_min_move: list[list[int]] | None = msgspec.field(default=None, name="allowed_min_move")
    probability: list[float] | None = None


class Initial(msgspec.Struct):
    replicas: int
    weights: list[int]
    allowed: list[list[int]]


class Before(msgspec.Struct):
    strategy: str
    replicas: list[int]


class Examples(msgspec.Struct):
    initial: Initial
    last: Before
    cases: list[Case]


DATA = Path(__file__).parents[1] / "data" / "division.json"
EXAMPLES = msgspec.json.decode(DATA.read_bytes(), type=Examples)
BY_ID = {case.id: case for case in EXAMPLES.cases}


def reached(case: Case, last: list[int] | None, seeds: int = 400) -> Counter[tuple[int, ...]]:
    """Count the results over many seeds; every single one must be sound."""
    counts: Counter[tuple[int, ...]] = Counter()
    before = None if last is None else named(last)
    for seed in map(str, range(seeds)):
        division = divide(case.replicas, named(case.weights), last=before, seed=seed)
        assert check_division(division, case.replicas, named(case.weights), last=before, seed=seed) == []
        counts[listed(division)] += 1
    return counts


LAST = EXAMPLES.last.replicas


def rows(lists: list[list[int]]) -> set[tuple[int, ...]]:
    return {tuple(row) for row in lists}


def test_the_first_division_reaches_all_six_and_nothing_else() -> None:
    first = Case(id="initial", replicas=EXAMPLES.initial.replicas, weights=EXAMPLES.initial.weights)
    assert set(reached(first, None)) == rows(EXAMPLES.initial.allowed)


@pytest.mark.parametrize("name", ["1", "goal2-2:2:2:2"])
def test_what_still_fits_is_kept(name: str) -> None:
    case = BY_ID[name]
    division = divide(case.replicas, named(case.weights), last=named(LAST))
    assert list(listed(division)) == case.expected
    assert (division.kept, division.moved, division.reason) == (True, 0, "the last result still fits")


@pytest.mark.parametrize("strategy", ["Duplicated", "DynamicWeight"])
def test_2_a_last_result_of_another_strategy_is_no_last_result(strategy: str) -> None:
    case = BY_ID["2"]
    record = msgspec.structs.replace(divide(6, named([1, 1, 1, 1])).record, strategy=strategy, result=named(LAST))
    results = {listed(divide(6, named(case.weights), last=record, seed=str(seed))) for seed in range(400)}
    assert results == rows(EXAMPLES.initial.allowed)
    same = msgspec.structs.replace(record, strategy="StaticWeight")
    assert divide(6, named(case.weights), last=same).kept


@pytest.mark.parametrize("name", ["3.1", "3.2", "3.3", "3.4", "motivation"])
def test_the_results_over_many_seeds_are_exactly_the_allowed_ones(name: str) -> None:
    case = BY_ID[name]
    assert isinstance(case.allowed, list)
    assert set(reached(case, None if name == "motivation" else LAST)) == rows(case.allowed)


@pytest.mark.parametrize("name", ["3.2", "3.3", "3.4", "motivation"])
def test_the_allowed_results_come_with_their_probability(name: str) -> None:
    case, seeds = BY_ID[name], 2000
    assert isinstance(case.allowed, list)
    assert case.probability is not None
    before = None if name == "motivation" else named(LAST)
    counts = Counter(
        listed(divide(case.replicas, named(case.weights), last=before, seed=str(seed))) for seed in range(seeds)
    )
    for row, chance in zip(case.allowed, case.probability, strict=True):
        assert abs(counts[tuple(row)] - seeds * chance) < 4 * sqrt(seeds * chance * (1 - chance))


def test_4_new_weights_under_which_the_last_result_fits() -> None:
    case = BY_ID["4"]
    assert isinstance(case.allowed, list)
    assert set(reached(case, LAST)) == {tuple(LAST)}
    assert tuple(LAST) in rows(case.allowed)
    assert set(reached(case, None)) == rows(case.allowed)


def test_4_new_weights_under_which_the_last_result_does_not_fit() -> None:
    case = BY_ID["4-variant-last-1212"]
    assert case.last is not None
    assert case.allowed_min_move is not None
    assert set(reached(case, case.last)) == rows(case.allowed_min_move)


def test_5_a_removed_cluster() -> None:
    case = BY_ID["5"]
    division = divide(case.replicas, named(case.weights), last=named(LAST))
    assert list(listed(division)) == case.expected
    assert division.moved == 1


def averages(draw: str) -> tuple[list[float], list[float]]:
    """Average 8 over 2:1:1:1 over 20,000 seeds, with the standard errors."""
    seeds, weights = 20_000, named([2, 1, 1, 1])
    counts: Counter[str] = Counter()
    for seed in range(seeds):
        counts.update(divide(8, weights, seed=f"workload-{seed}", draw=draw).replicas)
    means = [counts[name] / seeds for name in weights]
    return means, [sqrt((mean % 1) * (1 - mean % 1) / seeds) for mean in means]


def test_the_expected_share_is_exactly_the_quota() -> None:
    means, errors = averages("exact")
    for mean, error, exact in zip(means, errors, [3.2, 1.6, 1.6, 1.6], strict=True):
        assert abs(mean - exact) < 4 * error


def test_the_weighted_draw_is_biased() -> None:
    means, errors = averages("weighted")
    for mean, error, biased in zip(means, errors, [3.7, 4.3 / 3, 4.3 / 3, 4.3 / 3], strict=True):
        assert abs(mean - biased) < 4 * error


def test_a_whole_quota_is_met_exactly_and_never_wins() -> None:
    for draw in ("exact", "weighted"):
        results = {listed(divide(6, named([4, 1, 1, 1, 1]), seed=str(seed), draw=draw)) for seed in range(100)}
        assert results == {(3, 0, 1, 1, 1), (3, 1, 0, 1, 1), (3, 1, 1, 0, 1), (3, 1, 1, 1, 0)}
    # 10 over 2:1:1:1 is 4, 2, 2, 2: nothing to draw.
    division = divide(10, named([2, 1, 1, 1]))
    assert listed(division) == (4, 2, 2, 2)
    assert division.record.draws == []
    # 9 over 3:2:1 is 9/2, 3, 3/2: the second takes no part.
    assert {divide(9, named([3, 2, 1]), seed=str(seed)).replicas["member2"] for seed in range(100)} == {3}


def test_equal_ratios_are_the_same_request_and_the_same_draw() -> None:
    for seed in map(str, range(50)):
        one, two = (divide(7, named(weights), seed=seed) for weights in ([1, 2, 2], [3, 6, 6]))
        assert (one.replicas, one.record.draws) == (two.replicas, two.record.draws)


def test_a_bound_that_binds_nothing_changes_no_draw() -> None:
    for seed in map(str, range(50)):
        free = divide(7, named([1, 2, 2]), seed=seed)
        assert divide(7, named([1, 2, 2]), seed=seed, maximum={"member1": 100}).replicas == free.replicas


def test_moved_counts_the_smaller_side_with_removed_clusters() -> None:
    assert divide(7, named([1, 1, 1, 1]), last=named([2, 1, 2, 1])).moved == 0
    assert divide(6, {"a": 1, "b": 1}, last={"a": 2, "b": 2, "old": 2}).moved == 2
    assert divide(4, {"a": 1, "b": 1}, last={"a": 6}).moved == 2
    assert divide(6, {"a": 1, "b": 1}).moved == 0


def test_an_empty_last_result_is_none() -> None:
    assert divide(6, named([1, 1, 1, 1]), last={}, seed="x") == divide(6, named([1, 1, 1, 1]), seed="x")
    assert divide(0, {"a": 1}, last={"a": 0, "old": 0}).kept


def test_repairs_weigh_additions_by_fraction_and_removals_by_what_it_lacks_to_1() -> None:
    # 5 over 3:1:1 is 3, 1, 1; 6 is 18/5, 6/5, 6/5: additions with 3/5, 1/5, 1/5.
    added = divide(6, named([3, 1, 1]), last=named([3, 1, 1])).record.draws[0]
    assert (added.change, added.rule, list(added.odds.values())) == (1, "fraction", ["3/5", "1/5", "1/5"])
    removed = divide(6, named([3, 1, 1]), last=named([4, 2, 2])).record.draws[0]
    assert (removed.change, removed.rule, list(removed.odds.values())) == (-1, "fraction", ["2/5", "4/5", "4/5"])
    seeds = 2000
    repairs = [divide(6, named([3, 1, 1]), last=named([3, 1, 1]), seed=str(seed)) for seed in range(seeds)]
    wins = sum(listed(division) == (4, 1, 1) for division in repairs)
    assert abs(wins - seeds * 0.6) < 4 * sqrt(seeds * 0.6 * 0.4)
