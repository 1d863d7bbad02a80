"""Documents that live in a store: what people want as they wrote it, and what Poise knows as their status."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import msgspec

from poise.jobs.snapshots import tokens_of
from poise.model import Document, PartitionSet, ShardRing, TargetPool
from poise.model.ownership import OWNED, MemberRow, Row, Terms
from poise.model.partition_set import Node, PartitionRow, PartitionSetStatus
from poise.model.shard_ring import Instance, ShardRingStatus
from poise.model.target_pool import PoolMember, TargetPoolStatus
from poise.move.executor import Snapshot
from poise.move.heartbeat import standing
from poise.observe.leases import Health, SeenLease, health

LeaseState = Literal["ready", "expired", "uncertain", "dead", "orphaned"]
_LEASE_STATES: dict[Health, LeaseState] = {
    Health.READY: "ready",
    Health.EXPIRED: "expired",
    Health.UNCERTAIN: "uncertain",
    Health.DEAD: "dead",
    Health.ORPHANED: "orphaned",
}


def with_status(document: Document, facts: Snapshot, now: datetime) -> Document:
    """Fill in the status of a kind that owns items; store time is told as wall clock time, from this instant on."""
    match document:
        case PartitionSet():
            return msgspec.structs.replace(document, status=_partitions(facts, now))
        case ShardRing():
            return msgspec.structs.replace(document, status=_ring(facts))
        case TargetPool():
            return msgspec.structs.replace(document, status=_pool(facts))
        case _:
            return document


def _partitions(facts: Snapshot, now: datetime) -> PartitionSetStatus:
    members = sorted(facts.members.values(), key=lambda member: member.name)
    rows = sorted(facts.rows.values(), key=lambda row: int(row.id))
    zero = now - timedelta(seconds=facts.now_s)
    return PartitionSetStatus(
        nodes=[_node(member, facts.now_s) for member in members],
        partitions=[_partition(row, zero) for row in rows],
    )


def _node(member: MemberRow, now_s: float) -> Node:
    state = pod_state(member, now_s)
    return Node(member.name, "active" if state == "ready" else state, member.incarnation, member.weight)


def _moment(zero: datetime, at_s: float | None) -> datetime | None:
    return None if at_s is None else zero + timedelta(seconds=at_s)


def _partition(row: Row, zero: datetime) -> PartitionRow:
    return PartitionRow(
        id=row.id,
        state=row.state.value,
        owner=row.owner,
        target=row.target,
        epoch=row.epoch,
        confirmed=row.confirmed,
        owner_incarnation=row.owner_incarnation,
        lease_until=_moment(zero, row.lease_until_s) if row.state in OWNED else None,
        deadline=_moment(zero, row.deadline_s),
        since=_moment(zero, row.since_s),
        offers=row.offers,
        reason=row.reason,
    )


def _ring(facts: Snapshot) -> ShardRingStatus:
    owners = {row.owner for row in facts.rows.values() if row.owner is not None}
    members = sorted(facts.members.values(), key=lambda member: member.name)
    return ShardRingStatus(
        instances=[
            Instance(member.name, lease_state(member, facts.job.terms, facts.now_s), tokens_of(facts.job, member))
            for member in members
            if member.name in owners or standing(member, facts.now_s).active
        ],
        assignment=_assignment(facts),
    )


def lease_state(member: MemberRow, terms: Terms, now_s: float) -> LeaseState:
    """Judge the lease of an instance as a sharder would: ready, expired, uncertain; dead once it has left."""
    if member.leaving is not None:
        return "dead"
    seen = health(SeenLease(member.lease_until_s - terms.lease_s, terms.lease_s), now_s)
    return _LEASE_STATES[seen]


def _assignment(facts: Snapshot) -> dict[str, str]:
    return {row.id: row.owner for row in sorted(facts.rows.values(), key=lambda row: row.id) if row.owner is not None}


def _pool(facts: Snapshot) -> TargetPoolStatus:
    members = sorted(facts.members.values(), key=lambda member: member.name)
    return TargetPoolStatus(
        members=[PoolMember(member.name, pod_state(member, facts.now_s)) for member in members],
        assignment=_assignment(facts),
    )


def pod_state(member: MemberRow, now_s: float) -> Literal["ready", "draining", "gone"]:
    """Judge a pod: ready while it answers, draining, or gone."""
    seen = standing(member, now_s)
    return "gone" if not seen.active else "draining" if seen.draining else "ready"
