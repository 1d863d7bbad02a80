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
    is_wanted,
)
from poise.move.election import elect
from poise.move.handoff import (
    Action,
    Ask,
    Cancel,
    Event,
    Expire,
    Grant,
    Refused,
    Retarget,
    Retire,
    Standing,
    Transition,
    Wrote,
    step,
)
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


def put_set(tx: Transaction, wanted: SetRow, keys: Iterable[str] | None = None) -> SetRow:
    """Create or change a set; `keys` are the items of a ring, None leaves them as they are.

    Growing adds free rows that go on from their tombstones; plans do the shrinking (T9).
    """
    before = tx.job()
    known = tx.rows()
    items = _items(wanted, known, keys)
    after = _changed_job(before or SetRow(name=wanted.name, kind=wanted.kind), wanted, len(items))
    rows = _listed(tx, after, known, items)
    if after == before and not rows:
        return after
    after = msgspec.structs.replace(after, revision=1 if before is None else before.revision + 1)
    tx.write_job(after)
    tx.write_rows(rows)
    tx.write_lines([_set_line(tx, after, f"{after.count} items")])
    return after


def _changed_job(before: SetRow, wanted: SetRow, count: int) -> SetRow:
    """Take from a request what people may set; generation, quarantine, pause and ledger are the store's."""
    if before.kind != wanted.kind:
        raise Conflict(f"{before.name} is a {before.kind}: it cannot become a {wanted.kind}")
    asked = ("terms", "guards", "weights", "capacity", "policy", "tokens", "brake_percent")
    said = {field: getattr(wanted, field) for field in asked}
    return msgspec.structs.replace(before, count=count, ended=False, **said)


def note_brake(tx: Transaction, name: str, vanished: list[str]) -> None:
    """Write down that the brake of a ring holds, and for whom, or that it is open again; once for each change."""
    job = _job(tx, name)
    if job.braked != bool(vanished):
        job = msgspec.structs.replace(job, braked=bool(vanished), revision=job.revision + 1)
        tx.write_job(job)
        who = f"the brake holds: {', '.join(vanished[:8])} vanished at once" if vanished else "the brake is open"
        tx.write_lines([_set_line(tx, job, who)])


def end_set(tx: Transaction, name: str) -> bool:
    """End a set that was deleted, once nothing is left of it but tombstones; say whether it has ended."""
    job = _job(tx, name)
    if not job.ended and not job.count and not tx.rows():
        job = msgspec.structs.replace(job, ended=True, revision=job.revision + 1)
        tx.write_job(job)
        tx.write_lines([_set_line(tx, job, "ended")])
    return job.ended


def _items(wanted: SetRow, known: Mapping[str, Row], keys: Iterable[str] | None) -> set[str]:
    """List the items that a set shall have."""
    if wanted.kind == "PartitionSet":
        return {str(number) for number in range(wanted.count)}
    return {item for item, row in known.items() if not row.retiring} if keys is None else set(keys)


def _listed(tx: Transaction, job: SetRow, known: Mapping[str, Row], items: set[str]) -> list[Row]:
    """Make the rows of new items, and mark those that a ring has no longer, or has again."""
    buried = tx.tombstones()
    least = job.generation * GENERATION
    rows = [
        Row(id=item, epoch=max(buried.get(item, 0), least), since_s=tx.now_s, revision=1)
        for item in sorted(items - known.keys())
    ]
    if job.kind == "PartitionSet":
        return rows  # The count says it.
    return rows + [
        msgspec.structs.replace(row, retiring=not row.retiring, revision=row.revision + 1)
        for item, row in known.items()
        if row.retiring == (item in items)
    ]


def release_brake(tx: Transaction, name: str) -> SetRow:
    """Let a ring move what vanished members held: somebody has looked, and they are gone."""
    job = msgspec.structs.replace(_job(tx, name), brake_released_s=tx.now_s)
    job = msgspec.structs.replace(job, revision=job.revision + 1)
    tx.write_job(job)
    tx.write_lines([_set_line(tx, job, "brake released")])
    return job


def pause_set(tx: Transaction, name: str, paused: bool, *, everything: bool = False) -> SetRow:
    """Hold new moves back, with `everything` also recovery; or let them go on. Kept in the store."""
    job, halted = _job(tx, name), paused and everything
    if (job.paused, job.halted) == (paused, halted):
        return job
    changed = msgspec.structs.replace(job, paused=paused, halted=halted, revision=job.revision + 1)
    tx.write_job(changed)
    tx.write_lines([_set_line(tx, changed, f"paused{', recovery too' if halted else ''}" if paused else "resumed")])
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
    strange = {hold.item for hold in said.holds} - rows.keys()
    buried = tx.tombstones() if strange else {}
    taken = beat(job, members, rows, member, said, tx.now_s, buried)
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
    wanted = list(steps)
    # Only what the plan names is read again, whoever owns it.
    job, rows, members = _job(tx, name), tx.rows_for("", [each.partition for each in wanted]), tx.members()
    now_s = tx.now_s
    standings = {each: standing(member, now_s) for each, member in members.items()}
    changed: dict[str, Row] = {}
    buried: list[Row] = []
    journal: list[tuple[str, Action]] = []
    refused: dict[str, str] = {}
    for each in wanted:
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
    begun = sum(isinstance(action, Wrote) and action.transition is Transition.T3 for _, action in journal)
    _keep_ledger(tx, job, begun)
    _remember_longest(tx, _job(tx, name))
    return Applied(len(changed) + len(buried), refused)


def _keep_ledger(tx: Transaction, job: SetRow, begun: int) -> None:
    """Note when moves began, for as long as a cooldown or a budget of the set counts them."""
    guards = job.guards
    counted_s = max([float(guards.cooldown_seconds), *(float(each.window_seconds) for each in guards.budgets)])
    if begun and counted_s:
        kept = tuple(at_s for at_s in job.started if at_s > tx.now_s - counted_s)
        changed = msgspec.structs.replace(job, started=kept + (tx.now_s,) * begun, revision=job.revision + 1)
        tx.write_job(changed)


def _event(job: SetRow, row: Row, wanted: Step, standings: Mapping[str, Standing], now_s: float, number: int) -> Event:
    """Put a planned step into the words of the protocol, with what this transaction knows."""
    nobody = Standing("", 0, active=False)
    within = is_wanted(job, row)
    target = standings.get(wanted.target or "", Standing(wanted.target or "", 0, active=False))
    owner = standings.get(row.owner or "", nobody)
    match wanted.kind:
        case StepKind.ASSIGN:
            blocked = "nothing is granted in a quarantine" if now_s < job.quarantine_until_s else ""
            grant_s, reason = job.terms.grant_s, wanted.reason
            return Grant(to=target, now_s=now_s, lease_s=grant_s, blocked=blocked, plan=number, reason=reason)
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
            over = not job.terms.leased and not owner.active
            return Expire(now_s=now_s, grace_s=job.terms.grace_s, successor=successor, over=over, reason=reason)
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
