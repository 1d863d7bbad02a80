"""Events that a seed draws: always possible, always the same."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.sim_worlds import FLEET, POOL, after

from poise.errors import InvalidSpec
from poise.model.replica_division import Cluster
from poise.sim import chance
from poise.sim.chance import random_events
from poise.sim.events import (
    VERBS,
    say,
    verb_of,
)
from poise.sim.replay import check_events
from poise.sim.worlds import FleetWorld, ItemWorld, Member, World


def worlds() -> st.SearchStrategy[World]:
    names = st.integers(0, 6).map(lambda n: [f"m{i}" for i in range(n)])
    pools = st.builds(
        lambda members, items, numbered: ItemWorld(
            "PartitionSet" if numbered else "TargetPool",
            "w",
            {name: Member() for name in members},
            dict.fromkeys(map(str, range(items))),
            numbered=numbered,
        ),
        names,
        st.integers(0, 60),
        st.booleans(),
    )
    fleets = st.builds(
        lambda members, workloads, strategy: FleetWorld(
            "ReplicaDivision",
            "f",
            {name: Cluster(name, weight=i + 1, capacity=30) for i, name in enumerate(members)},
            {f"w{i}": i % 5 for i in range(workloads)},
            strategy=strategy,
        ),
        names,
        st.integers(0, 12),
        st.sampled_from(["StaticWeight", "DynamicWeight", "Duplicated"]),
    )
    return st.one_of(pools, fleets)


@settings(max_examples=examples(80), deadline=None)
@given(worlds(), st.integers(0, 2**63 - 1))
def test_drawn_events_always_fit_and_the_world_stays_in_its_bounds(world: World, seed: int) -> None:
    start = len(world.live())
    events = list(random_events(world, 60, seed))
    check_events(world, events, "drawn")  # Raises where one does not fit.
    for event in events:
        world = after(world, event)
        assert len(world.live()) <= max(3, 2 * start)
        assert world.live() or start < 2


@settings(max_examples=examples(40), deadline=None)
@given(worlds(), st.integers(0, 1000))
def test_drawn_events_do_not_depend_on_the_order_of_the_document(world: World, seed: int) -> None:
    if isinstance(world, FleetWorld):
        turned: World = msgspec.structs.replace(
            world,
            clusters=dict(reversed(world.clusters.items())),
            workloads=dict(reversed(world.workloads.items())),
        )
    else:
        items = world.items if world.numbered else dict(reversed(world.items.items()))
        turned = msgspec.structs.replace(world, members=dict(reversed(world.members.items())), items=items)
    assert list(random_events(turned, 30, seed)) == list(random_events(world, 30, seed))


def test_a_seed_draws_these_events_for_ever() -> None:
    members = {f"pod-{i}": Member() for i in range(4)}
    pool = ItemWorld("TargetPool", "p", members, dict.fromkeys(f"router{i}" for i in range(40)))
    assert [say(event) for event in random_events(pool, 8, 1)] == PINNED_ITEMS
    fleet = FleetWorld("ReplicaDivision", "f", {"a": Cluster("a"), "b": Cluster("b")}, {"cart": 5, "mail": 2})
    assert [say(event) for event in random_events(fleet, 8, 1)] == PINNED_FLEET


PINNED_ITEMS = [
    "add router40",
    "drain pod-3",
    "leave pod-2",
    "leave pod-3",
    "add router41, router42",
    "join pod-2",
    "leave pod-2",
    "join pod-2",
]
PINNED_FLEET = [
    "scale mail to 5",
    "scale mail to 2",
    "scale mail to 5",
    "remove mail",
    "scale cart to 2",
    "scale cart to 4",
    "scale cart to 6",
    "scale cart to 4",
]


def test_other_seeds_draw_other_events() -> None:
    drawn = {tuple(map(say, random_events(POOL, 10, seed))) for seed in range(20)}
    assert len(drawn) == 20


def test_every_verb_of_a_kind_is_drawn() -> None:
    assert {verb_of(event) for event in random_events(POOL, 300, 5)} == {"join", "leave", "drain", "add", "remove"}
    assert {verb_of(event) for event in random_events(FLEET, 600, 5)} == set(VERBS)


def test_the_hash_seed_of_python_has_no_part() -> None:
    code = (
        "from poise.sim.chance import random_events; from poise.sim.worlds import *; from poise.sim.events import say;"
        "w = ItemWorld('TargetPool', 'p', {f'm{i}': Member() for i in range(9)}, dict.fromkeys(map(str, range(99))));"
        "print([say(e) for e in random_events(w, 50, 3)])"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(printed) == 1


def test_a_generator_that_forgets_its_world_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chance, "happen", lambda world, *_: world)
    events = list(random_events(POOL, 60, 1))
    with pytest.raises(InvalidSpec):
        check_events(POOL, events, "drawn")


def test_a_stream_moves_on() -> None:
    events = list(random_events(POOL, 40, 9))
    assert any(one != other for one, other in pairwise(events))
