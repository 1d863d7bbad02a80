"""Fair shares: how much each of several parties should have, exactly, by weight and within bounds."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import msgspec


class Shares(msgspec.Struct, frozen=True):
    """Exact shares over one common denominator: share i is numerators[i] / denominator."""

    numerators: list[int]
    denominator: int

    def floors(self) -> list[int]:
        """Round every share down."""
        return [numerator // self.denominator for numerator in self.numerators]

    def remainders(self) -> list[int]:
        """Give what each floor leaves behind, in units of 1 / denominator; 0 means that the share is whole."""
        return [numerator % self.denominator for numerator in self.numerators]

    def fractions(self) -> list[Fraction]:
        """Give the shares as reduced fractions."""
        return [Fraction(numerator, self.denominator) for numerator in self.numerators]


def fair_shares(total: int, weights: Sequence[int], lower: Sequence[int], upper: Sequence[int | None]) -> Shares:
    """Water-fill: share_i = clamp(μ·w_i, lower_i, upper_i) with the one μ for which the shares sum to the total.

    Weight 0 means exactly the lower bound. A total below the sum of the lower bounds gives the lower bounds, one above
    what fits gives what fits: the caller compares. An upper bound of None is no bound.
    """
    lowest, highest = sum(lower), _what_fits(weights, lower, upper)
    if total <= lowest:
        return Shares(list(lower), 1)
    if highest is not None and total >= highest:
        return Shares([_most(*each) for each in zip(weights, lower, upper, strict=True)], 1)
    plain, whole = [total * weight for weight in weights], sum(weights)
    bounds = zip(plain, lower, upper, strict=True)
    if all(low * whole <= share and (high is None or share <= high * whole) for share, low, high in bounds):
        return Shares(plain, whole)
    return _between(total, weights, lower, upper)


def _most(weight: int, low: int, high: int | None) -> int:
    """Give the most that one party takes; called only where every party with a weight has an upper bound."""
    if not weight:
        return low
    assert high is not None
    return high


def _what_fits(weights: Sequence[int], lower: Sequence[int], upper: Sequence[int | None]) -> int | None:
    """Sum the upper bounds (weight 0: the lower one); None where a party has no upper bound."""
    fits = 0
    for weight, low, high in zip(weights, lower, upper, strict=True):
        if weight and high is None:
            return None
        fits += _most(weight, low, high)
    return fits


def _between(total: int, weights: Sequence[int], lower: Sequence[int], upper: Sequence[int | None]) -> Shares:
    """Find μ between two neighbouring levels at which a party reaches a bound; between them the sum is linear in μ."""
    steps: list[tuple[Fraction, int, int]] = []  # (level, change of the fixed sum, change of the free weight)
    for weight, low, high in zip(weights, lower, upper, strict=True):
        if weight:
            steps.append((Fraction(low, weight), -low, weight))
            if high is not None:
                steps.append((Fraction(high, weight), high, -weight))
    steps.sort()
    fixed, free = sum(lower), 0
    for level, fixed_change, free_change in steps:
        if free and fixed + level * free >= total:
            break
        fixed, free = fixed + fixed_change, free + free_change
    assert free > 0, "the total lies strictly between the sums of the bounds"
    level = Fraction(total - fixed, free)
    return _at(level, weights, lower, upper)


def _at(level: Fraction, weights: Sequence[int], lower: Sequence[int], upper: Sequence[int | None]) -> Shares:
    above, below = level.numerator, level.denominator
    numerators = []
    for weight, low, high in zip(weights, lower, upper, strict=True):
        numerator = max(above * weight, low * below)
        if high is not None:
            numerator = min(numerator, high * below)
        numerators.append(numerator if weight else low * below)
    return Shares(numerators, below)
