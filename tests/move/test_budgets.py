"""Burst budgets: how many actions may start, and when the next slot frees."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from poise.errors import InvalidSpec
from poise.model.common import Budget
from poise.move.budgets import UNLIMITED, Allowance, Started, allowed_moves

ROWS = json.loads((Path(__file__).parent.parent / "data" / "budgets.json").read_text())["rows"]
NOW_S = 1_800_000_000


def ago(*ages_s: float) -> list[Started]:
    return [Started(NOW_S - age_s) for age_s in ages_s]


def second(offset_s: int) -> datetime:
    return datetime.fromtimestamp(NOW_S + offset_s, UTC)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_row_of_the_budget_vectors(row: dict[str, int]) -> None:
    ledger = ago(*[10] * row["in_window"])
    assert allowed_moves([Budget(row["limit"], 600)], ledger, NOW_S, row["T"]).allowed == row["allowed"]
    one_entry = [Started(NOW_S - 10, count=row["in_window"])]
    assert allowed_moves([Budget(row["limit"], 600)], one_entry, NOW_S, row["T"]).allowed == row["allowed"]


@pytest.mark.parametrize(
    ("total", "limit", "used", "allowed"),
    [(19, "20%", 0, 4), (19, "20%", 4, 0), (30, 5, 3, 2), (1, "10%", 0, 1), (10, 0, 0, 0)],
)
def test_the_examples_of_the_design(total: int, limit: int | str, used: int, allowed: int) -> None:
    assert allowed_moves([Budget(limit, 600)], ago(*[0] * used), NOW_S, total).allowed == allowed


def test_the_window_is_half_open() -> None:
    assert allowed_moves([Budget(1, 600)], ago(599.5), NOW_S, 10).allowed == 0
    assert allowed_moves([Budget(1, 600)], ago(600), NOW_S, 10).allowed == 1


def test_an_action_in_flight_counts_once_in_the_window_and_still_after_it() -> None:
    in_window, old = Started(NOW_S - 10, in_flight=True), Started(NOW_S - 9999, in_flight=True)
    assert allowed_moves([Budget(5, 600)], [in_window], NOW_S, 10).allowed == 4
    assert allowed_moves([Budget(5, 600)], [in_window, old, *ago(9999)], NOW_S, 10).allowed == 3


def test_the_least_over_the_budgets() -> None:
    budgets = [Budget(5, 600), Budget(3, 60), Budget("50%", 3600)]
    assert allowed_moves(budgets, ago(100, 200), NOW_S, 10).allowed == 3
    assert allowed_moves([], ago(1), NOW_S, 10) == Allowance(UNLIMITED)


def test_each_scope_counts_its_own_actions_and_its_own_replicas() -> None:
    ledger = [
        Started(NOW_S, "api", "shop"),
        Started(NOW_S, "web", "shop"),
        Started(NOW_S, "api", "other"),
        Started(NOW_S, "job", "other", count=3),
    ]
    replicas = {"workload": 10, "namespace": 20, "cluster": 100}
    for scope, allowed in (("workload", 2 - 1), ("namespace", 4 - 2), ("cluster", 20 - 6)):
        budget = msgspec.convert({"limit": "20%", "windowSeconds": 600, "scope": scope}, Budget)
        allowance = allowed_moves([budget], ledger, NOW_S, replicas, workload="api", namespace="shop")
        assert allowance.allowed == allowed, scope


def test_a_refusal_tells_when_the_earliest_slot_frees() -> None:
    refusal = allowed_moves([Budget(2, 600)], ago(100, 500), NOW_S, 10).refusal
    assert refusal is not None
    assert (refusal.code, refusal.until) == ("budget", second(100))
    assert refusal.reason == "2 of 2 in 600 s started or in flight in the workload"
    # Two more than the limit were started: two must leave before there is room.
    over = allowed_moves([Budget(2, 600)], ago(100, 300, 500), NOW_S, 10).refusal
    assert over is not None
    assert over.until == second(300)


def test_a_refusal_by_several_budgets_lasts_until_all_have_room() -> None:
    refusal = allowed_moves([Budget(1, 600), Budget(1, 60), Budget("100%", 60)], ago(50), NOW_S, 10).refusal
    assert refusal is not None
    assert refusal.until == second(550)
    assert refusal.reason.count(";") == 1


def test_no_time_frees_a_limit_of_zero_nor_an_action_in_flight() -> None:
    for budget, ledger, replicas in (
        (Budget(0, 600), [], 10),
        (Budget("20%", 600), [], 0),
        (Budget(1, 600), [Started(NOW_S - 5, in_flight=True)], 10),
    ):
        refusal = allowed_moves([budget], ledger, NOW_S, replicas).refusal
        assert refusal is not None
        assert refusal.until is None


def test_a_slot_frees_before_the_one_in_flight_does() -> None:
    ledger = [Started(NOW_S - 5, in_flight=True), *ago(500)]
    refusal = allowed_moves([Budget(2, 600)], ledger, NOW_S, 10).refusal
    assert refusal is not None
    assert refusal.until == second(100)


def test_a_refusal_reads_as_json_of_documents() -> None:
    refusal = allowed_moves([Budget(1, 600)], ago(0), NOW_S, 10).refusal
    assert msgspec.json.encode(refusal) == (
        b'{"code":"budget","until":"2027-01-15T08:10:00Z",'
        b'"reason":"1 of 1 in 600 s started or in flight in the workload"}'
    )
    assert str(refusal).startswith("waits until 2027-01-15T08:10:00Z (budget): 1 of 1")
    zero = allowed_moves([Budget(0, 600)], [], NOW_S, 10).refusal
    assert msgspec.json.encode(zero).startswith(b'{"code":"budget","until":null,')
    assert str(zero).startswith("waits (budget): ")


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (Budget("101%", 600), r"\$\.budgets\[0\]\.limit: expected a whole number or a percentage from 0% to 100%, got"),
        (Budget("20", 600), r"\$\.budgets\[0\]\.limit: expected"),
        (Budget("-5%", 600), r"\$\.budgets\[0\]\.limit: expected"),
        (Budget("9" * 9999 + "%", 600), r"\$\.budgets\[0\]\.limit: expected"),
        (Budget(-1, 600), r"\$\.budgets\[0\]\.limit: expected >= 0, got -1"),
        (Budget(math.nan, 600), r"\$\.budgets\[0\]\.limit: expected a whole number, got nan"),  # type: ignore[arg-type] # The wrong type is what is tested.
        (Budget(1, 0), r"\$\.budgets\[0\]\.windowSeconds: expected >= 1, got 0"),
        (Budget(1, 10**30), r"\$\.budgets\[0\]\.windowSeconds: expected <= "),
        (Budget(1, 600, "pod"), r"\$\.budgets\[0\]\.scope: expected workload, namespace or cluster, got 'pod'"),  # type: ignore[arg-type] # The wrong text is what is tested.
    ],
)
def test_faulty_budgets_are_refused_with_their_path(budget: Budget, message: str) -> None:
    with pytest.raises(InvalidSpec, match=f"^{message}"):
        allowed_moves([budget], [], NOW_S, 10)


def test_other_faulty_arguments_are_refused_with_their_path() -> None:
    budget = Budget("20%", 600)
    with pytest.raises(InvalidSpec, match=r"^\$\.now_s: expected a finite number, got nan$"):
        allowed_moves([budget], [], math.nan, 10)
    with pytest.raises(InvalidSpec, match=r"^\$\.ledger\[1\]\.count: expected >= 0, got -1$"):
        allowed_moves([budget], [Started(0), Started(0, count=-1)], NOW_S, 10)
    with pytest.raises(InvalidSpec, match=r"^\$\.ledger\[0\]\.at_s: expected <= "):
        allowed_moves([budget], [Started(1e308)], NOW_S, 10)
    with pytest.raises(InvalidSpec, match=r"^\$\.replicas: expected >= 0, got -1$"):
        allowed_moves([budget], [], NOW_S, -1)
    with pytest.raises(InvalidSpec, match=r"^\$\.replicas\['workload'\]: missing"):
        allowed_moves([budget], [], NOW_S, {"cluster": 3})
