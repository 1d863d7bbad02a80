"""The families of a ring, kept current one change at a time. Pure.

Law: after every change it knows what `find_families` would give for all objects, called after each change; but a
change costs only the objects whose root it may change.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from poise.model.sharding import SeenObject
from poise.move.sharding.families import Family, Trace, trace_child

_NONE: dict[str, None] = {}


class Touched(msgspec.Struct, frozen=True):
    """What one change touched: the roots whose families differ now, and the objects by which other keys are to be had.

    The latter are those that have another root, or another key, or that the ring no longer wants.
    """

    roots: frozenset[str] = frozenset()
    moved: tuple[str, ...] = ()


class Kin:
    """Who belongs to whom: each object by its uid, with its root; None is the root of one whose owner is not seen."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        self.objects: dict[str, SeenObject] = {}
        self._roots: dict[str, str | None] = {}
        self._controlled: dict[str, dict[str, None]] = {}  # By the owner's uid, also of owners that were never seen.
        self._children: dict[str, dict[str, None]] = {}  # By the root's uid, at any depth.
        self._traces: dict[str, Trace] = {}

    def root_of(self, uid: str) -> str | None:
        """Give the root of an object; None where it is not known."""
        return self._roots.get(uid)

    def is_root(self, uid: str) -> bool:
        """Say whether an object is there and decides for itself."""
        return self._roots.get(uid) == uid

    def family(self, root: str) -> Family:
        """Put the family of a root together."""
        children = [self.objects[uid] for uid in self._children.get(root, _NONE)]
        if len(children) > 1:
            children.sort(key=lambda child: child.key)
        strange = frozenset(child.uid for child in children if not self._traces[child.uid].settled)
        return Family(self.objects[root], tuple(children), strange)

    def followers(self, root: str) -> int:
        """Count the children of a root."""
        return len(self._children.get(root, _NONE))

    def roots(self) -> Iterator[str]:
        """Name all roots."""
        return (uid for uid, root in self._roots.items() if uid == root)

    def rooted(self) -> dict[str, str | None]:
        """Give a copy of who is whose root; None is that of an object whose owner was not seen."""
        return dict(self._roots)

    def waiting(self) -> Iterator[str]:
        """Name the objects whose owner has not been seen."""
        return (uid for uid, root in self._roots.items() if root is None)

    def traces(self) -> dict[str, Trace]:
        """Give what is remembered of every child."""
        return dict(self._traces)

    def put(self, each: SeenObject) -> Touched:
        """Take an object as it is now."""
        known = self.objects.get(each.uid)
        self.objects[each.uid] = each
        if known is not None and known.parent == each.parent:
            return self._marked(each)
        if known is not None and known.parent is not None:
            self._uncontrol(known.parent, each.uid)
        if each.parent is not None:
            self._controlled.setdefault(each.parent, {})[each.uid] = None
        below = self._below(each.uid)
        return self._rooted(below, self._root_above(each, below))

    def renew(self, each: SeenObject) -> None:
        """Take another version of an object of which nothing else has changed."""
        self.objects[each.uid] = each

    def drop(self, uid: str) -> Touched:
        """Take the news that an object is gone: what it controls waits for it."""
        known = self.objects.pop(uid, None)
        if known is None:
            return Touched()
        if known.parent is not None:
            self._uncontrol(known.parent, uid)
        touched = self._rooted(self._below(uid), None)
        del self._roots[uid]
        return touched

    def _marked(self, each: SeenObject) -> Touched:
        """Note other marks of an object whose root stays the same."""
        root = self._roots[each.uid]
        if root is None:
            return Touched()
        if root != each.uid:
            self._traces[each.uid] = trace_child(each, root, self._traces.get(each.uid))
        return Touched(frozenset((root,)))

    def _uncontrol(self, parent: str, uid: str) -> None:
        siblings = self._controlled[parent]
        del siblings[uid]
        if not siblings:
            del self._controlled[parent]

    def _below(self, uid: str) -> dict[str, None]:
        """Name an object and all that it controls, at any depth; a circle is gone round once."""
        found = {uid: None}
        ways = [uid]
        while ways:
            for each in self._controlled.get(ways.pop(), _NONE):
                if each not in found:
                    found[each] = None
                    ways.append(each)
        return found

    def _root_above(self, each: SeenObject, below: dict[str, None]) -> str | None:
        """Find the root of an object whose owner's root is known; a circle has none."""
        if each.parent is None:
            return each.uid
        return None if each.parent in below else self._roots.get(each.parent)

    def _rooted(self, uids: dict[str, None], root: str | None) -> Touched:
        """Give a branch another root; what is remembered of its objects is noted anew."""
        touched = {root}
        moved = []
        for uid in uids:
            before = self._roots.get(uid)
            touched.add(before)
            if before != root or uid not in self._roots:
                self._part(uid, before)
                moved.append(uid)
            self._roots[uid] = root
            if root is not None and uid != root:
                self._children.setdefault(root, {})[uid] = None
                self._traces[uid] = trace_child(self.objects[uid], root, self._traces.get(uid))
        return Touched(frozenset(uid for uid in touched if uid is not None), tuple(moved))

    def _part(self, uid: str, before: str | None) -> None:
        """Take an object out of the family that it was in."""
        self._traces.pop(uid, None)
        if before is None or before == uid:
            return
        family = self._children[before]
        del family[uid]
        if not family:
            del self._children[before]
