"""Whom the planner chooses for a key: by consistent hashing, or exactly even with the fewest moves. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from poise.decide.balance import rebalance
from poise.jobs.sharder.view import View
from poise.model.sharding import NOBODY, Marks, SeenObject, Standing


def balanced_homes(
    view: View, standings: Mapping[str, Standing], drained: Collection[str] = ()
) -> dict[str, str | None]:
    """Plan a home for every key but those of instances that are late: they keep what they have.

    Who is drained takes nothing. A key that is on its way counts where it goes. Where roots of one key are held by
    several, most of them decide.
    """
    ready = [name for name, standing in standings.items() if standing is Standing.READY and name not in drained]
    current, frozen = key_places((view.kin.objects[uid] for uid in view.kin.roots()), standings)
    free = {key: place for key, place in current.items() if key not in frozen}
    planned = rebalance(free, ready, free)
    return dict(planned.assignment)


def key_places(
    roots: Iterable[SeenObject], standings: Mapping[str, Standing]
) -> tuple[dict[str, str | None], set[str]]:
    """Say where every key counts now, None where nobody has it; and which keys are with instances that are late."""
    places: dict[str, Counter[str]] = {}
    frozen: set[str] = set()
    for root in roots:
        if not root.selected:
            continue
        place = _place(root.marks, standings)
        if standings.get(place or "", Standing.READY) is Standing.LATE:
            frozen.add(root.key)
        counted = places.setdefault(root.key, Counter())
        if place is not None:
            counted[place] += 1
    return {key: _most(counted) for key, counted in places.items()}, frozen


def _place(marks: Marks, standings: Mapping[str, Standing]) -> str | None:
    """Name where a root counts: whom it is meant for, where that one is ready, else who holds it."""
    aim = marks.drain
    if marks.shard is not None and aim not in (None, NOBODY) and standings.get(aim or "") is Standing.READY:
        return aim
    return marks.shard


def _most(counted: Counter[str]) -> str | None:
    """Name whom most of the roots of one key are with; of equals the smaller name."""
    return min(counted, key=lambda name: (-counted[name], name), default=None)
