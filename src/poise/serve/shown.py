"""Items, counts and targets as the API shows them: pure functions of what was read."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from msgspec import UNSET

from poise.jobs.entries import CapacityEntry, ItemsEntry, Planned, Waits
from poise.model import CapacitySplit, Document, ReplicaDivision
from poise.model.ownership import OWNED, Row
from poise.model.target_pool import Target
from poise.serve.facade import HttpSd, ItemView


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


def sd_group(pool: str, target: Target) -> HttpSd:
    """Show one target as Prometheus reads it."""
    meta = {"__meta_poise_pool": pool, "__meta_poise_target": target.name}
    return HttpSd([target.address or target.name], {**target.labels, **meta})


def counted(number: int, noun: str) -> str:
    """Count something: 1 item, 2 items."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
