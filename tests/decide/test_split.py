"""The split of spot and on-demand, its next action, and the texts that people write for it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import pytest

from poise.decide.split import (
    Action,
    Split,
    Term,
    after,
    binding_term,
    clamp_percentage,
    drift,
    next_action,
    parse_min_on_demand,
    parse_spot_percentage,
    pod_ordinal,
    restores_minimum,
    split,
    steps,
)
from poise.errors import InvalidSpec

DATA = Path(__file__).parent.parent / "data"
SPLITS = json.loads((DATA / "split.json").read_text())
ACTIONS = json.loads((DATA / "next_action.json").read_text())
TEXTS = json.loads((DATA / "capacity_input.json").read_text())


@pytest.mark.parametrize(
    ("total", "percentage", "minimum", "spot", "on_demand"),
    [(10, 70, 1, 7, 3), (10, 90, 4, 6, 4), (3, 80, 2, 1, 2), (2, 50, 3, 0, 2), (5, 0, 1, 0, 5), (0, 50, 1, 0, 0)],
)
def test_the_table_of_the_design(total: int, percentage: int, minimum: int, spot: int, on_demand: int) -> None:
    assert split(total, percentage, minimum) == Split(spot=spot, on_demand=on_demand)


def test_every_row_of_the_split_vectors() -> None:
    for total, percentage, minimum, spot, on_demand in SPLITS["rows"]:
        assert split(total, percentage, minimum) == Split(spot=spot, on_demand=on_demand)


def test_floats_would_be_wrong_for_27_pairs() -> None:
    traps = [
        [total, percentage]
        for total in range(201)
        for percentage in range(101)
        if math.ceil(total * (percentage / 100)) != split(total, percentage, 0).spot
    ]
    assert len(traps) == 27
    assert all(pair in traps for pair in SPLITS["float_trap_pairs"])


def test_the_library_clamps_the_percentage() -> None:
    assert split(10, -5, 1) == split(10, 0, 1)
    assert split(10, 250, 1) == split(10, 100, 1)
    assert [clamp_percentage("$.p", value) for value in (-1, 0, 1, 99, 100, 101)] == [0, 0, 1, 99, 100, 100]


@pytest.mark.parametrize("wrong", [1.5, math.nan, 1e308, True, "10", None])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_what_is_no_whole_number_is_refused(position: int, wrong: object) -> None:
    arguments: list[object] = [10, 70, 1]
    arguments[position] = wrong
    with pytest.raises(InvalidSpec, match=r"^\$\.(total|spot_percentage|min_on_demand): expected a whole number"):
        split(*arguments)  # type: ignore[arg-type] # The wrong type is what is tested.


def test_negative_counts_are_refused_with_their_path() -> None:
    with pytest.raises(InvalidSpec, match=r"^\$\.total: expected >= 0, got -1$"):
        split(-1, 50, 0)
    with pytest.raises(InvalidSpec, match=r"^\$\.min_on_demand: expected >= 0, got -1$"):
        split(1, 50, -1)
    with pytest.raises(InvalidSpec, match=r"^\$\.current\.spot: expected >= 0, got -1$"):
        next_action(1, Split(spot=-1, on_demand=0), Split(spot=1, on_demand=0))
    with pytest.raises(InvalidSpec, match=r"^\$\.desired\.on_demand: "):
        next_action(1, Split(spot=1, on_demand=0), Split(spot=1, on_demand=-3))


@pytest.mark.parametrize(
    ("total", "percentage", "minimum", "term"),
    [
        (10, 70, 1, Term.PERCENTAGE),
        (10, 90, 4, Term.MINIMUM),
        (10, 60, 4, Term.PERCENTAGE),  # Both terms say 6.
        (2, 50, 3, Term.MINIMUM_UNMET),
        (0, 50, 1, Term.MINIMUM_UNMET),
        (0, 50, 0, Term.NO_REPLICAS),
        (5, 0, 1, Term.PERCENTAGE),
    ],
)
def test_the_term_that_bound(total: int, percentage: int, minimum: int, term: Term) -> None:
    assert binding_term(total, percentage, minimum) is term


def test_the_term_that_is_reported_when_the_minimum_cannot_be_met() -> None:
    assert binding_term(2, 50, 3) == "minimum cannot be met"


def test_every_row_of_the_action_vectors() -> None:
    for total, percentage, minimum, on_demand, spot, desired_on_demand, desired_spot, action in ACTIONS["rows"]:
        desired = Split(spot=desired_spot, on_demand=desired_on_demand)
        assert split(total, percentage, minimum) == desired
        assert next_action(total, Split(spot=spot, on_demand=on_demand), desired) == action


def test_the_seven_names() -> None:
    assert {str(action) for action in Action} == {row[-1] for row in ACTIONS["rows"]}
    assert len(Action) == 7


@pytest.mark.parametrize(
    ("total", "spot", "on_demand"),
    [
        (9, 1, 1),
        (9, 2, 1),
        (9, 1, 2),
        (1, 5, 5),
        (1, 2, 5),
        (1, 5, 2),
        (4, 5, 5),
        (4, 5, 2),
        (4, 2, 5),
        (4, 1, 2),
        (4, 2, 1),
    ],
)
def test_a_desired_pair_that_does_not_sum_to_the_total_may_leave_nothing_to_do(
    total: int, spot: int, on_demand: int
) -> None:
    assert next_action(total, Split(spot=2, on_demand=2), Split(spot=spot, on_demand=on_demand)) is Action.NONE


def test_equal_is_nothing_to_do_even_if_the_total_is_wrong() -> None:
    assert next_action(9, Split(spot=1, on_demand=1), Split(spot=1, on_demand=1)) is Action.NONE


def test_drift_steps_and_what_an_action_leaves() -> None:
    current, desired = Split(spot=6, on_demand=4), Split(spot=7, on_demand=3)
    assert drift(current, desired) == (-1, 1)
    assert steps(current, desired) == 1
    assert after(Action.MIGRATE_TO_SPOT, current) == desired
    assert after(Action.NONE, current) == current
    assert steps(Split(spot=0, on_demand=0), desired) == 10
    assert steps(Split(spot=9, on_demand=0), desired) == 3
    assert steps(desired, desired) == 0


@pytest.mark.parametrize(
    ("action", "total", "ready", "minimum", "restores"),
    [
        (Action.SCALE_UP_ON_DEMAND, 10, 1, 2, True),
        (Action.MIGRATE_TO_ON_DEMAND, 10, 1, 2, True),
        (Action.MIGRATE_TO_ON_DEMAND, 10, 2, 2, False),
        (Action.MIGRATE_TO_SPOT, 10, 1, 2, False),
        (Action.SCALE_UP_SPOT, 10, 1, 2, False),
        (Action.SCALE_UP_ON_DEMAND, 2, 2, 5, False),  # Two replicas are all there can be.
        (Action.NONE, 10, 0, 2, False),
    ],
)
def test_what_restores_the_minimum(action: Action, total: int, ready: int, minimum: int, restores: bool) -> None:
    assert restores_minimum(action, total, ready, minimum) is restores


def test_a_split_reads_and_writes_as_in_documents() -> None:
    assert msgspec.json.encode(split(10, 70, 1)) == b'{"spot":7,"onDemand":3}'


@pytest.mark.parametrize("row", TEXTS["spot_percentage"], ids=lambda row: row["value"])
def test_texts_of_the_spot_percentage(row: dict[str, object]) -> None:
    if row["ok"]:
        assert parse_spot_percentage(str(row["value"])) == row["P"]
    else:
        with pytest.raises(InvalidSpec, match=r"^\$\.spot_percentage: expected "):
            parse_spot_percentage(str(row["value"]))


@pytest.mark.parametrize("row", TEXTS["min_on_demand"], ids=lambda row: row["value"])
def test_texts_of_the_minimum(row: dict[str, object]) -> None:
    if row["ok"]:
        assert parse_min_on_demand(str(row["value"])) == int(str(row["value"]))
    else:
        with pytest.raises(InvalidSpec, match=r"^\$\.min_on_demand: expected "):
            parse_min_on_demand(str(row["value"]))


@pytest.mark.parametrize("text", ["", " 70", "70 %", "7e1", "nan", "１０", "9" * 10_000, "70%%", "+7", "0x10", "70\n"])
def test_unreadable_percentages_are_one_clear_line(text: str) -> None:
    with pytest.raises(InvalidSpec, match=r"^\$\.annotation: expected a whole number from 0 to 100, got ") as caught:
        parse_spot_percentage(text, path="$.annotation")
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("row", TEXTS["statefulset_ordinals"], ids=lambda row: row["pod"] or "empty")
def test_ordinals_of_stateful_sets(row: dict[str, object]) -> None:
    pod, stateful_set = str(row["pod"]), str(row["set"])
    if "ordinal" in row:
        assert pod_ordinal(pod, stateful_set) == row["ordinal"]
    else:
        with pytest.raises(InvalidSpec, match=r"^\$\.pod: expected 'web' and an ordinal"):
            pod_ordinal(pod, stateful_set)


@pytest.mark.parametrize("pod", ["web-01", "web--1", "web-" + "9" * 5000, "web-1\n", "-1", "web-１"])
def test_names_that_no_stateful_set_gives(pod: str) -> None:
    with pytest.raises(InvalidSpec):
        pod_ordinal(pod, "web")
    with pytest.raises(InvalidSpec):
        pod_ordinal("-1", "")
