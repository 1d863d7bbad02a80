"""The coordinator of partition sets: observe one snapshot, decide, write what the guards allow, say what was done.

Any process may run it; a term in the store decides whose plans are written. A cycle that finds nothing new reads the
members and nothing else, and writes nothing but its own lease.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from poise import clock
from poise.decide.partition_values import (
    MoveBudgets,
    Node,
    NodeState,
    Partition,
    PartitionPlan,
    PartitionPolicy,
    PartitionState,
    ReleaseTimeout,
    Step,
    StepKind,
)
from poise.decide.partitions import plan_partitions
from poise.errors import Conflict
from poise.model.ownership import OWNED, MemberRow, OwnerState, Row, SetRow
from poise.move.executor import Applied, Snapshot, apply_plan, lead, snapshot
from poise.move.guards import in_window
from poise.move.heartbeat import standing
from poise.stores.base import Store, Transaction

LEAD_S = 10.0
WAKE_MAX_S = 5.0


class Cycle(msgspec.Struct, frozen=True):
    """What one cycle did, in a sentence, and when to look again if nothing wakes it before."""

    said: str
    wake_s: float
    written: int = 0
    plan: PartitionPlan | None = None


class _Seen(msgspec.Struct, frozen=True):
    """What the last cycle of a set rested on; the same again, before its time is due, needs no plan."""

    job: SetRow
    lines: int
    standings: tuple[tuple[str, int, bool, bool, int], ...]
    due_s: float


class Coordinator:
    """Plans sets for whoever holds the term; keeps nothing that a restart would miss."""

    def __init__(self, store: Store, who: str, *, lead_s: float = LEAD_S) -> None:
        """Plan with the facts of this store, under this name."""
        self._store = store
        self._who = who
        self._lead_s = lead_s
        self._seen: dict[str, _Seen] = {}
        self._plans = 0

    def cycle(self, name: str, now: datetime | None = None) -> Cycle:
        """Run one cycle of one set; `now` is the wall clock, which only windows look at."""
        glance = self._store.transact(name, self._glance)
        if glance is None:
            self._seen.pop(name, None)
            return Cycle(f"{name}: another one leads", self._lead_s / 3)
        seen, term, now_s = glance
        known = self._seen.get(name)
        if known is not None and _same(known, seen) and now_s < known.due_s:
            return Cycle(f"{name}: nothing new", min(WAKE_MAX_S, known.due_s - now_s))
        facts = self._store.transact(name, lambda tx: snapshot(tx, name))
        plan = plan_snapshot(facts)
        steps = plan.steps if _open(facts, now) else [step for step in plan.steps if step.kind is not StepKind.RELEASE]
        applied = self._apply(name, term, facts, steps)
        due_s = _due_s(facts)
        if applied.written or applied.refused:
            self._seen.pop(name, None)
        else:
            self._seen[name] = msgspec.structs.replace(seen, due_s=due_s)
        wake_s = 0.0 if applied.written else min(WAKE_MAX_S, max(0.0, due_s - facts.now_s))
        return Cycle(_sentence(name, plan, applied), wake_s, applied.written, plan)

    def _glance(self, tx: Transaction) -> tuple[_Seen, int, float] | None:
        """Renew the lead if it is due, and read what tells whether anything is new."""
        leader = tx.leader()
        mine = leader.holder == self._who and tx.now_s < leader.lease_until_s - self._lead_s / 2
        led = leader if mine else lead(tx, self._who, self._lead_s)
        job = tx.job()
        if led is None or job is None:
            return None
        return _Seen(job, tx.last_line(), _standings(tx.members(), tx.now_s), 0.0), led.term, tx.now_s

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


def plan_snapshot(facts: Snapshot) -> PartitionPlan:
    """Plan a snapshot of a store, with its own time."""
    job = facts.job
    policy = PartitionPolicy(
        count=job.count,
        lease_s=job.terms.lease_s,
        grace_s=job.terms.grace_s,
        release_s=job.terms.release_s,
        on_release_timeout=ReleaseTimeout.REVOKE if job.terms.revoke else ReleaseTimeout.WAIT,
        budgets=_budgets(job),
        weights=job.weights,
        seed=f"PartitionSet/{job.name}",
    )
    nodes = [_node(member, facts.now_s) for member in facts.members.values()]
    return plan_partitions([_partition(row) for row in facts.rows.values()], nodes, now_s=facts.now_s, policy=policy)


def _budgets(job: SetRow) -> MoveBudgets:
    """Limit the hand-overs in flight; a paused set starts none."""
    guards = job.guards
    if job.paused:
        return MoveBudgets(0, 0, 0)
    return MoveBudgets(guards.moves_in_flight_max, guards.per_source_max, guards.per_target_max)


def _node(member: MemberRow, now_s: float) -> Node:
    now = standing(member, now_s)
    state = NodeState.GONE if not now.active else NodeState.DRAINING if now.draining else NodeState.ACTIVE
    return Node(member.name, state, member.incarnation, member.weight)


def _partition(row: Row) -> Partition:
    owned = row.state in OWNED
    return Partition(
        id=row.id,
        state=PartitionState(row.state),
        owner=row.owner,
        target=row.target,
        epoch=row.epoch,
        owner_incarnation=row.owner_incarnation,
        confirmed=row.confirmed,
        lease_until_s=row.lease_until_s if owned else None,
        deadline_s=row.deadline_s,
        offers=row.offers,
        reason=row.reason,
    )


def _open(facts: Snapshot, now: datetime | None) -> bool:
    return in_window(facts.job.guards.windows, now or clock.now()).open


def _standings(members: dict[str, MemberRow], now_s: float) -> tuple[tuple[str, int, bool, bool, int], ...]:
    judged = ((standing(member, now_s), member.weight) for member in members.values())
    return tuple(sorted((now.name, now.incarnation, now.active, now.draining, weight) for now, weight in judged))


def _same(known: _Seen, seen: _Seen) -> bool:
    return (known.job, known.lines, known.standings) == (seen.job, seen.lines, seen.standings)


def _due_s(facts: Snapshot) -> float:
    """Find when time alone changes something: the end of a lease, of a deadline or of a quarantine."""
    ends = [member.lease_until_s for member in facts.members.values() if member.lease_until_s > facts.now_s]
    for row in facts.rows.values():
        if row.state in OWNED:
            ends.append(row.lease_until_s + facts.job.terms.grace_s)
        if row.deadline_s is not None:
            ends.append(row.deadline_s)
        elif row.state is OwnerState.UNASSIGNED:
            ends.append(facts.job.quarantine_until_s)
    return min((end for end in ends if end > facts.now_s), default=facts.now_s + WAKE_MAX_S)


def _sentence(name: str, plan: PartitionPlan, applied: Applied) -> str:
    """Say what was done in one line."""
    if not plan.steps:
        waiting = f", {len(plan.moves_waiting)} moves wait" if plan.moves_waiting else ""
        return f"{name}: as it should be{waiting}"
    kinds = [str(step.kind) for step in plan.steps]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
    refused = f", {len(applied.refused)} not written" if applied.refused else ""
    return f"{name}: {counts}; {applied.written} written{refused}"
