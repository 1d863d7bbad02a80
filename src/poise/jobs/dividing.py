"""Carrying out a ReplicaDivision: every decision is kept as a record, and one that still fits is left alone."""

from __future__ import annotations

from datetime import datetime

import msgspec

from poise.decide.division import Division
from poise.jobs.clusters import divide_document
from poise.jobs.stored import read_in, write_status
from poise.model import DivisionRecord, ReplicaDivision
from poise.model.ownership import Line
from poise.model.replica_division import ReplicaDivisionStatus
from poise.stores.base import Store, Transaction


def divide_stored(store: Store, name: str, now: datetime) -> int:
    """Divide the workloads of a stored division, keep what changed, and say how many did."""
    return store.transact(f"ReplicaDivision/{name}", lambda tx: _divide(tx, name, now))


def _divide(tx: Transaction, name: str, now: datetime) -> int:
    document = read_in(tx, "ReplicaDivision", name, now).document
    assert isinstance(document, ReplicaDivision)
    before = document.status.divisions
    divisions = divide_document(document)
    after = {
        workload: before[workload] if division.kept and workload in before else _record(division)
        for workload, division in divisions.items()
    }
    if after == before:
        return 0
    changed = [workload for workload in after if after[workload] != before.get(workload)]
    write_status(tx, ReplicaDivisionStatus(after))
    gone = sorted(before.keys() - after.keys())
    tx.write_lines([_line(tx, document, each, "divided", _told(divisions[each])) for each in changed])
    tx.write_lines([_line(tx, document, each, "deleted", "it is no longer listed") for each in gone])
    return len(changed) + len(gone)


def _record(division: Division) -> DivisionRecord:
    return msgspec.convert(msgspec.to_builtins(division.record), DivisionRecord)


def _told(division: Division) -> str:
    shares = ", ".join(f"{cluster} {count}" for cluster, count in division.replicas.items())
    return f"{shares}: {division.reason}"


def _line(tx: Transaction, document: ReplicaDivision, workload: str, transition: str, reason: str) -> Line:
    name = f"{document.kind}/{document.metadata.name}"
    return Line(set=name, item=workload, transition=transition, member=None, epoch=0, at_s=tx.now_s, reason=reason)
