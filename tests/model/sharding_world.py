"""The explored ring: an API server, shard processes and sharders, in steps that may happen in any order.

Nothing of the protocol is written here. What a party may do depends only on itself and on the server, so each such pair
is worked out once; a world is a small tuple of numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cache
from typing import Generic, NamedTuple, TypeVar

import msgspec
from tests.model import sharding_party
from tests.model import sharding_process as shard
from tests.model import sharding_sharder as chief
from tests.model.sharding_party import Ghost, Habits, Process
from tests.model.sharding_server import (
    NOW,
    TIME,
    Change,
    Record,
    Server,
    Thing,
    put,
    replace,
    shown,
    uid,
    write_marks,
)
from tests.model.sharding_sharder import Manner, Sharder

from poise.hold.sharding import Grip, Knowledge
from poise.model.sharding import Marks, SeenObject

FAULTS = (
    *(
        "start",
        "restart",
        "crash",
        "pause",
        "leave",
        "cut",
        "slow",
        "lost",
        "ghost",
        "sharder",
        "plan",
        "delete",
        "ring",
        "adopt",
    ),
)
HELD = Marks("a", 1)
Value = TypeVar("Value", bound=Hashable)
Party = Process | Sharder


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What is explored: objects (each with the place of its parent), whose processes, and how many of each fault."""

    parents: tuple[int, ...] = (-1,)
    marks: tuple[Marks, ...] = (HELD, HELD)
    processes: tuple[str, ...] = ("a", "b")
    unborn: tuple[int, ...] = ()
    sharders: int = 1
    faults: dict[str, int] = {}
    duration_s: float = 2.0
    margin_s: float = 0.0
    apart: bool = False  # Every party's clock advances by itself, never more than one tick before another.
    timeless: bool = False  # No time passes: for what goes wrong within one instant.
    eager: bool = False
    trusting: bool = False
    short: bool = True
    caches: bool = False
    stubborn: bool = False
    drain_timeout_s: float = 0.0
    orphans: bool = False
    swift: tuple[
        str, ...
    ] = ()  # Whose renewals the sharders see at once: fewer worlds, where their lag is not the point.
    adopted_by: int = 0
    strict: bool = False  # Nothing is left open: also under lazy fencing no late write may be accepted.

    @property
    def names(self) -> tuple[str, ...]:
        """The instances, each with one Lease."""
        return tuple(dict.fromkeys(self.processes))


class World(NamedTuple):
    """One state; all numbers are places in the tables of its universe."""

    server: int
    parties: tuple[int, ...]
    ghost: int
    ticked: tuple[bool, ...]
    budget: tuple[int, ...]


class Next(NamedTuple):
    """One step: what happened, where it leads, and which law it broke."""

    label: str
    world: World
    broken: str = ""


class Done(NamedTuple):
    """One move of a party, in numbers."""

    fault: int
    label: str
    party: int
    server: int
    changed: tuple[Change, ...]
    broken: str
    ghost: int
    wrote: int


class Table(Generic[Value]):
    """Keeps each value once."""

    def __init__(self) -> None:
        """Start empty."""
        self._places: dict[tuple[type, Value], int] = {}
        self.values: list[Value] = []

    def place(self, value: Value) -> int:
        """Give the number of a value."""
        key = (type(value), value)
        number = self._places.get(key)
        if number is None:
            number = self._places[key] = len(self.values)
            self.values.append(value)
        return number


class Universe:
    """All that can happen in a scene."""

    def __init__(self, scene: Scene) -> None:
        """Make the tables, and a memory for every operation."""
        self.scene = scene
        self.habits = Habits(
            names=scene.names,
            duration_s=scene.duration_s,
            margin_s=scene.margin_s,
            eager=scene.eager,
            trusting=scene.trusting,
            short=scene.short,
            caches=scene.caches,
            stubborn=scene.stubborn,
        )
        self.manner = Manner(
            names=scene.names,
            duration_s=scene.duration_s,
            margin_s=scene.margin_s,
            drain_timeout_s=scene.drain_timeout_s,
            orphans=scene.orphans,
        )
        self.servers: Table[Server] = Table()
        self.parties: Table[Party] = Table()
        self.ghosts: Table[Ghost] = Table()
        self.moves = cache(self._moves)
        self.outdate = cache(self._outdate)
        self.tick = cache(self._tick)
        self.acting = cache(self._acting)
        self.events = cache(self._events)
        self.arrivals = cache(self._arrivals)
        self.sight = cache(self._sight)

    def place(self, party: object) -> int:
        """Give the number of a party in its normal form."""
        assert isinstance(party, Process | Sharder)
        return self.parties.place(sharding_party.normal(party) if isinstance(party, Process) else party)

    def start(self) -> World:
        """Begin with processes that hold their Leases, and sharders that have just looked."""
        scene = self.scene
        count = len(scene.parents)
        things = tuple(Thing(marks, parent) for marks, parent in zip(scene.marks, scene.parents, strict=False))
        server = Server(things, (None,) * len(scene.names))
        none: tuple[None, ...] = (None,) * count
        processes: list[Process] = []
        for who, name in enumerate(scene.processes):
            process = Process(who=who, name=name, view=none, known=none, running=none)
            if who not in scene.unborn:
                process = _holding(process, server, self.habits)
                record = Record(process.me, scene.duration_s)
                server = replace(server, leases=put(server.leases, scene.names.index(name), record))
            processes.append(process)
        sharders = [chief.started(who, 0, server, self.manner) for who in range(scene.sharders)]
        budget = tuple(scene.faults.get(fault, 0) for fault in FAULTS)
        parties = tuple(self.place(each) for each in (*processes, *sharders))
        ticked = (False,) * len(parties) if scene.apart else ()
        return World(self.servers.place(server), parties, -1, ticked, budget)

    # What a party may do, in numbers

    def _moves(self, number: int, server: int) -> list[Done]:
        party, stored = self.parties.values[number], self.servers.values[server]
        if isinstance(party, Process):
            found = shard.moves(party, stored, self.habits)
        else:
            found = chief.moves(party, stored, self.manner)
        return [
            Done(
                FAULTS.index(move.fault) if move.fault else -1,
                move.label,
                self.place(move.party),
                self.servers.place(move.server),
                move.changed,
                move.broken,
                -1 if move.ghost is None else self.ghosts.place(move.ghost),
                move.wrote,
            )
            for move in found
        ]

    def _outdate(self, number: int, change: Change) -> int:
        party = self.parties.values[number]
        if isinstance(party, Process):
            return (
                number
                if party.state in ("unborn", "gone")
                else self.place(sharding_party.outdated(party, change, self.habits))
            )
        return self.place(chief.outdated(party, change))

    def _tick(self, number: int, server: int) -> tuple[int, int]:
        """Let a tick pass for one party; a process that can renews. Gives it, and the place of the Lease it wrote."""
        party, stored = self.parties.values[number], self.servers.values[server]
        if isinstance(party, Sharder):
            return self.place(chief.tick(party, self.manner)), -1
        if not sharding_party.renews_by_itself(party):
            return self.place(sharding_party.tick(party, self.habits)), -1
        later = sharding_party.tick(replace(party, mode="woken"), self.habits)
        renewal = next(shard.answers(shard.renewing(replace(later, mode="")), stored, self.habits))
        lease = self.scene.names.index(party.name)
        return self.place(renewal.party), lease if renewal.changed else -1

    def _sight(self, number: int, server: int, lease: int) -> int:
        """Let a sharder see a renewal."""
        party = self.parties.values[number]
        if isinstance(party, Process):
            return number
        return self.place(chief.sees_lease(party, self.servers.values[server], lease, self.manner))

    def name(self, who: int) -> str:
        """Name a party for a trace."""
        processes = self.scene.processes
        return f"{processes[who]} (p{who})" if who < len(processes) else f"sharder {who - len(processes)}"

    # Laws

    def _acting(self, server: int, numbers: tuple[int, ...]) -> str:
        """Name the object that two processes act on which are not paused; "" where there is none."""
        owners: dict[str, int] = {}
        for who, number in enumerate(numbers):
            for what in self._acts_on(self.servers.values[server], number):
                if owners.setdefault(what, who) != who:
                    return f"two owners of {what}"
        return ""

    def _acts_on(self, server: Server, number: int) -> Iterator[str]:
        """List the objects and the keys that a process acts on."""
        process = self.parties.values[number]
        if not isinstance(process, Process) or process.mode:
            return
        for place, epoch in enumerate(process.running):
            # Whoever was forced out is not seen to stop: what it writes is refused, which is another law.
            if epoch is None or (self.scene.stubborn and server.things[place].marks.epoch != epoch):
                continue
            root = sharding_party.root_in_sight(process, place)
            yield uid(place)
            if root is not None and root.uid != uid(place):
                yield root.uid

    def late(self, parties: tuple[int, ...], who: int, place: int) -> str:
        """Judge an accepted late write: wrong where somebody acts by now, but for what lazy fencing leaves open."""
        if self.scene.stubborn:
            return ""  # Whoever was forced out goes on, and is refused: that it is not is seen where it writes.
        for other, number in enumerate(parties[: len(self.scene.processes)]):
            process = self.parties.values[number]
            if other == who or not isinstance(process, Process) or process.mode or process.running[place] is None:
                continue
            known = process.known[place]
            lazily = known is not None and known.inherited and process.grip is not None and not process.grip.eager
            if self.scene.strict or not (lazily and process.name == self.scene.processes[who]):
                return f"a late write to {uid(place)} was accepted while {self.name(other)} acts on it"
        return ""

    # What else happens

    def _events(self, number: int) -> list[tuple[int, str, int, tuple[Change, ...]]]:
        """List what people and the garbage collector may do: the fault it costs, and what it changes."""
        server = self.servers.values[number]
        events: list[tuple[str, str, Server, tuple[Change, ...]]] = [
            ("plan", "the plan changes", replace(server, wanted=1 - server.wanted), ()),
            ("ring", "the ring is removed, or created again", replace(server, selected=not server.selected), ()),
        ]
        for place, lease in enumerate(server.leases):
            if lease is not None:
                without = replace(server, leases=put(server.leases, place, None))
                events.append(("delete", f"Lease {self.scene.names[place]} is deleted", without, (("lease", place),)))
        last = len(server.things) - 1
        if server.things[last].parent != self.scene.adopted_by != last:
            child = replace(server.things[last], parent=self.scene.adopted_by)
            adopted = replace(server, things=put(server.things, last, child))
            events.append(("adopt", f"{uid(last)} is adopted", adopted, (("object", last),)))
        return [(FAULTS.index(fault), label, self.servers.place(to), changed) for fault, label, to, changed in events]

    def _arrivals(self, ghost: int, server: int) -> tuple[int, int, str]:
        """Let a patch arrive that nobody waits for: which object it changes, the server afterwards, a broken law."""
        patch = self.ghosts.values[ghost]
        written = write_marks(self.servers.values[server], patch.place, NOW, patch.marks)
        return patch.place, self.servers.place(written.server), written.broken


def _holding(process: Process, server: Server, habits: Habits) -> Process:
    """Make a process that holds its Lease, has listed, and has renewed since."""
    count = len(server.things)
    view: tuple[SeenObject | None, ...] = tuple(
        shown(server, place) if thing.marks.shard == process.name else None for place, thing in enumerate(server.things)
    )
    known = tuple(None if each is None else Knowledge(each.marks.epoch, TIME) for each in view)
    grip = Grip(
        name=process.name,
        me=process.me,
        version=NOW,
        sent_at_s=TIME,
        duration_s=habits.duration_s,
        margin_s=habits.margin_s,
        eager=habits.eager,
        listed=True,
    )
    return replace(process, state="holding", grip=grip, view=view, known=known, running=(None,) * count)
