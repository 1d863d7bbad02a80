"""What one shard sees: the objects that carry its name, who owns whom, and what it knows of each. Pure.

A filtered watch shows nothing else: an object that is not here is not its own, whether or not it is there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from poise.hold.sharding import Grip, Knowledge, Verdict, fenced, learn, verdict
from poise.kube.objects import Meta
from poise.kube.resources import ObjectRef, Resource
from poise.model.sharding import SeenObject, is_older, read_marks
from poise.move.sharding.keys import object_key

DEPTH_MAX = 64  # Owners that go round in a circle lead to no root.


class Entry(msgspec.Struct, frozen=True):
    """One object: where it is, its metadata, and what the decisions know of it."""

    ref: ObjectRef
    meta: Meta
    seen: SeenObject

    @property
    def uid(self) -> str:
        """What it is known by."""
        return self.seen.uid


class Asked(msgspec.Struct, frozen=True):
    """Since when, by the own clock, an object at one epoch is asked for."""

    epoch: int | None
    since_s: float


def entry_of(resource: Resource, meta: Meta, ring: str, kinds: Collection[tuple[str, str]]) -> Entry:
    """Read an object as the ring sees it; `kinds` are those of the ring, by group and kind."""
    owner = meta.controller
    parent = owner.uid if owner is not None and (owner.group, owner.kind) in kinds else None
    key = object_key(resource.group, resource.kind, meta.namespace, meta.name)
    seen = SeenObject(meta.uid, key, meta.resource_version, read_marks(meta.labels, ring), parent)
    return Entry(ObjectRef(resource, meta.name, meta.namespace), meta, seen)


class View:
    """The objects in sight by uid."""

    def __init__(self, name: str) -> None:
        """See nothing yet; `name` is the own instance."""
        self.name = name
        self.entries: dict[str, Entry] = {}
        self.known: dict[str, Knowledge] = {}
        self.newest_gain_s: float | None = None
        self._asked: dict[str, Asked] = {}
        self._below: dict[str, set[str]] = {}
        # What was given away by an own write, and in which version: a watch that lags may still show it.
        self._let_go: dict[str, str] = {}

    def put(self, entry: Entry, now_s: float, *, inherited: bool = False) -> bool:
        """Take what a list or a watch shows; False where it is older than what is known."""
        uid = entry.uid
        newest = self.entries[uid].seen.version if uid in self.entries else self._let_go.get(uid, "")
        if is_older(entry.seen.version, newest):
            return False
        if entry.seen.marks.shard != self.name:
            self.drop(uid)
            return True
        before = self.known.get(uid)
        self.known[uid] = known = learn(before, entry.seen, now_s, inherited=inherited)
        if known is not before:
            self.newest_gain_s = now_s
        self._keep(entry)
        self._time_drain(entry, now_s)
        return True

    def drop(self, uid: str) -> Entry | None:
        """Forget an object that left the filter, or is gone."""
        self._let_go.pop(uid, None)
        self.known.pop(uid, None)
        self._asked.pop(uid, None)
        old = self.entries.pop(uid, None)
        if old is not None and old.seen.parent is not None:
            self._part(old.seen.parent, uid)
        return old

    def wrote(self, entry: Entry, now_s: float, *, fences: bool) -> None:
        """Take the answer to an own write of labels: the object was given away, or its epoch was raised."""
        if entry.seen.marks.shard != self.name:
            self.drop(entry.uid)
            self._let_go[entry.uid] = entry.seen.version
            return
        known = self.known.get(entry.uid)
        if fences and known is not None:
            self.known[entry.uid] = fenced(known)
        self._keep(entry)
        self._time_drain(entry, now_s)

    def was_let_go(self, uid: str) -> bool:
        """Say whether an own write gave this object away, and no watch has shown it since."""
        return uid in self._let_go

    @property
    def drained(self) -> tuple[str, ...]:
        """Everything that is asked for."""
        return tuple(self._asked)

    def _keep(self, entry: Entry) -> None:
        old = self.entries.get(entry.uid)
        if old is not None and old.seen.parent is not None and old.seen.parent != entry.seen.parent:
            self._part(old.seen.parent, entry.uid)
        self._let_go.pop(entry.uid, None)
        self.entries[entry.uid] = entry
        if entry.seen.parent is not None:
            self._below.setdefault(entry.seen.parent, set()).add(entry.uid)

    def _part(self, parent: str, uid: str) -> None:
        siblings = self._below.get(parent, set())
        siblings.discard(uid)
        if not siblings:
            self._below.pop(parent, None)

    def _time_drain(self, entry: Entry, now_s: float) -> None:
        """Time a drain from its first sight; who it is reserved for may change meanwhile."""
        marks, asked = entry.seen.marks, self._asked.get(entry.uid)
        if marks.drain is None:
            self._asked.pop(entry.uid, None)
        elif asked is None or asked.epoch != marks.epoch:
            self._asked[entry.uid] = Asked(marks.epoch, now_s)

    def line(self, uid: str) -> list[Entry]:
        """Give an object, its owner, and so on up to its root; nothing where an owner is not in sight."""
        found: list[Entry] = []
        here = self.entries.get(uid)
        while here is not None and len(found) < DEPTH_MAX:
            found.append(here)
            if here.seen.parent is None:
                return found
            here = self.entries.get(here.seen.parent)
        return []

    def root(self, uid: str) -> Entry | None:
        """Find the root of an object, where all owners are in sight."""
        return next(reversed(self.line(uid)), None)

    def below(self, uid: str) -> list[Entry]:
        """List what an object controls, at any depth."""
        found: dict[str, Entry] = {}
        todo = [uid]
        while todo:
            for child in self._below.get(todo.pop(), ()):
                if child not in found and child != uid:
                    found[child] = self.entries[child]
                    todo.append(child)
        return list(found.values())

    def family(self, uid: str) -> Iterator[str]:
        """Give the uids of everything under the same root; where none is in sight, of what the object controls."""
        root = self.root(uid)
        head = uid if root is None else root.uid
        yield head
        yield from (entry.uid for entry in self.below(head))

    def judge(self, uid: str, grip: Grip | None, now_s: float, handing: Collection[str]) -> Verdict:
        """Judge whether an object may be acted on; `handing` are the heads of what is being handed over."""
        line = self.line(uid)
        if not line:
            return verdict(grip, None, None, None, now_s)
        root, child = line[-1], line[0].seen if len(line) > 1 else None
        barred = any(entry.uid in handing for entry in line)
        return verdict(grip, root.seen, child, self.known.get(root.uid), now_s, handing=barred)

    def is_own(self, uid: str, epoch: int) -> bool:
        """Say whether what began at this epoch may go on: nobody took it or raised it, and its root is in sight."""
        line = self.line(uid)
        return bool(line) and line[0].seen.marks.epoch == epoch

    def asked_since_s(self, uid: str) -> float | None:
        """Give since when an object, or one that it belongs to, is asked for."""
        times = [self._asked[entry.uid].since_s for entry in self.line(uid) if entry.uid in self._asked]
        return min(times, default=None)
