"""Roots and their children: the object whose key decides, and everything that it controls, at any depth.

A child follows its root only when its marks were made while it was a child of this root. Else it may have been adopted,
and whoever its labels name may still act on it by another key, even if that is the root's owner: then it is drained
like a root first. Whoever acknowledges that drain has seen the adoption.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from poise.model.sharding import SeenObject


class Trace(msgspec.Struct, frozen=True):
    """What the sharder remembers of a child: its root, its marks as last seen, and whether they were made for it."""

    root: str
    shard: str | None
    epoch: int | None
    settled: bool


class Family(msgspec.Struct, frozen=True):
    """A root with its children; `strange` are those whose marks may have been made for another root."""

    root: SeenObject
    children: tuple[SeenObject, ...] = ()
    strange: frozenset[str] = frozenset()


class Relatives(msgspec.Struct, frozen=True):
    """All families, in the order of their roots' keys, and the objects whose owner has not been seen.

    `traces` is what to remember of every child until the next look.
    """

    families: tuple[Family, ...]
    waiting: tuple[SeenObject, ...] = ()
    traces: dict[str, Trace] = {}


def find_families(objects: Iterable[SeenObject], traces: Mapping[str, Trace] = {}) -> Relatives:
    """Follow every object upward to its root. One whose owner is not known (or goes round in a circle) waits.

    `traces` is what the last look gave; it is to be called for every change that is seen.
    """
    by_uid = {each.uid: each for each in objects}
    roots: dict[str, str | None] = {}
    children: dict[str, list[SeenObject]] = {}
    seen: dict[str, Trace] = {}
    for each in by_uid.values():
        root = _root_of(each, by_uid, roots)
        if root is not None and root != each.uid:
            children.setdefault(root, []).append(each)
            seen[each.uid] = trace_child(each, root, traces.get(each.uid))
    families = [
        _family(each, children.get(each.uid, []), seen) for each in by_uid.values() if roots[each.uid] == each.uid
    ]
    families.sort(key=lambda family: family.root.key)
    waiting = sorted((each for each in by_uid.values() if roots[each.uid] is None), key=lambda each: each.key)
    return Relatives(tuple(families), tuple(waiting), seen)


def _root_of(each: SeenObject, by_uid: Mapping[str, SeenObject], roots: dict[str, str | None]) -> str | None:
    """Find the root's uid; the whole way is remembered, so that each object is looked at once."""
    way: list[str] = []
    here: SeenObject | None = each
    while here is not None and here.uid not in roots and here.parent is not None:
        roots[here.uid] = None  # Until it is known better: a circle leads back to here.
        way.append(here.uid)
        here = by_uid.get(here.parent)
    root = None if here is None else roots.setdefault(here.uid, here.uid)
    roots.update(dict.fromkeys(way, root))
    return root


def trace_child(child: SeenObject, root: str, last: Trace | None) -> Trace:
    """Note a child. Its marks were made for this root if they changed since it was first seen as its child."""
    marks = child.marks
    if last is None or last.root != root:
        return Trace(root, marks.shard, marks.epoch, marks.shard is None)
    changed = (last.shard, last.epoch) != (marks.shard, marks.epoch)
    return Trace(root, marks.shard, marks.epoch, last.settled or changed or marks.shard is None)


def _family(root: SeenObject, children: list[SeenObject], traces: Mapping[str, Trace]) -> Family:
    children.sort(key=lambda child: child.key)
    return Family(root, tuple(children), frozenset(child.uid for child in children if not traces[child.uid].settled))
