"""Replicas over several pools: shares by weight within bounds, leftovers, minimums, pools that are down."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from poise.decide.pools import PoolHealth, pools_down, split_pools
from poise.errors import InvalidSpec
from poise.model.capacity_split import Pool

ROWS = json.loads((Path(__file__).parent.parent / "data" / "pools.json").read_text())["rows"]
THIRDS = [Pool("a", 1), Pool("b", 1), Pool("c", 1)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"T={row['T']} unplaced={row['unplaced']}")
def test_every_row_of_the_pool_vectors(row: dict[str, object]) -> None:
    pools = row["pools"]
    assert isinstance(pools, list)
    total = row["T"]
    assert isinstance(total, int)
    result = split_pools(total, pools, order=None, previous=None, down=())
    assert (result.replicas, result.unplaced) == (row["result"], row["unplaced"])
    assert split_pools(total, [Pool(**pool) for pool in pools]) == result


def test_leftovers_go_by_the_order_first() -> None:
    assert split_pools(4, THIRDS, order=["c", "a", "b"]).replicas == {"a": 1, "b": 1, "c": 2}
    assert split_pools(5, THIRDS, order=["c"]).replicas == {"a": 2, "b": 1, "c": 2}


def test_the_order_never_lifts_a_pool_over_its_whole_share() -> None:
    pools = [Pool("a", 2), Pool("b", 1), Pool("c", 1)]
    assert split_pools(6, pools, order=["a", "b", "c"]).replicas == {"a": 3, "b": 2, "c": 1}


def test_leftovers_go_by_largest_remainder_then_to_who_held_more_then_by_name() -> None:
    assert split_pools(4, [Pool("a", 1), Pool("b", 2)]).replicas == {"a": 1, "b": 3}
    assert split_pools(4, THIRDS, previous={"b": 2, "a": 1, "gone": 7}).replicas == {"a": 1, "b": 2, "c": 1}
    assert split_pools(4, THIRDS).replicas == {"a": 2, "b": 1, "c": 1}


def test_who_held_nothing_is_after_who_held_something() -> None:
    assert split_pools(4, THIRDS, previous={"b": 1}).replicas == {"a": 1, "b": 2, "c": 1}


def test_a_pool_has_no_minimum_unless_it_is_given_one() -> None:
    assert split_pools(1, [{"name": "a", "weight": 0}, {"name": "b", "weight": 1}]).replicas == {"a": 0, "b": 1}


def test_minimums_in_list_order_when_there_is_too_little() -> None:
    pools = [Pool("b", 1, min=2), Pool("a", 1, min=2), Pool("c", 9)]
    assert split_pools(3, pools).replicas == {"b": 2, "a": 1, "c": 0}
    assert split_pools(3, pools).unplaced == 0


def test_a_pool_that_is_down_is_left_out_with_its_minimum() -> None:
    pools = [Pool("on", 1, min=3), Pool("spot-a", 1), Pool("spot-b", 1)]
    assert split_pools(4, pools, down=["on"]).replicas == {"on": 0, "spot-a": 2, "spot-b": 2}
    assert split_pools(4, pools, down=["spot-a", "spot-b"]).replicas == {"on": 4, "spot-a": 0, "spot-b": 0}
    assert split_pools(4, pools, down=["on", "spot-a", "spot-b"]).unplaced == 4


def test_a_pool_gets_its_share_back_after_a_stable_time() -> None:
    health = {"on": PoolHealth(True, 0), "spot-a": PoolHealth(False, 500), "spot-b": PoolHealth(True, 950)}
    assert pools_down(health, 1000) == ["spot-a", "spot-b"]
    assert pools_down(health, 1009.9) == ["spot-a", "spot-b"]
    assert pools_down(health, 1010) == ["spot-a"]
    assert pools_down(health, 1000, stable_s=50) == ["spot-a"]


def test_no_pools_and_no_replicas_are_ordinary() -> None:
    assert split_pools(3, []).unplaced == 3
    assert split_pools(0, THIRDS).replicas == {"a": 0, "b": 0, "c": 0}
    assert split_pools(5, [Pool("a", 0, min=2)]).unplaced == 3


@pytest.mark.parametrize(
    ("pools", "message"),
    [
        ([{"name": "a", "weight": -1}], r"\$\.pools\[0\]\.weight: expected >= 0, got -1"),
        ([{"name": "a", "weight": math.nan}], r"\$\.pools\[0\]\.weight: expected a whole number, got nan"),
        ([{"name": "a", "weight": 1e308}], r"\$\.pools\[0\]\.weight: expected a whole number, got 1e\+308"),
        ([{"name": "a", "weight": 1, "min": 3, "max": 2}], r"\$\.pools\[0\]\.min: expected <= max 2, got 3"),
        ([{"name": "a", "weight": 1}, {"name": "a", "weight": 1}], r"\$\.pools\[1\]: duplicate of \[0\]"),
        ([{"name": "", "weight": 1}], r"\$\.pools\[0\]: a name may not be empty"),
        ([{"name": "a"}], r"\$\.pools\[0\]\.weight: missing"),
        ([{"name": "a", "weight": 1, "size": 2}], r"\$\.pools\[0\]\.size: unknown field"),
        ([{"name": 3, "weight": 1}], r"\$\.pools\[0\]\.name: expected a name, got int"),
        ([["a", 1]], r"\$\.pools\[0\]: expected a pool, got list"),
    ],
)
def test_faulty_pools_are_refused_with_their_path(pools: list[dict[str, object]], message: str) -> None:
    with pytest.raises(InvalidSpec, match=f"^{message}$"):
        split_pools(3, pools)


def test_other_faulty_arguments_are_refused_with_their_path() -> None:
    with pytest.raises(InvalidSpec, match=r"^\$\.total: "):
        split_pools(-1, THIRDS)
    with pytest.raises(InvalidSpec, match=r"^\$\.down\[0\]: no pool is named 'x'$"):
        split_pools(1, THIRDS, down=["x"])
    with pytest.raises(InvalidSpec, match=r"^\$\.order\[1\]: duplicate of \[0\]$"):
        split_pools(1, THIRDS, order=["a", "a"])
    with pytest.raises(InvalidSpec, match=r"^\$\.previous\['a'\]: expected >= 0, got -2$"):
        split_pools(1, THIRDS, previous={"a": -2})
    with pytest.raises(InvalidSpec, match=r"^\$\.now_s: expected a finite number, got nan$"):
        pools_down({}, math.nan)
    with pytest.raises(InvalidSpec, match=r"^\$\.health\['a'\]\.since_s: expected >= 0, got -1$"):
        pools_down({"a": PoolHealth(True, -1)}, 0)


def test_a_tie_of_remainders_goes_to_who_would_keep_a_replica() -> None:
    pools = [Pool("a", 1), Pool("b", 3)]
    first = split_pools(6, pools)
    assert first.replicas == {"a": 2, "b": 4}
    assert split_pools(6, pools, previous=first.replicas) == first
    assert split_pools(6, pools, previous={"a": 1, "b": 5}).replicas == {"a": 1, "b": 5}
