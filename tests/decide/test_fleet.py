"""A fleet of workloads: totals that come out right, what fits stays, and repairs that stop where nothing helps."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import product
from math import floor

import pytest

from poise.decide import fleet
from poise.decide.divide import Division, divide, replay
from poise.decide.fleet import FleetStep, Total, divide_fleet, fleet_totals, plan_repair, repair
from poise.decide.fleet_check import check_fleet
from poise.errors import InvalidSpec

Fleet = Mapping[str, Division]


def fleet_of(size: int, replicas: int, prefix: str = "workload") -> dict[str, int]:
    return {f"{prefix}-{number}": replicas for number in range(size)}


def error(divisions: Fleet) -> Fraction:
    """The largest distance of a cluster's total from its exact share."""
    return max(abs(total.exact - total.replicas) for total in fleet_totals(divisions).values())


@pytest.mark.parametrize(
    ("replicas", "weights"),
    [(3, {"a": 1, "b": 1}), (4, {"a": 1, "b": 1, "c": 1}), (8, {"a": 2, "b": 1, "c": 1, "d": 1})],
    ids=["3 over 1:1", "4 over 1:1:1", "8 over 2:1:1:1"],
)
@pytest.mark.parametrize("prefix", ["workload", "default/web", "é"])
def test_a_fresh_fleet_of_1000_is_at_most_1_off(replicas: int, weights: dict[str, int], prefix: str) -> None:
    divisions = divide_fleet(fleet_of(1000, replicas, prefix), weights)
    assert error(divisions) <= 1


def mixed_fleet(size: int, salt: int = 0) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """Workloads with all kinds of weights on all kinds of subsets of 5 clusters."""
    subsets = [[name for name, used in zip("abcde", bits, strict=True) if used] for bits in product([0, 1], repeat=5)]
    chosen = [subset for subset in subsets if len(subset) >= 2]
    workloads, weights = {}, {}
    for number in range(size):
        name, mixer = f"workload-{number}", (number * 2654435761 + salt * 40503) % 2**32
        workloads[name] = 1 + mixer % 17
        subset = chosen[mixer // 17 % len(chosen)]
        weights[name] = {cluster: 1 + (mixer >> (4 * place)) % 9 for place, cluster in enumerate(subset)}
    return workloads, weights


@pytest.mark.parametrize("salt", range(3))
def test_a_fresh_fleet_of_mixed_weights_and_subsets_is_at_most_2_off(salt: int) -> None:
    workloads, weights = mixed_fleet(1000, salt)
    divisions = divide_fleet(workloads, weights)
    assert error(divisions) <= 2
    assert check_fleet(divisions, workloads, weights) == []


def test_without_debts_a_fleet_is_as_far_off_as_chance_would_have_it() -> None:
    # The standard deviation of 1,000 fair coins is about 16.
    divisions = divide_fleet(fleet_of(1000, 3), {"a": 1, "b": 1}, fair="single")
    assert 2 < error(divisions) < 64
    alone = divide(3, {"a": 1, "b": 1}, seed="workload-7")
    assert divisions["workload-7"] == alone


def test_the_seed_is_the_name_of_the_workload_joined_to_a_given_seed() -> None:
    weights = {"a": 1, "b": 1}
    assert divide_fleet({"cart": 3}, weights)["cart"].record.seed == "cart"
    assert divide_fleet({"cart": 3}, weights, seed="blue")["cart"].record.seed == "blue/cart"
    results = {divide_fleet({"cart": 3}, weights, seed=str(seed))["cart"].replicas["a"] for seed in range(30)}
    assert results == {1, 2}


def test_results_that_fit_are_kept_first_and_count_in_the_debt() -> None:
    # Both old ones lean to a. The new one comes first by name, but it must know of them and lean to b.
    last = {"old-1": {"a": 2, "b": 1}, "old-2": {"a": 2, "b": 1}}
    divisions = divide_fleet({"new": 3, **fleet_of(2, 3, "x"), "old-1": 3, "old-2": 3}, {"a": 1, "b": 1}, last=last)
    assert divisions["old-1"].kept
    assert divisions["old-2"].kept
    assert divisions["new"].replicas == {"a": 1, "b": 2}
    assert divisions["new"].record.debt == {"a": "-1", "b": "1"}
    assert divisions["x-0"].record.debt == {"a": "-1/2", "b": "1/2"}
    assert list(divisions) == sorted(divisions)


def test_removals_take_from_the_cluster_that_is_owed_least() -> None:
    # Two leave the total to b short; 4 -> 3 then takes from a.
    last = {"x": {"a": 2, "b": 1}, "z": {"a": 2, "b": 2}}
    divisions = divide_fleet({"x": 3, "z": 3}, {"a": 1, "b": 1}, last=last)
    assert divisions["z"].replicas == {"a": 1, "b": 2}
    assert fleet_totals(divisions)["a"] == fleet_totals(divisions)["b"]


def test_weights_may_be_one_mapping_or_one_for_each_workload() -> None:
    both = {"a": 1, "b": 3}
    assert divide_fleet({"x": 4, "y": 5}, both) == divide_fleet({"x": 4, "y": 5}, {"x": both, "y": both})
    apart = divide_fleet({"x": 4, "y": 5}, {"x": {"a": 1}, "y": {"b": 1}}, maximum={"b": 3})
    assert apart["x"].replicas == {"a": 4}
    assert (apart["y"].replicas, apart["y"].unplaced) == ({"b": 3}, 2)
    assert apart["x"].record.maximum == {}


def test_other_strategies_and_bounds_reach_every_workload() -> None:
    copies = divide_fleet({"x": 4, "y": 5}, {"a": 1, "b": 1}, strategy="Duplicated", maximum={"b": 4})
    assert copies["y"].replicas == {"a": 5, "b": 4}
    by_room = divide_fleet({"x": 4}, {"a": 1, "b": 1}, strategy="DynamicWeight", capacity={"a": 3, "b": 1})
    assert by_room["x"].replicas == {"a": 3, "b": 1}
    with_last = divide_fleet({"x": 4}, {"a": 1, "b": 1}, strategy="Duplicated", last={"x": by_room["x"].record})
    assert with_last["x"].record.last is None


def test_no_workloads_and_no_clusters_are_ordinary() -> None:
    assert divide_fleet({}, {"a": 1}) == {}
    assert divide_fleet({}, {}) == {}
    assert divide_fleet({"x": 3}, {})["x"].unplaced == 3
    assert fleet_totals({}) == {}
    assert plan_repair({}, 5).steps == []


def test_the_last_results_of_workloads_that_are_gone_do_not_matter() -> None:
    divisions = divide_fleet({"x": 3}, {"a": 1, "b": 1}, last={"gone": {"a": 9}, "x": None})
    assert divisions["x"].record.last is None


# The repair of a fleet that drifted.


def leaning(size: int) -> dict[str, dict[str, int]]:
    return {name: {"a": 2, "b": 1} for name in fleet_of(size, 3)}


def test_a_fleet_drifts_since_what_fits_is_kept_and_a_repair_mends_it() -> None:
    workloads, weights = fleet_of(100, 3), {"a": 1, "b": 1}
    drifted = divide_fleet(workloads, weights, last=leaning(100))
    assert error(drifted) == 50
    for moves_max, left in ((1, 49), (20, 30), (50, 0), (99, 0)):
        mended = divide_fleet(workloads, weights, last=leaning(100), moves_max=moves_max)
        moved = [division for division in mended.values() if not division.kept]
        assert error(mended) == left
        assert len(moved) == min(moves_max, 50)
        assert all(division.moved == 1 for division in moved)
        assert check_fleet(mended, workloads, weights, last=leaning(100), moves_max=moves_max) == []


def test_a_step_says_why_and_replays() -> None:
    mended = divide_fleet(fleet_of(3, 3), {"a": 1, "b": 1}, last=leaning(3), moves_max=5)
    stepped = mended["workload-0"]
    assert stepped.replicas == {"a": 1, "b": 2}
    assert stepped.reason == (
        "the last result still fits; one moves from a, which has 1.50 too many in total, to b, which is owed 1.50"
    )
    assert replay(stepped.record) == stepped
    assert mended["workload-1"].kept
    # After one step a has 1/2 too many and b is owed 1/2: another step would only turn that round.
    assert mended["workload-2"].kept


def test_a_preview_changes_nothing_and_tells_the_totals() -> None:
    divisions = divide_fleet(fleet_of(10, 3), {"a": 1, "b": 1}, last=leaning(10))
    plan = plan_repair(divisions, 2)
    assert [(step.workload, step.source, step.target) for step in plan.steps] == [
        ("workload-0", "a", "b"),
        ("workload-1", "a", "b"),
    ]
    assert plan.before == {"a": Total(20, Fraction(15)), "b": Total(10, Fraction(15))}
    assert [total.replicas for total in plan.after.values()] == [18, 12]
    assert fleet_totals(divisions) == plan.before
    assert fleet_totals(repair(divisions, 2)) == plan.after
    # A second repair leaves alone what the first one moved.
    assert plan_repair(repair(divisions, 2), 9).steps[0].workload == "workload-2"


def slow_steps(divisions: Fleet, moves_max: int) -> list[tuple[str, str, str]]:
    """Find the steps by trying everything at every step, in exact fractions."""
    debts = {name: total.exact - total.replicas for name, total in fleet_totals(divisions).items()}
    steps: list[tuple[str, str, str]] = []
    while len(steps) < moves_max:
        options = [
            (debts[source] - debts[target], source, target, name)
            for name, division in divisions.items()
            for source, target in product(division.quota, repeat=2)
            if name not in {step[0] for step in steps}
            and debts[source] < 0 < debts[target]
            and debts[target] - debts[source] > 1
            and division.replicas[source] > floor(division.quota[source])
            and division.quota[source].denominator > 1 < division.quota[target].denominator
            and division.replicas[target] == floor(division.quota[target])
        ]
        if not options:
            break
        _, source, target, name = min(options)
        steps.append((name, source, target))
        debts[source] += 1
        debts[target] -= 1
    return steps


def short(steps: list[FleetStep]) -> list[tuple[str, str, str]]:
    return [(step.workload, step.source, step.target) for step in steps]


@pytest.mark.parametrize("salt", range(8))
def test_the_repair_takes_the_steps_that_trying_everything_finds(salt: int) -> None:
    workloads, weights = mixed_fleet(60, salt)
    divisions = divide_fleet(workloads, weights, fair="single", seed=str(salt))
    # A fleet that leans: every third workload is gone, so that totals are off in both directions.
    rest = {name: division for place, (name, division) in enumerate(divisions.items()) if place % 3}
    steps = short(plan_repair(rest, 30).steps)
    assert steps == slow_steps(rest, 30)
    assert len(steps) >= 2


def test_a_repair_that_takes_the_smallest_gain_first_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = fleet._gain

    def upside_down(debts: Mapping[str, int], unit: int, source: str, target: str) -> int:
        gain = plain(debts, unit, source, target)
        return 1000 * unit - gain if gain > 0 else 0

    monkeypatch.setattr(fleet, "_gain", upside_down)
    with pytest.raises(AssertionError):
        test_the_repair_takes_the_steps_that_trying_everything_finds(0)


def test_a_fleet_of_strange_weights_stays_short_and_fair() -> None:
    # The common denominator of these quotas would have thousands of digits.
    weights = {f"w{n}": {"a": 10**6 + n, "b": 10**6 + 7 * n + 1, "c": 10**5 + n * n} for n in range(300)}
    divisions = divide_fleet(dict.fromkeys(weights, 7), weights)
    assert error(divisions) <= 1
    assert check_fleet(divisions, dict.fromkeys(weights, 7), weights) == []
    longest = max(len(text) for division in divisions.values() for text in (division.record.debt or {"": ""}).values())
    assert longest < 200
    assert all(replay(division.record) == division for division in divisions.values())


# Bad input.

BAD: list[tuple[dict[str, object], str]] = [
    ({"workloads": {"x": -1}}, "$.workloads['x']: expected >= 0, got -1"),
    ({"workloads": {"": 1}}, "$.workloads[0]: a name may not be empty"),
    ({"workloads": ["x"]}, "$.workloads: expected a mapping"),
    ({"weights": {"a": -1}}, "$.weights['a']: expected >= 0, got -1"),
    ({"weights": 3}, "$.weights: expected a mapping"),
    ({"weights": {"x": {"a": -1}}}, "$.weights['x']['a']: expected >= 0, got -1"),
    ({"weights": {"y": {"a": 1}}}, "$.weights['y']: no such workload here"),
    ({"workloads": {"x": 1, "y": 1}, "weights": {"x": {"a": 1}}}, "$.weights['y']: expected a mapping"),
    ({"workloads": {"x": 1, "y": 1}, "weights": {"x": {"a": 1}, "y": 1}}, "$.weights['y']: expected a mapping"),
    ({"moves_max": -1}, "$.moves_max: expected >= 0, got -1"),
    ({"moves_max": 1.0}, "$.moves_max: expected a whole number, got 1.0"),
    ({"fair": "all"}, "$.fair: expected one of fleet, single, got 'all'"),
    ({"last": {"x": {"a": -1}}}, "$.last['x']['a']: expected >= 0, got -1"),
    ({"last": {"x": 3}}, "$.last['x']: expected a mapping"),
    ({"last": 3}, "$.last: expected a mapping workload -> last result, got int"),
    ({"minimum": {"z": 1}}, "$.minimum['z']: no such cluster here"),
    ({"seed": "\ud800"}, "$.seed[0]: a name must be text"),
]


@pytest.mark.parametrize(("wrong", "message"), BAD)
def test_bad_input_of_a_fleet_is_refused_with_its_path(wrong: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"workloads": {"x": 7}, "weights": {"a": 1, "b": 1}, **wrong}
    # The types are wrong on purpose, so the call goes through a name without types.
    call: Callable[..., dict[str, Division]] = divide_fleet
    with pytest.raises(InvalidSpec, match=f"^{re.escape(message)}"):
        call(**arguments)
