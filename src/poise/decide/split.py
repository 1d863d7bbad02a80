"""Spot and on-demand counts of one workload, the drift from them, and the next single action."""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from poise.errors import InvalidSpec, invalid
from poise.inputs import whole
from poise.instants import quoted

MIN_ON_DEMAND_MAX = 10_000


class Split(msgspec.Struct, frozen=True, rename="camel"):
    """How many replicas stand on each side; one type for what is and for what should be."""

    spot: int
    on_demand: int

    @property
    def total(self) -> int:
        """Count both sides."""
        return self.spot + self.on_demand


class Action(StrEnum):
    """One step towards the desired split; each changes a side by one replica, a migration both."""

    NONE = "none"
    SCALE_UP_ON_DEMAND = "scale-up-on-demand"
    SCALE_UP_SPOT = "scale-up-spot"
    SCALE_DOWN_SPOT = "scale-down-spot"
    SCALE_DOWN_ON_DEMAND = "scale-down-on-demand"
    MIGRATE_TO_SPOT = "migrate-to-spot"
    MIGRATE_TO_ON_DEMAND = "migrate-to-on-demand"


class Term(StrEnum):
    """The part of the formula that decided the split."""

    PERCENTAGE = "percentage"
    MINIMUM = "minimum"
    MINIMUM_UNMET = "minimum cannot be met"
    NO_REPLICAS = "no replicas"


# The change of (spot, on-demand) that each action makes.
_CHANGES: dict[Action, tuple[int, int]] = {
    Action.NONE: (0, 0),
    Action.SCALE_UP_ON_DEMAND: (0, 1),
    Action.SCALE_UP_SPOT: (1, 0),
    Action.SCALE_DOWN_SPOT: (-1, 0),
    Action.SCALE_DOWN_ON_DEMAND: (0, -1),
    Action.MIGRATE_TO_SPOT: (1, -1),
    Action.MIGRATE_TO_ON_DEMAND: (-1, 1),
}


def clamp_percentage(path: str, value: object) -> int:
    """Bring a whole number into 0..100; anything but a whole number is InvalidSpec."""
    return 0 if type(value) is int and value < 0 else min(whole(path, value), 100)


def split(total: int, spot_percentage: int, min_on_demand: int) -> Split:
    """Split T replicas: spot = min(ceil(T·P / 100), T - M), never below 0; on-demand is the rest."""
    whole("$.total", total)
    percentage = clamp_percentage("$.spot_percentage", spot_percentage)
    by_minimum = total - whole("$.min_on_demand", min_on_demand)
    spot = max(0, min(by_percentage(total, percentage), by_minimum))
    return Split(spot=spot, on_demand=total - spot)


def by_percentage(total: int, percentage: int) -> int:
    """Round T·P / 100 up in integers: T·(P/100) in floats is wrong for 27 pairs with T <= 200."""
    return -(-total * percentage // 100)


def binding_term(total: int, spot_percentage: int, min_on_demand: int) -> Term:
    """Name the term that decided `split`; where both give the same number it is the percentage."""
    whole("$.total", total)
    percentage = clamp_percentage("$.spot_percentage", spot_percentage)
    if total < whole("$.min_on_demand", min_on_demand):
        return Term.MINIMUM_UNMET
    if total == 0:
        return Term.NO_REPLICAS
    return Term.PERCENTAGE if by_percentage(total, percentage) <= total - min_on_demand else Term.MINIMUM


def drift(current: Split, desired: Split) -> tuple[int, int]:
    """Give current - desired as (spot, on-demand); any that is not 0 needs reconciliation."""
    _check_split("$.current", current)
    _check_split("$.desired", desired)
    return current.spot - desired.spot, current.on_demand - desired.on_demand


def _check_split(path: str, given: Split) -> None:
    if not isinstance(given, Split):
        raise invalid(path, f"expected a Split, got {type(given).__name__}")
    whole(f"{path}.spot", given.spot)
    whole(f"{path}.on_demand", given.on_demand)


def next_action(total: int, current: Split, desired: Split) -> Action:
    """Choose the next single action: mend the total first (on-demand up first, spot down first), then migrate.

    Where no rule holds, as with a desired split that does not sum to the total, there is nothing to do.
    """
    spot, on_demand = drift(current, desired)
    surplus = current.total - whole("$.total", total)
    if surplus < 0:
        return _first((on_demand < 0, Action.SCALE_UP_ON_DEMAND), (spot < 0, Action.SCALE_UP_SPOT))
    if surplus > 0:
        return _first((spot > 0, Action.SCALE_DOWN_SPOT), (on_demand > 0, Action.SCALE_DOWN_ON_DEMAND))
    return _first(
        (on_demand > 0 and spot < 0, Action.MIGRATE_TO_SPOT),
        (on_demand < 0 and spot > 0, Action.MIGRATE_TO_ON_DEMAND),
    )


def _first(*rules: tuple[bool, Action]) -> Action:
    return next((action for holds, action in rules if holds), Action.NONE)


def after(action: Action, current: Split) -> Split:
    """Give the counts once an action is done."""
    spot, on_demand = _CHANGES[action]
    return Split(spot=current.spot + spot, on_demand=current.on_demand + on_demand)


def steps(current: Split, desired: Split) -> int:
    """Count the actions to desired: |a| + |b| for drifts a, b of one sign (or one of them 0), else max(|a|, |b|)."""
    spot, on_demand = drift(current, desired)
    if spot * on_demand >= 0:
        return abs(spot) + abs(on_demand)
    return max(abs(spot), abs(on_demand))


def restores_minimum(action: Action, total: int, ready_on_demand: int, min_on_demand: int) -> bool:
    """Say whether an action brings the Ready on-demand replicas back towards min(M, T): those run outside windows."""
    short = whole("$.ready_on_demand", ready_on_demand) < min(whole("$.min_on_demand", min_on_demand), total)
    return short and _CHANGES[action][1] > 0


def parse_spot_percentage(text: str, *, path: str = "$.spot_percentage") -> int:
    """Read `70` or `70%`; a value outside 0..100 is refused, unlike the clamped argument of `split`."""
    return _whole_text(path, text, r"(-?[0-9]{1,20})%?", 100)


def parse_min_on_demand(text: str, *, path: str = "$.min_on_demand") -> int:
    """Read a whole number from 0 to 10000."""
    return _whole_text(path, text, r"(-?[0-9]{1,20})", MIN_ON_DEMAND_MAX)


def _whole_text(path: str, text: str, pattern: str, most: int) -> int:
    found = re.fullmatch(pattern, text) if isinstance(text, str) else None
    if found is None:
        raise invalid(path, f"expected a whole number from 0 to {most}, got {quoted(text)}")
    value = int(found[1])
    if not 0 <= value <= most:
        raise invalid(path, f"expected 0 to {most}, got {value}")
    return value


def pod_ordinal(pod: str, stateful_set: str, *, path: str = "$.pod") -> int:
    """Read the ordinal of a StatefulSet's pod: 15 of `web-15` in the set `web`."""
    for place, name in ((path, pod), ("$.stateful_set", stateful_set)):
        if not isinstance(name, str):
            raise invalid(place, f"expected a name, got {type(name).__name__}")
    name, _, digits = pod.rpartition("-")
    if name != stateful_set or not name or not re.fullmatch(r"0|[1-9][0-9]{0,9}", digits):
        raise _no_pod(path, pod, stateful_set)
    return int(digits)


def _no_pod(path: str, pod: str, stateful_set: str) -> InvalidSpec:
    return invalid(path, f"expected {quoted(stateful_set)} and an ordinal, as in 'web-0', got {quoted(pod)}")
