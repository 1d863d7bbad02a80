"""A what-if: the world with some members more or fewer, other weights, other counts. Nothing is changed by asking."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from poise.errors import Fault, InvalidSpec


class WhatIf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to imagine: the same words on the command line and in the API."""

    add: list[str] = []
    remove: list[str] = []
    drain: list[str] = []
    weights: dict[str, int] = {}
    replicas: dict[str, int] = {}


def refuse(what_if: WhatIf, fields: Iterable[str], why: str) -> None:
    """Refuse the fields of a what-if that make no sense for a kind."""
    faults = [Fault(f"$.{field}", why) for field in fields if getattr(what_if, field)]
    if faults:
        raise InvalidSpec(*faults)


def check_members(what_if: WhatIf, members: Collection[str], noun: str) -> None:
    """Refuse a member that is added though it is there, or named though it is not; every fault at once."""
    there = set(members)
    faults = [
        Fault(f"$.add[{i}]", f"{name} is a {noun} already") for i, name in enumerate(what_if.add) if name in there
    ]
    known = there | set(what_if.add)
    for field in ("remove", "drain", "weights"):
        faults += [
            Fault(f"$.{field}[{name!r}]", f"no {noun} of that name; there are {_listed(known)}")
            for name in getattr(what_if, field)
            if name not in known
        ]
    if faults:
        raise InvalidSpec(*faults)


def check_workloads(what_if: WhatIf, workloads: Collection[str]) -> None:
    """Refuse replicas of a workload that the document does not have, and counts below 0."""
    faults = [
        Fault(f"$.replicas[{name!r}]", f"no workload of that name; there are {_listed(workloads)}")
        for name in what_if.replicas
        if name not in workloads
    ]
    faults += [
        Fault(f"$.replicas[{name!r}]", f"expected >= 0, got {count}")
        for name, count in what_if.replicas.items()
        if count < 0
    ]
    if faults:
        raise InvalidSpec(*faults)


def _listed(names: Collection[str]) -> str:
    shown = sorted(names)[:8]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "") or "none"
