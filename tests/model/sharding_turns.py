"""What can happen next in a world: a tick, a move of any party, an event, or the arrival of a forgotten patch."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.sharding_server import Change, put, uid
from tests.model.sharding_world import Done, Next, Universe, World


def turns(universe: Universe, world: World) -> Iterator[Next]:
    """List every next step, judged: a broken law is named with the step that broke it."""
    people = len(universe.scene.processes)
    for label, after, broken in _turns(universe, world):
        twice = universe.acting(after.server, after.parties[:people]) if after.parties != world.parties else ""
        yield Next(label, after, broken or twice)


def _turns(universe: Universe, world: World) -> Iterator[Next]:
    if not universe.scene.timeless:
        yield from _ticks(universe, world)
    for who, number in enumerate(world.parties):
        for done in universe.moves(number, world.server):
            paid = spend(world, done.fault)
            if paid is not None and (done.ghost < 0 or world.ghost < 0):
                late = universe.late(world.parties, who, done.wrote) if done.wrote >= 0 else ""
                yield Next(f"{universe.name(who)} {done.label}", moved(universe, paid, who, done), done.broken or late)
    for fault, label, server, changed in universe.events(world.server):
        paid = spend(world, fault)
        if paid is not None:
            yield Next(label, rewritten(universe, paid._replace(server=server), changed, -1))
    if world.ghost >= 0:
        place, server, broken = universe.arrivals(world.ghost, world.server)
        after = rewritten(universe, world._replace(server=server, ghost=-1), (("object", place),), -1)
        yield Next(f"a forgotten patch of {uid(place)} arrives", after, broken)


def moved(universe: Universe, world: World, who: int, done: Done) -> World:
    """Let a party make its move: everybody else's copies of what it wrote are old."""
    ghost = done.ghost if done.ghost >= 0 else world.ghost
    world = World(done.server, put(world.parties, who, done.party), ghost, world.ticked, world.budget)
    return rewritten(universe, world, done.changed, who) if done.changed else world


def rewritten(universe: Universe, world: World, changed: tuple[Change, ...], writer: int) -> World:
    """Make copies old; a forgotten patch of what has changed will be refused."""
    parties, ghost = world.parties, world.ghost
    for change in changed:
        parties = tuple(
            number if who == writer else universe.outdate(number, change) for who, number in enumerate(parties)
        )
        if ghost >= 0 and change == ("object", universe.ghosts.values[ghost].place):
            ghost = -1
    return World(world.server, parties, ghost, world.ticked, world.budget)


def spend(world: World, fault: int) -> World | None:
    """Use one of the faults that may happen; None where none is left."""
    if fault < 0:
        return world
    if not world.budget[fault]:
        return None
    return world._replace(budget=put(world.budget, fault, world.budget[fault] - 1))


def _ticks(universe: Universe, world: World) -> Iterator[Next]:
    """Let time pass for all at once, or for each by itself within a tick."""
    if not universe.scene.apart:
        after = world
        for who in range(len(world.parties)):
            after = later(universe, after, who)
        yield Next("a tick passes", after)
        return
    for who in range(len(world.parties)):
        if not world.ticked[who]:
            ticked = put(world.ticked, who, True)
            ticked = (False,) * len(ticked) if all(ticked) else ticked
            yield Next(f"a tick passes for {universe.name(who)}", later(universe, world, who)._replace(ticked=ticked))


def later(universe: Universe, world: World, who: int) -> World:
    number, lease = universe.tick(world.parties[who], world.server)
    after = world._replace(parties=put(world.parties, who, number))
    if lease < 0:
        return after
    after = rewritten(universe, after, (("lease", lease),), who)
    if universe.scene.names[lease] not in universe.scene.swift:
        return after
    return after._replace(parties=tuple(universe.sight(each, after.server, lease) for each in after.parties))
