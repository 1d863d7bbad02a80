"""One world, several policies, side by side: every policy sees the same events, each from its own last state.

Before the first event every policy settles by itself: on what the document's status says, where there is something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction

import msgspec

from poise.documents.faults import Faults
from poise.sim import fleets, items
from poise.sim.events import Event, say, verb_of
from poise.sim.ticks import Tick
from poise.sim.worlds import FleetWorld, ItemWorld, World, happen

Ticks = dict[str, Tick]


class Happening(msgspec.Struct, frozen=True):
    """One event as it is told: in words, with the world's size after it."""

    verb: str
    said: str
    note: str
    members: int
    things: int


class Track(msgspec.Struct, frozen=True):
    """One policy: how it settled (what it moved until then does not count), each event, and the loads in the end."""

    start: Tick
    ticks: list[Tick]
    loads: dict[str, int]


class Replay(msgspec.Struct, frozen=True):
    """A whole run. `exact` are the exact shares in the end; `even` says that shares were equal throughout.

    `moves_max` is what a fleet may repair at each event; None where there is no fleet.
    """

    kind: str
    name: str
    seed: int | None
    opening: Happening
    happenings: list[Happening]
    tracks: dict[str, Track]
    exact: dict[str, Fraction]
    even: bool
    moves_max: int | None


def policies_of(world: World) -> list[str]:
    """Name the policies that a world can be played under, the one that Poise prefers first."""
    return list(items.ITEM_POLICIES if isinstance(world, ItemWorld) else fleets.FLEET_POLICIES)


def check_events(world: World, events: Iterable[Event], source: str) -> None:
    """Raise InvalidSpec with every event of a script that does not fit the world as it is by then."""
    faults = Faults(source)
    for place, event in enumerate(events):
        world = happen(world, event, faults, f"$.events[{place}]")
    faults.raise_any()


def replay(
    world: World,
    events: Iterable[Event],
    policies: Iterable[str] = (),
    *,
    seed: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> Replay:
    """Play the events; `progress` is told how many are done. An event that does not fit raises InvalidSpec."""
    faults = Faults("")
    chosen = list(policies) or policies_of(world)
    run = ItemRun(world, chosen) if isinstance(world, ItemWorld) else FleetRun(world, chosen)
    opening, start, even = _told(None, world), run.ticks, run.even
    history: list[Ticks] = []
    happenings = []
    for event in events:
        world = happen(world, event, faults, f"$.events[{len(history)}]")
        faults.raise_any()
        run.step(world)
        history.append(run.ticks)
        even = even and run.even
        happenings.append(_told(event, world))
        if progress is not None:
            progress(len(history))
    loads = run.loads()
    tracks = {name: Track(start[name], [ticks[name] for ticks in history], loads[name]) for name in chosen}
    repairs = world.moves_max if isinstance(world, FleetWorld) else None
    return Replay(world.kind, world.name, seed, opening, happenings, tracks, run.exact(), even, repairs)


def _told(event: Event | None, world: World) -> Happening:
    things = len(world.items) if isinstance(world, ItemWorld) else sum(world.workloads.values())
    members = len(world.live())
    if event is None:
        return Happening("start", "start", "", members, things)
    return Happening(verb_of(event), say(event), event.note, members, things)


class ItemRun:
    """The assignments of every policy, and what was measured at the last event."""

    def __init__(self, world: ItemWorld, policies: Iterable[str]) -> None:
        """Let every policy settle in the world as it is."""
        self._world = world
        self._held: dict[str, items.Held] = dict.fromkeys(policies, world.start)
        self.step(world)

    def step(self, world: World) -> None:
        """Let every policy plan the world after an event."""
        assert isinstance(world, ItemWorld)
        self._even = items.measure(world, self._world)
        self._world = world
        self.ticks: Ticks = {}
        self._loads: dict[str, dict[str, int]] = {}
        for name, held in self._held.items():
            plan = items.ITEM_POLICIES[name](world, held)
            self.ticks[name] = items.tick(world, self._even, held, plan)
            self._held[name] = plan.assignment
            self._loads[name] = plan.loads

    @property
    def even(self) -> bool:
        """Tell whether all live members have the same share."""
        return len(set(self._even.shares.numerators)) <= 1

    def loads(self) -> dict[str, dict[str, int]]:
        """Give every policy's loads."""
        return self._loads

    def exact(self) -> dict[str, Fraction]:
        """Give the exact share of every live member."""
        return dict(zip(self._even.live, self._even.shares.fractions(), strict=True))


class FleetRun:
    """The divisions of every policy, and what was measured at the last event."""

    def __init__(self, world: FleetWorld, policies: Iterable[str]) -> None:
        """Let every policy settle in the world as it is."""
        self._world = world
        self._yard: fleets.Yardstick | None = None
        start: dict[str, Mapping[str, int]] = {**world.start}
        self._held = {name: fleets.Held(start, {}) for name in policies}
        self.step(world)

    def step(self, world: World) -> None:
        """Let every policy divide the world after an event."""
        assert isinstance(world, FleetWorld)
        self._yard = yard = fleets.measure(world, self._world, self._yard)
        self._world = world
        self.ticks: Ticks = {}
        for name, held in self._held.items():
            changed = fleets.FLEET_POLICIES[name](world, yard, held)
            after = fleets.held_after(world, yard, held, changed)
            self.ticks[name] = fleets.tick(world, yard, held, after, changed)
            self._held[name] = after

    @property
    def even(self) -> bool:
        """Tell whether all live clusters have the same share."""
        return len(set(self.exact().values())) <= 1

    def loads(self) -> dict[str, dict[str, int]]:
        """Give every policy's totals."""
        return {name: dict(held.totals) for name, held in self._held.items()}

    def exact(self) -> dict[str, Fraction]:
        """Give the exact share of every live cluster."""
        assert self._yard is not None
        return self._yard.exact
