"""Planning what a store knows: rows and members go in, the plan of their set or ring comes out."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from poise.decide.homes import Homes, plan_homes
from poise.decide.partition_facts import Facts
from poise.decide.partition_values import (
    OFFERS_MAX,
    MoveBudgets,
    Node,
    NodeState,
    Partition,
    PartitionPlan,
    PartitionPolicy,
    ReleaseTimeout,
)
from poise.decide.partitions import plan_partitions
from poise.model.ownership import OWNED, MemberRow, Row, SetRow, Terms, is_wanted
from poise.move.executor import Snapshot
from poise.move.heartbeat import standing
from poise.observe.brake import is_braked, vanished_at_once

BACKOFF_LEASES, BACKOFF_MAX_S = 3, 3600.0
TOKENS_MAX = 100_000  # Of one member: its weight is what it says itself, and a plan lays every token out.


def plan_snapshot(facts: Snapshot, debt: Mapping[str, Fraction] = {}) -> PartitionPlan:
    """Plan a snapshot of a store, with its own time; `debt` is what the other sets owe its members."""
    nodes = [_node(member, facts.now_s) for member in facts.members.values()]
    policy = _policy(facts.job, debt)
    if facts.job.kind == "PartitionSet":
        rows = [_partition(row, facts) for row in facts.rows.values()]
        return plan_partitions(rows, nodes, now_s=facts.now_s, policy=policy)
    return plan_homes(_ring_facts(facts, nodes, policy), _homes(facts), braked=bool(braking(facts)))


def braking(facts: Snapshot) -> list[str]:
    """Name the members for which the brake of a ring holds; nobody where it is open."""
    if facts.job.kind != "ShardRing":
        return []
    owners = {row.owner for row in facts.rows.values() if row.owner is not None}
    terms, released_s = facts.job.terms, facts.job.brake_released_s
    vanished = vanished_at_once(facts.members.values(), owners, facts.now_s, terms.lease_s, released_s)
    return vanished if is_braked(len(vanished), len(owners), facts.job.brake_percent) else []


def _policy(job: SetRow, debt: Mapping[str, Fraction]) -> PartitionPolicy:
    return PartitionPolicy(
        count=job.count,
        lease_s=job.terms.lease_s,
        grace_s=job.terms.grace_s,
        release_s=job.terms.release_s,
        on_release_timeout=ReleaseTimeout.REVOKE if job.terms.revoke else ReleaseTimeout.WAIT,
        budgets=_budgets(job),
        weights=job.weights,
        debt=dict(debt),
        seed=f"{job.kind}/{job.name}",
    )


def _budgets(job: SetRow) -> MoveBudgets:
    """Limit the hand-overs in flight; a paused set starts none."""
    guards = job.guards
    if job.paused:
        return MoveBudgets(0, 0, 0)
    return MoveBudgets(guards.moves_in_flight_max, guards.per_source_max, guards.per_target_max)


def _ring_facts(facts: Snapshot, nodes: list[Node], policy: PartitionPolicy) -> Facts:
    """Put the rows of a ring in the order of their keys."""
    rows = [facts.rows[key] for key in sorted(facts.rows)]
    known = {node.name: node for node in sorted(nodes, key=lambda node: node.name)}
    return Facts(
        rows=[_partition(row, facts) for row in rows if is_wanted(facts.job, row)],
        beyond=[_partition(row, facts) for row in rows if not is_wanted(facts.job, row)],
        nodes=known,
        active=[name for name, node in known.items() if node.state == NodeState.ACTIVE],
        now_s=facts.now_s,
        policy=policy,
    )


def _homes(facts: Snapshot) -> Homes:
    """Say how homes are chosen."""
    job = facts.job
    return Homes(
        policy=job.policy,
        tokens={member.name: tokens_of(job, member) for member in facts.members.values()},
        capacity=job.capacity or None,
        noun="pod" if job.kind == "TargetPool" else "instance",
    )


def tokens_of(job: SetRow, member: MemberRow) -> int:
    """Give a member of a ring the ring's number of tokens for each unit of its weight, up to a bound."""
    return min(job.tokens * member.weight, TOKENS_MAX)


def _node(member: MemberRow, now_s: float) -> Node:
    now = standing(member, now_s)
    state = NodeState.GONE if not now.active else NodeState.DRAINING if now.draining else NodeState.ACTIVE
    return Node(member.name, state, member.incarnation, member.weight)


def barred_until_s(row: Row, member: str, terms: Terms) -> float:
    """Say until when an item is not offered to a member that never confirmed it: after pauses that double.

    What was in its way may be mended: a bar without an end would keep the item from that member for ever, also while
    another one holds it.
    """
    over = row.offers.get(member, 0) - OFFERS_MAX
    return row.since_s + min(BACKOFF_MAX_S, BACKOFF_LEASES * terms.lease_s * 2.0 ** min(over, 20)) if over >= 0 else 0.0


def _standing_offers(row: Row, facts: Snapshot) -> dict[str, int]:
    """Forget the offers of a member whose pause is over: it is tried once more."""
    return {
        member: count
        for member, count in row.offers.items()
        if count < OFFERS_MAX or facts.now_s < barred_until_s(row, member, facts.job.terms)
    }


def _partition(row: Row, facts: Snapshot) -> Partition:
    terms = facts.job.terms
    return Partition(
        id=row.id,
        state=row.state,
        owner=row.owner,
        target=row.target,
        epoch=row.epoch,
        owner_incarnation=row.owner_incarnation,
        confirmed=row.confirmed,
        lease_until_s=row.lease_until_s if terms.leased and row.state in OWNED else None,
        deadline_s=row.deadline_s,
        offers=row.offers and _standing_offers(row, facts),
        reason=row.reason,
    )
