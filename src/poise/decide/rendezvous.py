"""Bounded-load rendezvous: every item at its best member with room, decided by names alone.

Law: taking items in bytewise order, each at the member with the highest score that still has room, is the same as
giving everyone the first choice, closing the member that fills first, and letting only the later items that had chosen
it choose again. The first form is `place_one_by_one`, for reading and as the reference; the second is `place`.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from poise.decide.arrays import np
from poise.decide.plan import Plan, held_now, plan_towards
from poise.decide.scores import Hashes, best_hashes, hashes, score
from poise.inputs import sorted_names, unique_names, whole

if TYPE_CHECKING:
    import numpy.typing as npt

Positions: TypeAlias = "npt.NDArray[np.int64]"
NOBODY = -1


def place(
    items: Iterable[str], members: Iterable[str], *, capacity: int | Mapping[str, int] | None = None
) -> dict[str, str | None]:
    """Place every item at its best member with room; None where no member has room."""
    ordered, holders, room = _facts(items, members, capacity)
    choice = fill(hashes(ordered), holders, room)
    return dict(zip(ordered, map([*holders, None].__getitem__, choice.tolist()), strict=True))


def place_one_by_one(
    items: Iterable[str], members: Iterable[str], *, capacity: int | Mapping[str, int] | None = None
) -> dict[str, str | None]:
    """Say what `place` says, as the rule reads: one item after the other, members tried from the best score down."""
    ordered, holders, room = _facts(items, members, capacity)
    left = dict(zip(holders, room, strict=True))
    assignment: dict[str, str | None] = {}
    for item in ordered:
        tried = sorted(left, key=lambda member: (-score(item, member), member))
        assignment[item] = chosen = next((member for member in tried if left[member]), None)
        if chosen is not None:
            left[chosen] -= 1
    return assignment


def plan_hashed(
    items: Iterable[str],
    members: Iterable[str],
    current: Mapping[str, str | None],
    *,
    capacity: int | Mapping[str, int] | None = None,
    draining: Iterable[str] = (),
) -> Plan:
    """Plan every item to where `place` puts it; fewest possible are the moves that the capacities alone force."""
    leaving = set(unique_names("$.draining", draining))
    live = [member for member in sorted_names("$.members", members) if member not in leaving]
    held = held_now(items, current)
    wanted = place(held, live, capacity=capacity)
    load = Counter(held.values())
    most = limits(live, capacity, even_capacity(len(held), live))
    over = sum(max(0, load[member] - (limit or 0)) for member, limit in zip(live, most, strict=True))
    gone = sum(count for member, count in load.items() if member is not None) - sum(load[member] for member in live)
    return plan_towards(wanted, held, live, leaving, gone + over, "{target} is its best member with room")


def even_capacity(count: int, members: Sequence[str]) -> int:
    """Give ceil(n / p), what one of p members may hold where nothing else is said; 0 where nobody is."""
    return -(-count // len(members)) if members else 0


def limits(members: Sequence[str], capacity: int | Mapping[str, int] | None, otherwise: int | None) -> list[int | None]:
    """List each member's capacity: one number for all, its own, or what holds otherwise."""
    if isinstance(capacity, Mapping):
        given = {name: whole(f"$.capacity[{name!r}]", value) for name, value in capacity.items()}
        return [given.get(member, otherwise) for member in members]
    return [otherwise if capacity is None else whole("$.capacity", capacity)] * len(members)


def fill(items: Hashes, members: Sequence[str], room: Sequence[int]) -> Positions:
    """Give each item, in this order, its best member with room: the index into the sorted `members`, or NOBODY."""
    choice = np.full(len(items), NOBODY, np.int64)
    floor = _OpenFloor(hashes(members), [member for member, free in enumerate(room) if free])
    queues: dict[int, Positions] = floor.choices(items, np.arange(len(items)))
    fills = [(int(queue[room[member] - 1]), member) for member, queue in queues.items() if len(queue) > room[member]]
    heapq.heapify(fills)
    while fills:
        _, member = heapq.heappop(fills)
        queue = queues.get(member)
        if queue is None:
            continue  # It has closed already: more items made it fill earlier than this entry says.
        choice[queue[: room[member]]] = member
        late = queue[room[member] :]
        del queues[member]
        floor.close(member)
        for chosen, positions in floor.choices(items, late).items():
            queues[chosen] = queue = _merge(queues.get(chosen), positions)
            if len(queue) > room[chosen]:
                heapq.heappush(fills, (int(queue[room[chosen] - 1]), chosen))
    for member, queue in queues.items():
        choice[queue] = member
    return choice


class _OpenFloor:
    """The members that still have room, found by the hash of their names."""

    def __init__(self, hashed: Hashes, members: Sequence[int]) -> None:
        """Open these members, given in bytewise order of their names."""
        self._hashed = hashed
        self._doors: dict[int, list[int]] = {}
        for member in members:
            self._doors.setdefault(int(hashed[member]), []).append(member)
        self._open = np.array(sorted(self._doors), np.uint64)
        self._first = np.array([self._doors[int(door)][0] for door in self._open], np.int64)

    def close(self, member: int) -> None:
        """Take a full member out. Where two names have one hash the smaller is first and the other follows."""
        place = int(np.searchsorted(self._open, self._hashed[member]))
        behind = self._doors[int(self._hashed[member])]
        behind.remove(member)
        if behind:
            self._first[place] = behind[0]
        else:
            self._open, self._first = np.delete(self._open, place), np.delete(self._first, place)

    def choices(self, items: Hashes, positions: Positions) -> dict[int, Positions]:
        """Let the items at these ascending positions choose; answer member -> the positions that chose it."""
        if not len(self._open) or not len(positions):
            return {}
        found = np.searchsorted(self._open, best_hashes(items[positions], self._open))
        chosen = self._first[found]
        order = np.argsort(chosen.astype(np.min_scalar_type(int(self._first.max()))), kind="stable")
        counts = np.bincount(chosen)
        members = np.flatnonzero(counts)
        ends = np.cumsum(counts[members])
        return dict(zip(members.tolist(), np.split(positions[order], ends[:-1]), strict=True))


def _merge(queue: Positions | None, positions: Positions) -> Positions:
    if queue is None:
        return positions
    return np.insert(queue, np.searchsorted(queue, positions), positions)


def _facts(
    items: Iterable[str], members: Iterable[str], capacity: int | Mapping[str, int] | None
) -> tuple[list[str], list[str], list[int]]:
    """Check the input and put it in bytewise order."""
    ordered, holders = sorted_names("$.items", items), sorted_names("$.members", members)
    return ordered, holders, [limit or 0 for limit in limits(holders, capacity, even_capacity(len(ordered), holders))]
