"""Leases of a ring as the decisions know them, and the decided writes as the API server reads them. Pure."""

from __future__ import annotations

import msgspec

from poise.kube.objects import Lease, LeaseSpec, Meta, OwnerReference
from poise.model.sharding import (
    LEFT_ANNOTATION,
    RELEASED_ANNOTATION,
    RING_LABEL,
    TOKENS_LABEL,
    LeaseFact,
    LeaseWrite,
)

TOKENS_MAX = 10_000


class Dress(msgspec.Struct, frozen=True, kw_only=True):
    """What the Lease of an instance says beside its holder: the ring, its virtual nodes, the Pod that it belongs to."""

    namespace: str
    ring: str
    tokens: int | None = None
    pod: OwnerReference | None = None


def read_lease(lease: Lease) -> LeaseFact:
    """Take of a Lease what is decided by; nonsense in it counts as not said."""
    meta, spec = lease.metadata, lease.spec
    return LeaseFact(
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        holder=spec.holder_identity or "",
        duration_s=float(max(spec.lease_duration_seconds or 0, 0)),
        released=meta.annotations.get(RELEASED_ANNOTATION, ""),
        tokens=_tokens(meta.labels.get(TOKENS_LABEL, "")),
        left=meta.annotations.get(LEFT_ANNOTATION, ""),
    )


def _tokens(text: str) -> int | None:
    plain = text.isascii() and text.isdigit() and len(text) <= len(str(TOKENS_MAX))
    return int(text) if plain and 1 <= int(text) <= TOKENS_MAX else None


def shard_lease(write: LeaseWrite, old: Lease | None, dress: Dress, told: str) -> Lease:
    """Make the Lease that an instance writes: it says what the instance is. Only people read `told`, the wall clock.

    It differs in every write, so that each makes a new version. The uid makes a write over a vanished Lease fail.
    """
    before = old or Lease(Meta(name=write.name, namespace=dress.namespace))
    meta = before.metadata
    tokens = {} if dress.tokens is None else {TOKENS_LABEL: str(dress.tokens)}
    labels = {name: value for name, value in meta.labels.items() if name != TOKENS_LABEL}
    # What was released must outlive its Pod: it says how its instance left.
    owners = (dress.pod,) if dress.pod is not None and write.holder else ()
    dressed = msgspec.structs.replace(
        meta,
        resource_version=write.version or "",
        labels=labels | {RING_LABEL: dress.ring} | tokens,
        owner_references=_without_pods(meta) + owners,
    )
    return _written(write, Lease(dressed, before.spec), told, new=old is None)


def sharder_lease(write: LeaseWrite, old: Lease | None, place: tuple[str, str], told: str) -> Lease:
    """Make the Lease that a sharder writes, with what the instance said of itself; `place` is (namespace, ring)."""
    namespace, ring = place
    before = old or Lease(Meta(name=write.name, namespace=namespace, labels={RING_LABEL: ring}))
    # The Lease of a Pod that is deleted meanwhile must not vanish under the hold.
    kept = msgspec.structs.replace(before.metadata, owner_references=_without_pods(before.metadata))
    return _written(write, Lease(kept, before.spec), told, new=old is None)


def _without_pods(meta: Meta) -> tuple[OwnerReference, ...]:
    return tuple(owner for owner in meta.owner_references if (owner.group, owner.kind) != ("", "Pod"))


def _written(write: LeaseWrite, before: Lease, told: str, *, new: bool) -> Lease:
    """Write holder and times, and what was said of leaving; all else stays as others wrote it."""
    spec, said = before.spec, {RELEASED_ANNOTATION: write.released, LEFT_ANNOTATION: write.left}
    notes = {name: value for name, value in before.metadata.annotations.items() if name not in said}
    notes |= {name: value for name, value in said.items() if value}
    mine = (spec.holder_identity or "") == write.holder
    acquired = None if not write.holder else spec.acquire_time if mine else told
    transitions = (spec.lease_transitions or 0) + (1 if write.holder and not mine and not new else 0)
    after = LeaseSpec(write.holder or None, max(1, round(write.duration_s)), acquired, told, transitions)
    return Lease(msgspec.structs.replace(before.metadata, annotations=notes), after)
