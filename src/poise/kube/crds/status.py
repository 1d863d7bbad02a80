"""What every resource of Poise shows in its status on Kubernetes, beside what Poise knows of it."""

from __future__ import annotations

from typing import Literal

from msgspec import field, structs

from poise.model.common import Count, Line, Moment, Name, Sentence, Serial, SomeSeconds, Value
from poise.model.shard_ring import ShardRingSpec


class Condition(Value, frozen=True, kw_only=True):
    """One condition, as Kubernetes' own tools read it."""

    type: Name
    status: Literal["True", "False", "Unknown"]
    reason: Name
    message: Sentence = ""
    last_transition_time: Moment
    observed_generation: Serial | None = None


class Shown(Value, frozen=True):
    """What is shown of every kind: which generation was read, and the conditions."""

    observed_generation: Serial | None = None
    conditions: list[Condition] = field(default_factory=list)


class Terms(Value, frozen=True, kw_only=True):
    """What the instances of a ring go by: that of the newest document that the operator has taken.

    `resources` are all of the ring, those that it controls too, written as `deployments.apps` or `secrets`.
    """

    lease_seconds: SomeSeconds
    drain_timeout_seconds: SomeSeconds
    resources: list[Line]


def terms_of(spec: ShardRingSpec) -> Terms:
    """Read what a document says to instances."""
    wide = ((each.resource, each.group) for root in spec.resources for each in (root, *root.controlled))
    return Terms(
        lease_seconds=spec.lease_seconds,
        drain_timeout_seconds=spec.drain_timeout_seconds,
        resources=[".".join(filter(None, name)) for name in dict.fromkeys(wide)],
    )


class ShownRing(Shown, frozen=True):
    """What is shown of a ring: counts, never one entry an object, since a status has to stay small."""

    terms: Terms | None = None
    summary: Line = ""
    objects: dict[Name, Count] = field(default_factory=dict)
    ready: Count | None = None
    drains_pending: Count | None = None
    oldest_drain_since: Moment | None = None
    unassigned: Count | None = None


def put_condition(conditions: list[Condition], new: Condition) -> list[Condition]:
    """Put a condition among others, sorted by type; while its status stays, so does the time of its last transition."""
    kept = {each.type: each for each in conditions}
    old = kept.get(new.type)
    if old is not None and old.status == new.status:
        new = structs.replace(new, last_transition_time=old.last_transition_time)
    return [condition for _, condition in sorted((kept | {new.type: new}).items())]
