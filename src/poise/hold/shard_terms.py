"""What a shard goes by: its own settings, and what its ring says; both are checked before anything is asked for. Pure.

Order of the instants after a renewal was sent, as parts of D: renew at 1/3, stop at 3/4, exit before 1.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from poise.errors import invalid
from poise.kube.crds.status import Terms
from poise.kube.objects import Custom
from poise.kube.resources import Resource
from poise.model.sharding import LABEL_MAX

MARGIN_PART = 1 / 4  # So much of D before the Lease ends all work is cancelled.
ASK_PART = 1 / 3  # No request for the Lease takes longer: there is time for another one.
CONFIRM_S = 0.5  # A gain is confirmed by a renewal so soon after the last one.
LOOK_S = 1.0  # So often a process that waits looks at its Lease.
NAME_TAKEN = "NameTaken"

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?\Z")
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
_Number = Annotated[int, msgspec.Meta(ge=1, le=10_000)]


class ShardSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a shard says about itself.

    `finish_s`: how long a running reconcile may take to end when the shard leaves. `stop_s`: how long a cancelled one
    may take; None is the margin before the Lease ends.
    """

    ring: str
    name: str
    scope: str = ""
    tokens: _Number | None = None
    trust_stable_name: bool = False
    fence_restarts: Literal["lazy", "eager"] = "lazy"
    at_once: _Number = 16
    steps_at_once: _Number = 16
    finish_s: _Seconds = 10.0
    stop_s: _Seconds | None = None
    on_release: Literal["stop", "restart"] = "stop"
    on_hang: Literal["exit", "raise"] = "exit"


def check_settings(settings: ShardSettings) -> ShardSettings:
    """Refuse what is no setting, and names that no label and no Lease can carry."""
    for field in msgspec.structs.fields(ShardSettings):
        try:
            msgspec.convert(getattr(settings, field.name), field.type)
        except msgspec.ValidationError as error:
            raise invalid(f"$.{field.name}", str(error)[0].lower() + str(error)[1:]) from None
    for path, name in (("$.ring", settings.ring), ("$.name", settings.name)):
        if len(name) > LABEL_MAX or not _NAME.match(name):
            raise invalid(path, f"expected at most {LABEL_MAX} of a-z, 0-9, - and ., got {name!r}")
    return settings


class ShardPace(msgspec.Struct, frozen=True):
    """The lengths that follow from D."""

    duration_s: float
    stopping_s: float | None = None

    @property
    def margin_s(self) -> float:
        """How long before its Lease ends a shard stops to act."""
        return self.duration_s * MARGIN_PART

    @property
    def stop_s(self) -> float:
        """How long a cancelled reconcile may take to end; then the process does."""
        return self.margin_s if self.stopping_s is None else self.stopping_s

    @property
    def ask_s(self) -> float:
        """How long one request for the Lease may take."""
        return self.duration_s * ASK_PART

    @property
    def confirm_s(self) -> float:
        """How soon after a renewal the next one may confirm a gain."""
        return min(CONFIRM_S, self.duration_s / 6)

    @property
    def look_s(self) -> float:
        """How often a waiting process looks."""
        return min(LOOK_S, self.duration_s / 6)


class RingTerms(msgspec.Struct, frozen=True):
    """What a ring says to its instances; `resources` are all of them, group and plural, those that it controls too."""

    duration_s: int
    drain_timeout_s: int
    resources: tuple[tuple[str, str], ...]


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    reason: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    terms: Terms | None = None
    conditions: tuple[_Condition, ...] = ()


def read_terms(ring: Custom) -> RingTerms | str:
    """Read what a ring says, or say why it must be waited for: nobody looks after it, or another has its name.

    It stands in the status. A document that the operator has not taken yet, or has refused, counts for nobody: sharder
    and instances must know the same families and the same D.
    """
    try:
        status = msgspec.json.decode(ring.status, type=_Status)
    except msgspec.DecodeError as error:
        return f"the ring cannot be read: {error}"
    if any(each.type == "Ready" and each.reason == NAME_TAKEN for each in status.conditions):
        return "a ring of this name in another namespace is older"
    terms = status.terms
    if terms is None:
        return "no operator has taken the ring yet"
    return RingTerms(terms.lease_seconds, terms.drain_timeout_seconds, tuple(map(read_resource, terms.resources)))


def read_resource(text: str) -> tuple[str, str]:
    """Read a resource as people write it: `secrets`, `deployments.apps`; gives group and plural."""
    plural, _, group = text.partition(".")
    return group, plural


def check_resources(wanted: tuple[str | Resource, ...], terms: RingTerms) -> frozenset[tuple[str, str]]:
    """Give group and plural of what is to be reconciled; all of it must be of the ring."""
    found = set()
    for place, each in enumerate(wanted):
        name = read_resource(each) if isinstance(each, str) else (each.group, each.plural)
        if name not in terms.resources:
            known = ", ".join(sorted(map(_shown, terms.resources)))
            raise invalid(f"$.resources[{place}]", f"expected one that the ring names ({known}), got {_shown(name)!r}")
        found.add(name)
    return frozenset(found)


def _shown(name: tuple[str, str]) -> str:
    return ".".join(part for part in (name[1], name[0]) if part)
