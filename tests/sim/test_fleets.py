"""Replicas of a whole fleet under several policies: what is kept, what moves, and how far totals are off."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from poise.decide.divide import divide
from poise.decide.fleet import divide_fleet
from poise.documents.faults import Faults
from poise.model.replica_division import Cluster
from poise.sim import fleets
from poise.sim.chance import random_events
from poise.sim.events import Event, Join, Leave, Remove, Reweigh, Scale
from poise.sim.replay import replay
from poise.sim.worlds import FleetWorld, happen


def fleet(workloads: Mapping[str, int], weights: Mapping[str, int], moves_max: int = 0) -> FleetWorld:
    clusters = {name: Cluster(name, weight=weight) for name, weight in weights.items()}
    return FleetWorld("ReplicaDivision", "shop", clusters, dict(workloads), moves_max=moves_max)


def step_fleet(world: FleetWorld, event: Event) -> FleetWorld:
    after = happen(world, event, Faults(""))
    assert isinstance(after, FleetWorld)
    return after


MIXES = {"a": 2, "b": 1, "c": 1, "d": 1}


@pytest.mark.parametrize(
    ("replicas", "weights"), [(3, {"a": 1, "b": 1}), (4, {"a": 1, "b": 1, "c": 1}), (8, MIXES)], ids=str
)
def test_a_fresh_fleet_stays_within_one_and_chance_does_not(replicas: int, weights: dict[str, int]) -> None:
    tracks = replay(fleet({f"w{i:03}": replicas for i in range(1000)}, weights), []).tracks
    assert tracks["fleet"].start.error <= 1
    assert 1 < tracks["exact"].start.error < 100


def test_name_order_puts_two_thirds_on_the_first_name() -> None:
    played = replay(fleet({f"w{i:03}": 3 for i in range(1000)}, {"a": 1, "b": 1}), [])
    assert played.tracks["name-order"].loads == {"a": 2000, "b": 1000}
    assert played.tracks["name-order"].start.error == 500
    assert played.exact == {"a": 1500, "b": 1500}


@st.composite
def fleet_runs(draw: st.DrawFn) -> tuple[FleetWorld, list[Event]]:
    count = draw(st.integers(0, 4))
    clusters = {}
    for name in "abcd"[:count]:
        least = draw(st.integers(0, 2))
        most = draw(st.none() | st.integers(least, 9))
        clusters[name] = Cluster(
            name, weight=draw(st.integers(0, 5)), min=least, max=most, capacity=draw(st.integers(2, 9))
        )
    world = FleetWorld(
        "ReplicaDivision",
        "f",
        clusters,
        {f"w{i}": draw(st.integers(0, 9)) for i in range(draw(st.integers(0, 8)))},
        strategy=draw(st.sampled_from(["StaticWeight", "StaticWeight", "DynamicWeight", "Duplicated"])),
        moves_max=draw(st.sampled_from([0, 0, 2])),
        seed=draw(st.sampled_from(["", "s"])),
    )  # fmt: skip
    return world, list(random_events(world, draw(st.integers(0, 20)), draw(st.integers(0, 10**6))))


Results = dict[str, Mapping[str, int]]


def divide_all(world: FleetWorld, policy: str, last: Results) -> Results:
    """Divide every workload again, as the planners themselves say it; the reference of the shortcut."""
    clusters = [world.clusters[name] for name in world.live()]
    if not world.workloads:
        return {}
    weights = {each.name: each.weight for each in clusters}
    minimum = {each.name: each.min for each in clusters}
    maximum = {each.name: each.max for each in clusters if each.max is not None}
    capacity = {each.name: each.capacity for each in clusters if each.capacity is not None}
    single, draw = ("fleet", "exact") if policy == "fleet" else ("single", policy)
    divisions = divide_fleet(
        world.workloads,
        weights,
        last=last,
        moves_max=world.moves_max if policy == "fleet" else 0,
        minimum=minimum,
        maximum=maximum,
        capacity=capacity,
        strategy=world.strategy,
        seed=world.seed,
        draw=draw,
        fair=single,
    )
    return {name: division.replicas for name, division in divisions.items()}


def differences(world: FleetWorld, events: list[Event]) -> list[str]:
    """Name every event after which a policy's totals, or what it moved, are not those of the reference."""
    found = []
    for policy in ("fleet", "exact", "weighted"):
        here, last = world, divide_all(world, policy, {})
        for place, event in enumerate(events):
            here = step_fleet(here, event)
            before, last = last, divide_all(here, policy, last)
            track = replay(world, events[: place + 1], [policy]).tracks[policy]
            totals = {name: sum(each.get(name, 0) for each in last.values()) for name in here.live()}
            moves = sum(moved(before[name], last[name]) for name in last if before.get(name))
            if (track.loads, track.ticks[-1].moves) != (totals, moves):
                found.append(f"{policy} after {event}")
    return found


def moved(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    names = before.keys() | after.keys()
    up = sum(max(0, after.get(name, 0) - before.get(name, 0)) for name in names)
    down = sum(max(0, before.get(name, 0) - after.get(name, 0)) for name in names)
    return min(up, down)


@settings(max_examples=examples(25), deadline=None)
@given(fleet_runs())
def test_dividing_only_what_an_event_touches_changes_nothing(run: tuple[FleetWorld, list[Event]]) -> None:
    world, events = run
    assert differences(world, events[:6]) == []


@settings(max_examples=examples(40), deadline=None)
@given(fleet_runs())
def test_single_divisions_move_the_fewest_replicas(run: tuple[FleetWorld, list[Event]]) -> None:
    world, events = run
    tracks = replay(world, events).tracks
    for name in ("exact", "weighted", *(["fleet"] if not world.moves_max else [])):
        assert all(tick.moves == tick.moves_min for tick in tracks[name].ticks), name
    assert all(tick.moves >= tick.moves_min for track in tracks.values() for tick in track.ticks)


@settings(max_examples=examples(80), deadline=None)
@given(
    st.integers(0, 12),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 4), min_size=1),
    st.dictionaries(st.sampled_from("abcde"), st.integers(0, 6), min_size=1),
)
def test_the_fewest_moved_replicas_are_those_of_a_division(
    replicas: int, weights: dict[str, int], last: dict[str, int]
) -> None:
    division = divide(replicas, weights, last=last)
    assert fleets.fewest_moved(division.quota, last) == division.moved


def test_a_replica_is_innocent_when_its_cluster_stayed_and_the_other_did_not_join() -> None:
    world = fleet({"cart": 6}, {"a": 1, "b": 1, "c": 1})
    events: list[Event] = [Leave(leave=["c"]), Join(join=["c"]), Reweigh(weight={"a": 4}), Scale(scale={"cart": 7})]
    ticks = replay(world, events, ["exact"]).tracks["exact"].ticks
    assert [(tick.moves, tick.innocent) for tick in ticks] == [(2, 0), (2, 0), (2, 2), (0, 0)]


def test_repairs_bring_a_drifted_fleet_back() -> None:
    loads = {f"w{i:02}": 3 for i in range(60)}
    # Whatever gave its extra to one cluster goes, so the other one is left with too much.
    start = {name: {"a": 2, "b": 1} if i % 2 else {"a": 1, "b": 2} for i, name in enumerate(loads)}
    gone = [name for i, name in enumerate(loads) if i % 2]
    events: list[Event] = [Remove(remove=gone), *([Scale(scale={"w00": 3})] * 4)]
    errors = {}
    for moves_max in (0, 4):
        world = msgspec.structs.replace(fleet(loads, {"a": 1, "b": 1}, moves_max), start=start)
        errors[moves_max] = [tick.error for tick in replay(world, events, ["fleet"]).tracks["fleet"].ticks]
    assert errors[0] == [15] * 5
    assert errors[4] == [11, 7, 3, 0, 0]


def test_unplaced_replicas_are_counted() -> None:
    world = FleetWorld("ReplicaDivision", "f", {"a": Cluster("a", max=2)}, {"cart": 5})
    assert {track.start.unassigned for track in replay(world, []).tracks.values()} == {3}


# Break a piece on purpose, and see that the laws are not blind.


def test_a_fleet_that_forgets_its_debt_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    world = fleet({f"w{i}": 3 for i in range(9)}, {"a": 1, "b": 1})
    events: list[Event] = [Scale(scale={f"w{i}": 5}) for i in range(9)]
    assert differences(world, events) == []

    def forget(*arguments: object, debt: object = None, **terms: object) -> object:
        del debt
        return divide(*arguments, **terms)  # type: ignore[arg-type]  # The arguments are passed on as they came.

    monkeypatch.setattr(fleets, "divide", forget)
    assert differences(world, events) != []


def test_a_yardstick_that_misses_a_touched_workload_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    world = fleet({f"w{i}": 3 for i in range(4)}, {"a": 1, "b": 1})
    measured = fleets.measure

    def miss(now: FleetWorld, before: FleetWorld, last: fleets.Yardstick | None) -> fleets.Yardstick:
        yard = measured(now, before, last)
        return msgspec.structs.replace(yard, touched=yard.touched[:3])

    monkeypatch.setattr(fleets, "measure", miss)
    with pytest.raises(KeyError):
        differences(world, [Reweigh(weight={"a": 3})])
