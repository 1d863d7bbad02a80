"""One world under several policies: the laws of each policy, and the numbers that are measured."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from poise.decide.balance import rebalance
from poise.decide.ring import plan_ring
from poise.documents.faults import Faults
from poise.errors import InvalidSpec
from poise.sim import items
from poise.sim.chance import random_events
from poise.sim.events import Add, Drain, Event, Join, Leave, Remove, Reweigh
from poise.sim.replay import Replay, policies_of, replay
from poise.sim.ticks import Change, Tick
from poise.sim.worlds import FleetWorld, ItemWorld, Member, World, happen


def pool(items_: int, members: int, stem: str = "router") -> ItemWorld:
    named = {f"pod-{i}": Member() for i in range(members)}
    return ItemWorld("TargetPool", "core", named, dict.fromkeys(f"{stem}{i}" for i in range(items_)))


def step(world: ItemWorld, event: Event) -> ItemWorld:
    after = happen(world, event, Faults(""))
    assert isinstance(after, ItemWorld)
    return after


def broken_laws(played: Replay) -> list[str]:
    """Name every event at which a policy of items breaks what it promises for equal weights without capacities."""
    broken = []
    for name, track in played.tracks.items():
        for happening, tick in zip(played.happenings, track.ticks, strict=True):
            at = f"{name} at {happening.said}"
            if name == "sticky" and tick.moves != tick.moves_min:
                broken.append(f"{at}: {tick.moves} moves, fewest {tick.moves_min}")
            if name == "sticky" and (tick.spread > 1 or tick.error >= 1):
                broken.append(f"{at}: spread {tick.spread}, error {tick.error}")
            if name == "sticky" and happening.verb != "remove" and tick.innocent:
                broken.append(f"{at}: {tick.innocent} innocent moves")
            if name == "ring" and tick.innocent:
                broken.append(f"{at}: {tick.innocent} innocent moves")
    return broken


@st.composite
def item_runs(draw: st.DrawFn) -> tuple[ItemWorld, list[Event]]:
    world = pool(draw(st.integers(0, 60)), draw(st.integers(0, 7)))
    return world, list(random_events(world, draw(st.integers(0, 25)), draw(st.integers(0, 10**6))))


@settings(max_examples=examples(60), deadline=None)
@given(item_runs())
def test_sticky_moves_the_fewest_and_ring_touches_no_innocent(run: tuple[ItemWorld, list[Event]]) -> None:
    assert broken_laws(replay(*run)) == []


def test_only_a_removal_makes_sticky_touch_an_innocent() -> None:
    # Six items on three members; two of one member go, and only an innocent item can fill the hole.
    world = pool(6, 3)
    held = items.plan_sticky(world, {}).assignment
    gone = [item for item, member in held.items() if member == "pod-0"]
    played = replay(msgspec.structs.replace(world, start=held), [Remove(remove=gone)], ["sticky"])
    (tick,) = played.tracks["sticky"].ticks
    assert (tick.moves, tick.moves_min, tick.innocent, tick.spread) == (1, 1, 1, 1)


@settings(max_examples=examples(40), deadline=None)
@given(item_runs(), st.data())
def test_sticky_moves_the_fewest_with_weights_and_capacities(
    run: tuple[ItemWorld, list[Event]], data: st.DataObject
) -> None:
    world, _ = run
    sizes = st.builds(Member, weight=st.integers(0, 4), capacity=st.none() | st.integers(0, 12))
    members = {name: data.draw(sizes) for name in world.members}
    world = msgspec.structs.replace(world, members=members)
    events = list(random_events(world, 12, data.draw(st.integers(0, 999))))
    for tick in replay(world, events, ["sticky"]).tracks["sticky"].ticks:
        assert tick.moves == tick.moves_min
        assert tick.error < 1


@settings(max_examples=examples(30), deadline=None)
@given(item_runs())
def test_the_fewest_moves_are_those_of_a_plan_from_the_policys_own_state(run: tuple[ItemWorld, list[Event]]) -> None:
    world, events = run
    for name, policy in items.ITEM_POLICIES.items():
        here, held = world, policy(world, {}).assignment
        ticks = replay(world, events, [name]).tracks[name].ticks
        for event, tick in zip(events, ticks, strict=True):
            here = step(here, event)
            gone = [member for member, each in here.members.items() if each.draining]
            assert tick.moves_min == rebalance(here.items, here.members, held, draining=gone).certificate.moves_min
            plan = policy(here, held)
            assert tick.moves == sum(
                plan.assignment[item] != member
                for item, member in held.items()
                if item in here.items and member is not None
            )
            held = plan.assignment


@settings(max_examples=examples(30), deadline=None)
@given(item_runs(), st.integers(1, 3))
def test_the_ring_is_that_of_the_planner(run: tuple[ItemWorld, list[Event]], weight: int) -> None:
    world, events = run
    for event in events:
        world = step(world, event)
    if world.members:
        world = step(world, Reweigh(weight={min(world.members): weight}))
    tokens = {name: member.tokens * member.weight for name, member in world.members.items()}
    gone = [name for name, member in world.members.items() if member.draining]
    held: dict[str, str | None] = dict.fromkeys(world.items, "gone")
    mine, planned = items.plan_on_ring(world, held), plan_ring(world.items, tokens, held, draining=gone)
    assert (mine.assignment, mine.moves, mine.loads) == (planned.assignment, planned.moves, planned.loads)


def test_modulo_moves_most() -> None:
    world = pool(300, 9)
    played = replay(world, list(random_events(world, 120, 4)))
    moves = {name: sum(tick.moves for tick in track.ticks) for name, track in played.tracks.items()}
    assert list(moves) == policies_of(world) == ["sticky", "hashed", "ring", "modulo"]
    assert moves["modulo"] > 3 * max(moves["sticky"], moves["hashed"], moves["ring"])
    assert broken_laws(played) == []


@settings(max_examples=examples(20), deadline=None)
@given(item_runs())
def test_every_policy_sees_the_same_world(run: tuple[ItemWorld, list[Event]]) -> None:
    together = replay(*run)
    for name, track in together.tracks.items():
        alone = replay(*run, [name])
        assert alone.tracks == {name: track}
        assert (alone.happenings, alone.exact) == (together.happenings, together.exact)
        assert track.loads.keys() == together.exact.keys()
        assert (
            sum(track.loads.values()) + (track.ticks or [track.start])[-1].unassigned == together.happenings[-1].things
            if together.happenings
            else True
        )


def test_what_happened_is_told_with_the_size_of_the_world() -> None:
    played = replay(pool(10, 3), [Join(join=["pod-3"], note="rack 2"), Add(add=5)], ["sticky"])
    assert [msgspec.structs.astuple(each) for each in (played.opening, *played.happenings)] == [
        ("start", "start", "", 3, 10),
        ("join", "join pod-3", "rack 2", 4, 10),
        ("add", "add 5", "", 4, 15),
    ]


def test_progress_is_told_event_by_event() -> None:
    told: list[int] = []
    replay(pool(10, 3), [Add(add=1)] * 4, ["sticky"], progress=told.append)
    assert told == [1, 2, 3, 4]


def test_an_event_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"\$\.events\[1\]\.leave"):
        replay(pool(10, 3), [Add(add=1), Leave(leave=["x"])])


def test_sticky_starts_from_what_the_document_says() -> None:
    held = {f"router{i}": f"pod-{i % 2}" for i in range(10)}
    world = msgspec.structs.replace(pool(10, 2), start=held)
    assert replay(world, [], ["sticky"]).tracks["sticky"].start.moves == 0
    assert replay(pool(10, 2), [Drain(drain=["pod-0"])], ["sticky"]).tracks["sticky"].ticks[0].moves == 5


EMPTY = [
    pool(0, 0),
    pool(5, 0),
    pool(0, 3),
    FleetWorld("ReplicaDivision", "f", {}, {}),
    FleetWorld("ReplicaDivision", "f", {}, {"a": 3}),
]


@pytest.mark.parametrize("world", EMPTY)
def test_an_empty_world_is_an_ordinary_one(world: World) -> None:
    for track in replay(world, [Join(join=["x"])]).tracks.values():
        assert [tick.moves for tick in track.ticks] == [0]
        assert track.ticks[0].unassigned == 0


# What the policy `hashed` cannot do.


def first_ticks(world: Callable[[str], ItemWorld], *events: Event) -> list[tuple[Tick, list[Tick]]]:
    """Play the events under `hashed` in twenty worlds that differ in the names of their items."""
    tracks = [replay(world(f"router-{i}-"), events, ["hashed"]).tracks["hashed"] for i in range(20)]
    return [(track.start, track.ticks) for track in tracks]


def test_hashed_bounds_only_the_maximum() -> None:
    ticks = first_ticks(lambda stem: pool(100, 7, stem))
    assert sum(start.spread >= 2 for start, _ in ticks) > 10
    assert all(start.high <= 15 for start, _ in ticks)


def test_hashed_moves_innocents_when_a_pod_leaves() -> None:
    ticks = first_ticks(lambda stem: pool(100, 7, stem), Leave(leave=["pod-3"]))
    assert sum(tick.innocent > 0 for _, (tick,) in ticks) > 10


def test_hashed_moves_more_than_its_share_to_a_new_pod() -> None:
    played = replay(pool(100, 7), [Join(join=["pod-7"])], ["sticky", "hashed"])
    assert played.tracks["sticky"].ticks[0].moves == 12
    assert played.tracks["hashed"].ticks[0].moves > 13


def test_one_new_target_at_a_capacity_step_moves_dozens_under_hashed() -> None:
    played = replay(pool(1000, 20), [Add(add=["one-more"])], ["sticky", "hashed"])
    assert played.tracks["sticky"].ticks[0].moves == 0
    assert played.tracks["hashed"].ticks[0].innocent >= 24


# Break a piece on purpose, and see that the laws are not blind.

LONG = list(random_events(pool(80, 6), 80, 2))


def always(value: int) -> Callable[..., int]:
    return lambda *_: value


@pytest.mark.parametrize(
    ("piece", "instead", "caught"),
    [
        ("ITEM_POLICIES", {"sticky": items.plan_by_score}, "sticky"),
        ("ITEM_POLICIES", {"sticky": items.plan_modulo}, "sticky"),
        ("ITEM_POLICIES", {"ring": items.plan_by_score}, "ring"),
        ("fewest_moves", always(0), "fewest 0"),
        ("change", lambda *_: Change(frozenset(), frozenset()), "innocent"),
    ],
)
def test_a_broken_piece_is_caught(piece: str, instead: object, caught: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policies = list(instead) if isinstance(instead, dict) else ["sticky", "ring"]
    monkeypatch.setattr(items, piece, instead)
    assert any(caught in told for told in broken_laws(replay(pool(80, 6), LONG, policies)))


def test_a_tick_knows_its_spread_and_error() -> None:
    tick = Tick(1, 1, 0, 3, 8, Fraction(-5, 2), Fraction(2), 0)
    assert (tick.spread, tick.error) == (5, Fraction(5, 2))


@pytest.mark.slow
def test_a_large_world_keeps_the_laws() -> None:
    world = pool(1000, 20)
    assert broken_laws(replay(world, list(random_events(world, 300, 7)))) == []
