"""One action at a time over pools."""

from __future__ import annotations

from itertools import product

import pytest

from poise.decide.pool_steps import next_pool_action, pool_steps
from poise.decide.split import Split, next_action, steps


def applied(action: str, pools: list[str], current: dict[str, int], desired: dict[str, int]) -> dict[str, int]:
    """Carry an action out; a migration takes from the last pool that has too many."""
    verb, _, pool = action.partition("-to-") if action.startswith("migrate") else action.rpartition("-")
    after = dict(current)
    if verb == "scale-down":
        after[pool] -= 1
        return after
    after[pool] = after.get(pool, 0) + 1
    if verb == "migrate":
        after[[name for name in pools if current.get(name, 0) > desired.get(name, 0)][-1]] -= 1
    return after


def test_two_pools_act_as_the_split_does() -> None:
    """Law: with the pools on-demand and spot the actions and their number are those of `next_action`."""
    for on, spot, want_on, want_spot in product(range(5), repeat=4):
        current, desired = {"on-demand": on, "spot": spot}, {"on-demand": want_on, "spot": want_spot}
        action = next_action(want_on + want_spot, Split(spot, on), Split(want_spot, want_on))
        assert next_pool_action(["on-demand", "spot"], current, desired) == action
        assert pool_steps(current, desired) == steps(Split(spot, on), Split(want_spot, want_on))


def test_repeating_the_action_reaches_desired_in_so_many_steps() -> None:
    pools = ["a", "b", "c"]
    for counts in product(range(4), repeat=6):
        current, desired = dict(zip(pools, counts[:3], strict=True)), dict(zip(pools, counts[3:], strict=True))
        for left in range(pool_steps(current, desired), 0, -1):
            assert pool_steps(current, desired) == left
            current = applied(next_pool_action(pools, current, desired), pools, current, desired)
            assert min(current.values()) >= 0
        assert current == desired
        assert next_pool_action(pools, current, desired) == "none"


@pytest.mark.parametrize(
    ("current", "desired", "action"),
    [
        ({}, {"on": 2, "spot": 5}, "scale-up-on"),
        ({"on": 2}, {"on": 2, "spot": 5}, "scale-up-spot"),
        ({"on": 3, "spot": 6}, {"on": 2, "spot": 5}, "scale-down-spot"),
        ({"on": 3, "spot": 4}, {"on": 2, "spot": 5}, "migrate-to-spot"),
        ({"on": 2, "spot": 4, "old": 1}, {"on": 2, "spot": 5}, "migrate-to-spot"),
        ({"on": 2, "spot": 5, "old": 1}, {"on": 2, "spot": 5}, "scale-down-old"),
        ({"on": 2, "spot": 5}, {"on": 2, "spot": 5}, "none"),
    ],
)
def test_the_safest_pool_fills_first_and_empties_last(
    current: dict[str, int], desired: dict[str, int], action: str
) -> None:
    assert next_pool_action(["on", "spot"], current, desired) == action
