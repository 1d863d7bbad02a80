"""What the sharder may write next on one family: a pure function of what it sees, for every rule of a move.

Whoever gives a root away writes the children first, then the root, all with the root's epoch + 1: the root is the
commit. A root is taken only from an instance whose Lease the sharder holds (`needs`); a ready one is asked. Who is late
keeps what it has.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from poise.model.sharding import NOBODY, Marks, SeenObject, Standing, Step, StepKind, Write
from poise.move.sharding.families import Family


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """What one evaluation goes by: how the instances stand, which drains are overdue, and what then happens.

    `drain_until` is the deadline that a drain begun now is labelled with, in unix seconds; it only informs.
    """

    standings: Mapping[str, Standing]
    drain_until: int
    overdue: frozenset[str] = frozenset()
    force: bool = False
    braked: bool = False

    def of(self, instance: str | None) -> Standing:
        """Say how an instance stands; of one that was never looked for nothing is known."""
        return self.standings.get(instance or "", Standing.LATE)

    def is_ready(self, instance: str | None) -> bool:
        """Say whether an instance may be given something."""
        return self.of(instance) is Standing.READY


def next_steps(family: Family, wanted: str | None, outlook: Outlook) -> tuple[Step, ...]:
    """Decide the next writes of one family; where there is nothing to do there are none.

    `wanted` is whom the planner chose for the root; whoever is not ready is given nothing.
    """
    root = family.root
    target = wanted if root.selected and outlook.is_ready(wanted) else None
    shard = root.marks.shard
    if shard is None:
        return _unheld(family, target, outlook)
    standing = outlook.of(shard)
    if standing in (Standing.LOST, Standing.HELD):
        possible = target is not None or not root.selected
        return (give(family, target, "take", needs=shard),) if possible and not outlook.braked else ()
    if standing is Standing.LATE:
        return _redirected(root, target, outlook) if _points_nowhere(root, outlook) else ()
    if root.marks.epoch is None:
        return (_repair(family),)
    return _held(family, target, outlook)


def _unheld(family: Family, target: str | None, outlook: Outlook) -> tuple[Step, ...]:
    """Assign a root that nobody holds; one that the ring no longer wants only loses what was left on its children."""
    root = family.root
    if target is not None:
        return (give(family, target, "assign"),)
    if root.selected:
        return ()
    bare = Marks(epoch=root.marks.epoch)
    left = () if root.marks == bare else (_single("mend", root, bare),)
    return left or _mends(family, outlook)


def _held(family: Family, target: str | None, outlook: Outlook) -> tuple[Step, ...]:
    """Ask a ready instance for what belongs elsewhere, or look after the children of what it keeps."""
    root = family.root
    wanted = NOBODY if not root.selected else target
    if root.marks.drain is not None:
        if outlook.force and root.uid in outlook.overdue and not outlook.braked:
            return (give(family, None, "force"),)
        return _redirected(root, wanted, outlook)
    if root.marks.drain_until is not None:
        return _redirected(root, None, outlook)
    if wanted is None or wanted == root.marks.shard:
        return _mends(family, outlook)
    if outlook.braked:
        return ()
    return (_drain(root, wanted, outlook),)


def _points_nowhere(root: SeenObject, outlook: Outlook) -> bool:
    drain = root.marks.drain
    return root.selected and drain is not None and drain != NOBODY and not outlook.is_ready(drain)


def _redirected(root: SeenObject, wanted: str | None, outlook: Outlook) -> tuple[Step, ...]:
    """Let a drain name who is wanted now. The deadline stays; without anybody else the request is taken back."""
    marks = root.marks
    if wanted is None or wanted == marks.shard:
        return (_single("keep", root, Marks(marks.shard, marks.epoch)),)
    if wanted == marks.drain and marks.drain_until is not None:
        return ()
    until = outlook.drain_until if marks.drain_until is None else marks.drain_until
    return (_single("redirect", root, Marks(marks.shard, marks.epoch, wanted, until), wanted),)


def _drain(each: SeenObject, wanted: str, outlook: Outlook) -> Step:
    marks = Marks(each.marks.shard, each.marks.epoch, wanted, outlook.drain_until)
    return _single("drain", each, marks, wanted)


def give(family: Family, target: str | None, kind: StepKind, needs: str | None = None) -> Step:
    """Give a root away: children first, the root last. To nobody (`force`, a ring that ends) it is only let go.

    All get the root's epoch + 1, or more where a child needs it (`_least_epoch`). A strange child goes along where its
    labels name the same instance, which is dead, or forced out; else it is drained first.
    """
    taken = None if kind == "assign" else family.root.marks.shard
    own = [
        child
        for child in family.children
        if child.uid not in family.strange or (taken is not None and child.marks.shard == taken)
    ]
    goal = Marks(target, max(family.root.marks.next_epoch, *(_least_epoch(child, family) for child in own), 0))
    children = tuple(Write(child.uid, child.version, goal) for child in own if child.marks != goal)
    commit = (Write(family.root.uid, family.root.version, goal),)
    groups = (children, commit) if children else (commit,)
    return Step(kind, groups, needs, target)


def _repair(family: Family) -> Step:
    """Give a held root whose epoch somebody destroyed a new one, larger than any that its family knows."""
    marks = family.root.marks
    known = max((child.marks.epoch or 0 for child in family.children), default=0)
    return _single("repair", family.root, Marks(marks.shard, known + 1))


def _mends(family: Family, outlook: Outlook) -> tuple[Step, ...]:
    """Copy shard and epoch of a root without a drain label to its children, wherever they differ.

    A child that needs a larger epoch (after a hand-over that was undone, or adopted from the dead) raises the root's
    first. So no epoch ever falls, and whoever is about to give this root away by an older view is refused: the root has
    another version.
    """
    marks = family.root.marks
    free = [child for child in family.children if child.uid not in family.strange or _may_take(child, outlook)]
    ahead = max((_least_epoch(child, family) for child in free), default=0)
    if ahead > (marks.epoch or 0):
        return (_single("repair", family.root, Marks(marks.shard, ahead)),)
    goal = Marks(marks.shard, marks.epoch)
    steps = (_mend(child, goal, child.uid in family.strange, outlook) for child in family.children)
    return tuple(step for step in steps if step is not None)


def _mend(child: SeenObject, goal: Marks, strange: bool, outlook: Outlook) -> Step | None:
    """Mend one child. One that may have been adopted is drained like a root first, while its holder can answer."""
    if child.marks == goal:
        return None
    if not strange:
        return _single("mend", child, goal)
    if _may_take(child, outlook):
        return _single("mend", child, goal, needs=child.marks.shard)
    if not outlook.is_ready(child.marks.shard):
        return None
    if outlook.force and child.uid in outlook.overdue and not outlook.braked:
        return _single("force", child, Marks(epoch=child.marks.next_epoch))
    wanted = goal.shard or NOBODY
    if child.marks.drain != wanted or child.marks.drain_until is None:
        return _drain(child, wanted, outlook)
    return None


def _least_epoch(child: SeenObject, family: Family) -> int:
    """Say at which epoch a child may be given to somebody, at the least.

    Nobody ever acted on it at a larger epoch than its root's; but by another root its holder may have, and is late.
    """
    return child.marks.next_epoch if child.uid in family.strange else child.marks.epoch or 0


def _may_take(child: SeenObject, outlook: Outlook) -> bool:
    """Say whether a child may be taken from its instance, which is dead; under the brake nothing is."""
    return not outlook.braked and outlook.of(child.marks.shard) in (Standing.LOST, Standing.HELD)


def _single(
    kind: StepKind, each: SeenObject, marks: Marks, target: str | None = None, needs: str | None = None
) -> Step:
    return Step(kind, ((Write(each.uid, each.version, marks),),), needs, target)
