"""How a member stands, as a tone for its lane and as words for its reader."""

from __future__ import annotations

from datetime import datetime

import msgspec

from poise.jobs.what_if import WhatIf
from poise.model import Document, PartitionSet, ShardRing, TargetPool
from poise.serve.facade import MemberView
from poise.serve.looks import LATE_PART
from poise.serve.page.pictures.ink import said, span

READY, NEW, LATE, DRAINING, GONE, IMAGINED = "ready", "new", "late", "draining", "gone", "imagined"
_NEW_S = 30.0
_GONE_SHOWN_S = 120.0  # A member that is gone and holds nothing is shown so long, so that people see what became of it.
_SILENT = ("expired", "uncertain", "orphaned")


class Standing(msgspec.Struct, frozen=True):
    """The tone of a lane, and the member's state in words; nothing to say of one that is as it should be."""

    tone: str
    words: str = ""


def lease_of(document: Document) -> float:
    """Say how long a member may be silent."""
    match document:
        case PartitionSet() | ShardRing():
            return document.spec.lease_seconds
        case TargetPool():
            return document.spec.gone_after_seconds
        case _:
            return 0.0


def is_shown(member: MemberView) -> bool:
    """Leave out who is long gone and holds nothing."""
    if member.state not in ("gone", "dead") or member.load or member.reserved:
        return True
    return member.lease_s is not None and member.lease_s > -_GONE_SHOWN_S


def standing_of(member: MemberView, load: int, lease_s: float, now: datetime, what_if: WhatIf | None) -> Standing:
    """Judge a member: what is imagined of it first, then what is wrong with it, then what is going on."""
    imagined = _imagined(member.name, what_if)
    if imagined:
        return Standing(IMAGINED, imagined)
    return _as_it_is(member, load, lease_s, now)


def _imagined(name: str, what_if: WhatIf | None) -> str:
    if what_if is None:
        return ""
    parts = [
        *(["gone"] if name in what_if.remove else []),
        *(["drained"] if name in what_if.drain else []),
        *(["joins"] if name in what_if.add else []),
        *([f"weight {what_if.weights[name]}"] if name in what_if.weights else []),
    ]
    return f"what if: {', '.join(parts)}" if parts else ""


def _as_it_is(member: MemberView, load: int, lease_s: float, now: datetime) -> Standing:
    silent_s = lease_s - member.lease_s if member.lease_s is not None else 0.0
    if member.state in ("gone", "dead"):
        return Standing(GONE, _gone(member, load))
    if member.state in _SILENT:
        doubt = ", it may still work" if member.state == "uncertain" else ""
        return Standing(LATE, f"late: silent for {span(silent_s)}{doubt}")
    if member.leaving is not None:
        return Standing(DRAINING, f"stopping: {load:,} to go" if member.leaving == "stop" else "restarting")
    if member.draining:
        return Standing(DRAINING, f"draining: {load:,} to go" if load else "drained: it may stop")
    if lease_s and silent_s > LATE_PART * lease_s:
        return Standing(LATE, f"late: {silent_s:.0f} s of {lease_s:g}")
    if member.error:
        return Standing(LATE, f"trouble: {said(member.error)}")
    return _sound(member, load, now)


def _gone(member: MemberView, load: int) -> str:
    over_s = -member.lease_s if member.lease_s is not None else 0.0
    since = f" for {span(over_s)}" if over_s >= 1 else ""
    return f"gone{since}: its lease must end first" if load else f"gone{since}"


def _sound(member: MemberView, load: int, now: datetime) -> Standing:
    age_s = (now - member.since).total_seconds() if member.since is not None else _NEW_S
    if age_s < _NEW_S:
        return Standing(NEW, f"joined {span(max(0.0, age_s))} ago")
    return Standing(READY) if load or not member.ceiling else Standing(NEW, "new: holds nothing yet")
