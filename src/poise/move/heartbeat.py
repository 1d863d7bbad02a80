"""A member's registration and heartbeat, decided inside the store's transaction from what it read there.

Law: a heartbeat renews only the rows that it names, and the reply names everything that the member may hold.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from poise.model.ownership import (
    GENERATION,
    OWNED,
    RELEASING,
    Granted,
    Heartbeat,
    MemberRow,
    OwnerState,
    Release,
    Reply,
    Row,
    SetRow,
    Word,
    is_wanted,
)
from poise.move.handoff import Action, Grant, Refused, Say, Standing, step


class Superseded(msgspec.Struct, frozen=True):
    """A newer process of this name has registered: stop, and do not register again (409)."""

    incarnation: int


class Stale(msgspec.Struct, frozen=True):
    """A later heartbeat of this process came first (412): the member is healthy, this request is old."""

    seq: int


class Beaten(msgspec.Struct, frozen=True):
    """What a heartbeat did: rows to write, lines of the journal, the member's row, and the answer.

    `ahead` is the generation of an epoch that the store has never granted: commits were lost.
    """

    answer: Reply | Superseded | Stale
    member: MemberRow
    rows: dict[str, Row] = {}
    journal: tuple[tuple[str, Action], ...] = ()
    ahead: int | None = None


def register(member: MemberRow | None, name: str, process: str, now_s: float, lease_s: float) -> MemberRow:
    """Give a process its incarnation. A new one supersedes the old; the same one asked twice gets the same answer."""
    if member is not None and member.process == process:
        return member
    before = member or MemberRow(name=name)
    return msgspec.structs.replace(
        before,
        incarnation=before.incarnation + 1,
        process=process,
        lease_until_s=now_s + lease_s,
        seq=0,
        leaving=None,
    )


def standing(member: MemberRow, now_s: float) -> Standing:
    """Judge a member at an instant: active while it was heard less than a lease ago and is not leaving."""
    active = now_s < member.lease_until_s and member.leaving is None
    return Standing(member.name, member.incarnation, active, member.draining)


def beat(
    job: SetRow,
    members: Mapping[str, MemberRow],
    rows: Mapping[str, Row],
    name: str,
    said: Heartbeat,
    now_s: float,
    buried: Mapping[str, int] = {},
) -> Beaten:
    """Take one heartbeat. Order: who speaks, in which order, then each sentence, then the reply.

    `rows` holds at least what the member owns and what it names, `members` at least itself and the targets of those,
    and `buried` the epochs of tombstones where it names what has no row.
    """
    member = members[name]
    if (said.incarnation, said.process) != (member.incarnation, member.process):
        taken = _take(job, members, rows, name, _only_released(said), now_s)
        return msgspec.structs.replace(taken, answer=Superseded(member.incarnation), member=member, ahead=None)
    if said.seq < member.seq:
        return Beaten(Stale(member.seq), member)
    if said.seq == member.seq:
        return Beaten(_reply(member, rows, now_s), member)
    # What it says of itself counts first: one that leaves is not given back what it lets go of in the same breath.
    heard = msgspec.structs.replace(
        member,
        seq=said.seq,
        weight=said.weight,
        leaving=said.leaving,
        lease_until_s=now_s + job.terms.lease_s,
    )
    strange = [hold.epoch for hold in said.holds if hold.item not in rows and hold.epoch > buried.get(hold.item, 0)]
    if strange:
        return Beaten(_reply(member, rows, now_s), member, ahead=max(strange) // GENERATION)
    taken = _take(job, {**members, name: heard}, rows, name, said, now_s)
    if taken.ahead is not None:
        return taken
    return msgspec.structs.replace(taken, member=heard, answer=_reply(heard, {**rows, **taken.rows}, now_s))


def _only_released(said: Heartbeat) -> Heartbeat:
    """Keep of a superseded process only what makes nobody less safe."""
    return msgspec.structs.replace(said, holds=tuple(hold for hold in said.holds if hold.state is Word.RELEASED))


def _take(
    job: SetRow, members: Mapping[str, MemberRow], rows: Mapping[str, Row], name: str, said: Heartbeat, now_s: float
) -> Beaten:
    """Take the sentences one by one; an epoch that was never granted stops everything."""
    member, changed, journal = members[name], dict[str, Row](), list[tuple[str, Action]]()
    for hold in said.holds:
        row = changed.get(hold.item, rows.get(hold.item))
        if row is None:
            continue
        if hold.epoch > row.epoch:
            return Beaten(_reply(member, rows, now_s), member, ahead=hold.epoch // GENERATION)
        event = Say(
            member=name,
            incarnation=said.incarnation,
            epoch=hold.epoch,
            word=hold.state,
            now_s=now_s,
            lease_s=job.terms.lease_s,
            revoke=job.terms.revoke,
            successor=said.incarnation < member.incarnation,
            restart_until_s=_restart_until_s(job, said, now_s),
        )
        after, actions = step(row, event)
        assert after is not None
        if hold.state is Word.RELEASED and after.state is OwnerState.UNASSIGNED and after is not row:
            after, more = _fuse(job, members, after, now_s)
            after = msgspec.structs.replace(after, revision=row.revision + 1)  # Two transitions, one write.
            actions += more
        if after != row:
            changed[hold.item] = after
        journal += [(hold.item, action) for action in actions]
    return Beaten(_reply(member, rows, now_s), member, changed, tuple(journal))


def _restart_until_s(job: SetRow, said: Heartbeat, now_s: float) -> float | None:
    if said.leaving != "restart" or not job.terms.restart_grace_s:
        return None
    return now_s + job.terms.restart_grace_s


def _fuse(job: SetRow, members: Mapping[str, MemberRow], row: Row, now_s: float) -> tuple[Row, tuple[Action, ...]]:
    """T5 and T1 in one transaction: the target gets what it was promised, if it can take it now."""
    target = members.get(row.target) if row.target is not None else None
    if (
        target is None
        or not is_wanted(job, row)
        or job.paused
        or not standing(target, now_s).takes
        or now_s < job.quarantine_until_s
    ):
        return row, ()
    grant = Grant(to=standing(target, now_s), now_s=now_s, lease_s=job.terms.grant_s, plan=row.plan, reason=row.reason)
    after, actions = step(row, grant)
    assert after is not None
    return after, tuple(action for action in actions if not isinstance(action, Refused))


def _reply(member: MemberRow, rows: Mapping[str, Row], now_s: float) -> Reply:
    """Name every item of this process whose lease still runs; one past its lease is never offered again."""
    mine = [
        row
        for row in rows.values()
        if (row.owner, row.owner_incarnation) == (member.name, member.incarnation)
        and row.state in OWNED
        and now_s < row.lease_until_s
    ]
    return Reply(
        incarnation=member.incarnation,
        seq=member.seq,
        granted=tuple(
            Granted(row.id, row.epoch, row.lease_until_s - now_s) for row in mine if row.state not in RELEASING
        ),
        release=tuple(
            Release(row.id, row.epoch, row.lease_until_s - now_s, max(0.0, (row.deadline_s or now_s) - now_s))
            for row in mine
            if row.state in RELEASING
        ),
    )


def next_generation(job: SetRow, rows: Mapping[str, Row], ahead: int, now_s: float) -> tuple[SetRow, dict[str, Row]]:
    """Start a new generation after commits were lost: nobody owns anything, and nothing is granted for a while.

    The new generation is 1 + the larger of what the store has and what was seen; the quarantine lasts as long as the
    longest lease that may have been granted, and grace.
    """
    generation = 1 + max(job.generation, ahead)
    quarantine_s = max(job.granted_max_s, job.terms.lease_s) + job.terms.grace_s
    renewed = {
        name: msgspec.structs.replace(
            row,
            state=OwnerState.UNASSIGNED,
            confirmed=False,
            owner=None,
            owner_incarnation=None,
            target=row.owner or row.target,
            lease_until_s=0.0,
            granted_s=0.0,
            deadline_s=None,
            epoch=generation * GENERATION + row.epoch % GENERATION,
            since_s=now_s,
            reason="commits were lost",
            revision=row.revision + 1,
        )
        for name, row in rows.items()
    }
    changed = msgspec.structs.replace(
        job, generation=generation, quarantine_until_s=now_s + quarantine_s, revision=job.revision + 1
    )
    return changed, renewed


def after_reboot(job: SetRow, row: Row, now_s: float) -> Row:
    """Start a row's times again at full length: the clock that measured them has begun anew."""
    if row.state not in OWNED:
        deadline_s = None if row.deadline_s is None else now_s + job.terms.restart_grace_s
        return msgspec.structs.replace(row, deadline_s=deadline_s)
    deadline_s = None if row.deadline_s is None else now_s + job.terms.release_s
    lease_until_s = now_s + max(job.terms.lease_s, row.granted_s)
    return msgspec.structs.replace(row, lease_until_s=lease_until_s, deadline_s=deadline_s)
