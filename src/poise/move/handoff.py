"""The hand-over of one item: every transition of the protocol with every guard, as a pure function of what was read.

Order for safety: release before grant, lease before work, fence before expiry. `step` is called inside the transaction
that writes its result; times are store time, and standings are read in that same transaction.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from poise.model.ownership import OWNED, RELEASING, RESTART, RETIREMENT, OwnerState, Row, Word


class Transition(StrEnum):
    """The rows of the table in docs/protocol.md; RENEW is no transition, only a longer lease."""

    T1 = "assigned"
    T2 = "confirmed"
    T3 = "release requested"
    T4 = "releasing"
    T5 = "released"
    T6 = "cancelled"
    T6B = "retargeted"
    T7 = "expired"
    T9 = "retired"
    RENEW = "renewed"


class Wrote(msgspec.Struct, frozen=True):
    """A transition happened: one line of the journal."""

    transition: Transition
    member: str | None
    reason: str
    epoch: int


class Refused(msgspec.Struct, frozen=True):
    """A guard said no; the row is as it was."""

    reason: str


Action = Wrote | Refused
Outcome = tuple[Row | None, tuple[Action, ...]]


class Standing(msgspec.Struct, frozen=True):
    """A member as this transaction read it. Active: it was heard less than a lease ago and is not leaving."""

    name: str
    incarnation: int
    active: bool
    draining: bool = False

    @property
    def takes(self) -> bool:
        """Say whether it may be given something."""
        return self.active and not self.draining


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """T1: the leader gives a free item to a member."""

    to: Standing
    now_s: float
    lease_s: float
    blocked: str = ""  # Why nothing may be granted now: a quarantine, or a pause of everything.
    plan: int = 0
    reason: str = ""


class Say(msgspec.Struct, frozen=True, kw_only=True):
    """T2, T4, T5: the owner says what it does. `successor`: a newer process of its name has registered."""

    member: str
    incarnation: int
    epoch: int
    word: Word
    now_s: float
    lease_s: float
    revoke: bool
    successor: bool = False
    restart_until_s: float | None = None  # The member leaves to restart: the item waits for it until then.


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """T3: the leader asks the owner to let go, with the item reserved for a target (None: for nobody)."""

    target: str | None
    now_s: float
    release_s: float
    reason: str
    plan: int = 0


class Cancel(msgspec.Struct, frozen=True, kw_only=True):
    """T6: the leader takes back a request that was not acknowledged."""

    source: Standing
    within_count: bool
    now_s: float
    reason: str = ""


class Retarget(msgspec.Struct, frozen=True, kw_only=True):
    """T6b: the target is gone; another one, or none, takes its place. Deadline and epoch stay."""

    target: Standing | None
    gone: Standing | None
    now_s: float
    reason: str = ""


class Expire(msgspec.Struct, frozen=True, kw_only=True):
    """T7: lease and grace are over; or the item has no lease, and its owner is gone (`over`)."""

    now_s: float
    grace_s: float
    successor: bool = False
    over: bool = False
    reason: str = ""


class Retire(msgspec.Struct, frozen=True, kw_only=True):
    """T9: the set has shrunk below this item; only its epoch is kept, as a tombstone."""

    within_count: bool


Event = Grant | Say | Ask | Cancel | Retarget | Expire | Retire


def step(row: Row, event: Event) -> Outcome:
    """Take one step of the protocol, or say which guard refuses it."""
    match event:
        case Grant():
            return _grant(row, event)
        case Say():
            return _say(row, event)
        case Ask():
            return _ask(row, event)
        case Cancel():
            return _cancel(row, event)
        case Retarget():
            return _retarget(row, event)
        case Expire():
            return _expire(row, event)
        case Retire():
            return _retire(row, event)


def _grant(row: Row, event: Grant) -> Outcome:
    """T1: Unassigned -> Assigned, epoch + 1, a full lease from now."""
    if row.state is not OwnerState.UNASSIGNED:
        return _refuse(row, f"it is {row.state}")
    if event.blocked:
        return _refuse(row, event.blocked)
    if not event.to.takes:
        return _refuse(row, f"{event.to.name} is {'draining' if event.to.active else 'not active'}")
    given = msgspec.structs.replace(
        row,
        state=OwnerState.ASSIGNED,
        confirmed=False,
        owner=event.to.name,
        owner_incarnation=event.to.incarnation,
        target=None,
        epoch=row.epoch + 1,
        lease_until_s=event.now_s + event.lease_s,
        granted_s=event.lease_s,
        deadline_s=None,
        offers={**row.offers, event.to.name: row.offers.get(event.to.name, 0) + 1},
        plan=event.plan,
    )
    return _wrote(given, Transition.T1, event.to.name, event.reason, event.now_s)


def _say(row: Row, event: Say) -> Outcome:
    """T2, T4, T5: believe the owner alone, and only about this epoch."""
    if row.state not in OWNED:
        return _refuse(row, f"it is {row.state}")
    if (row.owner, row.owner_incarnation, row.epoch) != (event.member, event.incarnation, event.epoch):
        return _refuse(row, f"it belongs to {row.owner} at epoch {row.epoch}")
    if event.word is Word.RELEASED:
        return _released(row, event)
    if event.successor:
        return _refuse(row, f"a newer process of {event.member} has registered")
    if event.now_s >= row.lease_until_s:
        return _refuse(row, "its lease has ended, and is never renewed at its epoch")
    renewed = _renewed(row, event)
    if event.word is Word.RELEASING and row.state is OwnerState.REQUESTED_RELEASE:
        pending = msgspec.structs.replace(renewed, state=OwnerState.PENDING_RELEASE)
        return _wrote(pending, Transition.T4, event.member, row.reason, event.now_s)
    if event.word is Word.HELD and not row.confirmed:
        offers = {name: count for name, count in row.offers.items() if name != event.member}
        confirmed = msgspec.structs.replace(renewed, confirmed=True, offers=offers)
        return _wrote(confirmed, Transition.T2, event.member, row.reason, event.now_s)
    return renewed, ()


def _renewed(row: Row, event: Say) -> Row:
    """Lengthen the lease; under `revoke` not past the deadline of a release (T8: nobody writes, the lease runs out)."""
    if event.revoke and row.deadline_s is not None and event.now_s >= row.deadline_s:
        return row
    # A lease that was promised is never shortened: the member may act until its end, also if this reply is lost.
    return msgspec.structs.replace(
        row,
        lease_until_s=max(row.lease_until_s, event.now_s + event.lease_s),
        granted_s=max(row.granted_s, event.lease_s),
    )


def _released(row: Row, event: Say) -> Outcome:
    """T5: work has stopped, or never started. A member that restarts gets its item back with the next epoch."""
    target, deadline_s, reason = row.target, None, row.reason
    if target is None and reason != RETIREMENT:
        if event.restart_until_s is not None:
            target, deadline_s, reason = event.member, event.restart_until_s, RESTART
        elif event.successor:
            target, reason = event.member, RESTART
    return _free(row, Transition.T5, event.member, target, deadline_s, reason, event.now_s)


def _ask(row: Row, event: Ask) -> Outcome:
    """T3: Assigned -> RequestedRelease; the deadline is set once."""
    if row.state is not OwnerState.ASSIGNED:
        return _refuse(row, f"it is {row.state}")
    if event.target == row.owner:
        return _refuse(row, f"{row.owner} has it already")
    asked = msgspec.structs.replace(
        row,
        state=OwnerState.REQUESTED_RELEASE,
        target=event.target,
        deadline_s=event.now_s + event.release_s,
        plan=event.plan,
    )
    return _wrote(asked, Transition.T3, row.owner, event.reason, event.now_s)


def _cancel(row: Row, event: Cancel) -> Outcome:
    """T6: RequestedRelease -> Assigned at the same epoch; a retirement only if the set has grown again."""
    if row.state is not OwnerState.REQUESTED_RELEASE:
        return _refuse(row, f"it is {row.state}")
    if event.source.draining:
        return _refuse(row, f"{event.source.name} is draining")
    if not event.within_count:
        return _refuse(row, "the set has shrunk below it")
    back = msgspec.structs.replace(row, state=OwnerState.ASSIGNED, target=None, deadline_s=None)
    return _wrote(back, Transition.T6, row.owner, event.reason, event.now_s)


def _retarget(row: Row, event: Retarget) -> Outcome:
    """T6b: another reservation, for a target that is gone; deadline and epoch stay."""
    if row.state not in RELEASING:
        return _refuse(row, f"it is {row.state}")
    if event.gone is not None and event.gone.takes:
        return _refuse(row, f"{event.gone.name} is there")
    if event.target is not None and not event.target.takes:
        return _refuse(row, f"{event.target.name} is not active")
    name = event.target.name if event.target else None
    return _wrote(msgspec.structs.replace(row, target=name), Transition.T6B, name, event.reason, event.now_s)


def _expire(row: Row, event: Expire) -> Outcome:
    """T7: owned -> Unassigned, once store time >= lease_until + grace."""
    if row.state not in OWNED:
        return _refuse(row, f"it is {row.state}")
    if not event.over and event.now_s < row.lease_until_s + event.grace_s:
        return _refuse(row, "its lease and grace are not over")
    target = row.owner if row.target is None and event.successor and row.reason != RETIREMENT else row.target
    return _free(row, Transition.T7, row.owner, target, None, event.reason, event.now_s)


def _retire(row: Row, event: Retire) -> Outcome:
    """T9: nothing is left of an unassigned item of a smaller set; the store keeps its epoch as a tombstone."""
    if row.state is not OwnerState.UNASSIGNED:
        return _refuse(row, f"it is {row.state}")
    if event.within_count:
        return _refuse(row, "it is within the count of the set")
    return None, (Wrote(Transition.T9, None, RETIREMENT, row.epoch),)


def _free(
    row: Row,
    transition: Transition,
    member: str | None,
    target: str | None,
    deadline_s: float | None,
    reason: str,
    now_s: float,
) -> Outcome:
    """Leave the item without an owner; its epoch stays, and its target is whom it is kept for."""
    free = msgspec.structs.replace(
        row,
        state=OwnerState.UNASSIGNED,
        confirmed=False,
        owner=None,
        owner_incarnation=None,
        target=target,
        lease_until_s=0.0,
        granted_s=0.0,
        deadline_s=deadline_s,
    )
    return _wrote(free, transition, member, reason, now_s)


def _wrote(row: Row, transition: Transition, member: str | None, reason: str, now_s: float) -> Outcome:
    """Write one transition: the revision grows, and the journal gets its line."""
    after = msgspec.structs.replace(row, revision=row.revision + 1, since_s=now_s, reason=reason)
    return after, (Wrote(transition, member, reason, row.epoch),)


def _refuse(row: Row, reason: str) -> Outcome:
    return row, (Refused(reason),)
