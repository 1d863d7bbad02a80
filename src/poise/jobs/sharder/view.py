"""What a sharder sees of the objects of its ring, and what it counts in that; one change at a time. Pure.

An own write's answer is put here at once, so that the next look does not write it again. A watch that lags and shows
what was before is not believed: of one object the larger version counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from poise.jobs.sharder.kin import Kin, Touched
from poise.kube import Meta, Resource
from poise.model.sharding import NOBODY, Marks, SeenObject, is_older, read_marks
from poise.move.sharding.families import Family, Relatives
from poise.move.sharding.passes import DrainClock, time_drains

_LEASE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


class Kind(msgspec.Struct, frozen=True):
    """One resource of a ring. `shared`: its objects are shared out; else they only follow who controls them."""

    resource: Resource
    shared: bool = True


class Known(msgspec.Struct, frozen=True, gc=False):
    """One object as it was last seen: where it is, its metadata, and the key that was read from it."""

    kind: Kind
    meta: Meta
    key: str


def is_newer(known: str, seen: str) -> bool:
    """Say whether a version is worth taking."""
    return known != seen and not is_older(seen, known)


class View:
    """All objects of a ring, their families, and the sets that its report and its budget are counted by."""

    def __init__(self, ring: str, kinds: tuple[Kind, ...] = ()) -> None:
        """Begin with nothing seen; `kinds` are all resources of the ring, by which owners are followed upward."""
        self.ring = ring
        self.kin = Kin()
        self.known: dict[str, Known] = {}
        self.named: dict[str, set[str]] = {}
        self.names_changed = False
        self.revision = 0  # Another one where labels, keys or families differ.
        self.moving: set[str] = set()
        self.unassigned: set[str] = set()
        self.held_roots: set[str] = set()
        self.waiting: set[str] = set()  # Their owner was not seen, and they are to stay: nobody may act on them.
        self.strays: set[str] = set()
        self.clocks: dict[str, DrainClock] = {}
        self.removing = False
        self.namespaces: dict[str, bool] | None = None  # Where some are selected, from before the first object on.
        self._in_namespace: dict[str, set[str]] = {}  # Only where some are selected: it costs memory.
        self._kinds = frozenset((kind.resource.group, kind.resource.kind) for kind in kinds)

    def take(self, seen: Known, now_s: float) -> Touched:
        """Take an object that a list, a watch or an answer shows; an older version is not believed."""
        uid = seen.meta.uid
        known = self.known.get(uid)
        if known is not None and not is_newer(known.meta.resource_version, seen.meta.resource_version):
            return Touched()
        self.known[uid] = seen
        if known is None and self.namespaces is not None:
            self._in_namespace.setdefault(seen.meta.namespace, set()).add(uid)
        return self._put(seen, now_s)

    def drop(self, uid: str, now_s: float) -> Touched:
        """Take the news that an object is gone."""
        known = self.known.pop(uid, None)
        if known is None:
            return Touched()
        self._leave_namespace(known.meta)
        self.revision += 1
        self._unname(uid, self.kin.objects[uid].marks.shard)
        touched = self.kin.drop(uid)
        for each in (uid, *touched.moved):
            self._note(each, now_s)
        return touched

    def choose(self, now_s: float, namespace: str | None = None) -> set[str]:
        """Judge anew which objects the ring wants, of one namespace or of all; gives the roots that changed."""
        changed: set[str] = set()
        for uid in self.known if namespace is None else self._in_namespace.get(namespace, ()):
            known = self.known[uid]
            if self.kin.objects[uid].selected != self._selects(known, self.kin.objects[uid]):
                changed |= self._put(known, now_s).roots
        return changed

    def family(self, root: str) -> Family:
        """Put one family together."""
        return self.kin.family(root)

    @property
    def clear(self) -> bool:
        """Say whether no root has a shard label."""
        return not self.held_roots

    @property
    def roots(self) -> int:
        """Count the roots that are, or were, shared out."""
        return len(self.unassigned) + len(self.held_roots)

    @property
    def children(self) -> int:
        """Count the objects that follow a root which is, or was, shared out."""
        others = len(self.strays) + sum(map(self.kin.followers, self.strays))
        return len(self.kin.objects) - self.roots - others

    def _leave_namespace(self, meta: Meta) -> None:
        others = self._in_namespace.get(meta.namespace, set())
        others.discard(meta.uid)
        if not others:
            self._in_namespace.pop(meta.namespace, None)

    def _put(self, seen: Known, now_s: float) -> Touched:
        meta, owner = seen.meta, seen.meta.controller
        parent = owner.uid if owner is not None and (owner.group, owner.kind) in self._kinds else None
        before = self.kin.objects.get(meta.uid)
        made = SeenObject(meta.uid, seen.key, meta.resource_version, self._marks(meta), parent)
        if not self._selects(seen, made):
            made = msgspec.structs.replace(made, selected=False)
        if before is not None and _is_same(before, made):
            self.kin.renew(made)
            if meta.deletion_timestamp is not None:
                self.waiting.discard(meta.uid)
            return Touched()
        self.revision += 1
        if before is None or before.marks.shard != made.marks.shard:
            self._unname(meta.uid, None if before is None else before.marks.shard)
            self._name(meta.uid, made.marks.shard)
        touched = self.kin.put(made)
        self._note(meta.uid, now_s)
        for uid in touched.moved:
            self._note(uid, now_s)
        if before is not None and (before.key, before.selected) != (made.key, made.selected):
            return Touched(touched.roots, (*touched.moved, meta.uid))
        return touched

    def _marks(self, meta: Meta) -> Marks:
        """Read the labels of the ring. A shard that can have no Lease is nobody, so that nobody can hold it."""
        marks = read_marks(meta.labels, self.ring)
        shard = marks.shard
        if shard is None or shard in self.named or _LEASE_NAME.fullmatch(shard):
            return marks
        return msgspec.structs.replace(marks, shard=None)

    def _selects(self, known: Known, seen: SeenObject) -> bool:
        """Say whether the ring wants an object.

        One of a namespace that was not seen yet stays as it is. A stray one of a resource that is only controlled is
        nobody's: it gets no label, and one that its owner left behind is let go.
        """
        if self.removing or (seen.parent is None and not known.kind.shared):
            return False
        if self.namespaces is None or not known.meta.namespace:
            return True
        return self.namespaces.get(known.meta.namespace, seen.marks.shard is not None)

    def _name(self, uid: str, shard: str | None) -> None:
        if shard is None:
            return
        if shard not in self.named:
            self.named[shard] = set()
            self.names_changed = True
        self.named[shard].add(uid)

    def _unname(self, uid: str, shard: str | None) -> None:
        if shard is None:
            return
        named = self.named[shard]
        named.discard(uid)
        if not named:
            del self.named[shard]
            self.names_changed = True

    def _note(self, uid: str, now_s: float) -> None:
        """Count an object anew where it belongs now."""
        seen = self.kin.objects.get(uid)
        marks = None if seen is None else seen.marks
        root = marks is not None and self.kin.is_root(uid)
        shard = None if marks is None else marks.shard
        selected = seen is not None and seen.selected
        drained = marks is not None and shard is not None and marks.drain is not None
        _set(self.moving, uid, root and drained and marks is not None and marks.drain != NOBODY)
        _set(self.held_roots, uid, root and shard is not None)
        _set(self.unassigned, uid, root and selected and shard is None)
        waits = seen is not None and self.kin.root_of(uid) is None
        # What is being deleted may outlive its owner by its grace period, which is no fault.
        _set(self.waiting, uid, waits and selected and self.known[uid].meta.deletion_timestamp is None)
        _set(self.strays, uid, waits or (root and not selected and shard is None))
        if not drained or seen is None:
            self.clocks.pop(uid, None)
        else:
            alone: Mapping[str, DrainClock] = {uid: self.clocks[uid]} if uid in self.clocks else {}
            self.clocks.update(time_drains(alone, Relatives((Family(seen),)), now_s))


def _is_same(before: SeenObject, now: SeenObject) -> bool:
    """Say whether only the version differs: then there is nothing to decide that was not decided before."""
    return (
        before.marks == now.marks
        and before.parent == now.parent
        and before.key == now.key
        and before.selected == now.selected
    )


def _set(members: set[str], uid: str, inside: bool) -> None:
    if inside:
        members.add(uid)
    else:
        members.discard(uid)
