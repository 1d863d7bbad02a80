"""A what-if: the world with some members more or fewer, other weights, other counts. Nothing is changed by asking."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from poise.documents.faults import Faults
from poise.documents.structure import build
from poise.errors import Fault, InvalidSpec
from poise.model.common import Count, Name, Weight, WorkloadName


class WhatIf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to imagine: the same words on the command line and in the API."""

    add: list[Name] = []
    remove: list[Name] = []
    drain: list[Name] = []
    weights: dict[Name, Weight] = {}
    replicas: dict[WorkloadName, Count] = {}
    undrain: list[Name] = []


def refuse(what_if: WhatIf, fields: Iterable[str], why: str) -> None:
    """Refuse the fields of a what-if that make no sense for a kind."""
    faults = [Fault(f"$.{field}", why) for field in fields if getattr(what_if, field)]
    if faults:
        raise InvalidSpec(*faults)


def refuse_drains(what_if: WhatIf, members: Collection[str], why: str) -> None:
    """Refuse to drain members for which it would do nothing."""
    faults = [Fault(f"$.drain[{name!r}]", f"{name} {why}") for name in what_if.drain if name in members]
    if faults:
        raise InvalidSpec(*faults)


def check_undrains(what_if: WhatIf, members: Collection[str], draining: Collection[str], noun: str) -> None:
    """Refuse to take a member back that is not there, or that is in service."""
    faults = []
    for name in what_if.undrain:
        if name in what_if.drain:
            faults.append(Fault(f"$.undrain[{name!r}]", f"{name} is drained at the same time"))
        elif name not in draining:
            there = name in members
            why = f"{name} is in service already" if there else f"no {noun} of that name; there are {_listed(members)}"
            faults.append(Fault(f"$.undrain[{name!r}]", why))
    if faults:
        raise InvalidSpec(*faults)


def check_members(what_if: WhatIf, members: Collection[str], noun: str, *, gone: Collection[str] = ()) -> None:
    """Refuse a member that is added though it is there, or named though it is not; every fault at once.

    A member that is gone may be added: it comes back.
    """
    _check_values(what_if)
    there, seen = set(members), set(members) - set(gone)
    faults = []
    for i, name in enumerate(what_if.add):
        if name in seen:
            again = (
                "is added twice"
                if name in what_if.add[:i]
                else f"is {'an' if noun[0] in 'aeiou' else 'a'} {noun} already"
            )
            faults.append(Fault(f"$.add[{i}]", f"{name} {again}"))
        seen.add(name)
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
    """Refuse replicas of a workload that the document does not have, and counts out of range."""
    _check_values(what_if)
    faults = [
        Fault(f"$.replicas[{name!r}]", f"no workload of that name; there are {_listed(workloads)}")
        for name in what_if.replicas
        if name not in workloads
    ]
    if faults:
        raise InvalidSpec(*faults)


def _check_values(what_if: WhatIf) -> None:
    """Hold names and numbers to the rules of documents: a what-if is not decoded, so nothing else has looked."""
    faults = Faults("")
    build(msgspec.to_builtins(what_if), WhatIf, faults)
    faults.raise_any()


def _listed(names: Collection[str]) -> str:
    shown = sorted(names)[:8]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "") or "none"
