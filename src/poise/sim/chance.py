"""Events that a seed draws: the same seed and world give the same events on every machine and every Python.

Every draw is a word of one stream, xxh3_64 of (seed, counter); nothing else has a part in it. The world stays between
half and twice its first size, so that a long run neither dies out nor explodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from poise.decide.draw import below, words
from poise.documents.faults import Faults
from poise.sim.events import Add, Drain, Event, Join, Leave, Remove, Reweigh, Scale
from poise.sim.worlds import FleetWorld, ItemWorld, World, happen, new_names

WEIGHT_MAX = 9
_TOGETHER_MAX = 3
_CROWD = 20  # Of so many items at most one comes or goes at once.

Choices = list[tuple[int, Callable[[], Event]]]  # Each verb that is possible now, with its odds.


class _Chance:
    """The stream that decides, and how small and how large the world may become."""

    def __init__(self, world: World, seed: int) -> None:
        members, things = len(world.live()), len(_things(world))
        self._stream = words("simulate", str(seed))
        self.members_min, self.members_max = max(2, members // 2), max(3, 2 * members)
        self.things_min, self.things_max = things // 2, max(10, 2 * things)

    def below(self, bound: int) -> int:
        """Draw one of 0 … bound - 1."""
        return below(self._stream, bound)

    def pick(self, names: Sequence[str]) -> str:
        """Draw one of the names."""
        return names[self.below(len(names))]

    def some(self, most: int) -> int:
        """Draw how many: every second time one, else any number up to the most."""
        return 1 if most < 2 or self.below(2) else 1 + self.below(most)


def random_events(world: World, count: int, seed: int) -> Iterator[Event]:
    """Draw so many events, each of them possible in the world that those before it leave."""
    chance, faults = _Chance(world, seed), Faults("random events")
    for _ in range(count):
        event = _draw(world, chance)
        world = happen(world, event, faults)
        assert not faults.count, "a drawn event always fits"
        yield event


def _draw(world: World, chance: _Chance) -> Event:
    """Choose a verb by its odds, then its details."""
    choices = _item_choices(world, chance) if isinstance(world, ItemWorld) else _fleet_choices(world, chance)
    point = chance.below(sum(odds for odds, _ in choices))
    for odds, make in choices:
        point -= odds
        if point < 0:
            return make()
    raise AssertionError("the point lies below the sum of the odds")


def _item_choices(world: ItemWorld, chance: _Chance) -> Choices:
    choices = _member_choices(world, chance, often=4)
    if len(world.items) < chance.things_max:
        choices.append((6, lambda: _grow(world, chance)))
    if len(world.items) > chance.things_min:
        choices.append((6, lambda: _shrink(world, chance)))
    return choices


def _fleet_choices(world: FleetWorld, chance: _Chance) -> Choices:
    """List what can happen to a fleet: workloads scale all the time, clusters change rarely."""
    choices = _member_choices(world, chance, often=2)
    if world.strategy == "StaticWeight" and world.live():
        choices.append((2, lambda: Reweigh(weight={chance.pick(world.live()): 1 + chance.below(WEIGHT_MAX)})))
    if world.workloads:
        choices.append((60, lambda: _rescale(world, chance)))
    if len(world.workloads) < chance.things_max:
        choices.append((14, lambda: _deploy(world, chance)))
    if len(world.workloads) > chance.things_min:
        choices.append((14, lambda: Remove(remove=[chance.pick(sorted(world.workloads))])))
    return choices


def _member_choices(world: World, chance: _Chance, often: int) -> Choices:
    live = world.live()
    away = sorted(set(_members(world)).difference(live))
    choices: Choices = []
    if len(live) < chance.members_max:
        choices.append((often, lambda: _arrive(world, chance, len(live))))
    if len(live) > chance.members_min:
        choices.append((often, lambda: Leave(leave=[chance.pick(live)])))
        if not away:
            choices.append((max(1, often // 2), lambda: Drain(drain=[chance.pick(live)])))
    if away:
        choices.append((often, lambda: Leave(leave=[chance.pick(away)])))
        if len(live) < chance.members_max:
            choices.append((max(1, often // 2), lambda: Join(join=[chance.pick(away)])))
    return choices


def _arrive(world: World, chance: _Chance, live: int) -> Join:
    """Let one join, or a step of a few at once."""
    size = chance.some(min(_TOGETHER_MAX, chance.members_max - live))
    names = new_names(_members(world), size, "member-")
    if isinstance(world, ItemWorld) or world.strategy != "DynamicWeight":
        return Join(join=names)
    capacities = sorted(each.capacity for each in world.clusters.values() if each.capacity)
    return Join(join=names, capacity=capacities[chance.below(len(capacities))] if capacities else 1)


def _grow(world: ItemWorld, chance: _Chance) -> Add:
    size = chance.some(min(chance.things_max - len(world.items), max(1, len(world.items) // _CROWD)))
    return Add(add=size) if world.numbered else Add(add=new_names(world.items, size, "item-"))


def _shrink(world: ItemWorld, chance: _Chance) -> Remove:
    size = chance.some(min(len(world.items) - chance.things_min, max(1, len(world.items) // _CROWD)))
    if world.numbered:
        return Remove(remove=size)
    items = sorted(world.items)
    return Remove(remove=list(dict.fromkeys(chance.pick(items) for _ in range(size))))


def _rescale(world: FleetWorld, chance: _Chance) -> Scale:
    """Scale one workload by a few replicas, up or down."""
    name, step = chance.pick(sorted(world.workloads)), 1 + chance.below(_TOGETHER_MAX)
    now = world.workloads[name]
    return Scale(scale={name: now - step if now > step and chance.below(2) else now + step})


def _deploy(world: FleetWorld, chance: _Chance) -> Add:
    """Add a workload as large as one that is there."""
    sizes = sorted(world.workloads.values())
    (name,) = new_names(world.workloads, 1, "workload-")
    return Add(add={name: sizes[chance.below(len(sizes))] if sizes else 1 + chance.below(WEIGHT_MAX)})


def _members(world: World) -> Collection[str]:
    return world.members if isinstance(world, ItemWorld) else world.clusters


def _things(world: World) -> Collection[str]:
    return world.items if isinstance(world, ItemWorld) else world.workloads
