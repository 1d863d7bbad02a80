"""What the API shows of a job, from its facts: pure functions of what was read."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import msgspec
from msgspec import UNSET

from poise.hold.settings import BEATS_PER_LEASE
from poise.jobs.entries import CapacityEntry, ItemsEntry, Planned, Waits
from poise.jobs.snapshots import braking
from poise.model import CapacitySplit, Document, ReplicaDivision
from poise.model.ownership import OWNED, Row
from poise.model.target_pool import Target
from poise.move.executor import Snapshot
from poise.serve.facade import HttpSd, ItemView, MemberView


def hold_back(planned: Planned, alive: set[str]) -> Planned:
    """Say of every move and action that a pause holds it back; first placements and recovery go on."""
    waits, entry = Waits("pause", None, "paused until someone resumes it"), planned.entry
    if isinstance(entry, ItemsEntry):
        moves = [
            msgspec.structs.replace(move, waits=move.waits or waits)
            if move.source in alive and move.step in (UNSET, "release")
            else move
            for move in entry.moves
        ]
        return msgspec.structs.replace(planned, entry=msgspec.structs.replace(entry, moves=moves))
    if isinstance(entry, CapacityEntry):
        workloads = {
            name: each if each.action == "none" else msgspec.structs.replace(each, waits=each.waits or waits)
            for name, each in entry.workloads.items()
        }
        return msgspec.structs.replace(planned, entry=msgspec.structs.replace(entry, workloads=workloads))
    return planned


def is_unowned(row: Row, facts: Snapshot) -> bool:
    """Say whether nobody may work on an item: it has no owner, or one that is not heard of any more."""
    if row.owner is None:
        return True
    member = facts.members.get(row.owner)
    return member is None or facts.now_s >= member.lease_until_s or (row.owner_incarnation or 0) < member.incarnation


def health_of(facts: Snapshot, unowned: int, moving: int) -> str:
    """Say what is wrong first, else what is going on."""
    if vanished := braking(facts):
        return f"the brake holds: {len(vanished)} instances vanished at once; resume lets their items move"
    if unowned:
        return f"{unowned} of {len(facts.rows)} items have no owner"
    if facts.job.paused:
        return "paused"
    return f"{moving} moves in flight" if moving else "as it should be"


def item_view(row: Row, zero: datetime, unowned: str | None) -> ItemView:
    """Show one row; `unowned` is why nobody has it."""
    return ItemView(
        item=row.id,
        state=row.state.value,
        member=row.owner,
        target=row.target,
        epoch=row.epoch,
        since=zero + timedelta(seconds=row.since_s),
        deadline=None if row.deadline_s is None else zero + timedelta(seconds=row.deadline_s),
        confirmed=row.confirmed and row.state in OWNED,
        reason=unowned or row.reason,
    )


def counted_views(document: Document) -> list[ItemView]:
    """Show workloads, whose replicas are only counted."""
    if isinstance(document, ReplicaDivision):
        divided = document.status.divisions
        return [
            ItemView(item=name, state="divided", reason=divided[name].reason or "", counts=dict(divided[name].result))
            for name in sorted(divided)
        ]
    assert isinstance(document, CapacitySplit)
    seen = document.status.workloads
    return [
        ItemView(
            item=name,
            state="reported",
            counts=dict(seen[name].pools) or {"spot": seen[name].spot, "onDemand": seen[name].on_demand},
        )
        for name in sorted(seen)
    ]


def party_views(document: Document) -> list[MemberView]:
    """Show clusters and pools with the replicas that they hold in all."""
    held: Counter[str] = Counter()
    for each in counted_views(document):
        held.update(each.counts or {})
    if isinstance(document, ReplicaDivision):
        clusters = {each.name: each for each in document.spec.clusters}
        return [
            MemberView(name=name, state="ready", load=held[name], weight=each.weight, capacity=each.capacity)
            for name, each in sorted(clusters.items())
        ]
    assert isinstance(document, CapacitySplit)
    names = [pool.name for pool in document.spec.pools] or ["onDemand", "spot"]
    return [MemberView(name=name, state="ready", load=held[name]) for name in names]


def sd_group(pool: str, target: Target) -> HttpSd:
    """Show one target as Prometheus reads it."""
    meta = {"__meta_poise_pool": pool, "__meta_poise_target": target.name}
    return HttpSd([target.address or target.name], {**target.labels, **meta})


def estimate_s(view: MemberView, facts: Snapshot) -> float:
    """Estimate how long a drain takes: rounds of as many moves as may be in flight, two heartbeats each."""
    at_once = facts.job.guards.per_source_max or facts.job.guards.moves_in_flight_max or view.load or 1
    rounds = -(-(view.load + view.reserved) // at_once)
    return rounds * 2 * facts.job.terms.lease_s / BEATS_PER_LEASE
