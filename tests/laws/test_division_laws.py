"""The laws of dividing replicas, as properties over all kinds of requests."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.division_asks import (
    NAMES,
    Ask,
    FleetAsk,
    answer,
    answers,
    asks,
    broken,
    fleet_broken,
    fleets,
    order_is_free,
    reach_exactly_the_nearest,
)
from tests.examples import examples

from poise.decide.divide import Record, replay
from poise.decide.fleet import divide_fleet


@given(asks())
@settings(max_examples=examples(150), deadline=None)
def test_every_division_is_sound(ask: Ask) -> None:
    assert broken(ask, answer(ask)) == []


@given(asks())
@settings(max_examples=examples(60), deadline=None)
def test_a_division_of_its_own_result_changes_nothing(ask: Ask) -> None:
    first = answer(ask)
    again = msgspec.structs.replace(ask, last=dict(first.replicas), seed=ask.seed + "other")
    second = answer(again)
    assert second.replicas == first.replicas
    assert second.moved == 0
    assert second.kept or not ask.weights
    assert broken(again, second) == []


@given(asks())
@settings(max_examples=examples(60), deadline=None)
def test_a_record_alone_replays_the_division_bit_for_bit(ask: Ask) -> None:
    division = answer(ask)
    text = msgspec.json.encode(division.record)
    again = replay(msgspec.json.decode(text, type=Record))
    assert again == division
    assert msgspec.json.encode(again.record) == text
    assert [str(share) for share in again.quota.values()] == list(division.record.quotas.values())


@given(asks())
@settings(max_examples=examples(60), deadline=None)
def test_the_order_of_a_mapping_changes_nothing(ask: Ask) -> None:
    assert order_is_free(ask)


@given(asks(), st.integers(2, 9))
@settings(max_examples=examples(60), deadline=None)
def test_equal_ratios_are_the_same_request(ask: Ask, factor: int) -> None:
    scaled = msgspec.structs.replace(ask, weights={name: weight * factor for name, weight in ask.weights.items()})
    one, other = answer(ask), answer(scaled)
    assert (one.replicas, one.quota, one.record.draws) == (other.replicas, other.quota, other.record.draws)


@given(
    st.integers(0, 12),
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.lists(st.integers(0, 5), min_size=5, max_size=5),
)
@settings(max_examples=examples(40), deadline=None)
def test_repairs_reach_exactly_the_divisions_with_the_fewest_changes(
    replicas: int, weights: list[int], last: list[int]
) -> None:
    before = dict(zip([*NAMES[:4], "old"], last, strict=True))
    assert reach_exactly_the_nearest(replicas, dict(zip(NAMES, weights, strict=False)), before)


@given(fleets())
@settings(max_examples=examples(60), deadline=None)
def test_every_fleet_is_sound_and_replays(ask: FleetAsk) -> None:
    divisions = answers(ask)
    assert fleet_broken(ask, divisions) == []
    assert all(replay(division.record) == division for division in divisions.values())
    backwards = msgspec.structs.replace(ask, workloads=dict(reversed(ask.workloads.items())))
    assert list(answers(backwards).items()) == list(divisions.items())


@given(fleets())
@settings(max_examples=examples(30), deadline=None)
def test_a_fleet_of_its_own_results_moves_nothing(ask: FleetAsk) -> None:
    last = {name: division.replicas for name, division in answers(ask).items()}
    again = divide_fleet(ask.workloads, ask.weights, last=last)
    assert all(division.kept or not division.replicas for division in again.values())
    assert all(division.moved == 0 for division in again.values())
