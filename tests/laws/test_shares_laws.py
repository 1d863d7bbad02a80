"""Laws of fair shares: they sum up, one level explains them all, and a second implementation agrees."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from poise.decide import plan_check
from poise.decide import shares as module
from poise.decide.shares import fair_shares

WEIGHTS = st.one_of(st.integers(0, 6), st.integers(0, 10**30))


class Party(msgspec.Struct, frozen=True):
    """One party: its weight and its bounds."""

    weight: int
    low: int
    high: int | None


@st.composite
def parties(draw: st.DrawFn) -> list[Party]:
    drawn = []
    for _ in range(draw(st.integers(0, 6))):
        low = draw(st.one_of(st.just(0), st.integers(0, 8)))
        high = draw(st.one_of(st.none(), st.integers(low, low + 12), st.just(10**30)))
        drawn.append(Party(draw(WEIGHTS), low, high))
    return drawn


def shared(total: int, among: list[Party]) -> list[Fraction]:
    return fair_shares(
        total, [each.weight for each in among], [each.low for each in among], [each.high for each in among]
    ).fractions()


def faults(total: int, among: list[Party], shares: list[Fraction]) -> list[str]:
    """Name what is wrong with shares: bounds, sum, or two parties that no common level explains."""
    found = []
    lowest = sum(each.low for each in among)
    if all(each.high is not None or not each.weight for each in among):
        fits = sum((each.high or 0) if each.weight else each.low for each in among)
        wanted = max(lowest, min(total, fits))
    else:
        wanted = max(lowest, total)
    if sum(shares) != wanted:
        found.append("sum")
    for each, share in zip(among, shares, strict=True):
        if share < each.low or (each.high is not None and share > each.high) or (not each.weight and share != each.low):
            found.append("bounds")
    pulled = [(each, share) for each, share in zip(among, shares, strict=True) if each.weight]
    for (one, mine), (two, yours) in combinations(pulled, 2):
        if apart(one, mine, two, yours) or apart(two, yours, one, mine):
            found.append("level")
    return found


def apart(lesser: Party, mine: Fraction, greater: Party, yours: Fraction) -> bool:
    """Tell whether one has less by weight than the other, though it could have more and the other less."""
    lower = mine * greater.weight < yours * lesser.weight
    return lower and (lesser.high is None or mine < lesser.high) and yours > greater.low


@given(among=parties(), total=st.integers(0, 40))
@settings(max_examples=examples(200), deadline=None)
def test_shares_sum_up_keep_their_bounds_and_follow_one_level(among: list[Party], total: int) -> None:
    assert faults(total, among, shared(total, among)) == []


@given(among=parties(), total=st.integers(0, 40))
@settings(max_examples=examples(60), deadline=None)
def test_shares_do_not_depend_on_the_order(among: list[Party], total: int) -> None:
    assert shared(total, among[::-1]) == shared(total, among)[::-1]


@given(among=parties(), total=st.integers(0, 40))
@settings(max_examples=examples(60), deadline=None)
def test_more_to_share_takes_from_nobody(among: list[Party], total: int) -> None:
    assert all(less <= more for less, more in zip(shared(total, among), shared(total + 1, among), strict=True))


@given(among=parties(), total=st.integers(0, 40), factor=st.integers(2, 10**9))
@settings(max_examples=examples(60), deadline=None)
def test_only_the_ratio_of_weights_counts(among: list[Party], total: int, factor: int) -> None:
    heavier = [Party(each.weight * factor, each.low, each.high) for each in among]
    assert shared(total, heavier) == shared(total, among)


@given(among=parties(), total=st.integers(0, 40))
@settings(max_examples=examples(80), deadline=None)
def test_the_checker_finds_the_same_shares_by_repeated_clamping(among: list[Party], total: int) -> None:
    facts = plan_check._Facts(
        items=[str(number) for number in range(total)],
        live=[str(number) for number in range(len(among))],
        held={},
        limits={str(number): each.high for number, each in enumerate(among)},
        weights={str(number): each.weight for number, each in enumerate(among)},
        debt={},
        seed="",
    )
    # The checker, like the planner, takes a wish of all zeros for no wish at all.
    wished = among if any(each.weight for each in among) else [msgspec.structs.replace(p, weight=1) for p in among]
    assert list(plan_check._shares(facts).values()) == shared(
        total, [msgspec.structs.replace(p, low=0) for p in wished]
    )


def test_mutation_a_level_that_is_a_bit_low_breaks_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    at = module._at
    monkeypatch.setattr(module, "_at", lambda level, *facts: at(level * Fraction(99, 100), *facts))
    among = [Party(1, 0, 2), Party(1, 0, None)]
    assert "sum" in faults(7, among, shared(7, among))


def test_mutation_a_forgotten_upper_bound_breaks_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    at = module._at
    monkeypatch.setattr(module, "_at", lambda level, weights, low, high: at(level, weights, low, [None] * len(high)))
    among = [Party(1, 0, 2), Party(1, 0, None)]
    assert "bounds" in faults(7, among, shared(7, among))


def test_mutation_ignored_weights_break_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal parts sum up and keep the bounds: only the common level is missing."""
    between = module._between
    monkeypatch.setattr(module, "_between", lambda total, weights, *bounds: between(total, [1] * len(weights), *bounds))
    among = [Party(1, 0, 9), Party(3, 0, None), Party(1, 0, 1)]
    assert faults(12, among, shared(12, among)) == ["level"]
