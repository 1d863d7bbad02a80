"""Sharder and shard are ended after every single write, one after the other, and whoever comes next ends the work."""

from __future__ import annotations

import pytest
from tests.model import sharding_party
from tests.model import sharding_sharder as chief
from tests.model.sharding_fair import ROUNDS_MAX, FairSchedule
from tests.model.sharding_party import Process
from tests.model.sharding_server import Server, Thing, replace
from tests.model.sharding_turns import later, moved, rewritten
from tests.model.sharding_world import FAULTS, Scene, Universe, World

from poise.model.sharding import Marks, Step, StepKind
from poise.move.sharding import decide
from poise.move.sharding.families import Family

FREE = (Marks(), Marks())
CHILD = Scene(parents=(-1, 0))
WORKS = {
    "assign a root and its child": (replace(CHILD, marks=FREE), ()),
    "move a root and its child": (CHILD, ("plan",)),
    "move by the long form": (replace(CHILD, short=False), ("plan",)),
    "move with eager fencing": (replace(CHILD, eager=True), ("plan",)),
    "take from the dead": (CHILD, ("crash",)),
    "force what is never handed over": (replace(CHILD, stubborn=True, drain_timeout_s=1.0), ("plan",)),
    "remove a ring": (CHILD, ("ring",)),
    "drain an adopted object": (Scene(parents=(-1, -1), marks=(Marks("a", 1), Marks("b", 2))), ("adopt",)),
    "a Lease is deleted": (CHILD, ("delete",)),
}
Ends = tuple[str | None, ...]


def happened(universe: Universe, world: World, event: str) -> World:
    """Let something happen that nobody knows of yet."""
    if event == "crash":
        return ended(universe, world, 0)
    fault = FAULTS.index(event)
    _, _, server, changed = next(each for each in universe.events(world.server) if each[0] == fault)
    return rewritten(universe, world._replace(server=server), changed, -1)


def settle(scene: Scene, events: tuple[str, ...], number: int, then: str = "") -> tuple[Server, int]:
    """Let everybody work in turn until all is settled; after this write its writer ends, or something else happens."""
    universe = Universe(scene)
    fair = FairSchedule(universe)
    world, writes = universe.start(), 0
    for event in events:
        world = happened(universe, world, event)
    for _ in range(ROUNDS_MAX):
        who = 0
        while who < len(world.parties):
            done = fair.next_move(world, who)
            if done is None:
                who += 1
                continue
            world = moved(universe, world, who, done)
            assert not done.broken, done.broken
            writes += bool(done.changed)
            if done.changed and writes == number:
                world, who = happened(universe, world, then) if then else ended(universe, world, who), 0
        if fair.is_settled(world):
            return universe.servers.values[world.server], writes
        for each in range(len(world.parties)):
            world = later(universe, world, each)
        world = world if "crash" in events and not number else fair.revived(world)
    raise AssertionError(f"not settled after write {number}: {universe.servers.values[world.server]}")


def ended(universe: Universe, world: World, who: int) -> World:
    """End a party: a sharder is followed by another one at once, a process starts again with the next tick."""
    party = universe.parties.values[world.parties[who]]
    server = universe.servers.values[world.server]
    if isinstance(party, Process):
        after = universe.place(sharding_party.gone(party, len(server.things)))
    else:
        after = universe.place(chief.started(party.who, party.life + 1, server, universe.manner))
    return world._replace(parties=(*world.parties[:who], after, *world.parties[who + 1 :]))


def owners(things: tuple[Thing, ...]) -> Ends:
    return tuple(thing.marks.shard for thing in things)


def interrupt_after_every_write(name: str) -> None:
    scene, events = WORKS[name]
    end, writes = settle(scene, events, 0)
    assert writes >= 2
    for number in range(1, writes + 1):
        other, _ = settle(scene, events, number)
        if events not in (("crash",), ("delete",)):  # There it depends on who comes back first.
            assert owners(other.things) == owners(end.things), f"ended after write {number}"


@pytest.mark.parametrize("name", WORKS)
def test_interrupted_after_every_write_all_comes_to_the_same_end(name: str) -> None:
    interrupt_after_every_write(name)


@pytest.mark.parametrize("event", ["plan", "ring"])
def test_what_is_taken_back_after_any_write_ends_where_it_began(event: str) -> None:
    _, writes = settle(CHILD, (event,), 0)
    for number in range(1, writes + 1):
        back, _ = settle(CHILD, (event,), number, then=event)
        assert owners(back.things) == ("a", "a"), f"taken back after write {number}"


def test_a_sharder_that_skips_what_was_begun_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    original = decide.give

    def give(family: Family, target: str | None, kind: StepKind, needs: str | None = None) -> Step:
        step = original(family, target, kind, needs)
        begun = any(child.marks.shard == target for child in family.children)
        return replace(step, groups=()) if begun else step

    monkeypatch.setattr(decide, "give", give)
    with pytest.raises((AssertionError, IndexError)):
        interrupt_after_every_write("assign a root and its child")
