"""Members as the API shows them: what they hold, and the floor and the ceiling of their exact share."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from fractions import Fraction
from math import ceil, floor

from poise.decide.shares import fair_shares
from poise.hold.settings import BEATS_PER_LEASE
from poise.jobs.entries import DivisionEntry, Planned
from poise.model import CapacitySplit, Document, ReplicaDivision
from poise.model.ownership import MemberRow, is_wanted
from poise.move.executor import Snapshot
from poise.move.heartbeat import standing
from poise.serve.facade import MemberView, Stoppable
from poise.serve.looks import Look, is_unowned
from poise.serve.shown import counted, counted_views

Bounds = tuple[int | None, int | None]
_BY_HASH = ("ring", "hashed")


def member_views(look: Look, *, everybody: bool = False) -> list[MemberView]:
    """Show the members of a job by name; `everybody` shows those too that are long gone and hold nothing."""
    members = [each for _, each in sorted(look.facts.members.items())] if everybody else look.members
    leaving = Counter(row.owner for row in look.releasing)
    bounds = bounds_of(look)
    return [_view(look, each, leaving[each.name], bounds.get(each.name, (0, 0))) for each in members]


def _view(look: Look, member: MemberRow, releasing: int, bounds: Bounds) -> MemberView:
    facts, note = look.facts, look.pods.get(member.name)
    low, high = (None, None) if facts.job.policy in _BY_HASH else bounds
    return MemberView(
        name=member.name,
        state=look.state_of(member),
        load=look.loads[member.name],
        releasing=releasing,
        reserved=look.reserved[member.name],
        weight=facts.job.weights.get(member.name, member.weight),
        capacity=facts.job.capacity.get(member.name),
        incarnation=member.incarnation,
        draining=member.draining,
        leaving=member.leaving,
        lease_s=member.lease_until_s - facts.now_s,
        floor=low,
        ceiling=high,
        since=_since(look, member, "" if note is None else note.since),
        error="" if note is None else note.error,
    )


def _since(look: Look, member: MemberRow, noted: str) -> datetime | None:
    """Say since when a member is as it is: a pod by its engine's note, one that is gone by the end of its lease."""
    if noted:
        return datetime.fromisoformat(noted)
    return look.moment(member.lease_until_s) if member.lease_until_s <= look.facts.now_s else None


def bounds_of(look: Look) -> dict[str, Bounds]:
    """Share the items by weight and within capacities over those who take; nobody else has a share.

    Law: floor <= share <= ceiling, and the shares are those that the planner chooses its quotas from.
    """
    facts = look.facts
    takers = [each for each in facts.members.values() if standing(each, facts.now_s).takes]
    weights = [facts.job.weights.get(each.name, each.weight) for each in takers]
    limits = [facts.job.capacity.get(each.name) for each in takers]
    if not any(weights):
        weights = [1] * len(weights)  # All of weight 0 is no wish at all: all are equal.
    shares = fair_shares(_shared(facts), weights, [0] * len(takers), limits)
    each = zip(takers, shares.fractions(), strict=True)
    return {member.name: (floor(share), ceil(share)) for member, share in each}


def _shared(facts: Snapshot) -> int:
    """Count what is shared out: all of a set; of the others what is not kept for a member that is late."""
    if facts.job.kind == "PartitionSet":
        return facts.job.count
    wanted = [row for row in facts.rows.values() if is_wanted(facts.job, row)]
    return sum(row.owner is None or not is_unowned(row, facts) or row.target is not None for row in wanted)


def party_views(document: Document, planned: Planned | None) -> list[MemberView]:
    """Show clusters and pools with the replicas that they hold in all; a cluster also with its exact share."""
    held: Counter[str] = Counter()
    for each in counted_views(document):
        held.update(each.counts or {})
    if isinstance(document, CapacitySplit):
        names = [pool.name for pool in document.spec.pools] or ["onDemand", "spot"]
        return [MemberView(name=name, state="ready", load=held[name]) for name in names]
    assert isinstance(document, ReplicaDivision)
    exact = _exact(planned)
    return [
        MemberView(
            name=each.name,
            state="ready",
            load=held[each.name],
            weight=each.weight,
            capacity=each.capacity,
            floor=floor(exact[each.name]) if each.name in exact else None,
            ceiling=ceil(exact[each.name]) if each.name in exact else None,
            quota=str(exact[each.name]) if each.name in exact else None,
        )
        for each in sorted(document.spec.clusters, key=lambda cluster: cluster.name)
    ]


def _exact(planned: Planned | None) -> dict[str, Fraction]:
    """Read the exact shares out of the plan; a document that cannot be planned has none."""
    if planned is None:
        return {}
    assert isinstance(planned.entry, DivisionEntry)
    return {name: Fraction(total.exact) for name, total in planned.entry.totals.items()}


def judge_stop(view: MemberView, facts: Snapshot | None) -> Stoppable:
    """Say whether a member may stop now without anybody missing it; of what only counts there are no facts."""
    if facts is None:
        return Stoppable(ok=not view.load, reasons=[f"it holds {counted(view.load, 'replica')}"] if view.load else [])
    others = [each for each in facts.members.values() if each.name != view.name and standing(each, facts.now_s).takes]
    reasons = []
    if view.load:
        reasons.append(f"it holds {counted(view.load, 'item')}")
    if view.load and not view.draining:
        reasons.append("it is not draining: nothing leaves it")
    if view.load and facts.job.paused:
        reasons.append("the job is paused: nothing moves")
    if view.load and not others:
        reasons.append("no other member can take its items")
    if view.reserved:
        reasons.append(f"{view.reserved} more {'is on its' if view.reserved == 1 else 'are on their'} way to it")
    return Stoppable(ok=not reasons, reasons=reasons, estimate_s=_estimate_s(view, facts) if others else None)


def _estimate_s(view: MemberView, facts: Snapshot) -> float:
    """Estimate how long a drain takes: rounds of as many moves as may be in flight, two heartbeats each."""
    at_once = facts.job.guards.per_source_max or facts.job.guards.moves_in_flight_max or view.load or 1
    rounds = -(-(view.load + view.reserved) // at_once)
    return rounds * 2 * facts.job.terms.lease_s / BEATS_PER_LEASE
