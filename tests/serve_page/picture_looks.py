"""Looks at jobs of every kind as the pictures see them: made by hand, planned by the real planners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from poise.documents import load
from poise.errors import InvalidSpec
from poise.jobs.entries import Planned
from poise.jobs.planning import plan_document
from poise.jobs.stored import Stored
from poise.jobs.what_if import WhatIf
from poise.model import CapacitySplit, Document, PartitionSet, ReplicaDivision, ShardRing, TargetPool
from poise.model.common import Metadata
from poise.model.ownership import OwnerState
from poise.model.partition_set import Node, PartitionGuards, PartitionRow, PartitionSetSpec, PartitionSetStatus
from poise.model.shard_ring import Instance, ShardRingSpec, ShardRingStatus
from poise.model.target_pool import (
    Endpoint,
    Pods,
    PoolMember,
    Target,
    TargetPoolSpec,
    TargetPoolStatus,
    Targets,
)
from poise.serve.facade import ItemView, JobSummary, MemberView
from poise.serve.page.looking import Look
from poise.serve.parties import party_views
from poise.serve.shown import counted_views

NOW = datetime(2026, 11, 15, 20, 14, 4, tzinfo=UTC)


def shares(count: int, members: Sequence[MemberView]) -> list[MemberView]:
    """Give every live member its floor and ceiling by equal weights."""
    live = [each for each in members if each.state in ("active", "ready") and not each.draining]
    if not live:
        return list(members)
    low, high = count // len(live), -(-count // len(live))
    return [
        msgspec.structs.replace(each, floor=low if each in live else 0, ceiling=high if each in live else 0)
        for each in members
    ]


def partition_look(
    rows: Sequence[PartitionRow],
    members: Sequence[MemberView],
    *,
    what_if: WhatIf | None = None,
    name: str = "orders",
    guards: PartitionGuards | None = None,
) -> Look:
    """Look at a PartitionSet with these rows and members."""
    nodes = [
        Node(each.name, "gone" if each.state == "gone" else "draining" if each.draining else "active", 1, each.weight)
        for each in members
    ]
    document = PartitionSet(
        metadata=Metadata(name=name),
        spec=PartitionSetSpec(partitions=len(rows), guards=guards or PartitionGuards()),
        status=PartitionSetStatus(nodes=nodes, partitions=list(rows)),
    )
    items = [
        ItemView(
            item=row.id,
            state=row.state,
            member=row.owner,
            target=row.target,
            epoch=row.epoch,
            deadline=row.deadline,
            confirmed=row.confirmed,
            reason=row.reason,
        )
        for row in rows
    ]
    return looked(document, items, shares(len(rows), members), what_if)


def held_rows(loads: Mapping[str | None, int]) -> list[PartitionRow]:
    """Make rows in which each member holds so many partitions."""
    rows, number = [], 0
    for owner, held in loads.items():
        for _ in range(held):
            rows.append(row(number, owner))
            number += 1
    return rows


def row(number: int, owner: str | None, **more: object) -> PartitionRow:
    """Make one row: held and confirmed, or without an owner."""
    base = PartitionRow(
        id=str(number),
        state="Assigned" if owner else "Unassigned",
        owner=owner,
        epoch=1 + number % 7,
        confirmed=owner is not None,
        owner_incarnation=1 if owner else None,
        lease_until=NOW + timedelta(seconds=8) if owner else None,
    )
    return msgspec.structs.replace(base, **more)


def releasing(number: int, owner: str, target: str, *, acknowledged: bool) -> PartitionRow:
    """Make a row that its owner is asked to let go of, for a target."""
    state = OwnerState.PENDING_RELEASE if acknowledged else OwnerState.REQUESTED_RELEASE
    return row(
        number,
        owner,
        state=state.value,
        target=target,
        deadline=NOW + timedelta(seconds=28),
        reason=f"{owner} over its share (13 of 11)",
    )


def member(name: str, **more: object) -> MemberView:
    """Make a member that was heard just now."""
    base = MemberView(name=name, state="active", lease_s=9.0, incarnation=1)
    return msgspec.structs.replace(base, **more)


def pool_look(
    assignment: Mapping[str, str | None],
    members: Sequence[MemberView],
    *,
    what_if: WhatIf | None = None,
    name: str = "core-routers",
    capacity: int | None = None,
) -> Look:
    """Look at a TargetPool with this assignment."""
    held = {item: owner for item, owner in assignment.items() if owner is not None}
    document = TargetPool(
        metadata=Metadata(name=name),
        spec=TargetPoolSpec(
            pods=Pods(endpoints=[Endpoint(each.name) for each in members]),
            targets=Targets(listed=[Target(item) for item in assignment]),
            capacity=capacity,
        ),
        status=TargetPoolStatus(
            members=[
                PoolMember(each.name, "gone" if each.state == "gone" else "draining" if each.draining else "ready")
                for each in members
            ],
            assignment=held,
        ),
    )
    items = [_item(item, owner) for item, owner in assignment.items()]
    return looked(document, items, shares(len(items), members), what_if)


def ring_look(
    assignment: Mapping[str, str | None], members: Sequence[MemberView], *, what_if: WhatIf | None = None
) -> Look:
    """Look at a ShardRing with this assignment."""
    held = {item: owner for item, owner in assignment.items() if owner is not None}
    states = {"ready": "ready", "expired": "expired", "uncertain": "uncertain", "dead": "dead"}
    document = ShardRing(
        metadata=Metadata(name="web"),
        spec=ShardRingSpec(objects=list(assignment)),
        status=ShardRingStatus(
            instances=[
                msgspec.convert({"name": each.name, "state": states.get(each.state, "ready")}, Instance)
                for each in members
            ],
            assignment=held,
        ),
    )
    return looked(document, [_item(item, owner) for item, owner in assignment.items()], members, what_if)


def _item(item: str, owner: str | None) -> ItemView:
    return ItemView(
        item=item,
        state="Assigned" if owner else "Unassigned",
        member=owner,
        epoch=3 if owner else 0,
        confirmed=owner is not None,
        reason="" if owner else "no pod has room",
    )


def counted_look(text: str, *, what_if: WhatIf | None = None, now: datetime = NOW) -> Look:
    """Look at a ReplicaDivision or a CapacitySplit, from its document with its status."""
    document = load(text, "test")[0]
    assert isinstance(document, ReplicaDivision | CapacitySplit)
    planned = plan_document(document, now)
    return looked(document, counted_views(document), party_views(document, planned), what_if, now)


def looked(
    document: Document,
    items: Sequence[ItemView],
    members: Sequence[MemberView],
    what_if: WhatIf | None = None,
    now: datetime = NOW,
) -> Look:
    """Plan a document, and put the look at it together."""
    planned: Planned | None = None
    refused = ""
    try:
        planned = plan_document(document, now, what_if)
    except InvalidSpec as fault:
        refused = str(fault)
    loads = Counter(each.member for each in items)
    return Look(
        kind=document.kind,
        name=document.metadata.name,
        stored=Stored(document, 1),
        summary=JobSummary(kind=document.kind, name=document.metadata.name, revision=1, health="", items=len(items)),
        items=list(items),
        members=[msgspec.structs.replace(each, load=each.load or loads[each.name]) for each in members],
        planned=planned,
        refused=refused,
        what_if=what_if,
        now=now,
    )
