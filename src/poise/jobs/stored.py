"""Documents in a store: put, read with their status, and deleted; each change is one transaction on its job."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

import msgspec

from poise.errors import Conflict, NotFound, invalid
from poise.jobs.live import with_status
from poise.jobs.reports import merge_report
from poise.model import KINDS, CapacitySplit, Document, PartitionSet, ReplicaDivision, ShardRing, TargetPool
from poise.model.capacity_split import CapacitySplitStatus
from poise.model.common import MoveGuards
from poise.model.ownership import Line, SetRow, Terms
from poise.model.partition_set import PartitionGuards
from poise.model.replica_division import ReplicaDivisionStatus
from poise.model.target_pool import Target, Targets
from poise.move.executor import end_set, put_set, snapshot
from poise.stores.base import Store, Transaction

DOCUMENT, STATUS, TARGETS, DELETED = "document", "status", "targets", "deleted"
SERVERS = "poise.servers"  # The ring of jobs over servers; no document may have its name.
Status = TypeVar("Status", CapacitySplitStatus, ReplicaDivisionStatus)
_NAMED_ALONE = ("PartitionSet", "ShardRing")  # Members speak to these by their name alone.


class Stored(msgspec.Struct, frozen=True):
    """A document as a store has it."""

    document: Document
    revision: int


class Kept(msgspec.Struct, frozen=True):
    """The note of a document: JSON in JSON, so that whatever is in it is read by its own kind's rules."""

    revision: int
    kind: str
    text: str


class _LastList(msgspec.Struct, frozen=True):
    """What the source of a pool listed last, as its engine notes it."""

    targets: list[Target]


def store_name(kind: str, name: str) -> str:
    """Name the set of the store that a job has."""
    if kind not in KINDS:
        raise NotFound(f"there is no kind {kind!r}; there are {', '.join(KINDS)}")
    return name if kind in _NAMED_ALONE else f"{kind}/{name}"


def put_document(store: Store, document: Document, now: datetime, *, if_match: int | None = None) -> Stored:
    """Create or change a job; `if_match` is the revision that it must have, 0 where it must be new."""
    name = store_name(document.kind, document.metadata.name)
    if name == SERVERS:
        raise invalid("$.metadata.name", f"{SERVERS} is Poise's own")
    return store.transact(name, lambda tx: _put(tx, name, document, now, if_match))


def _put(tx: Transaction, name: str, document: Document, now: datetime, if_match: int | None) -> Stored:
    before = _kept(tx)
    if before is not None and before.kind != document.kind:
        raise Conflict(f"{name} is a {before.kind}: it cannot become a {document.kind}")
    _require(name, before, if_match)
    _report(tx, document, now)
    put_set(tx, _set_row(name, document), _keys(document))
    wanted = msgspec.structs.replace(document, status=type(document.status)())
    text = msgspec.json.encode(wanted).decode()
    if before is None or before.text != text:
        before = Kept(1 if before is None else before.revision + 1, document.kind, text)
        tx.write_note(DOCUMENT, msgspec.json.encode(before).decode())
        tx.write_note(DELETED, None)
    return Stored(_with_status(tx, name, wanted, now), before.revision)


def _require(name: str, before: Kept | None, if_match: int | None) -> None:
    found = 0 if before is None else before.revision
    if if_match is not None and if_match != found:
        raise Conflict(f"{name} is at revision {found}, not {if_match}: look at it again")


def _report(tx: Transaction, document: Document, now: datetime) -> None:
    """Take the counts that a CapacitySplit's status reports; the status of the other kinds is Poise's own."""
    if isinstance(document, CapacitySplit):
        before = _status(tx, CapacitySplitStatus)
        after = merge_report(document, before, now)
        if after != before:
            write_status(tx, after)
            tx.write_lines(_reported(tx, document, before, after))


def _reported(
    tx: Transaction, document: CapacitySplit, before: CapacitySplitStatus, after: CapacitySplitStatus
) -> list[Line]:
    """Tell what a report changed, as the story of each workload."""
    name = f"{document.kind}/{document.metadata.name}"
    told = {}
    for workload, seen in after.workloads.items():
        counts = seen.pools or {"spot": seen.spot, "on-demand": seen.on_demand}
        known = before.workloads.get(workload)
        if known is None or counts != (known.pools or {"spot": known.spot, "on-demand": known.on_demand}):
            told[workload] = ", ".join(f"{side} {count}" for side, count in counts.items())
    return [
        Line(set=name, item=workload, transition="reported", member=None, epoch=0, at_s=tx.now_s, reason=reason)
        for workload, reason in told.items()
    ]


def read_document(store: Store, kind: str, name: str, now: datetime) -> Stored:
    """Read a job with its status."""
    where = store_name(kind, name)
    return store.view(where, lambda tx: read_in(tx, kind, name, now))


def read_in(tx: Transaction, kind: str, name: str, now: datetime) -> Stored:
    """Read a job within a transaction on it."""
    kept = _found(tx, kind, name)
    document = msgspec.json.decode(kept.text, type=KINDS[kept.kind])
    return Stored(_with_status(tx, store_name(kind, name), document, now), kept.revision)


def known_targets(tx: Transaction, pool: TargetPool) -> TargetPool:
    """Give a pool with the targets that its source listed last, in the place of the source."""
    note = tx.note(TARGETS)
    if pool.spec.targets.listed is not None or note is None:
        return pool
    targets = Targets(listed=msgspec.json.decode(note, type=_LastList).targets)
    return msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, targets=targets))


def revision_in(tx: Transaction, kind: str, name: str) -> int:
    """Read the revision of a job within a transaction on it; what it is, is not looked at."""
    return _found(tx, kind, name).revision


def delete_document(store: Store, kind: str, name: str, *, if_match: int | None = None) -> None:
    """Delete a job: its document at once, its items one by one as their owners let go of them."""
    where = store_name(kind, name)

    def work(tx: Transaction) -> None:
        _require(where, _found(tx, kind, name), if_match)
        job = tx.job()
        assert job is not None, "a document is written with its set"
        tx.write_note(DOCUMENT, None)
        tx.write_note(STATUS, None)
        put_set(tx, msgspec.structs.replace(job, count=0), ())
        tx.write_note(DELETED, "yes")
        end_set(tx, where)

    store.transact(where, work)


def end_deleted(tx: Transaction, name: str) -> bool:
    """End a job that was deleted and has let go of everything; say whether it has ended."""
    return tx.note(DELETED) is not None and end_set(tx, name)


def listed(store: Store) -> list[tuple[str, str]]:
    """List the jobs of a store by kind and name."""
    found = []
    for where in store.sets():
        kept = store.view(where, _kept)
        if kept is not None:
            found.append((kept.kind, where.removeprefix(f"{kept.kind}/")))
    return sorted(found)


def _found(tx: Transaction, kind: str, name: str) -> Kept:
    kept = _kept(tx)
    if kept is None or kept.kind != kind:
        raise NotFound(f"there is no {kind} {name!r}")
    return kept


def _kept(tx: Transaction) -> Kept | None:
    note = tx.note(DOCUMENT)
    return None if note is None else msgspec.json.decode(note, type=Kept)


def _with_status(tx: Transaction, name: str, document: Document, now: datetime) -> Document:
    match document:
        case CapacitySplit():
            return msgspec.structs.replace(document, status=_status(tx, CapacitySplitStatus))
        case ReplicaDivision():
            return msgspec.structs.replace(document, status=_status(tx, ReplicaDivisionStatus))
        case _:
            return with_status(document, snapshot(tx, name), now)


def _status(tx: Transaction, kind: type[Status]) -> Status:
    note = tx.note(STATUS)
    return kind() if note is None else msgspec.json.decode(note, type=kind)


def write_status(tx: Transaction, status: CapacitySplitStatus | ReplicaDivisionStatus) -> None:
    """Keep the status of a kind that owns no items."""
    tx.write_note(STATUS, msgspec.json.encode(status).decode())


def _keys(document: Document) -> Iterable[str] | None:
    """List the items of a job; a pool's are listed by whoever reads its source, a set's by its count."""
    match document:
        case ShardRing():
            return document.spec.objects
        case TargetPool() | PartitionSet():
            return None
        case _:
            return ()


def _set_row(name: str, document: Document) -> SetRow:
    match document:
        case PartitionSet():
            return _partitions(name, document)
        case ShardRing():
            return _ring(name, document)
        case TargetPool():
            return _pool(name, document)
        case _:
            return SetRow(name=name, kind=document.kind)


def _partitions(name: str, document: PartitionSet) -> SetRow:
    spec = document.spec
    terms = Terms(
        lease_s=spec.lease_seconds,
        grace_s=spec.grace_seconds,
        release_s=spec.release_seconds,
        restart_grace_s=spec.restart_grace_seconds,
        revoke=spec.on_release_timeout == "revoke",
        margin_s=spec.margin_seconds,
        stop_s=spec.stop_seconds,
    )
    return SetRow(name=name, count=spec.partitions, terms=terms, guards=spec.guards, weights=dict(spec.weights))


def _ring(name: str, document: ShardRing) -> SetRow:
    """On these stores the second waiting time of a lease is a grace as long as the lease itself."""
    spec = document.spec
    terms = Terms(
        lease_s=spec.lease_seconds,
        grace_s=spec.lease_seconds,
        release_s=spec.drain_timeout_seconds,
        restart_grace_s=spec.restart_grace_seconds,
        revoke=spec.on_drain_timeout == "force",
    )
    return SetRow(
        name=name,
        kind="ShardRing",
        policy=spec.policy,
        tokens=spec.tokens,
        brake_percent=spec.brake_percent,
        terms=terms,
        guards=_as_guards(spec.guards),
    )


def _pool(name: str, document: TargetPool) -> SetRow:
    """A collector goes on while nobody speaks for it: its targets have no lease, only the pod itself is timed."""
    spec = document.spec
    endpoints = spec.pods.endpoints or []
    capacity = {each.name: each.capacity or spec.capacity for each in endpoints}
    return SetRow(
        name=name,
        kind="TargetPool",
        policy=spec.policy,
        terms=Terms(lease_s=spec.gone_after_seconds, grace_s=0, revoke=False, leased=False),
        guards=_as_guards(spec.guards),
        weights={each.name: each.weight for each in endpoints if each.weight is not None},
        capacity={pod: most for pod, most in capacity.items() if most is not None},
    )


def _as_guards(guards: MoveGuards) -> PartitionGuards:
    """Keep the guards of a ring or a pool as what a set keeps; a limit that is not set is none."""
    return PartitionGuards(
        cooldown_seconds=guards.cooldown_seconds,
        windows=guards.windows,
        budgets=guards.budgets,
        moves_in_flight_max=guards.moves_in_flight_max,
        per_source_max=guards.per_source_max,
        per_target_max=guards.per_target_max,
    )
