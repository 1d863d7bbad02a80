"""A Lease as the decisions know it, and the decided writes as the API server reads them. Pure."""

from __future__ import annotations

import msgspec

from poise.kube.objects import Lease, LeaseSpec, Meta, OwnerReference
from poise.model.sharding import LEFT_ANNOTATION, RELEASED_ANNOTATION, RING_LABEL, TOKENS_LABEL, LeaseFact, LeaseWrite

_TOKENS_DIGITS_MAX = 5


class Dress(msgspec.Struct, frozen=True, kw_only=True):
    """What the Lease of an instance says beside its holder: the ring, its virtual nodes, the Pod that it belongs to."""

    namespace: str
    ring: str
    tokens: int | None = None
    pod: OwnerReference | None = None


def lease_fact(lease: Lease) -> LeaseFact:
    """Read a Lease; whatever somebody else wrote there, this gives an answer."""
    meta, spec = lease.metadata, lease.spec
    tokens = meta.labels.get(TOKENS_LABEL, "")
    plain = tokens.isascii() and tokens.isdigit() and len(tokens) <= _TOKENS_DIGITS_MAX
    return LeaseFact(
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        holder=spec.holder_identity or "",
        duration_s=float(spec.lease_duration_seconds or 0),
        released=meta.annotations.get(RELEASED_ANNOTATION, ""),
        tokens=int(tokens) if plain and int(tokens) > 0 else None,
    )


def written_lease(write: LeaseWrite, old: Lease | None, dress: Dress, told: str) -> Lease:
    """Write what was decided over what was seen. `told` is the time of the wall clock: it only informs people.

    It differs in every write, so that each makes a new version. The uid makes a write over a vanished Lease fail.
    """
    before = old or Lease(Meta(name=write.name, namespace=dress.namespace))
    spec, mine = before.spec, (before.spec.holder_identity or "") == write.holder
    duration_s = max(1, round(write.duration_s))
    transitions = spec.lease_transitions or 0
    if not write.holder:
        after = LeaseSpec(None, duration_s, None, told, transitions)
    else:
        began = spec.acquire_time if mine else told
        after = LeaseSpec(write.holder, duration_s, began, told, transitions + (0 if mine or old is None else 1))
    return Lease(_dressed(write, before.metadata, dress), after)


def _dressed(write: LeaseWrite, old: Meta, dress: Dress) -> Meta:
    """Keep what others wrote on the Lease; an earlier Pod of this name no longer owns it."""
    tokens = {} if dress.tokens is None else {TOKENS_LABEL: str(dress.tokens)}
    labels = {name: value for name, value in old.labels.items() if name != TOKENS_LABEL}
    notes = {
        name: value for name, value in old.annotations.items() if name not in (RELEASED_ANNOTATION, LEFT_ANNOTATION)
    }
    others = tuple(owner for owner in old.owner_references if (owner.group, owner.kind) != ("", "Pod"))
    return msgspec.structs.replace(
        old,
        resource_version=write.version or "",
        labels=labels | {RING_LABEL: dress.ring} | tokens,
        annotations=notes | ({RELEASED_ANNOTATION: write.released} if write.released else {}),
        owner_references=others + ((dress.pod,) if dress.pod is not None else ()),
    )
