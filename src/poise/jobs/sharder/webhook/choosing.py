"""Whom a new object belongs to, by what one process sees: the very rules of the sharder, or nobody. Pure.

What is not known for certain is left to the sharder: an object without labels is assigned by its watch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import msgspec

from poise.decide.ring import Ring
from poise.decide.scores import score
from poise.jobs.sharder.homes import key_places
from poise.jobs.sharder.instances import Instances
from poise.jobs.sharder.view import Kind, View
from poise.kube import Meta
from poise.model.shard_ring import ShardRingSpec
from poise.model.sharding import Marks, SeenObject, Standing
from poise.move.sharding.decide import Outlook, next_steps
from poise.move.sharding.families import Family

_NEW = "new"  # No uid looks like this.
_COUNTED_S = 1.0  # So long loads are believed that were counted; what was given since is added.
_GIVEN_S = 5.0  # So long an answer may take to become an object that the watch shows.


class Arrival(msgspec.Struct, frozen=True):
    """A new object of a ring; `parent` is the uid of its controller owner, where that is of the ring's resources.

    `key` is None where it is not known yet, since the API server chooses the name later. A dry one never comes.
    """

    kind: Kind
    meta: Meta
    key: str | None
    parent: str | None = None
    dry: bool = False


class Chooser:
    """Chooses for the new objects of one ring. `proven` names the instances whose Leases were seen to change."""

    def __init__(self, instances: Instances, proven: Collection[str]) -> None:
        """Begin with nothing judged."""
        self._instances, self._proven = instances, proven
        self.changed = True
        self._tokens: dict[str, int] = {}
        self._ring = Ring({})
        self._places: dict[str, str] = {}
        self._loads: Counter[str] = Counter()
        self._counted_s = float("-inf")
        self._given: dict[str, tuple[str, float]] = {}

    def choose(self, spec: ShardRingSpec, view: View, new: Arrival, now_s: float) -> Marks | None:
        """Give the labels of a new object; None where the sharder would give it none now, or this is not known."""
        self._judge(spec, now_s)
        namespace = new.meta.namespace
        if view.namespaces is not None and namespace and not view.namespaces.get(namespace, False):
            return None
        marks = None
        if new.parent is not None:
            marks = self._child(spec, view, new.parent, now_s)
        elif new.kind.shared:
            marks = self._root(spec, view, new, now_s)
        return marks if marks is not None and marks.shard in self._proven else None

    def _root(self, spec: ShardRingSpec, view: View, new: Arrival, now_s: float) -> Marks | None:
        """Assign a new root as the sharder would."""
        if self._instances.orders.paused == "all":
            return None
        if spec.policy == "balanced":
            home = self._least(view, new, now_s)
        else:
            home = None if new.key is None else self._ring.owner(new.key)
        return _written(Family(SeenObject(_NEW, new.key or "", "")), home, self._outlook(), "assign")

    def _child(self, spec: ShardRingSpec, view: View, parent: str, now_s: float) -> Marks | None:
        """Copy the labels of a root to a new child, where the sharder would: not while the root is on its way."""
        uid = view.kin.root_of(parent)
        root = None if uid is None else view.kin.objects.get(uid)
        if root is None:
            return None
        if self._instances.orders.paused:
            home = root.marks.shard
        elif spec.policy == "balanced":
            self._count(view, now_s)
            home = self._places.get(root.key, root.marks.shard)
        else:
            home = self._ring.owner(root.key)
        child = SeenObject(_NEW, root.key, "", parent=parent)
        return _written(Family(root, (child,)), home, self._outlook(), "mend")

    def _judge(self, spec: ShardRingSpec, now_s: float) -> None:
        """Judge the instances where something speaks for it."""
        if not (self.changed or now_s >= self._instances.next_s):
            return
        self.changed = False
        # Whom labels name and who has no Lease is no member, and gets nothing: nobody need know of them here.
        self._instances.judge_all((), spec.brake_percent, now_s)
        tokens = self._instances.tokens(spec.tokens)
        if tokens != self._tokens:
            self._tokens, self._ring = tokens, Ring(tokens)

    def _outlook(self) -> Outlook:
        return Outlook(standings=self._instances.standings, drain_until=0, braked=self._instances.braked)

    def _least(self, view: View, new: Arrival, now_s: float) -> str | None:
        """Choose for a key where it is already, else whoever is ready and has the fewest keys."""
        self._count(view, now_s)
        key = new.key or new.meta.uid
        drained = self._instances.orders.drained
        if key in self._places:
            return None if self._places[key] in drained else self._places[key]
        standings = self._instances.standings
        ready = [name for name in self._proven if standings.get(name) is Standing.READY and name not in drained]
        if not ready:
            return None
        chosen = min(ready, key=lambda name: (self._loads[name], -score(key, name)))
        if not new.dry:
            self._places[key], self._given[key] = chosen, (chosen, now_s)
            self._loads[chosen] += 1
        return chosen

    def _count(self, view: View, now_s: float) -> None:
        """Count the keys of every instance now and then; what was given meanwhile counts before anybody saw it."""
        if now_s < self._counted_s + _COUNTED_S:
            return
        self._counted_s = now_s
        roots = (view.kin.objects[uid] for uid in view.kin.roots())
        found, _ = key_places(roots, self._instances.standings)
        places = {key: place for key, place in found.items() if place is not None}
        self._given = {
            key: given for key, given in self._given.items() if key not in places and now_s < given[1] + _GIVEN_S
        }
        self._places = places | {key: name for key, (name, _) in self._given.items()}
        self._loads = Counter(self._places.values())


def _written(family: Family, home: str | None, outlook: Outlook, kind: str) -> Marks | None:
    """Ask the rules of the sharder what they write on what is new; only such a step counts that begins nothing else."""
    for step in next_steps(family, home, outlook):
        for write in step.writes:
            if write.uid == _NEW and step.kind == kind:
                return write.marks
    return None
