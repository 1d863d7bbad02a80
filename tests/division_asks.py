"""Requests for divisions, as values: asked of the planner and of its checker alike, and made up by Hypothesis."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from math import ceil, floor

import msgspec
from hypothesis import strategies as st

from poise.decide.divide import Division, divide
from poise.decide.division_check import check_division
from poise.decide.fleet import divide_fleet
from poise.decide.fleet_check import check_fleet


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request, with all that it may say."""

    replicas: int
    weights: dict[str, int]
    last: dict[str, int] | None = None
    minimum: dict[str, int] = {}
    maximum: dict[str, int] = {}
    capacity: dict[str, int] = {}
    strategy: str = "StaticWeight"
    seed: str = ""
    draw: str = "exact"
    mix: Fraction = Fraction(0)
    debt: dict[str, Fraction] | None = None


def answer(ask: Ask) -> Division:
    return divide(
        ask.replicas,
        ask.weights,
        last=ask.last,
        minimum=ask.minimum,
        maximum=ask.maximum,
        capacity=ask.capacity,
        strategy=ask.strategy,
        seed=ask.seed,
        draw=ask.draw,
        mix=ask.mix,
        debt=ask.debt,
    )


def broken(ask: Ask, division: Division) -> list[str]:
    return check_division(
        division,
        ask.replicas,
        ask.weights,
        last=ask.last,
        minimum=ask.minimum,
        maximum=ask.maximum,
        capacity=ask.capacity,
        strategy=ask.strategy,
        seed=ask.seed,
        draw=ask.draw,
        mix=ask.mix,
        debt=ask.debt,
    )


NAMES = ["a", "b", "c", "d", "é"]


def some(names: list[str], values: st.SearchStrategy[int]) -> st.SearchStrategy[dict[str, int]]:
    return st.dictionaries(st.sampled_from(names), values) if names else st.just({})


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    names = NAMES[: draw(st.integers(0, 5))]
    weights = {name: draw(st.one_of(st.integers(0, 4), st.integers(0, 10**6))) for name in names}
    strategy = draw(st.sampled_from(["StaticWeight", "StaticWeight", "DynamicWeight", "Duplicated"]))
    minimum = draw(some(names, st.integers(0, 5)))
    highs = st.integers(0, 9)
    maximum = {name: minimum.get(name, 0) + more for name, more in draw(some(names, highs)).items()}
    capacity = {name: minimum.get(name, 0) + more for name, more in draw(some(names, highs)).items()}
    if strategy == "DynamicWeight":
        capacity = {name: capacity.get(name, minimum.get(name, 0)) for name in names}
    kind = draw(st.sampled_from(["exact", "weighted"]))
    parts = st.fractions(0, 1, max_denominator=9)
    owed = st.fractions(-3, 3, max_denominator=6)
    return Ask(
        replicas=draw(st.one_of(st.integers(0, 30), st.integers(0, 10**9))),
        weights=dict(draw(st.permutations(list(weights.items())))),
        last=draw(st.none() | some([*names, "old"], st.integers(0, 9))),
        minimum=minimum,
        maximum=maximum,
        capacity=capacity,
        strategy=strategy,
        seed=draw(st.text(max_size=3)),
        draw=kind,
        mix=draw(parts) if kind == "exact" else Fraction(0),
        debt=draw(st.none() | st.fixed_dictionaries(dict.fromkeys(names, owed))),
    )


class FleetAsk(msgspec.Struct, frozen=True):
    workloads: dict[str, int]
    weights: dict[str, dict[str, int]]
    last: dict[str, dict[str, int]]
    moves_max: int
    fair: str
    seed: str


@st.composite
def fleets(draw: st.DrawFn) -> FleetAsk:
    names = [f"w{number}" for number in range(draw(st.integers(0, 12)))]
    counts = st.integers(0, 9)
    return FleetAsk(
        workloads={name: draw(counts) for name in names},
        weights={name: draw(some(NAMES, st.integers(0, 4))) for name in names},
        last=draw(st.dictionaries(st.sampled_from(names), some(NAMES, st.integers(0, 3)))) if names else {},
        moves_max=draw(st.integers(0, 6)),
        fair=draw(st.sampled_from(["fleet", "fleet", "single"])),
        seed=draw(st.sampled_from(["", "x"])),
    )


def answers(ask: FleetAsk) -> dict[str, Division]:
    return divide_fleet(
        ask.workloads, ask.weights, last=ask.last, moves_max=ask.moves_max, fair=ask.fair, seed=ask.seed
    )


def fleet_broken(ask: FleetAsk, divisions: Mapping[str, Division]) -> list[str]:
    return check_fleet(
        divisions, ask.workloads, ask.weights, last=ask.last, moves_max=ask.moves_max, fair=ask.fair, seed=ask.seed
    )


def turned(ask: Ask) -> Ask:
    """The same request with every mapping the other way round."""
    fields = ("weights", "minimum", "maximum", "capacity", "last", "debt")
    values = {field: getattr(ask, field) for field in fields}
    return msgspec.structs.replace(
        ask, **{field: None if value is None else dict(reversed(value.items())) for field, value in values.items()}
    )


def order_is_free(ask: Ask) -> bool:
    one, other = answer(ask), answer(turned(ask))
    return one == other and list(one.replicas) == list(other.replicas) == sorted(ask.weights, key=str.encode)


def nearest(division: Division, last: Mapping[str, int], placed: int) -> set[tuple[int, ...]]:
    """Try every floor and ceiling: the divisions with the fewest changed replicas."""
    choices = product(*(sorted({floor(quota), ceil(quota)}) for quota in division.quota.values()))
    whole = [shares for shares in choices if sum(shares) == placed]
    prices = {
        shares: sum(abs(share - last.get(name, 0)) for name, share in zip(division.quota, shares, strict=True))
        for shares in whole
    }
    return {shares for shares, price in prices.items() if price == min(prices.values())}


def reach_exactly_the_nearest(replicas: int, weights: dict[str, int], last: dict[str, int]) -> bool:
    wanted = nearest(divide(replicas, weights, last=last), last, replicas)
    reached: set[tuple[int, ...]] = set()
    for seed in range(4000):
        reached.add(tuple(divide(replicas, weights, last=last, seed=str(seed)).replicas.values()))
        if not reached <= wanted:
            return False
        if reached == wanted and seed > 20:
            return True
    return False


def named(values: list[int]) -> dict[str, int]:
    """Give numbers to clusters, in their order."""
    return {f"member{position}": value for position, value in enumerate(values, start=1)}


def listed(division: Division) -> tuple[int, ...]:
    """List the replicas in the order of the clusters."""
    return tuple(division.replicas.values())
