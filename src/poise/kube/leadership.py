"""Who leads: a Lease timed by the observer's own clock, from the moment it saw the Lease change. Pure.

The times that others write are never read. A holder is believed for a full duration after each change; the own lead
counts from the moment a successful write was sent, and ends a margin earlier than anybody else may take it.
"""

from __future__ import annotations

import msgspec

from poise.kube.objects import Lease, LeaseSpec, Meta


class LeadTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a candidate goes by. `me` is one process: no two ever share it."""

    me: str
    duration_s: int = 15
    renew_s: float = 3.0
    margin_s: float = 5.0

    def __post_init__(self) -> None:
        """Leave time to renew before the lead must end."""
        assert 0 < self.renew_s < self.duration_s - self.margin_s, "there is no time to renew"


class SeenLead(msgspec.Struct, frozen=True):
    """The Lease as one candidate knows it: since when it is unchanged, and since when it is surely its own.

    `lease` is None while there is none; `known` says that one was seen before, which somebody may still hold.
    """

    seen_at_s: float
    lease: Lease | None = None
    known: bool = False
    held_from_s: float | None = None


def look(seen: SeenLead | None, lease: Lease | None, me: str, now_s: float) -> SeenLead:
    """Take what was read. Any change, also one that vanishes or returns, starts the waiting again."""
    if seen is None:
        return SeenLead(now_s, lease, known=lease is not None)
    held_from_s = seen.held_from_s if lease is not None and lease.spec.holder_identity == me else None
    if _identity(seen.lease) == _identity(lease):
        return msgspec.structs.replace(seen, held_from_s=held_from_s)
    return SeenLead(now_s, lease, known=True, held_from_s=held_from_s)


def wrote(lease: Lease, me: str, sent_at_s: float) -> SeenLead:
    """Take the answer to an own write."""
    held_from_s = sent_at_s if lease.spec.holder_identity == me else None
    return SeenLead(sent_at_s, lease, known=True, held_from_s=held_from_s)


def leads_until_s(seen: SeenLead | None, terms: LeadTerms) -> float:
    """Give the instant before which the candidate may act as the leader: law sent + D - margin."""
    if seen is None or seen.held_from_s is None:
        return float("-inf")
    return seen.held_from_s + terms.duration_s - terms.margin_s


def is_free(seen: SeenLead, terms: LeadTerms, now_s: float) -> bool:
    """Say whether the lead may be taken: nobody has it, or whoever has it was silent for its whole duration."""
    if seen.lease is None:
        return not seen.known or now_s >= seen.seen_at_s + terms.duration_s
    holder = seen.lease.spec.holder_identity
    if not holder or holder == terms.me:
        return True
    said_s = seen.lease.spec.lease_duration_seconds or 0
    return now_s >= seen.seen_at_s + (said_s if said_s > 0 else terms.duration_s)


def claim(seen: SeenLead, terms: LeadTerms, name: tuple[str, str], clock: str) -> Lease:
    """Write the Lease with which the candidate takes or renews the lead; `clock` only informs people.

    It keeps the resourceVersion that was seen, so that it is refused when anybody wrote since.
    """
    old = seen.lease or Lease(Meta(name=name[1], namespace=name[0]))
    mine = old.spec.holder_identity == terms.me
    transitions = (old.spec.lease_transitions or 0) + (0 if mine or seen.lease is None else 1)
    acquired = old.spec.acquire_time if mine else clock
    spec = LeaseSpec(terms.me, terms.duration_s, acquired, clock, transitions)
    return msgspec.structs.replace(old, spec=spec)


def release(lease: Lease) -> Lease:
    """Write the Lease with which a leader lets go: the next one need not wait."""
    spec = msgspec.structs.replace(lease.spec, holder_identity=None, lease_duration_seconds=1)
    return msgspec.structs.replace(lease, spec=spec)


def _identity(lease: Lease | None) -> tuple[str, str] | None:
    return None if lease is None else (lease.metadata.uid, lease.metadata.resource_version)
