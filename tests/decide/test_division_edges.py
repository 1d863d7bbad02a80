"""Replicas over clusters at the edges of every rule: bounds, strategies, chances, the record, and bad input."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from math import sqrt

import msgspec
import pytest
from tests.division_asks import listed, named

from poise.decide.divide import Division, Record, Step, divide, replay
from poise.decide.division_check import check_division
from poise.errors import InvalidSpec

# Bounds.


def test_the_fair_share_is_water_filled() -> None:
    division = divide(12, named([1, 1, 2]), maximum={"member3": 4}, minimum={"member1": 5})
    assert division.quota == {"member1": 5, "member2": 3, "member3": 4}
    assert listed(division) == (5, 3, 4)


def test_the_upper_bound_is_the_smaller_of_maximum_and_capacity() -> None:
    assert listed(divide(12, named([1, 1]), maximum={"member1": 4}, capacity={"member1": 3})) == (3, 9)
    assert listed(divide(12, named([1, 1]), maximum={"member1": 2}, capacity={"member1": 3})) == (2, 10)


def test_weight_0_means_exactly_the_minimum() -> None:
    assert listed(divide(6, named([0, 1, 1]))) == (0, 3, 3)
    assert listed(divide(6, named([0, 1, 1]), minimum={"member1": 2})) == (2, 2, 2)


def test_all_weights_0_are_equal_before_the_bounds_are_looked_at() -> None:
    assert listed(divide(6, named([0, 0, 0]))) == (2, 2, 2)
    division = divide(6, named([0, 0, 0]), minimum={"member1": 4})
    assert listed(division) == (4, 1, 1)
    assert "all weights are 0" in division.reason


def test_minimums_that_exceed_the_replicas_count_as_weights() -> None:
    division = divide(6, named([1, 1, 1]), minimum={"member1": 4, "member2": 8})
    assert division.quota == {"member1": 2, "member2": 4, "member3": 0}
    assert listed(division) == (2, 4, 0)
    assert "the minimums add up to 12 and cannot be met" in division.reason
    assert division.unplaced == 0


def test_maximums_below_the_replicas_leave_the_rest_unplaced() -> None:
    division = divide(9, named([1, 1, 0]), maximum={"member1": 2, "member2": 3})
    assert listed(division) == (2, 3, 0)
    assert division.unplaced == 4
    assert "4 of 9 are unplaced" in division.reason


def test_a_kept_result_still_reports_what_is_unplaced() -> None:
    division = divide(9, named([1, 1]), maximum=named([2, 3]), last=named([2, 3]))
    assert division.kept
    assert division.unplaced == 4
    assert division.reason == "the last result still fits; the clusters take 5 at most, so 4 of 9 are unplaced"


def test_no_clusters_and_no_replicas_are_ordinary() -> None:
    empty = divide(5, {})
    assert (empty.replicas, empty.unplaced, empty.reason) == ({}, 5, "there is no cluster")
    assert divide(5, {}, strategy="Duplicated").unplaced == 5
    assert divide(0, {}).unplaced == 0
    none = divide(0, named([1, 2]))
    assert (listed(none), none.unplaced, none.kept) == ((0, 0), 0, False)
    assert divide(4, {}, last={"old": 4}).unplaced == 4


# Strategies.


def test_duplicated_gives_all_to_every_cluster_without_a_draw() -> None:
    division = divide(5, named([3, 1, 0]), strategy="Duplicated")
    assert (listed(division), division.unplaced, division.record.draws) == ((5, 5, 5), 0, [])
    assert division.reason == "there is no last result: every cluster gets all 5"


def test_duplicated_is_capped_and_reports_the_shortfall() -> None:
    division = divide(5, named([1, 1, 1]), strategy="Duplicated", maximum={"member1": 4}, capacity={"member2": 2})
    assert (listed(division), division.unplaced) == ((4, 2, 5), 4)
    assert division.reason.endswith("every cluster gets all 5; member1 is 1 short; member2 is 3 short")
    again = divide(
        5, named([1, 1, 1]), strategy="Duplicated", maximum={"member1": 4, "member2": 2}, last=division.record
    )
    assert again.kept


def test_dynamic_weight_divides_by_capacity() -> None:
    division = divide(6, named([1, 1, 1]), strategy="DynamicWeight", capacity=named([10, 20, 0]))
    assert listed(division) == (2, 4, 0)
    assert divide(40, named([1, 1]), strategy="DynamicWeight", capacity=named([10, 20])).unplaced == 10
    assert divide(4, named([1, 1]), strategy="DynamicWeight", capacity=named([0, 0])).unplaced == 4


# Chances by capacity, and debts.


def test_mix_tilts_the_chances_and_the_draw_follows() -> None:
    weights, room, seeds = named([1, 1, 1]), named([10, 20, 10]), 4000
    tilted = divide(7, weights, capacity=room, mix=0.5)
    assert tilted.record.draws[0].odds == {"member1": "7/24", "member2": "5/12", "member3": "7/24"}
    assert tilted.record.mix == "1/2"
    wins = sum(divide(7, weights, capacity=room, mix=0.5, seed=str(s)).replicas["member2"] == 3 for s in range(seeds))
    assert abs(wins - seeds * 5 / 12) < 4 * sqrt(seeds * 5 / 12 * 7 / 12)


def test_mix_is_0_unless_given_and_a_float_counts_as_it_prints() -> None:
    weights, room = named([1, 1, 1]), named([10, 20, 10])
    assert divide(7, weights, capacity=room).record.draws[0].odds == dict.fromkeys(weights, "1/3")
    assert divide(7, weights, capacity=room, mix=0.1).record.mix == "1/10"
    assert divide(7, weights, capacity=room, mix=Fraction(1, 3)).record.mix == "1/3"
    assert divide(7, weights, capacity=room, mix=1).record.draws[0].odds["member2"] == "1/2"


def test_the_residual_goes_where_most_is_owed() -> None:
    # Quotas 3/2, 3/2, 3: the whole one takes no part however much it is owed.
    weights = named([1, 1, 2])
    owed: dict[str, int | Fraction] = {"member1": Fraction(1, 2), "member2": 1, "member3": 9, "elsewhere": 5}
    division = divide(6, weights, debt=owed)
    assert listed(division) == (1, 2, 3)
    assert division.record.debt == {"member1": "1/2", "member2": "1"}
    assert {listed(divide(6, weights, debt={}, seed=str(seed))) for seed in range(40)} == {(1, 2, 3), (2, 1, 3)}


def test_debt_and_fraction_count_together_and_removals_take_the_smallest() -> None:
    # 5 over 3:1:1 with 6: fractions 3/5, 1/5, 1/5.
    assert listed(divide(6, named([3, 1, 1]), debt={"member2": Fraction(1, 3)})) == (4, 1, 1)
    assert listed(divide(6, named([3, 1, 1]), debt={"member2": Fraction(1, 2)})) == (3, 2, 1)
    before = named([4, 2, 2])
    assert listed(divide(6, named([3, 1, 1]), last=before, debt={})) == (4, 1, 1)
    assert listed(divide(6, named([3, 1, 1]), last=before, debt={"member3": 1})) == (3, 1, 2)


# The record.


def test_a_record_names_everything_and_survives_json() -> None:
    division = divide(7, {"b": 1, "a": 1}, seed="cart", draw="".join(["ex", "act"]), mix=Fraction(0))
    text = msgspec.json.encode(division.record)
    assert msgspec.json.decode(text) == {
        "replicas": 7,
        "weights": {"a": 1, "b": 1},
        "strategy": "StaticWeight",
        "result": division.replicas,
        "quotas": {"a": "7/2", "b": "7/2"},
        "seed": "cart",
        "draws": [
            {
                "change": 1,
                "rule": "exact",
                "odds": {"a": "1/2", "b": "1/2"},
                "winners": [max(division.replicas, key=division.replicas.__getitem__)],
            }
        ],
        "kept": False,
        "reason": "there is no last result: 1 of 2 clusters get one more, drawn with exact chances",
    }
    assert replay(msgspec.json.decode(text, type=Record)) == division


def test_results_are_pinned() -> None:
    # A record that was written today must replay to the same bits with every later version.
    names = ["a", "b", "c", "d", "e"]
    weights = dict(zip(names, [2, 1, 1, 1, 4], strict=True))
    sizes = (8, 13, 100)
    exact = [listed(divide(size, weights, seed="cart")) for size in sizes]
    assert exact == [(2, 1, 0, 1, 4), (3, 2, 2, 1, 5), (22, 11, 11, 11, 45)]
    biased = [listed(divide(size, weights, seed="cart", draw="weighted")) for size in sizes]
    assert biased == [(2, 1, 1, 0, 4), (3, 2, 1, 1, 6), (23, 11, 11, 11, 44)]
    before = dict(zip(names, exact[1], strict=True))
    repaired = [listed(divide(size, weights, seed="cart", last=before)) for size in (12, 16, 20)]
    assert repaired == [(3, 2, 1, 1, 5), (4, 2, 2, 1, 7), (5, 2, 3, 2, 8)]
    ties = [listed(divide(size, weights, seed="cart", debt={})) for size in sizes]
    assert ties == [(2, 1, 1, 1, 3), (3, 2, 1, 1, 6), (22, 11, 11, 11, 45)]


BROKEN_RECORDS: list[tuple[Record, str]] = [
    (msgspec.structs.replace(divide(7, {"a": 1}).record, mix="1e999999999"), "$.mix: expected a fraction"),
    (msgspec.structs.replace(divide(7, {"a": 1}).record, mix="1/0"), "$.mix: expected a fraction"),
    (msgspec.structs.replace(divide(7, {"a": 1}).record, debt={"a": "x"}), "$.debt['a']: expected a fraction"),
    (msgspec.structs.replace(divide(7, {"a": 1}).record, strategy="Best"), "$.strategy: expected one of"),
    (msgspec.structs.replace(divide(7, {"a": 1}).record, step=Step("b", "a", "")), "$.step: no replica can move"),
    (msgspec.structs.replace(divide(0, {"a": 1}).record, step=Step("a", "a", "")), "$.step: no replica can move"),
]


@pytest.mark.parametrize(("record", "message"), BROKEN_RECORDS)
def test_a_broken_record_is_refused(record: Record, message: str) -> None:
    with pytest.raises(InvalidSpec, match=f"^{re.escape(message)}"):
        replay(record)


# Bad input.

NAN, HUGE = float("nan"), 10**5000
BAD: list[tuple[dict[str, object], str]] = [
    ({"replicas": -1}, "$.replicas: expected >= 0, got -1"),
    ({"replicas": 1.5}, "$.replicas: expected a whole number, got 1.5"),
    ({"replicas": 1e308}, "$.replicas: expected a whole number"),
    ({"replicas": True}, "$.replicas: expected a whole number, got True"),
    ({"replicas": "7"}, "$.replicas: expected a whole number, got '7'"),
    ({"replicas": None}, "$.replicas: expected a whole number, got NoneType"),
    ({"replicas": HUGE}, "$.replicas: expected a whole number from 0 to 9223372036854775807"),
    ({"replicas": -HUGE}, "$.replicas: expected a whole number from 0 to 9223372036854775807"),
    ({"weights": {"a": -1}}, "$.weights['a']: expected >= 0, got -1"),
    ({"weights": {"a": NAN}}, "$.weights['a']: expected a whole number, got nan"),
    ({"weights": {"a": HUGE}}, "$.weights['a']: expected a whole number from 0 to"),
    ({"weights": {"": 1}}, "$.weights[0]: a name may not be empty"),
    ({"weights": {3: 1}}, "$.weights[0]: expected a name, got int"),
    ({"weights": {"\ud800": 1}}, "$.weights[0]: a name must be text that UTF-8 can hold"),
    ({"weights": [1, 1]}, "$.weights: expected a mapping cluster -> number, got list"),
    ({"minimum": {"a": 5}, "maximum": {"a": 3}}, "$.minimum['a']: expected <= 3, the maximum, got 5"),
    ({"minimum": {"a": 5}, "capacity": {"a": 3}}, "$.minimum['a']: expected <= 3, the capacity, got 5"),
    ({"maximum": {"z": 3}}, "$.maximum['z']: no such cluster here"),
    ({"capacity": {"a": -3}}, "$.capacity['a']: expected >= 0, got -3"),
    ({"minimum": 3}, "$.minimum: expected a mapping cluster -> number, got int"),
    ({"strategy": "Static"}, "$.strategy: expected one of StaticWeight, Duplicated, DynamicWeight, got 'Static'"),
    ({"strategy": "DynamicWeight"}, "$.capacity['a']: expected a number: DynamicWeight divides by capacity"),
    ({"draw": "lots"}, "$.draw: expected one of exact, weighted, got 'lots'"),
    ({"mix": 1.5}, "$.mix: expected a number from 0 to 1, got 1.5"),
    ({"mix": NAN}, "$.mix: expected a number from 0 to 1, got nan"),
    ({"mix": True}, "$.mix: expected a number from 0 to 1, got bool"),
    ({"mix": "1/2"}, "$.mix: expected a number from 0 to 1, got str"),
    ({"mix": Fraction(1, HUGE)}, "$.mix: expected a fraction of at most"),
    ({"mix": 0.5, "draw": "weighted"}, "$.mix: expected 0"),
    ({"last": {"a": -1}}, "$.last['a']: expected >= 0, got -1"),
    ({"last": [1]}, "$.last: expected a mapping"),
    ({"debt": {"a": 0.5}}, "$.debt['a']: expected a whole number or a fraction, got float"),
    ({"debt": {"a": True}}, "$.debt['a']: expected a whole number or a fraction, got bool"),
    ({"debt": {"a": HUGE}}, "$.debt['a']: expected a fraction of at most"),
    ({"debt": 3}, "$.debt: expected a mapping"),
    ({"seed": 3}, "$.seed[0]: expected a name, got int"),
    ({"seed": "\ud800"}, "$.seed[0]: a name must be text"),
]


@pytest.mark.parametrize(("wrong", "message"), BAD)
def test_bad_input_is_refused_with_its_path(wrong: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"replicas": 7, "weights": {"a": 1, "b": 1}, **wrong}
    # The types are wrong on purpose, so the call goes through a name without types.
    call: Callable[..., Division] = divide
    with pytest.raises(InvalidSpec, match=f"^{re.escape(message)}"):
        call(**arguments)


def test_the_largest_numbers_are_ordinary() -> None:
    most = 2**63 - 1
    division = divide(most, {"a": most, "b": most - 1, "c": 1}, mix=5e-324, capacity=dict.fromkeys("abc", most))
    assert sum(division.replicas.values()) == most
    assert replay(msgspec.json.decode(msgspec.json.encode(division.record), type=Record)) == division
    long = divide(3, {"x" * 10_000: 1, "new\nline": 1})
    assert sum(long.replicas.values()) == 3


def test_a_thousand_clusters_are_ordinary() -> None:
    weights = {f"cluster-{i}": 1 + i % 97 for i in range(1000)}
    division = divide(1_000_000, weights)
    assert check_division(division, 1_000_000, weights) == []
    repaired = divide(1_000_500, weights, last=division.replicas)
    assert check_division(repaired, 1_000_500, weights, last=division.replicas) == []
