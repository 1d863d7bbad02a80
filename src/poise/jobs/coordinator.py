"""The coordinator of sets and rings: observe one snapshot, decide, write what the guards allow, say what was done.

Any process may run it; a term in the store decides whose plans are written. A cycle that finds nothing new reads the
members, from time to time also the rows, and writes nothing but its own lease.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from math import inf

import msgspec

from poise import clock
from poise.decide.partition_values import PartitionPlan, Step
from poise.errors import Conflict
from poise.jobs.debts import Debts
from poise.jobs.gate import open_gate
from poise.jobs.snapshots import barred_until_s, braking
from poise.jobs.stored import end_deleted
from poise.model.ownership import OWNED, MemberRow, OwnerState, SetRow
from poise.move.election import resign
from poise.move.executor import Applied, Snapshot, apply_plan, lead, note_brake, snapshot
from poise.move.heartbeat import standing
from poise.stores.base import Store, Transaction

LEAD_S = 10.0
WAKE_MAX_S = 5.0


# A member's name, incarnation, whether it is active, draining or leaving, and its weight.
_Standing = tuple[str, int, bool, bool, bool, int]


class Cycle(msgspec.Struct, frozen=True):
    """What one cycle did, in a sentence, and when to look again if nothing wakes it before."""

    said: str
    wake_s: float
    written: int = 0
    plan: PartitionPlan | None = None
    leads: bool = True
    kind: str = ""


class _Glance(msgspec.Struct, frozen=True):
    """What tells whether anything is new without a look at the rows; and when the next member's lease ends."""

    job: SetRow
    lines: int
    standings: tuple[_Standing, ...]
    member_due_s: float
    term: int
    now_s: float


class _Seen(msgspec.Struct, frozen=True):
    """What the last plan of a set rested on, and when; the same again, before time changes a row, needs no plan.

    Heartbeats move the ends of leases on, so `row_due_s` is only when to look at the rows again.
    """

    glance: _Glance
    planned_s: float
    row_due_s: float
    opens_s: float


class Coordinator:
    """Plans sets for whoever holds the term; keeps nothing that a restart would miss."""

    def __init__(self, store: Store, who: str, *, lead_s: float = LEAD_S, debts: Debts | None = None) -> None:
        """Plan with the facts of this store, under this name; one process shares `debts` among its sets."""
        self._store = store
        self._who = who
        self._lead_s = lead_s
        self._debts = debts or Debts()
        self._seen: dict[str, _Seen] = {}
        self._plans = 0

    def cycle(self, name: str, now: datetime | None = None) -> Cycle:
        """Run one cycle of one set; `now` is the wall clock, which only windows look at."""
        glance = self._store.transact(name, self._glance)
        if isinstance(glance, Cycle):
            self._seen.pop(name, None)
            return glance
        rest_s = min(WAKE_MAX_S, self._term_s(glance.job) / 3)  # The lead must be renewed long before it ends.
        known = self._seen.get(name)
        if known is not None and _same(known, glance) and glance.now_s < known.row_due_s:
            return _idle(known, glance, rest_s)
        facts = self._store.view(name, lambda tx: snapshot(tx, name))
        if known is not None and _same(known, glance) and (later := _looked_again(known, facts)) is not None:
            self._seen[name] = later
            return _idle(later, glance, rest_s)
        return self._plan(name, glance, facts, now or clock.now(), rest_s)

    def _plan(self, name: str, glance: _Glance, facts: Snapshot, now: datetime, rest_s: float) -> Cycle:
        """Plan a snapshot, write what may be written, and note what the plan rested on."""
        plan = self._debts.plan(facts)
        gate = open_gate(facts, now)
        applied = self._apply(name, glance.term, facts, gate.let_pass(plan.steps, facts.rows))
        if facts.job.braked != bool(vanished := braking(facts)):
            self._store.transact(name, lambda tx: note_brake(tx, name, vanished))
        if not facts.job.count and not facts.rows:
            self._store.transact(name, lambda tx: end_deleted(tx, name))
        row_due_s = min(_row_due_s(facts, facts.now_s), gate.opens_s)
        if applied.written or applied.refused:
            self._seen.pop(name, None)
        else:
            self._seen[name] = _Seen(glance, facts.now_s, row_due_s, gate.opens_s)
        due_s = min(row_due_s, _member_due_s(facts.members, facts.now_s))
        wake_s = 0.0 if applied.written else min(rest_s, max(0.0, due_s - facts.now_s))
        return Cycle(_sentence(name, plan, applied), wake_s, applied.written, plan, kind=facts.job.kind)

    def _glance(self, tx: Transaction) -> _Glance | Cycle:
        """Renew the lead if it is due, and read what tells whether anything is new; or say who leads."""
        leader, job = tx.leader(), tx.job()
        if job is None:
            return Cycle("there is no such set", self._lead_s / 3, leads=False)
        lead_s = self._term_s(job)
        mine = leader.holder == self._who and tx.now_s < leader.lease_until_s - lead_s * 2 / 3
        led = leader if mine else lead(tx, self._who, lead_s)
        if led is None:
            return Cycle(f"{job.name}: {leader.holder} leads", lead_s / 3, leads=False)
        members, now_s = tx.members(), tx.now_s
        due_s = _member_due_s(members, now_s)
        return _Glance(job, tx.last_line(), _standings(members, now_s), due_s, led.term, now_s)

    def _term_s(self, job: SetRow) -> float:
        """Say how long a lead lasts: whoever leads must be missed before the items of a crashed member are due."""
        return min(self._lead_s, job.terms.lease_s)

    def resign(self, name: str) -> None:
        """Give the lead of a set up at once, so that nobody has to wait for its end."""
        self._seen.pop(name, None)
        self._store.transact(name, self._resign)

    def _resign(self, tx: Transaction) -> None:
        left = resign(tx.leader(), self._who)
        if left is not None:
            tx.write_leader(left)

    def _apply(self, name: str, term: int, facts: Snapshot, steps: list[Step]) -> Applied:
        if not steps:
            return Applied(0)
        self._plans += 1
        number = self._plans
        seen = {item: row.revision for item, row in facts.rows.items()}
        try:
            return self._store.transact(name, lambda tx: apply_plan(tx, name, term, seen, steps, number))
        except Conflict as error:
            return Applied(0, {"": str(error)})


def _standings(members: dict[str, MemberRow], now_s: float) -> tuple[_Standing, ...]:
    """Say how every member stands. One that had vanished and now says that it leaves opens a brake: that is news."""
    judged = ((standing(member, now_s), member) for member in members.values())
    return tuple(
        sorted(
            (now.name, now.incarnation, now.active, now.draining, member.leaving is not None, member.weight)
            for now, member in judged
        )
    )


def _same(known: _Seen, now: _Glance) -> bool:
    before = known.glance
    return (before.job, before.lines, before.standings) == (now.job, now.lines, now.standings)


def _looked_again(known: _Seen, facts: Snapshot) -> _Seen | None:
    """Say when to look at the rows again, if time has changed none since the plan; None where a plan is needed."""
    due_s = min(_row_due_s(facts, known.planned_s), known.opens_s)
    return msgspec.structs.replace(known, row_due_s=due_s) if facts.now_s < due_s else None


def _idle(known: _Seen, now: _Glance, rest_s: float) -> Cycle:
    due_s = min(known.row_due_s, now.member_due_s)
    return Cycle(f"{now.job.name}: nothing new", min(rest_s, max(0.0, due_s - now.now_s)))


def _member_due_s(members: dict[str, MemberRow], now_s: float) -> float:
    """Find when the next member that is not heard of counts as gone."""
    ends = (member.lease_until_s for member in members.values())
    return min((end for end in ends if end > now_s), default=inf)


def _row_due_s(facts: Snapshot, since_s: float) -> float:
    """Find when time alone changes a row first, after an instant: its lease, its deadline or its quarantine ends."""
    ends = list[float]()
    for row in facts.rows.values():
        if row.state in OWNED:
            ends += [row.lease_until_s, row.lease_until_s + facts.job.terms.grace_s]
        ends += [barred_until_s(row, member, facts.job.terms) for member in row.offers]
        if row.deadline_s is not None:
            ends.append(row.deadline_s)
        elif row.state is OwnerState.UNASSIGNED:
            ends.append(facts.job.quarantine_until_s)
    return min((end for end in ends if end > since_s), default=inf)


def _sentence(name: str, plan: PartitionPlan, applied: Applied) -> str:
    """Say what was done in one line."""
    if not plan.steps:
        waiting = f", {len(plan.moves_waiting)} moves wait" if plan.moves_waiting else ""
        return f"{name}: {_lacking(plan)}{waiting}"
    kinds = [str(step.kind) for step in plan.steps]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
    refused = f", {len(applied.refused)} not written" if applied.refused else ""
    return f"{name}: {counts}; {applied.written} written{refused}"


def _lacking(plan: PartitionPlan) -> str:
    """Say how many have no owner, and what most of them wait for."""
    if not plan.unowned:
        return "as it should be"
    reason, count = Counter(plan.unowned.values()).most_common(1)[0]
    others = f", and {len(plan.unowned) - count} for other reasons" if count < len(plan.unowned) else ""
    return f"{count} without an owner: {reason}{others}"
