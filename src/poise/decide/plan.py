"""What a planner of items answers: the wanted assignment, the moves to it, and the proof that they are few."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import msgspec

from poise.errors import invalid
from poise.inputs import faulty_name, is_name, mapping, text_names


class Move(msgspec.Struct, frozen=True, gc=False):
    """One item changes its member. A source of None is a first placement, a target of None the loss of a member."""

    item: str
    source: str | None
    target: str | None
    reason: str


class Certificate(msgspec.Struct, frozen=True, rename="camel"):
    """The proof of a plan: moves made, the fewest possible, and the largest load minus the smallest.

    A first placement counts in neither number of moves; an item whose member is gone or draining counts in both.
    """

    moves: int
    moves_min: int
    spread: int


class Plan(msgspec.Struct, frozen=True):
    """Where every item should be (None: nowhere), and how to get there."""

    assignment: dict[str, str | None]
    moves: list[Move]
    unassigned: list[str]
    loads: dict[str, int]
    certificate: Certificate


def spread(loads: Iterable[int]) -> int:
    """Take the smallest load from the largest; 0 where nobody is."""
    listed = list(loads)
    return max(listed) - min(listed) if listed else 0


def held_now(items: Iterable[str], current: Mapping[str, str | None]) -> dict[str, str | None]:
    """Look up who holds each item now; the answer's keys are also the proof that no item is named twice."""
    names = text_names("$.items", items)
    mapping("$.current", current)
    held = dict(zip(names, map(current.get, names), strict=True))
    if len(held) != len(names):
        raise faulty_name("$.items", names)
    try:
        sound = all(holder is None or is_name(holder) for holder in set(held.values()))
    except TypeError:
        sound = False
    if not sound:
        item = next(item for item, holder in held.items() if holder is not None and not is_name(holder))
        raise invalid(f"$.current[{item!r}]", "expected the name of a member, or nothing")
    return held


class Departures(dict[str | None, str]):
    """Why an item leaves its member, worded once a member."""

    def __init__(self, leaving: Collection[str], quotas: Iterable[tuple[str, int, int]] = ()) -> None:
        """Word the reason of every live member, given as (member, load, quota); others are draining or gone."""
        super().__init__((member, f"{member} over its share ({load} of {quota})") for member, load, quota in quotas)
        self._leaving = leaving

    def __missing__(self, member: str | None) -> str:
        return f"{member} is draining" if member in self._leaving else f"{member} is gone"


def plan_towards(
    wanted: dict[str, str | None],
    held: Mapping[str, str | None],
    live: Collection[str],
    leaving: Collection[str],
    moves_min: int,
    rule: str,
) -> Plan:
    """Make the plan of an assignment that a rule decides by names alone; the rule is a text with {target} in it."""
    reasons, alive = Departures(leaving), set(live)
    moves, first = [], []
    for item in sorted(item for item, source in held.items() if source != wanted[item]):
        source, target = held[item], wanted[item]
        if source is None:
            first.append(Move(item, None, target, "new item"))
            continue
        if source not in alive:
            reason = reasons[source] if target else f"{reasons[source]}; no member has room"
        else:
            reason = rule.format(target=target) if target else "no member has room"
        moves.append(Move(item, source, target, reason))
    loads = Counter(wanted.values())
    after = {member: loads[member] for member in live}
    return Plan(
        assignment=wanted,
        moves=moves + first,
        unassigned=sorted(item for item, target in wanted.items() if target is None),
        loads=after,
        certificate=Certificate(len(moves), moves_min, spread(after.values())),
    )
