"""What one shard process of the explored ring knows, and what happens to it."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec
from tests.model.sharding_server import (
    OLD,
    TIME,
    Change,
    Server,
    place_of,
    put,
    replace,
    shown,
    uid,
)

from poise.hold import sharding as hold
from poise.hold.sharding import Claimant, Grip, Knowledge, SeenOwnLease, Verdict
from poise.model.sharding import LeaseWrite, Marks, SeenObject, Step, holder_identity

LONG_AGO = TIME - 100  # Before anything that is compared.
JUST_AFTER = 0.25  # What is seen after something was sent in the same tick is seen later than that.


class Habits(msgspec.Struct, frozen=True, kw_only=True):
    """How all processes of a scene are set up."""

    names: tuple[str, ...]
    duration_s: float = 2.0
    margin_s: float = 0.0
    eager: bool = False
    trusting: bool = False
    short: bool = True
    caches: bool = False  # Whether a process that waits for its Lease watches objects meanwhile.
    stubborn: bool = False  # Foreign shards: they never acknowledge, and write whenever they like.


class Request(msgspec.Struct, frozen=True):
    """A write of a Lease that was sent, when, and what was known as gained before that."""

    write: LeaseWrite
    sent_at_s: float
    covers: tuple[int, ...] = ()
    fences: bool = False
    applied: bool = False  # It has arrived; the answer is under way, and the version is the one that it wrote.


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """What one process knows and does; `life` counts its restarts, each of which is a new holder."""

    who: int
    name: str
    life: int = 0
    state: Literal["unborn", "waiting", "holding", "gone"] = "unborn"
    mode: Literal["", "paused", "woken"] = ""
    cut: bool = False  # Its renewals fail for now. Else it renews as time passes.
    lease: SeenOwnLease | None = None
    named: bool = False
    request: Request | None = None
    grip: Grip | None = None
    view: tuple[SeenObject | None, ...] = ()
    known: tuple[Knowledge | None, ...] = ()
    running: tuple[int | None, ...] = ()
    step: Step | None = None
    done: int = 0

    @property
    def me(self) -> str:
        """The holder identity of this process."""
        return holder_identity(self.name, f"{self.who}{self.life}")


class Ghost(msgspec.Struct, frozen=True):
    """A patch whose sender no longer waits for the answer: it may arrive at any time, or never."""

    place: int
    marks: Marks


class Move(NamedTuple):
    """One step of a party: what it costs, what it does, and what it leads to."""

    fault: str
    label: str
    party: object
    server: Server
    changed: tuple[Change, ...] = ()
    broken: str = ""
    ghost: Ghost | None = None
    wrote: int = -1  # The object that an accepted late write of a reconcile changed.


def born(process: Process, count: int) -> Process:
    """Start a process: it waits for its Lease."""
    none: tuple[None, ...] = (None,) * count
    return Process(
        who=process.who, name=process.name, life=process.life, state="waiting", view=none, known=none, running=none
    )


def claimant(process: Process, habits: Habits) -> Claimant:
    """Say who wants the Lease."""
    return Claimant(name=process.name, me=process.me, duration_s=habits.duration_s, trust_stable_name=habits.trusting)


def gone(process: Process, count: int) -> Process:
    """End: nothing runs, and nothing is known."""
    none: tuple[None, ...] = (None,) * count
    return Process(
        who=process.who, name=process.name, life=process.life, state="gone", view=none, known=none, running=none
    )


def checked(process: Process, count: int) -> Process:
    """Fence itself: a process whose time is over exits."""
    over = process.grip is not None and process.grip.until_s <= TIME
    return gone(process, count) if over else process


def look(process: Process, server: Server, place: int, *, inherited: bool = False) -> Process:
    """See the newest version of one object; what carries another name has left the filter."""
    each = shown(server, place)
    if each.marks.shard != process.name:
        return dropped(process, place)
    known = hold.learn(process.known[place], each, TIME + JUST_AFTER, inherited=inherited)
    after = replace(process, view=put(process.view, place, each), known=put(process.known, place, known))
    return _cancelled(after)


def dropped(process: Process, place: int) -> Process:
    after = replace(process, view=put(process.view, place, None), known=put(process.known, place, None))
    return _cancelled(after)


def _cancelled(process: Process) -> Process:
    """Cancel on loss: what is no longer its own, or was raised by somebody else, is not gone on with."""
    running = tuple(
        epoch if epoch is not None and _is_still_its_own(process, place, epoch) else None
        for place, epoch in enumerate(process.running)
    )
    return replace(process, running=running)


def _is_still_its_own(process: Process, place: int, epoch: int) -> bool:
    each, root = process.view[place], root_in_sight(process, place)
    return each is not None and root is not None and each.marks.epoch == epoch


def root_in_sight(process: Process, place: int) -> SeenObject | None:
    """Find the root of an object in the process's own view."""
    each = process.view[place]
    if each is None or each.parent is None:
        return each
    return process.view[place_of(each.parent)]


def children_in_sight(process: Process, root: SeenObject) -> list[SeenObject]:
    """List the children of a root in the process's own view."""
    return [each for each in process.view if each is not None and each.parent == root.uid]


def judged(process: Process, place: int) -> Verdict:
    """Ask whether an object may be acted on."""
    each, root = process.view[place], root_in_sight(process, place)
    if each is None or root is None:
        return Verdict.NOT_MINE
    child = None if each.parent is None else each
    handing = process.step is not None and process.step.kind == "hand over" and process.step.writes[-1].uid == root.uid
    return hold.verdict(process.grip, root, child, process.known[place_of(root.uid)], TIME, handing=handing)


def tick(process: Process, habits: Habits) -> Process:
    """Let a tick pass by its clock, which also counts while it is paused."""
    if process.state in ("unborn", "gone"):
        return process
    # No process waits longer than 2·D: beyond that all instants are the same.
    far_s = TIME - 2 * habits.duration_s
    lease, request, grip = process.lease, process.request, process.grip
    known = tuple(each and replace(each, gained_at_s=each.gained_at_s - 1) for each in process.known)
    later = replace(
        process,
        lease=lease and replace(lease, seen_at_s=max(lease.seen_at_s - 1, far_s)),
        request=request and replace(request, sent_at_s=max(request.sent_at_s - 1, far_s)),
        grip=grip and replace(grip, sent_at_s=max(grip.sent_at_s - 1, far_s)),
        known=known,
    )
    return later if process.mode else checked(later, len(process.view))


def renews_by_itself(process: Process) -> bool:
    """Say whether a process renews as a tick passes; a request that was sent before is waited for."""
    return process.state == "holding" and not process.mode and not process.cut and process.request is None


def normal(process: Process) -> Process:
    """Forget when a key was gained that a renewal has confirmed: nothing looks at it again."""
    if process.grip is None:
        return process
    sent_at_s = process.grip.sent_at_s
    known = tuple(
        replace(each, gained_at_s=LONG_AGO) if each is not None and each.gained_at_s <= sent_at_s else each
        for each in process.known
    )
    return replace(process, known=known)


def outdated(process: Process, change: Change, habits: Habits) -> Process:
    """Note that somebody else wrote: the copies of that version are old."""
    kind, place = change
    if kind == "object":
        return stale(process, place)
    if place != habits.names.index(process.name):
        return process
    lease, request, grip = process.lease, process.request, process.grip
    if lease is not None and lease.fact is not None:
        lease = replace(lease, fact=replace(lease.fact, version=OLD))
    if request is not None and request.write.version is not None:
        request = replace(request, write=replace(request.write, version=OLD))
    return replace(process, lease=lease, request=request, grip=grip and replace(grip, version=OLD))


def stale(process: Process, place: int) -> Process:
    """Note that an object has changed."""
    each = process.view[place]
    view = put(process.view, place, each and replace(each, version=OLD))
    return replace(process, view=view, step=stale_step(process.step, place))


def stale_step(step: Step | None, place: int) -> Step | None:
    """Make the versions of one object old in what was decided."""
    if step is None:
        return None
    groups = tuple(
        tuple(replace(write, version=OLD) if write.uid == uid(place) else write for write in group)
        for group in step.groups
    )
    return replace(step, groups=groups)


def told_of(marks: Marks) -> str:
    """Tell marks in a trace."""
    drain = "" if marks.drain is None else f" drain={marks.drain or 'nobody'}"
    return f"{marks.shard or 'nobody'}@{marks.epoch}{drain}"
