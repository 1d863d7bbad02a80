"""Draws that follow from a seed: pinned words, and chances counted over every possible outcome of the words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import islice, permutations, product

import pytest

from poise.decide import draw
from poise.decide.draw import below, highest, shuffled, systematic, tilted, weighted, words


def test_the_words_of_a_seed_are_pinned() -> None:
    # Other words would draw other clusters: an upgrade would then contradict every record that was ever written.
    assert list(islice(words("exact", "cart"), 3)) == [15766575627898851188, 15381196905525532076, 13289945890375323935]
    assert list(islice(words("tie", "cart"), 1)) != list(islice(words("exact", "cart"), 1))
    assert next(words("exact", "")) != next(words("exact", "é"))


def test_below_draws_again_what_would_favour_small_numbers() -> None:
    # 2^64 is 1 more than a multiple of 3: the last word must not count.
    assert below(iter([2**64 - 1, 5]), 3) == 2
    assert below(iter([2**64 - 2]), 3) == (2**64 - 2) % 3


def test_below_takes_as_many_words_as_the_bound_needs() -> None:
    bound = 3 * 2**70
    assert below(iter([1, 7]), bound) == 2**64 + 7
    assert below(iter([2**64 - 1, 2**64 - 1, 0, 1]), bound) == 1
    assert below(iter([9]), 1) == 0
    assert all(0 <= below(words("exact", str(seed)), bound) < bound for seed in range(200))


def test_every_order_has_the_same_chance() -> None:
    counts = Counter(tuple(shuffled(iter(stream), 4)) for stream in product(range(4), range(3), range(2)))
    assert counts == dict.fromkeys(permutations(range(4)), 1)


def _every_systematic(chances: Sequence[int], unit: int) -> Counter[int]:
    """Count who is taken over every order and every point."""
    bounds = [range(size) for size in range(len(chances), 1, -1)]
    counts: Counter[int] = Counter()
    for stream in product(*bounds, range(unit)):
        taken = systematic(iter(stream), chances, unit)
        assert len(taken) == len(set(taken)) == sum(chances) // unit
        counts.update(taken)
    return counts


@pytest.mark.parametrize(
    ("chances", "unit"),
    [([1, 3, 3, 3], 5), ([2, 2], 4), ([1, 1, 1], 3), ([5, 3, 1, 3], 6), ([4, 4, 0, 4], 4), ([7], 7), ([3, 5, 6, 7], 7)],
)
def test_systematic_sampling_takes_each_with_exactly_its_chance(chances: list[int], unit: int) -> None:
    # The words are whole numbers below the bounds, so all outcomes are equally likely and can be counted.
    counts = _every_systematic(chances, unit)
    outcomes = sum(counts.values()) * unit // sum(chances)
    assert all(counts[i] * unit == chance * outcomes for i, chance in enumerate(chances))


def test_a_point_that_does_not_vary_breaks_the_chances(monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck(stream: Iterator[int], bound: int) -> int:
        return next(stream) * 0 % bound

    monkeypatch.setattr(draw, "below", stuck)
    with pytest.raises(AssertionError):
        test_systematic_sampling_takes_each_with_exactly_its_chance([1, 3, 3, 3], 5)


def test_a_common_factor_of_the_chances_changes_no_draw() -> None:
    for seed in map(str, range(50)):
        plain = systematic(words("exact", seed), [1, 3, 3, 3], 5)
        assert systematic(words("exact", seed), [4, 12, 12, 12], 20) == plain
        assert weighted(words("w", seed), [2, 1, 1], 2) == weighted(words("w", seed), [20, 10, 10], 2)


def test_the_weighted_draw_is_by_weight_without_replacement() -> None:
    # 2:1:1:1, two taken: the first is in with 2/5 + 3/5·2/4 = 7/10. After one take 3 or 4 are left, both divide 12.
    outcomes = [weighted(iter(stream), [2, 1, 1, 1], 2) for stream in product(range(5), range(12))]
    assert all(len(set(taken)) == 2 for taken in outcomes)
    assert Fraction(sum(0 in taken for taken in outcomes), len(outcomes)) == Fraction(7, 10)
    assert {tuple(taken) for taken in outcomes} == set(permutations(range(4), 2))


def test_the_weighted_draw_can_take_all_and_never_takes_weight_0() -> None:
    assert sorted(weighted(words("w", "x"), list(range(1, 300)), 299)) == list(range(299))
    assert all(0 not in weighted(words("w", str(seed)), [0, 1, 1], 2) for seed in range(50))
    assert weighted(words("w", "x"), [1, 1], 0) == []


def test_the_highest_scores_win_and_ties_are_drawn() -> None:
    assert highest(words("tie", "x"), [3, 9, 5], 2) == [1, 2]
    assert highest(words("tie", "x"), [3, 3], 2) == [0, 1]
    reached = {tuple(highest(words("tie", str(seed)), [1, 7, 1, 1], 2)) for seed in range(60)}
    assert reached == {(0, 1), (1, 2), (1, 3)}


def test_capacities_tilt_the_chances() -> None:
    # Fractions 1/3 each, R = 1, capacities 10:20:10: p = 1/4, 1/2, 1/4; half mixed: 7/24, 10/24, 7/24.
    chances, unit = tilted([1, 1, 1], 3, [10, 20, 10], Fraction(1, 2))
    assert [Fraction(chance, unit) for chance in chances] == [Fraction(7, 24), Fraction(5, 12), Fraction(7, 24)]


def test_a_tilted_chance_is_capped_at_1_and_the_excess_is_spread() -> None:
    # R = 2 by 90:5:5 would be 9/5 for the first: it gets 1, the others share the second replica.
    chances, unit = tilted([2, 2, 2], 3, [90, 5, 5], Fraction(1))
    assert [Fraction(chance, unit) for chance in chances] == [1, Fraction(1, 2), Fraction(1, 2)]


def test_an_unknown_capacity_leaves_the_fraction() -> None:
    chances, unit = tilted([1, 1, 1], 3, [None, 30, 10], Fraction(1))
    assert [Fraction(chance, unit) for chance in chances] == [Fraction(1, 3), Fraction(1, 2), Fraction(1, 6)]
    assert tilted([1, 2], 3, [None, None], Fraction(1)) == ([1, 2], 3)
    assert tilted([1, 2], 3, [5, 9], Fraction(0)) == ([1, 2], 3)
