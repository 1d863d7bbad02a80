"""Fair shares by example: exact, by weight, within bounds."""

from __future__ import annotations

from fractions import Fraction

import pytest

from poise.decide.shares import Shares, fair_shares

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)
NONE = [None, None, None]


@pytest.mark.parametrize(
    ("total", "weights", "lower", "upper", "expected"),
    [
        pytest.param(10, [1, 1, 1], [0, 0, 0], NONE, [10 * THIRD] * 3, id="10 on 3"),
        pytest.param(100, [1] * 7, [0] * 7, [None] * 7, [Fraction(100, 7)] * 7, id="100 on 7"),
        pytest.param(8, [2, 1, 1], [0, 0, 0], NONE, [4, 2, 2], id="by weight, whole"),
        pytest.param(5, [2, 1, 1], [0, 0, 0], NONE, [5 * HALF, 5 * HALF / 2, 5 * HALF / 2], id="by weight"),
        pytest.param(6, [0, 1, 1], [0, 0, 0], NONE, [0, 3, 3], id="weight 0 has no share"),
        pytest.param(6, [0, 1, 1], [2, 0, 0], NONE, [2, 2, 2], id="weight 0 has exactly its lower bound"),
        pytest.param(6, [0, 0, 0], [0, 0, 0], NONE, [0, 0, 0], id="all weights 0"),
        pytest.param(10, [1, 1, 1], [0, 0, 0], [2, None, None], [2, 4, 4], id="a full one passes the rest on"),
        pytest.param(10, [1, 1, 1], [0, 0, 0], [2, 4, None], [2, 4, 4], id="a bound that is just met"),
        pytest.param(11, [1, 1, 1], [0, 0, 0], [2, 4, None], [2, 4, 5], id="two full ones pass the rest on"),
        pytest.param(10, [1, 1, 1], [0, 0, 0], [2, 3, 4], [2, 3, 4], id="more than fits gives what fits"),
        pytest.param(9, [1, 1, 1], [0, 0, 0], [2, 3, 4], [2, 3, 4], id="exactly what fits"),
        pytest.param(8, [1, 1, 1], [0, 0, 0], [2, 3, 4], [2, 3, 3], id="one less than fits"),
        pytest.param(5, [1, 1, 1], [0, 0, 0], [0, None, None], [0, 5 * HALF, 5 * HALF], id="upper bound 0"),
        pytest.param(5, [1, 1, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0], id="all upper bounds 0"),
        pytest.param(6, [1, 1, 1], [4, 0, 0], NONE, [4, 1, 1], id="a lower bound takes from the others"),
        pytest.param(3, [1, 1, 1], [4, 0, 0], NONE, [4, 0, 0], id="less than the lower bounds gives them"),
        pytest.param(9, [1, 1, 1], [3, 3, 3], [3, 3, 3], [3, 3, 3], id="bounds that leave no choice"),
        pytest.param(7, [1, 1, 1], [3, 0, 0], [3, None, None], [3, 2, 2], id="one has no choice"),
        pytest.param(0, [1, 1, 1], [0, 0, 0], NONE, [0, 0, 0], id="nothing to share"),
        pytest.param(5, [], [], [], [], id="nobody to share with"),
    ],
)
def test_shares_by_example(
    total: int, weights: list[int], lower: list[int], upper: list[int | None], expected: list[Fraction | int]
) -> None:
    assert fair_shares(total, weights, lower, upper).fractions() == expected


def test_huge_weights_stay_exact() -> None:
    """A float would give the small one nothing, or the large one all."""
    shares = fair_shares(3, [10**30, 10**30 + 1], [0, 0], [None, None]).fractions()
    assert shares == [Fraction(3 * 10**30, 2 * 10**30 + 1), Fraction(3 * (10**30 + 1), 2 * 10**30 + 1)]
    assert sum(shares) == 3


def test_a_huge_upper_bound_is_as_good_as_none() -> None:
    bounded = fair_shares(7, [1, 2, 4], [0, 0, 0], [10**30] * 3)
    assert bounded.fractions() == fair_shares(7, [1, 2, 4], [0, 0, 0], NONE).fractions() == [1, 2, 4]


def test_floors_and_remainders() -> None:
    shares = Shares([7, 6, 0], 3)
    assert shares.floors() == [2, 2, 0]
    assert shares.remainders() == [1, 0, 0]
    assert shares.fractions() == [Fraction(7, 3), Fraction(2), Fraction(0)]
