"""Burst budgets: how many actions may start in a window of time, for a workload, a namespace or the cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

import msgspec

from poise.errors import InvalidSpec, invalid
from poise.inputs import as_struct, whole
from poise.instants import first_second, instant, quoted, span
from poise.model.common import Budget
from poise.move.refusal import Code, Refusal

Scope = Literal["workload", "namespace", "cluster"]

# What is allowed where no budget limits it.
UNLIMITED = 2**63 - 1


class Started(msgspec.Struct, frozen=True):
    """One entry of the ledger: actions that started together, for whom, and whether they are still in flight."""

    at_s: float
    workload: str = ""
    namespace: str = ""
    count: int = 1
    in_flight: bool = False


class Allowance(msgspec.Struct, frozen=True):
    """How many actions may start now; where none may, why and until when."""

    allowed: int
    refusal: Refusal | None = None


class _Room(msgspec.Struct, frozen=True):
    """One budget, judged: free slots, when the next one frees (None: no time does), and the sentence about it."""

    free: int
    frees_s: float | None
    reason: str


def allowed_moves(
    budgets: Iterable[Budget | Mapping[str, object]],
    ledger: Iterable[Started | Mapping[str, object]],
    now_s: float,
    replicas: int | Mapping[str, int],
    *,
    workload: str = "",
    namespace: str = "",
) -> Allowance:
    """Count what may start: the least over the budgets of max(0, limit - started in the window or still in flight).

    A percentage is of the replicas in the budget's scope, rounded up; `replicas` is one number or one for each scope.
    The window is half-open: what started exactly `window_seconds` ago no longer counts.
    """
    instant("$.now_s", now_s)
    known = _check_ledger(as_struct(f"$.ledger[{place}]", each, Started) for place, each in enumerate(ledger))
    listed = [as_struct(f"$.budgets[{place}]", each, Budget) for place, each in enumerate(budgets)]
    rooms = [
        _room(f"$.budgets[{position}]", budget, _in_scope(budget, known, workload, namespace), now_s, replicas)
        for position, budget in enumerate(listed)
    ]
    allowed = min((room.free for room in rooms), default=UNLIMITED)
    return Allowance(allowed, None if allowed else _refuse([room for room in rooms if not room.free]))


def check_budget(budget: Budget, *, path: str = "$") -> None:
    """Raise InvalidSpec where a budget breaks a rule."""
    if not isinstance(budget, Budget):
        raise invalid(path, f"expected a budget, got {type(budget).__name__}")
    span(f"{path}.windowSeconds", whole(f"{path}.windowSeconds", budget.window_seconds, least=1))
    if budget.scope not in get_args(Scope):
        raise invalid(f"{path}.scope", f"expected workload, namespace or cluster, got {quoted(budget.scope)}")
    if isinstance(budget.limit, str):
        _percentage(f"{path}.limit", budget.limit)
    else:
        whole(f"{path}.limit", budget.limit)


def _percentage(path: str, text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,3})%", text)
    if found is None or int(found[1]) > 100:
        raise invalid(path, f"expected a whole number or a percentage from 0% to 100%, got {quoted(text)}")
    return int(found[1])


def _limit(path: str, budget: Budget, replicas: int | Mapping[str, int]) -> int:
    check_budget(budget, path=path)
    if not isinstance(budget.limit, str):
        return budget.limit
    percentage = _percentage(f"{path}.limit", budget.limit)
    return -(-_replicas(budget.scope, replicas) * percentage // 100)


def _replicas(scope: Scope, replicas: int | Mapping[str, int]) -> int:
    if not isinstance(replicas, Mapping):
        return whole("$.replicas", replicas)
    if scope not in replicas:
        raise invalid(f"$.replicas[{scope!r}]", "missing: a budget of this scope is a percentage of it")
    return whole(f"$.replicas[{scope!r}]", replicas[scope])


def _check_ledger(ledger: Iterable[Started]) -> list[Started]:
    known = list(ledger)
    for position, entry in enumerate(known):
        if not isinstance(entry, Started):
            raise invalid(f"$.ledger[{position}]", f"expected a started action, got {type(entry).__name__}")
        try:
            instant("at_s", entry.at_s)
            whole("count", entry.count)
        except InvalidSpec as error:
            # A ledger is long and seldom wrong: paths are made only for a fault.
            raise invalid(f"$.ledger[{position}].{error.faults[0].path}", error.faults[0].message) from None
    return known


def _in_scope(budget: Budget, ledger: list[Started], workload: str, namespace: str) -> list[Started]:
    if budget.scope == "cluster":
        return ledger
    same = [entry for entry in ledger if entry.namespace == namespace]
    return same if budget.scope == "namespace" else [entry for entry in same if entry.workload == workload]


def _room(path: str, budget: Budget, ledger: list[Started], now_s: float, replicas: int | Mapping[str, int]) -> _Room:
    limit = _limit(path, budget, replicas)
    counted = [entry for entry in ledger if entry.in_flight or entry.at_s + budget.window_seconds > now_s]
    used = sum(entry.count for entry in counted)
    shown = f"{budget.limit} ({limit})" if isinstance(budget.limit, str) else f"{limit}"
    reason = f"{used} of {shown} in {budget.window_seconds} s started or in flight in the {budget.scope}"
    return _Room(max(0, limit - used), _frees_s(budget, limit, used, counted), reason)


def _frees_s(budget: Budget, limit: int, used: int, counted: list[Started]) -> float | None:
    """Find when enough entries have left the window: never with a limit of 0, at no known time if one is in flight."""
    if limit == 0:
        return None
    leaves = sorted((entry.at_s + budget.window_seconds, entry.count) for entry in counted if not entry.in_flight)
    for leaves_s, count in leaves:
        used -= count
        if used < limit:
            return leaves_s
    return None


def _refuse(full: list[_Room]) -> Refusal:
    """Refuse until the last of the full budgets has room."""
    frees = [room.frees_s for room in full]
    known = [frees_s for frees_s in frees if frees_s is not None]
    until = first_second(max(known)) if len(known) == len(frees) else None
    return Refusal(Code.BUDGET, until, "; ".join(room.reason for room in full))
