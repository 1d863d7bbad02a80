"""What a shard may do: take its Lease, act on a key, hand it over, fence what an earlier process of its name left.

Pure: facts and times by the process's own clock (one that counts suspend) go in, permissions and writes come out.
Order: wait, acquire, list, confirm, then act; stop before the lease ends; stop before a key is handed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

import msgspec

from poise.model.sharding import LeaseFact, LeaseWrite, Marks, SeenObject, Step, Write, is_process_of


class SeenOwnLease(msgspec.Struct, frozen=True):
    """The Lease of its name as a waiting process sees it; None: there is none. Timed from when it saw the change."""

    fact: LeaseFact | None
    seen_at_s: float


class Take(msgspec.Struct, frozen=True):
    """The process may try to become the holder now. `fences`: what it inherits is fenced before its first reconcile."""

    write: LeaseWrite
    fences: bool


class Wait(msgspec.Struct, frozen=True):
    """Another hold must run out first, by the own observation."""

    until_s: float


class Claimant(msgspec.Struct, frozen=True, kw_only=True):
    """A process that wants to hold the Lease of its name, and D as it was told."""

    name: str
    me: str
    duration_s: float
    trust_stable_name: bool = False


def see_own_lease(known: SeenOwnLease | None, fact: LeaseFact | None, now_s: float) -> SeenOwnLease:
    """Take what was read: the waiting begins again whenever it changed."""
    if known is not None and _version(known.fact) == _version(fact):
        return known
    return SeenOwnLease(fact, now_s)


def _version(fact: LeaseFact | None) -> tuple[str, str] | None:
    return None if fact is None else (fact.uid, fact.version)


def claim(who: Claimant, lease: SeenOwnLease, now_s: float, *, named: bool) -> Take | Wait:
    """Decide when a process may take its Lease: at once where nobody can hold it, else when that hold has run out.

    `named`: objects carry its name, listed after the Lease was found to be missing. Trust in a stable name skips only
    the hold of an earlier process: a sharder's hold means that objects are being moved.
    """
    fact = lease.fact
    if fact is None:
        free_s = lease.seen_at_s + 2 * who.duration_s if named else lease.seen_at_s
    elif fact.holder in ("", who.me) or (who.trust_stable_name and is_process_of(fact.holder, who.name)):
        free_s = lease.seen_at_s
    else:
        free_s = lease.seen_at_s + (fact.duration_s if fact.duration_s > 0 else 2 * who.duration_s)
    if now_s < free_s:
        return Wait(free_s)
    uid, version = _version(fact) or (None, None)
    return Take(LeaseWrite("hold", who.name, version, uid, who.me, who.duration_s), _was_taken_away(who, fact))


def _was_taken_away(who: Claimant, fact: LeaseFact | None) -> bool:
    """Say whether a sharder may have held it last: a write of that sharder may still be under way."""
    if fact is None or fact.holder == who.me:
        return True
    return not (is_process_of(fact.holder, who.name) or (not fact.holder and fact.released))


class Grip(msgspec.Struct, frozen=True, kw_only=True):
    """The Lease as its holder knows it. `sent_at_s` is when the last renewal that succeeded was sent.

    `listed`: all objects were listed, with no resourceVersion, after the Lease was acquired.
    """

    name: str
    me: str
    version: str
    sent_at_s: float
    duration_s: float
    margin_s: float
    eager: bool = False
    listed: bool = False

    @property
    def until_s(self) -> float:
        """Until when anything may be done: law sent + D - margin."""
        return self.sent_at_s + self.duration_s - self.margin_s


def grasp(who: Claimant, take: Take, version: str, sent_at_s: float, margin_s: float, *, eager: bool = False) -> Grip:
    """Hold the Lease, by the answer to the write that was sent at this time. Nothing is listed yet."""
    return Grip(
        name=who.name,
        me=who.me,
        version=version,
        sent_at_s=sent_at_s,
        duration_s=who.duration_s,
        margin_s=margin_s,
        eager=eager or take.fences,
    )


def renewal(grip: Grip) -> LeaseWrite:
    """Make the next renewal, over the version that this process wrote last."""
    return LeaseWrite("hold", grip.name, grip.version, None, grip.me, grip.duration_s)


def renewed(grip: Grip, version: str, sent_at_s: float) -> Grip:
    """Take the answer to a renewal; one that was sent earlier than the last does not shorten anything."""
    return msgspec.structs.replace(grip, version=version, sent_at_s=max(grip.sent_at_s, sent_at_s))


def read_again(grip: Grip, fact: LeaseFact | None) -> Grip | None:
    """After a refused renewal: go on from the own write whose answer was lost, or (None) the Lease is lost."""
    if fact is None or fact.holder != grip.me:
        return None
    return msgspec.structs.replace(grip, version=fact.version)


def release(grip: Grip, reason: Literal["stop", "restart"]) -> LeaseWrite:
    """Give the Lease back, when nothing runs any more: the objects move at once, or wait for the restart."""
    return LeaseWrite("empty", grip.name, grip.version, duration_s=grip.duration_s, released=reason)


class Knowledge(msgspec.Struct, frozen=True):
    """What a process remembers of one object that its labels give it, at one epoch.

    `inherited`: it was there when the Lease was acquired, and this process has not fenced it.
    """

    epoch: int | None
    gained_at_s: float
    inherited: bool = False


def learn(known: Knowledge | None, seen: SeenObject, now_s: float, *, inherited: bool = False) -> Knowledge:
    """Take what a watch shows of an object that carries the own name. Another epoch is another gain."""
    if known is None:
        return Knowledge(seen.marks.epoch, now_s, inherited)
    return known if known.epoch == seen.marks.epoch else Knowledge(seen.marks.epoch, now_s, known.inherited)


class Verdict(StrEnum):
    """Whether an object may be acted on now, or why not."""

    ACT = "it may be acted on"
    NO_LEASE = "the lease is not held, or its time is over"
    NOT_LISTED = "nothing was listed since the lease was acquired"
    NOT_MINE = "the root is not held"
    NO_EPOCH = "the root has no epoch"
    DRAINED = "it is asked for"
    HANDED_OVER = "its hand-over is under way"
    UNCONFIRMED = "no renewal was sent since it was seen"
    CHILD_DIFFERS = "the child's shard or epoch is not the root's"
    FENCE_FIRST = "an earlier process of this name is not fenced yet"


def verdict(
    grip: Grip | None,
    root: SeenObject | None,
    child: SeenObject | None,
    known: Knowledge | None,
    now_s: float,
    *,
    handing: bool = False,
) -> Verdict:
    """Judge whether this process may begin to act on a root, or on a child of it, as it sees them.

    `known` is what it knows of the root; a root is None where the object's owner is not in sight. `handing`: it has
    begun to hand the family over. That is finished or given up first, even if the request is taken back meanwhile.
    """
    if (held := _holding(grip, now_s)) is not None or grip is None:
        return held or Verdict.NO_LEASE
    if root is None or known is None or root.marks.shard != grip.name:
        return Verdict.NOT_MINE
    if handing:
        return Verdict.HANDED_OVER
    if (barred := _barred(grip, root, known)) is not None:
        return barred
    if child is not None and child.marks != Marks(root.marks.shard, root.marks.epoch):
        return Verdict.CHILD_DIFFERS
    return Verdict.FENCE_FIRST if known.inherited and grip.eager else Verdict.ACT


def _holding(grip: Grip | None, now_s: float) -> Verdict | None:
    if grip is None or now_s >= grip.until_s:
        return Verdict.NO_LEASE
    return None if grip.listed else Verdict.NOT_LISTED


def _barred(grip: Grip, root: SeenObject, known: Knowledge) -> Verdict | None:
    """Find what bars a whole family, whichever of its objects is meant."""
    if root.marks.epoch is None:
        return Verdict.NO_EPOCH
    if root.marks.drain is not None:
        return Verdict.DRAINED
    return None if _is_confirmed(grip, known) else Verdict.UNCONFIRMED


def _is_confirmed(grip: Grip, known: Knowledge) -> bool:
    """Say whether a renewal proves that no twin took the Lease before the labels named this instance."""
    return grip.sent_at_s >= known.gained_at_s


def hand_over(
    grip: Grip | None,
    root: SeenObject,
    children: Iterable[SeenObject],
    known: Knowledge | None,
    now_s: float,
    *,
    busy: bool,
    short: bool = True,
) -> Step | None:
    """Decide the writes that hand a drained root over; None while a reconcile of its family runs, or it may not.

    Children first, the root last. A patch whose answer was lost is sent again over the same version: only one of the
    two can succeed, and until another version is seen the key stays drained and is not acted on. An empty drain value,
    or the long form, lets go of the root alone. An adopted child that is drained is handed over like a root.
    """
    marks = root.marks
    if _holding(grip, now_s) is not None or grip is None or known is None:
        return None
    if busy or marks.shard != grip.name or marks.drain is None:
        return None
    if not _is_confirmed(grip, known):
        return None
    if not marks.drain or not short:
        return Step("hand over", ((Write(root.uid, root.version, Marks(epoch=marks.epoch)),),))
    goal = Marks(marks.drain, marks.next_epoch)
    commit = (Write(root.uid, root.version, goal),)
    own = tuple(Write(child.uid, child.version, goal) for child in children if _follows(child, marks))
    return Step("hand over", (own, commit) if own else (commit,), target=marks.drain)


def _follows(child: SeenObject, marks: Marks) -> bool:
    return (child.marks.shard, child.marks.epoch) == (marks.shard, marks.epoch)


def fence(
    grip: Grip | None, root: SeenObject, children: Iterable[SeenObject], known: Knowledge | None, now_s: float
) -> Step | None:
    """Raise the epoch of an inherited root, then of its children, so that an earlier process of this name is refused.

    Eager: before the first reconcile. Lazy: in the first patch. None where there is nothing to raise, or it may not.
    """
    marks = root.marks
    if _holding(grip, now_s) is not None or grip is None or known is None or not known.inherited:
        return None
    if marks.shard != grip.name or _barred(grip, root, known) is not None:
        return None
    goal = Marks(marks.shard, marks.next_epoch)
    commit = (Write(root.uid, root.version, goal),)
    own = tuple(Write(child.uid, child.version, goal) for child in children if _follows(child, marks))
    return Step("fence", (commit, own) if own else (commit,), target=marks.shard)


def fenced(known: Knowledge) -> Knowledge:
    """Take the answer that the root's epoch was raised by this process."""
    return Knowledge((known.epoch or 0) + 1, known.gained_at_s)


def overdue(asked_at_s: float, timeout_s: float, stop_s: float, now_s: float) -> Literal["wait", "cancel", "end"]:
    """Say what happens to a reconcile that a drain waits for: it is cancelled, and if that does not help all ends."""
    if now_s < asked_at_s + timeout_s:
        return "wait"
    return "cancel" if now_s < asked_at_s + timeout_s + stop_s else "end"


def next_renewal_s(grip: Grip, newest_gain_s: float | None, pause_s: float) -> float:
    """Give when the next renewal is sent: at a third of D, or for a new gain as soon as `pause_s` after the last."""
    usual_s = grip.sent_at_s + grip.duration_s / 3
    unconfirmed = newest_gain_s is not None and newest_gain_s > grip.sent_at_s
    return min(usual_s, grip.sent_at_s + pause_s) if unconfirmed else usual_s
