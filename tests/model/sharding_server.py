"""The API server of the explored ring: objects with their marks, Leases, and compare-and-set over versions.

A version is only ever compared for equality, so a party's copy of it is one of two words: NOW (nobody wrote since) or
OLD. Whoever writes makes everybody else's copies OLD. All times stand relative to one instant, TIME.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import msgspec

from poise.model.sharding import LeaseFact, LeaseWrite, Marks, SeenObject

TIME = 100.0
NOW, OLD = "now", "old"
replace = msgspec.structs.replace
Value = TypeVar("Value")

Change = tuple[str, int]  # What was written: ("object", place) or ("lease", place).


class Thing(msgspec.Struct, frozen=True):
    """One object; `parent` is the place of its controller owner, -1 where it has none."""

    marks: Marks = Marks()
    parent: int = -1


class Record(msgspec.Struct, frozen=True):
    """One Lease."""

    holder: str
    duration_s: float
    released: str = ""


class Server(msgspec.Struct, frozen=True):
    """Everything that is stored: objects, Leases by the place of their instance, and what people want."""

    things: tuple[Thing, ...]
    leases: tuple[Record | None, ...]
    wanted: int = 0
    selected: bool = True

    def root(self, place: int) -> int:
        """Find the place of the root of an object."""
        parent = self.things[place].parent
        return place if parent < 0 else parent

    def named(self, name: str) -> bool:
        """Say whether an object carries a name, by a list with no resourceVersion."""
        return any(thing.marks.shard == name for thing in self.things)


class Written(NamedTuple):
    """What became of a write: the server afterwards, whether it was accepted, and which law it broke."""

    server: Server
    accepted: bool
    broken: str = ""


def uid(place: int) -> str:
    """Name an object."""
    return "xyz"[place]


def place_of(name: str) -> int:
    """Find an object by its uid."""
    return "xyz".index(name)


def seen(server: Server, place: int) -> SeenObject:
    """Show an object as a watch or a list does."""
    thing = server.things[place]
    parent = None if thing.parent < 0 else uid(thing.parent)
    return SeenObject(uid(place), uid(place), NOW, thing.marks, parent, server.selected)


def shown(server: Server, place: int) -> SeenObject:
    """Show an object to a process, which knows nothing of what the ring selects."""
    return replace(seen(server, place), selected=True)


def lease_fact(server: Server, names: tuple[str, ...], place: int) -> LeaseFact | None:
    """Show a Lease."""
    lease = server.leases[place]
    return None if lease is None else LeaseFact(names[place], "u", NOW, lease.holder, lease.duration_s, lease.released)


def write_marks(server: Server, place: int, version: str, marks: Marks) -> Written:
    """Patch the labels of an object over a version."""
    thing = server.things[place]
    if version != NOW:
        return Written(server, False)
    broken = ""
    if (marks.epoch or 0) < (thing.marks.epoch or 0):
        broken = f"the epoch of {uid(place)} fell"
    elif (marks.drain is None) != (marks.drain_until is None):
        broken = f"drain and drain-until of {uid(place)} were not written together"
    things = put(server.things, place, replace(thing, marks=marks))
    return Written(replace(server, things=things), True, broken)


def refusal(before: Thing, after: Thing, name: str) -> str:
    """Say why the admission policy refuses an instance this change of its labels; "" where it may.

    On a drained root: let go, or give it to whom the drain names with the next epoch. On a child: give it to anybody
    with a larger epoch. On what it holds: raise the epoch by one.
    """
    old, new = before.marks, after.marks
    if old.shard != name:
        return f"the policy refuses {name} to write what {old.shard} holds"
    if new == replace(old, epoch=old.next_epoch):
        return ""
    if new.drain is not None:
        return f"the policy refuses {name} to leave a drain"
    if old.drain is not None and new in (Marks(epoch=old.epoch), Marks(old.drain, old.next_epoch)):
        return ""
    if before.parent >= 0 and new.shard is not None and (new.epoch or 0) > (old.epoch or 0):
        return ""
    return f"the policy refuses {name} this change"


def write_lease(server: Server, place: int, write: LeaseWrite) -> Written:
    """Write, create or delete a Lease over a version."""
    lease = server.leases[place]
    if (write.version is None) != (lease is None) or write.version == OLD:
        return Written(server, False)
    record = None if write.kind == "delete" else Record(write.holder, write.duration_s, write.released)
    return Written(replace(server, leases=put(server.leases, place, record)), True)


def put(values: tuple[Value, ...], place: int, value: Value) -> tuple[Value, ...]:
    """Put one value in its place."""
    return (*values[:place], value, *values[place + 1 :])
