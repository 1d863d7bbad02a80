"""Carrying out: every operation on a set as one transaction of the store, judged again by store time inside it.

Order for safety: the term is checked first, then each row by its revision and its guards. A row that fails drops only
itself, not the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from poise.decide.partition_values import Step, StepKind
from poise.errors import Conflict, Fault, InvalidSpec
from poise.model.ownership import (
    GENERATION,
    RETIREMENT,
    Heartbeat,
    LeaderRow,
    Line,
    MemberRow,
    OwnerState,
    Reply,
    Row,
    SetRow,
)
from poise.move.election import elect
from poise.move.handoff import Action, Ask, Cancel, Event, Expire, Grant, Refused, Retarget, Retire, Standing, step
from poise.move.heartbeat import Stale, Superseded, beat, next_generation, register, standing
from poise.stores.base import Transaction

_GENERATIONS_AHEAD_MAX = 1


class Snapshot(msgspec.Struct, frozen=True):
    """All facts of a set at one instant."""

    job: SetRow
    leader: LeaderRow
    members: dict[str, MemberRow]
    rows: dict[str, Row]
    now_s: float


class Applied(msgspec.Struct, frozen=True):
    """What became of a plan: the rows that were written, and why the others were not."""

    written: int
    refused: dict[str, str] = {}


def snapshot(tx: Transaction, name: str) -> Snapshot:
    """Read everything about a set."""
    return Snapshot(_job(tx, name), tx.leader(), tx.members(), tx.rows(), tx.now_s)


def _job(tx: Transaction, name: str) -> SetRow:
    job = tx.job()
    if job is None:
        raise InvalidSpec(Fault("$.set", f"there is no set {name!r}"))
    return job


def put_set(tx: Transaction, wanted: SetRow) -> SetRow:
    """Create or change a set. Growing adds free rows that go on from their tombstones; plans do the shrinking (T9)."""
    before = tx.job()
    after = wanted if before is None else _changed_job(before, wanted)
    if after == before:
        return after
    after = msgspec.structs.replace(after, revision=1 if before is None else before.revision + 1)
    tx.write_job(after)
    known, buried = tx.rows(), tx.tombstones()
    fresh = [str(number) for number in range(after.count) if str(number) not in known]
    tx.write_rows(
        Row(id=item, epoch=max(buried.get(item, 0), after.generation * GENERATION), since_s=tx.now_s, revision=1)
        for item in fresh
    )
    tx.write_lines([_set_line(tx, after, f"{after.count} items")])
    return after


def _changed_job(before: SetRow, wanted: SetRow) -> SetRow:
    """Take from a request what people may set; generation, quarantine and pause are the store's."""
    return msgspec.structs.replace(
        before, count=wanted.count, terms=wanted.terms, guards=wanted.guards, weights=wanted.weights
    )


def pause_set(tx: Transaction, name: str, paused: bool) -> SetRow:
    """Hold new moves back, or let them go on; kept in the store."""
    job = _job(tx, name)
    if job.paused == paused:
        return job
    changed = msgspec.structs.replace(job, paused=paused, revision=job.revision + 1)
    tx.write_job(changed)
    tx.write_lines([_set_line(tx, changed, "paused" if paused else "resumed")])
    return changed


def drain_member(tx: Transaction, name: str, member: str, draining: bool) -> MemberRow:
    """Take a member out of service, or back into it."""
    row = tx.member(member)
    if row is None:
        raise InvalidSpec(Fault("$.member", f"set {name} has no member {member!r}"))
    if row.draining == draining:
        return row
    changed = msgspec.structs.replace(row, draining=draining)
    tx.write_member(changed)
    tx.write_lines([_set_line(tx, _job(tx, name), f"{member} {'draining' if draining else 'back in service'}")])
    return changed


def register_member(tx: Transaction, name: str, member: str, process: str) -> MemberRow:
    """Give a process its incarnation."""
    job = _job(tx, name)
    before = tx.member(member)
    after = register(before, member, process, tx.now_s, job.terms.lease_s)
    if after != before:
        tx.write_member(after)
        tx.write_lines([_set_line(tx, job, f"{member} registered, incarnation {after.incarnation}")])
    return after


def take_heartbeat(tx: Transaction, name: str, member: str, said: Heartbeat) -> Reply | Superseded | Stale:
    """Take a heartbeat: renew what it names, believe what it says, and answer what the member may hold.

    An epoch that this store never granted means that commits were lost: the set starts a new generation.
    """
    job, own = _job(tx, name), tx.member(member)
    if own is None:
        return Superseded(0)
    rows = tx.rows_for(member, [hold.item for hold in said.holds])
    targets = {row.target for row in rows.values() if row.target is not None}
    members = {each: known for each in sorted({member, *targets}) if (known := tx.member(each)) is not None}
    taken = beat(job, members, rows, member, said, tx.now_s)
    if taken.ahead is not None:
        return _renew_generation(tx, job, own, said.seq, taken.ahead)
    tx.write_member(taken.member)
    _write(tx, rows, taken.rows, taken.journal, term=0)
    _remember_longest(tx, job)
    return taken.answer


def _remember_longest(tx: Transaction, job: SetRow) -> None:
    """Keep the longest lease ever granted: a quarantine must outlast it."""
    if job.terms.lease_s > job.granted_max_s:
        tx.write_job(msgspec.structs.replace(job, granted_max_s=job.terms.lease_s, revision=job.revision + 1))


def _renew_generation(tx: Transaction, job: SetRow, own: MemberRow, seq: int, ahead: int) -> Reply:
    """Start a new generation; a claim too far ahead is a lie or a mistake, and is refused."""
    if ahead > job.generation + _GENERATIONS_AHEAD_MAX:
        raise Conflict(f"{own.name} names generation {ahead}, set {job.name} has {job.generation}: refused")
    changed, rows = next_generation(job, tx.rows(), ahead, tx.now_s)
    tx.write_job(changed)
    tx.write_rows(rows.values())
    tx.write_lines([_set_line(tx, changed, f"generation {changed.generation}: commits were lost")])
    return Reply(own.incarnation, seq)


def lead(tx: Transaction, who: str, lease_s: float) -> LeaderRow | None:
    """Become or stay the leader of a set; None where another one is."""
    before = tx.leader()
    after = elect(before, who, tx.now_s, lease_s)
    if after is not None and after != before:
        tx.write_leader(after)
    return after


def apply_plan(
    tx: Transaction, name: str, term: int, seen: Mapping[str, int], steps: Iterable[Step], number: int
) -> Applied:
    """Write a leader's plan, made from rows at the revisions seen; a late leader writes nothing at all."""
    if tx.leader().term != term:
        raise Conflict(f"term {term} is over: {tx.leader().holder or 'nobody'} leads with term {tx.leader().term}")
    job, rows, members = _job(tx, name), tx.rows(), tx.members()
    now_s = tx.now_s
    standings = {each: standing(member, now_s) for each, member in members.items()}
    changed: dict[str, Row] = {}
    buried: list[Row] = []
    journal: list[tuple[str, Action]] = []
    refused: dict[str, str] = {}
    for each in steps:
        row = rows.get(each.partition)
        if row is None or row.revision != seen.get(each.partition):
            refused[each.partition] = "it has changed since the plan was made"
            continue
        after, actions = step(row, _event(job, row, each, standings, now_s, number))
        if after is None:
            buried.append(row)
        elif after is not row:
            changed[each.partition] = after
        journal += [(each.partition, action) for action in actions if not isinstance(action, Refused)]
        for action in actions:
            if isinstance(action, Refused):
                refused[each.partition] = action.reason
    _write(tx, rows, changed, tuple(journal), term=term)
    tx.bury_rows(buried)
    _remember_longest(tx, job)
    return Applied(len(changed) + len(buried), refused)


def _event(job: SetRow, row: Row, wanted: Step, standings: Mapping[str, Standing], now_s: float, number: int) -> Event:
    """Put a planned step into the words of the protocol, with what this transaction knows."""
    nobody = Standing("", 0, active=False)
    within = int(row.id) < job.count if row.id.isdigit() else True
    target = standings.get(wanted.target or "", Standing(wanted.target or "", 0, active=False))
    owner = standings.get(row.owner or "", nobody)
    match wanted.kind:
        case StepKind.ASSIGN:
            blocked = "nothing is granted in a quarantine" if now_s < job.quarantine_until_s else ""
            return Grant(
                to=target, now_s=now_s, lease_s=job.terms.lease_s, blocked=blocked, plan=number, reason=wanted.reason
            )
        case StepKind.RELEASE if row.state is OwnerState.ASSIGNED:
            reason = RETIREMENT if not within else wanted.reason
            return Ask(target=wanted.target, now_s=now_s, release_s=job.terms.release_s, reason=reason, plan=number)
        case StepKind.RELEASE:
            # An item beyond the count is reserved for nobody, whether or not its target is there.
            gone = standings.get(row.target or "") if within else None
            reason = row.reason if within else RETIREMENT
            return Retarget(target=target if wanted.target else None, gone=gone, now_s=now_s, reason=reason)
        case StepKind.CANCEL:
            return Cancel(source=owner, within_count=within, now_s=now_s, reason=wanted.reason)
        case StepKind.UNASSIGN:
            successor = owner.incarnation > (row.owner_incarnation or 0)
            reason = row.reason if row.reason == RETIREMENT else wanted.reason
            return Expire(now_s=now_s, grace_s=job.terms.grace_s, successor=successor, reason=reason)
        case StepKind.RETIRE:
            return Retire(within_count=within)


def _write(
    tx: Transaction,
    before: Mapping[str, Row],
    after: Mapping[str, Row],
    journal: Iterable[tuple[str, Action]],
    term: int,
) -> None:
    """Write transitions over the revisions they were made from, and renewals beside them; nothing idle writes."""
    moved = [row for item, row in after.items() if row.revision != before[item].revision]
    renewed = [row for item, row in after.items() if row.revision == before[item].revision]
    if moved:
        tx.write_rows(moved)
    if renewed:
        tx.renew_rows(renewed)
    name = _name(tx)
    lines = [
        Line(
            set=name,
            item=item,
            transition=action.transition,
            member=action.member,
            epoch=action.epoch,
            at_s=tx.now_s,
            reason=action.reason,
            term=term,
        )
        for item, action in journal
        if not isinstance(action, Refused)
    ]
    if lines:
        tx.write_lines(lines)


def _name(tx: Transaction) -> str:
    job = tx.job()
    return job.name if job is not None else ""


def _set_line(tx: Transaction, job: SetRow, reason: str) -> Line:
    return Line(set=job.name, item="", transition="set", member=None, epoch=0, at_s=tx.now_s, reason=reason)
