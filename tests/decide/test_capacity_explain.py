"""The sentences about a split: which term decided, the drift, what comes next and why it waits."""

from __future__ import annotations

import pytest

from poise.decide.capacity_explain import explain_pools, explain_split
from poise.decide.split import Action, Split
from poise.model.capacity_split import Pool


def test_the_percentage_decided() -> None:
    assert explain_split(10, 70, 1, Split(spot=6, on_demand=4)) == [
        "7 spot, 3 on-demand: the percentage decided: ceil(10·70/100) = 7, and the minimum leaves 10 - 1 = 9.",
        "Now 6 spot, 4 on-demand: spot has 1 too few, on-demand has 1 too many.",
        "Next: migrate-to-spot: the total is right, on-demand has too many and spot too few.",
        "1 step to 7 spot, 3 on-demand.",
    ]


def test_the_minimum_decided() -> None:
    terms = "it leaves 10 - 4 = 6, and the percentage asks for ceil(10·90/100) = 9"
    assert explain_split(10, 90, 4, Split(spot=6, on_demand=4)) == [
        f"6 spot, 4 on-demand: the minimum decided: {terms}.",
        "Now 6 spot, 4 on-demand: no drift.",
        "Next: none: nothing to do.",
    ]


def test_the_minimum_cannot_be_met() -> None:
    first, *_, last = explain_split(2, 50, 3, Split(spot=1, on_demand=0))
    assert "minimum cannot be met: 2 replicas for a minimum of 3" in first
    assert last == "2 steps to 0 spot, 2 on-demand."


def test_a_drift_of_one_side_is_told() -> None:
    lines = explain_split(10, 90, 4, Split(spot=3, on_demand=4))
    assert lines[1] == "Now 3 spot, 4 on-demand: spot has 3 too few, on-demand is right."
    assert lines[3] == "3 steps to 6 spot, 4 on-demand."


def test_without_counts_only_the_term_is_told() -> None:
    assert explain_split(0, 50, 0) == ["0 spot, 0 on-demand: no replicas."]


def test_why_it_waits_and_until_when() -> None:
    waits = "waits until 2026-11-15T02:00:00Z (window): outside of its windows"
    lines = explain_split(10, 70, 1, Split(spot=6, on_demand=4), waits=waits)
    assert lines[-1] == "It waits until 2026-11-15T02:00:00Z (window): outside of its windows."
    assert explain_split(10, 70, 1, Split(spot=7, on_demand=3), waits=waits)[-1] == "Next: none: nothing to do."


def test_a_goal_that_a_fallback_changed_is_told() -> None:
    lines = explain_split(10, 70, 1, Split(spot=6, on_demand=4), desired=Split(spot=5, on_demand=5))
    assert lines[1] == "Instead of 7 spot, 3 on-demand the goal is now 5 spot, 5 on-demand."
    assert lines[3].startswith("Next: migrate-to-on-demand: ")


def test_a_goal_that_no_action_reaches_is_told() -> None:
    lines = explain_split(9, 0, 0, Split(spot=2, on_demand=2), desired=Split(spot=1, on_demand=1))
    assert lines[-1] == (
        "Next: none: no single action leads from 2 spot, 2 on-demand to 1 spot, 1 on-demand with this total."
    )


@pytest.mark.parametrize("action", list(Action))
def test_every_action_has_its_reason(action: Action) -> None:
    told = {
        line.split(": ")[1]: line
        for spot in range(4)
        for on_demand in range(4)
        for line in explain_split(3, 50, 1, Split(spot=spot, on_demand=on_demand))
        if line.startswith("Next: ")
    }
    assert len({line.split(": ")[2] for line in told.values()}) == len(Action)
    assert str(action) in told


def test_pools_tell_their_share_their_bound_and_the_rule_of_the_leftover() -> None:
    pools = [Pool("on", 2, 2), Pool("spot-a", 5), Pool("spot-b", 3)]
    assert explain_pools(11, pools) == [
        "on: 2: its share is 11/5, rounded down.",
        "spot-a: 6: its share is 11/2, rounded up by the largest remainder.",
        "spot-b: 3: its share is 33/10, rounded down.",
    ]
    assert explain_pools(11, pools, order=["spot-b"])[2] == "spot-b: 4: its share is 33/10, rounded up by the order."
    assert explain_pools(1, pools)[0] == "on: 1: minimums in list order, 1 of its 2."
    assert explain_pools(10, [Pool("on", 2, 4), *pools[1:]])[0] == "on: 4: its minimum is 4."


def test_pools_that_are_down_full_or_without_weight() -> None:
    pools = [Pool("a", 1, 0, 3), Pool("b", 1), Pool("c", 0)]
    assert explain_pools(9, pools, down=["b"]) == [
        "a: 3: its most is 3.",
        "b: 0: down.",
        "c: 0: weight 0, its minimum of 0.",
        "6 unplaced: every pool that is up has its most.",
    ]
    thirds = [Pool("a", 1), Pool("b", 1), Pool("c", 1)]
    assert explain_pools(4, thirds, previous={"b": 1})[1] == "b: 2: its share is 4/3, rounded up as it held more."
    uneven = [Pool("a", 1), Pool("b", 3)]
    assert (
        explain_pools(6, uneven, previous={"a": 2, "b": 4})[0] == "a: 2: its share is 3/2, rounded up as it held more."
    )
    assert explain_pools(2, [Pool("a", 1, 2), Pool("b", 1)])[0] == "a: 2: its minimum is 2."
    assert explain_pools(4, thirds)[0] == "a: 2: its share is 4/3, rounded up by name."
