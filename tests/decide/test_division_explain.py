"""Explanations of divisions: what each sentence says, for every rule that can decide."""

from __future__ import annotations

import re
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from poise.decide.divide import Draw, Record, Step, divide
from poise.decide.division import with_step
from poise.decide.division_explain import explain_division, tell_decision
from poise.decide.fleet import divide_fleet
from poise.errors import InvalidSpec

PAIR = {"a": 1, "b": 1}
FOUR = dict.fromkeys("abcd", 1)
LAST = {"a": 2, "b": 1, "c": 2, "d": 1}


def test_a_fresh_draw_is_told_in_full() -> None:
    division = divide(7, PAIR)
    assert division.replicas == {"a": 4, "b": 3}
    lost = "it did not get one more, which had a chance of 1/2"
    assert explain_division(division) == [
        f"7 replicas over 2 clusters by StaticWeight; {division.reason}.",
        "a: weight 1 of 2, quota 7/2, floor 3, ceiling 4, and it gets 4; it got one more, which had a chance of 1/2.",
        f"b: weight 1 of 2, quota 7/2, floor 3, ceiling 4, and it gets 3; {lost}.",
        "It is kept while 7 are placed and the quotas stay so: a above 3 and below 5, b above 2 and below 4.",
        "With 8 replicas: b 3 -> 4.",
        "With 6 replicas: a 4 -> 3.",
    ]


def test_a_record_alone_is_enough() -> None:
    division = divide(7, FOUR, last=LAST)
    text = msgspec.json.encode(division.record)
    assert explain_division(msgspec.json.decode(text, type=Record)) == explain_division(division)


def test_what_is_kept_says_so() -> None:
    told = explain_division(divide(6, FOUR, last=LAST))
    assert told[0] == "6 replicas over 4 clusters by StaticWeight; the last result still fits."
    assert told[1] == (
        "a: weight 1 of 4, quota 3/2, floor 1, ceiling 2, and it gets 2; kept, since the last result still fits."
    )


def test_a_repair_tells_the_turns_and_their_chances() -> None:
    # 6 over 3:1:1 from {4, 2, 2}: two lose one, drawn one by one with weights 2/5, 4/5, 4/5.
    division = divide(6, {"a": 3, "b": 1, "c": 1}, last={"a": 4, "b": 2, "c": 2})
    drawn = division.record.draws[0]
    first, second = drawn.winners
    told = {sentence.split(":")[0]: sentence for sentence in explain_division(division)}
    chance = Fraction(drawn.odds[first]) / 2
    assert f"it was drawn for one less in turn 1 of 2, with a chance of {chance}" in told[first]
    rest = 2 - Fraction(drawn.odds[first])
    chance = Fraction(drawn.odds[second]) / rest
    assert f"it was drawn for one less in turn 2 of 2, with a chance of {chance}" in told[second]
    (loser,) = set("abc") - {first, second}
    assert "it was not drawn for one less; its chance in turn 1 was" in told[loser]
    assert told[loser].endswith("unchanged.")
    assert "it had" in told[first]


def test_a_whole_quota_takes_no_part() -> None:
    told = explain_division(divide(6, {"a": 1, "b": 1, "c": 2}))
    assert (
        told[3] == "c: weight 2 of 4, quota 3, a whole number, so exactly 3; a whole quota takes no part in the draw."
    )


def test_the_weighted_draw_tells_its_weights() -> None:
    division = divide(8, {"a": 2, "b": 1, "c": 1, "d": 1}, draw="weighted")
    first = division.record.draws[0].winners[0]
    told = next(sentence for sentence in explain_division(division) if sentence.startswith(f"{first}:"))
    assert f"in turn 1 of 2, with a chance of {Fraction(2 if first == 'a' else 1, 5)}" in told


def test_tilted_chances_are_told() -> None:
    told = explain_division(divide(7, dict.fromkeys("abc", 1), capacity={"a": 10, "b": 20, "c": 10}, mix=0.5))
    assert "which had a chance of 7/24" in told[1]
    assert "which had a chance of 5/12" in told[2]


@pytest.mark.parametrize(
    ("cluster", "bound"),
    [
        ("a", "its maximum of 2 holds it below 16/5"),
        ("b", "its capacity of 1 holds it below 16/5"),
        ("c", "its minimum of 6 holds it above 16/5"),
        ("d", "weight 0 means exactly its minimum of 2"),
        ("e", "without the bounds of the clusters its quota would be 32/5"),
    ],
)
def test_the_bound_that_applied_is_named(cluster: str, bound: str) -> None:
    division = divide(
        16,
        {"a": 1, "b": 1, "c": 1, "d": 0, "e": 2},
        minimum={"c": 6, "d": 2},
        maximum={"a": 2, "b": 4},
        capacity={"a": 9, "b": 1},
    )
    told = {sentence.split(":")[0]: sentence for sentence in explain_division(division)}
    assert bound in told[cluster]


def test_minimums_that_cannot_be_met_are_told() -> None:
    told = explain_division(divide(4, PAIR, minimum={"a": 3, "b": 4}))
    assert "the minimums add up to 7 and cannot be met" in told[0]
    assert told[1].startswith("a: minimum 3 of 7, quota 12/7, floor 1, ceiling 2, and it gets")
    assert "its minimum of 3 cannot be met" in told[1]


def test_other_strategies_are_told() -> None:
    told = explain_division(divide(4, PAIR, strategy="Duplicated", maximum={"b": 3}))
    assert told[1:3] == [
        "a: a copy of all 4, and it gets 4.",
        "b: a copy of all 4, and it gets 3; its maximum of 3 holds it below 4.",
    ]
    told = explain_division(divide(6, PAIR, strategy="DynamicWeight", capacity={"a": 10, "b": 20}))
    assert told[1] == "a: capacity 10 of 30, quota 2, a whole number, so exactly 2."
    assert "equal weight 1 of 2" in explain_division(divide(6, {"a": 0, "b": 0}))[1]


def test_debts_are_told() -> None:
    told = explain_division(divide_fleet({"x": 3, "y": 3}, {"a": 1, "b": 1, "c": 5})["y"])
    assert "by what the clusters are owed" in told[0]
    assert any("so far it was owed 3/7, with its fraction 6/7, so it got one more" in each for each in told)
    long = {"a": Fraction(-123456789, 100000007), "b": Fraction(1, 2)}
    told = explain_division(divide(3, PAIR, debt=long))
    assert "it was owed about -1.23, with its fraction about -0.73, so it did not get one more" in told[1]


def test_a_step_of_a_fleet_repair_is_told() -> None:
    last = {name: {"a": 2, "b": 1} for name in "xyz"}
    told = explain_division(divide_fleet(dict.fromkeys("xyz", 3), PAIR, last=last, moves_max=1)["x"])
    assert "one moves from a, which has 1.50 too many in total, to b, which is owed 1.50" in told[0]
    assert told[1].endswith("and it gets 1; it had 2.")


def test_removed_clusters_are_told_and_no_clusters_too() -> None:
    told = explain_division(divide(6, PAIR, last={"a": 3, "old": 3}))
    assert "old: it had 3, and it is no longer a cluster." in told
    assert explain_division(divide(7, {}, last={"old": 7}))[1:] == [
        "old: it had 7, and it is no longer a cluster.",
        "7 replicas are unplaced until there is a cluster.",
    ]
    assert explain_division(divide(1, {}))[-1] == "1 replica is unplaced until there is a cluster."
    assert explain_division(divide(0, {}))[-1] == "There is nothing to place."
    assert explain_division(divide(4, {})) == [
        "4 replicas over 0 clusters by StaticWeight; there is no cluster.",
        "4 replicas are unplaced until there is a cluster.",
    ]
    assert explain_division(divide(0, {"a": 1}))[-1] == "With 1 replica: a 0 -> 1."


def test_one_replica_more_or_less_names_who_may_change_and_not_who_wins() -> None:
    told = explain_division(divide(6, FOUR, last={"a": 2, "b": 2, "c": 1, "d": 1}))
    assert told[-2:] == [
        "With 7 replicas one of c, d would get one more.",
        "With 5 replicas one of a, b would have one less.",
    ]
    # 7 over 3:1:1 is 21/5, 7/5, 7/5, and 8 is 24/5, 8/5, 8/5; with a at most 4 the others get 2 each.
    bounded = divide(7, {"a": 3, "b": 1, "c": 1}, maximum={"a": 4}, last={"a": 4, "b": 2, "c": 1})
    assert explain_division(bounded)[-2] == "With 8 replicas: c 1 -> 2."
    assert explain_division(divide(1, {"a": 1}, maximum={"a": 1}))[-2] == "With 2 replicas: nothing changes."


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 30), st.lists(st.integers(0, 4), min_size=1, max_size=5), st.data())
def test_what_one_replica_would_do_holds_whatever_is_owed(replicas: int, pulls: list[int], data: st.DataObject) -> None:
    """In a fleet debts decide a draw: the sentence holds for all of them."""
    weights = {f"c{number}": pull for number, pull in enumerate(pulls)}
    division = divide(replicas, weights, seed=str(data.draw(st.integers(0, 99))))
    debt = {name: data.draw(st.fractions(-2, 2, max_denominator=9)) for name in weights}
    told = explain_division(division)
    for other in (replicas + 1, replicas - 1) if replicas else (1,):
        start = f"With {other} replica{'' if other == 1 else 's'}"
        [sentence] = [each for each in told if each.startswith((f"{start} ", f"{start}:"))]
        after = divide(other, weights, last=division.replicas, debt=debt)
        expected = dict(division.replicas)
        for name, share in re.findall(r"(c\d) \d+ -> (\d+)", sentence):
            expected[name] = int(share)
        changed = {name: share - expected[name] for name, share in after.replicas.items() if share != expected[name]}
        drawn = re.search(r"(one|\d+) of ([c\d, ]+) would (?:each )?(get one more|have one less)", sentence)
        if drawn is None:
            assert not changed, sentence
            continue
        assert len(changed) == (1 if drawn[1] == "one" else int(drawn[1])), sentence
        assert set(changed) <= set(drawn[2].split(", ")), sentence
        assert set(changed.values()) == {1 if "more" in drawn[3] else -1}, sentence


def test_a_repair_after_a_draw_is_told_beside_it() -> None:
    drawn = divide(7, PAIR)
    moved = with_step(drawn, Step("a", "b", "one moves from a to b"))
    told = tell_decision(moved.record)
    assert "it got one more, which had a chance of 1/2, and the repair took one from it" in told[1]
    assert told[2].endswith("and the repair gave it one.")
    assert told == explain_division(moved)[: len(told)]


def test_a_long_list_of_clusters_is_cut() -> None:
    told = explain_division(divide(1500, {f"c{number:04}": 1 for number in range(1000)}))
    assert len(told) == 1004
    assert told[-3].endswith("and 992 others.")
    assert max(map(len, told)) < 500


BROKEN: list[tuple[dict[str, object], str]] = [
    ({"result": {"a": 7}}, "$.result: expected the clusters of the weights"),
    ({"quotas": {}}, "$.quotas: expected the clusters of the weights"),
    ({"quotas": {"a": "x", "b": "1"}}, "$.quotas['a']: expected a fraction such as 7/2"),
    ({"draws": [Draw(1, "exact", {"a": "1/2"}, ["b"])]}, "$.draws[0]: expected winners that have odds"),
    ({"draws": [Draw(1, "fraction", {"a": "0"}, ["a"])]}, "$.draws[0].odds: expected odds above 0"),
    ({"draws": [Draw(1, "exact", {"a": "?"}, ["a"])]}, "$.draws[0].odds['a']: expected a fraction"),
]


@pytest.mark.parametrize(("change", "message"), BROKEN)
def test_a_broken_record_is_refused_with_its_path(change: dict[str, object], message: str) -> None:
    record = msgspec.structs.replace(divide(7, PAIR).record, **change)
    with pytest.raises(InvalidSpec, match=f"^{re.escape(message)}"):
        explain_division(record)
