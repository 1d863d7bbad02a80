"""The worlds that a simulation plays in: items on members, or workloads on clusters; and what an event makes of them.

A world is the same for every policy: it knows who is there and what there is to hold, never who holds it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import msgspec

from poise.documents.faults import Faults, shown
from poise.model.replica_division import Cluster
from poise.sim.events import Add, Drain, Event, Join, Leave, Remove, Reweigh, Scale, verb_of

_LAST_NUMBER = re.compile(r"(.*?)[0-9]+\Z", re.DOTALL)
THINGS_MAX = 2_000_000


class Member(msgspec.Struct, frozen=True):
    """One member that items can be on; a capacity of None is no limit."""

    weight: int = 1
    capacity: int | None = None
    tokens: int = 100
    draining: bool = False


class ItemWorld(msgspec.Struct, frozen=True):
    """Items (the keys of a dict, which is never changed) and the members they can be on.

    `joins_as` is what a new member is like, `numbered` says that items are partitions: only the last ones come and go.
    """

    kind: str
    name: str
    members: dict[str, Member]
    items: dict[str, None]
    joins_as: Member = Member()
    numbered: bool = False
    start: dict[str, str] = {}

    def live(self) -> list[str]:
        """List, in bytewise order, who may hold something."""
        return sorted(name for name, member in self.members.items() if not member.draining)


class FleetWorld(msgspec.Struct, frozen=True):
    """Workloads with their replicas, and the clusters they are divided over; a draining cluster gets nothing."""

    kind: str
    name: str
    clusters: dict[str, Cluster]
    workloads: dict[str, int]
    draining: frozenset[str] = frozenset()
    strategy: str = "StaticWeight"
    mix: float = 0
    moves_max: int = 0
    seed: str = ""
    start: dict[str, dict[str, int]] = {}

    def live(self) -> list[str]:
        """List, in bytewise order, who may hold something."""
        return sorted(name for name in self.clusters if name not in self.draining)


World = ItemWorld | FleetWorld
_replace = msgspec.structs.replace


class _Unfit(Exception):
    """The event does not fit the world as it is then."""


def happen(world: World, event: Event, faults: Faults, path: str = "$") -> World:
    """Give the world after an event; one that does not fit is a fault and changes nothing."""
    try:
        return _to_items(world, event) if isinstance(world, ItemWorld) else _to_fleet(world, event)
    except _Unfit as error:
        faults.add(f"{path}.{verb_of(event)}", str(error))
        return world


def _to_items(world: ItemWorld, event: Event) -> ItemWorld:
    members = world.members
    match event:
        case Join():
            return _replace(world, members=members | _joined(world, event))
        case Leave(leave=names):
            gone = _known(names, members, "member")
            return _replace(world, members={name: each for name, each in members.items() if name not in gone})
        case Drain(drain=names):
            drained = _awake(_known(names, members, "member"), [name for name in members if members[name].draining])
            return _replace(world, members=members | {name: _replace(members[name], draining=True) for name in drained})
        case Reweigh(weight=weights):
            _known(list(weights), members, "member")
            changed = {name: _replace(members[name], weight=weight) for name, weight in weights.items()}
            return _replace(world, members=members | changed)
        case Add(add=given):
            return _replace(world, items=world.items | dict.fromkeys(_added(world, given)))
        case Remove(remove=given):
            gone = _removed(world.items, given, "item", numbered=world.numbered)
            return _replace(world, items={item: None for item in world.items if item not in gone})
    raise _Unfit(f"a {world.kind} has items, which have no replicas to scale: add or remove some")


def _to_fleet(world: FleetWorld, event: Event) -> FleetWorld:
    clusters, workloads = world.clusters, world.workloads
    match event:
        case Join():
            back = _welcome(event, clusters, world.draining, "cluster")
            return _replace(world, clusters=clusters | _new_clusters(world, event), draining=world.draining - back)
        case Leave(leave=names):
            gone = _known(names, clusters, "cluster")
            left = {name: each for name, each in clusters.items() if name not in gone}
            return _replace(world, clusters=left, draining=world.draining - gone)
        case Drain(drain=names):
            return _replace(world, draining=world.draining | _awake(_known(names, clusters, "cluster"), world.draining))
        case Reweigh(weight=weights):
            if world.strategy != "StaticWeight":
                raise _Unfit(f"{world.strategy} does not look at weights")
            _known(list(weights), clusters, "cluster")
            changed = {name: _replace(clusters[name], weight=weight) for name, weight in weights.items()}
            return _replace(world, clusters=clusters | changed)
        case Scale(scale=counts):
            _known(list(counts), workloads, "workload")
            return _replace(world, workloads=workloads | counts)
        case Add(add=dict() as counts):
            _fresh(counts, workloads, "workload")
            return _replace(world, workloads=workloads | counts)
        case Remove(remove=given):
            gone = _removed(workloads, given, "workload", numbered=False)
            return _replace(world, workloads={name: n for name, n in workloads.items() if name not in gone})
    raise _Unfit("a ReplicaDivision has workloads: name each with its replicas, as in {add: {mail: 4}}")


def _once(names: list[str]) -> set[str]:
    if len(set(names)) != len(names):
        raise _Unfit("names someone twice")
    return set(names)


def _known(names: list[str], known: Collection[str], noun: str) -> set[str]:
    """Check that everyone who is named is there."""
    for name in names:
        if name not in known:
            raise _Unfit(f"there is no {noun} {shown(name)} at that point")
    return _once(names)


def _fresh(names: Iterable[str], known: Collection[str], noun: str) -> None:
    for name in names:
        if name in known:
            raise _Unfit(f"{noun} {shown(name)} is there already")


def _awake(names: set[str], draining: Collection[str]) -> set[str]:
    for name in sorted(names):
        if name in draining:
            raise _Unfit(f"{shown(name)} is draining already")
    return names


def _welcome(event: Join, known: Collection[str], draining: Collection[str], noun: str) -> set[str]:
    """Check that whoever joins is new or comes back from a drain; answer those who come back."""
    names = _once(event.join)
    back = names.intersection(draining)
    _fresh(sorted(names - back), known, noun)
    return back


def _joined(world: ItemWorld, event: Join) -> dict[str, Member]:
    back = _welcome(event, world.members, [name for name, each in world.members.items() if each.draining], "member")
    joined = {}
    for name in event.join:
        member = world.members[name] if name in back else world.joins_as
        joined[name] = _replace(
            member,
            draining=False,
            weight=member.weight if event.weight is None else event.weight,
            capacity=member.capacity if event.capacity is None else event.capacity,
        )
    return joined


def _new_clusters(world: FleetWorld, event: Join) -> dict[str, Cluster]:
    joined = {}
    for name in event.join:
        cluster = world.clusters.get(name) or Cluster(name)
        weight = cluster.weight if event.weight is None else event.weight
        capacity = cluster.capacity if event.capacity is None else event.capacity
        if capacity is None and world.strategy == "DynamicWeight":
            raise _Unfit("DynamicWeight divides by capacity: say the capacity of whoever joins")
        if capacity is not None and cluster.min > capacity:
            raise _Unfit(f"{shown(name)} has a minimum of {cluster.min}, above its capacity of {capacity}")
        joined[name] = _replace(cluster, weight=weight, capacity=capacity)
    return joined


def _added(world: ItemWorld, given: int | list[str] | dict[str, int]) -> list[str]:
    if isinstance(given, dict):
        raise _Unfit(f"a {world.kind} has items without replicas: list their names, or say how many")
    if len(world.items) + (given if isinstance(given, int) else len(given)) > THINGS_MAX:
        raise _Unfit(f"expected at most {THINGS_MAX:,} items in a world")
    first = len(world.items)
    if isinstance(given, int):
        next_ones = [str(number) for number in range(first, first + given)]
        return next_ones if world.numbered else new_names(world.items, given, "item-")
    _once(given)
    _fresh(given, world.items, "item")
    if world.numbered and given != [str(number) for number in range(first, first + len(given))]:
        raise _Unfit(f"a PartitionSet grows by its next numbers, from {first} on: say how many")
    return given


def _removed(things: Collection[str], given: int | list[str], noun: str, *, numbered: bool) -> set[str]:
    """Choose who goes: who is named, or the last so many (partitions by number, others in bytewise order)."""
    if isinstance(given, int) and given > len(things):
        raise _Unfit(f"there are only {len(things):,} {noun}s at that point")
    if isinstance(given, int):
        ordered = list(things) if numbered else sorted(things)
        return set(ordered[-given:])
    gone = _known(given, things, noun)
    if numbered and gone != set(list(things)[len(things) - len(gone) :]):
        raise _Unfit("a PartitionSet shrinks by its last numbers: say how many")
    return gone


def new_names(known: Collection[str], count: int, otherwise: str) -> list[str]:
    """Make names in the manner of those that are there: after router1 … router9 comes router10."""
    found = _LAST_NUMBER.match(min(known, default=""))
    stem = found[1] if found else otherwise
    names: list[str] = []
    number = len(known)
    while len(names) < count:
        name = f"{stem}{number}"
        number += 1
        if name not in known:
            names.append(name)
    return names
