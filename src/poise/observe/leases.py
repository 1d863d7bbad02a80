"""A lease seen at a time: ready, expired, uncertain, dead or orphaned.

Every lease is timed by the observer's own clock, from the moment it saw the lease change: clock skew between machines
changes nothing. Let D be the lease's duration. Nothing moves before 2·D, and then only after the lease was acquired.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

ORPHANED_AFTER = 10


class Health(StrEnum):
    """What an observer may conclude about the holder of a lease."""

    READY = "ready"
    EXPIRED = "expired"
    UNCERTAIN = "uncertain"
    DEAD = "dead"
    ORPHANED = "orphaned"


class SeenLease(msgspec.Struct, frozen=True):
    """One lease as its observer knows it: when it last changed in the observer's eyes, and who has it now.

    `acquired` means that this observer itself holds it, which proves that the store answers and the holder is fenced.
    """

    seen_at_s: float
    duration_s: float
    vanished: bool = False
    acquired: bool = False


def health(lease: SeenLease, now_s: float) -> Health:
    """Judge one lease at one instant, by the observer's own clock."""
    silent_s = now_s - lease.seen_at_s
    if lease.acquired:
        return Health.ORPHANED if silent_s >= ORPHANED_AFTER * lease.duration_s else Health.DEAD
    if silent_s >= 2 * lease.duration_s:
        return Health.UNCERTAIN
    return Health.EXPIRED if lease.vanished or silent_s >= lease.duration_s else Health.READY


def next_change_s(lease: SeenLease, now_s: float) -> float | None:
    """Give the next instant at which the judgement changes if nothing is heard; None where none does."""
    steps = (ORPHANED_AFTER,) if lease.acquired else (2,) if lease.vanished else (1, 2)
    changes = (lease.seen_at_s + step * lease.duration_s for step in steps)
    return next((change_s for change_s in changes if change_s > now_s), None)
