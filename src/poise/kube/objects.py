"""Objects of Kubernetes as values: what all of them have, Leases, and what the API server says about itself.

Only the fields below are decoded; the rest of an object (its managedFields above all) is passed over, which is what
makes an event cheap.
"""

from __future__ import annotations

from sys import intern
from types import GenericAlias
from typing import Generic, TypeVar

import msgspec

from poise.errors import Unavailable

Shape = TypeVar("Shape")


class KubeValue(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """The base: never changes, camelCase on the wire. No value refers back to its holder, so none needs collecting."""


class OwnerReference(KubeValue, frozen=True):
    """Who owns an object; at most one owner is its controller."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False

    @property
    def group(self) -> str:
        """The group of the owner; the core's is empty."""
        return self.api_version.rpartition("/")[0]


class Meta(KubeValue, frozen=True):
    """The metadata of one object. An empty text is one that is not there."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """What it is known by among the objects of its kind."""
        return self.namespace, self.name

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls it, where there is one."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class Partial(KubeValue, frozen=True):
    """An object of any kind, of which only the metadata was asked for."""

    metadata: Meta = Meta()
    api_version: str = ""
    kind: str = ""


class Custom(KubeValue, frozen=True):
    """A custom resource whose spec and status are read later, by rules that tell every fault."""

    metadata: Meta = Meta()
    api_version: str = ""
    kind: str = ""
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")

    def as_document(self) -> bytes:
        """Write what people want of it as JSON, without what only Kubernetes knows: as a file would say it."""
        named = Meta(self.metadata.name, self.metadata.namespace, labels=self.metadata.labels)
        return msgspec.json.encode(Custom(named, self.api_version, self.kind, self.spec))


class LeaseSpec(KubeValue, frozen=True):
    """Who holds a Lease and for how long. The times are the holder's own: nobody else may compare them."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(KubeValue, frozen=True):
    """A Lease of coordination.k8s.io."""

    metadata: Meta
    spec: LeaseSpec = LeaseSpec()
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


class ListMeta(KubeValue, frozen=True):
    """Where a list stands: its version, and how its next page is asked for."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class Page(KubeValue, Generic[Shape], frozen=True):
    """One page of a list."""

    metadata: ListMeta
    # The API server writes null where a list of some kinds is empty.
    items: list[Shape] | None = None


class WatchLine(KubeValue, Generic[Shape], frozen=True):
    """One line of a watch; where `type` is ERROR the object is a Status."""

    type: str
    object: Shape


class StatusCause(KubeValue, frozen=True):
    """One reason of a refusal, and the field it is about."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(KubeValue, frozen=True):
    """What a refusal is about."""

    name: str = ""
    group: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class Status(KubeValue, frozen=True):
    """What the API server says instead of an object."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails = StatusDetails()


class StatusLine(KubeValue, frozen=True):
    """The line of a watch that says why it ends."""

    object: Status = Status()


def decode(body: bytes, shape: type[Shape]) -> Shape:
    """Read an answer. One that is no such object came from something that is not the API server."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise unreadable(error) from None


def page_decoder(shape: type[Shape]) -> msgspec.json.Decoder[Page[Shape]]:
    """Make what reads the pages of a list."""
    return msgspec.json.Decoder(GenericAlias(Page, (shape,)))


def line_decoder(shape: type[Shape]) -> msgspec.json.Decoder[WatchLine[Shape]]:
    """Make what reads the lines of a watch."""
    return msgspec.json.Decoder(GenericAlias(WatchLine, (shape,)))


def unreadable(error: Exception) -> Unavailable:
    """Say that an answer cannot have come from the API server as it was sent."""
    return Unavailable(f"the API server gave an unreadable answer: {error}")


def slim(meta: Meta) -> Meta:
    """Keep what a mirror needs: no annotations or finalizers, and each text that many objects share only once."""
    return Meta(
        name=meta.name,
        namespace=intern(meta.namespace),
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation,
        labels={intern(name): intern(value) for name, value in meta.labels.items()},
        owner_references=tuple(map(_slim_owner, meta.owner_references)),
        deletion_timestamp=meta.deletion_timestamp,
    )


def _slim_owner(owner: OwnerReference) -> OwnerReference:
    """Share the kind of an owner; its name and uid are its own."""
    return OwnerReference(intern(owner.api_version), intern(owner.kind), owner.name, owner.uid, owner.controller)


def slim_partial(seen: Partial) -> Partial:
    """Keep of an object what a mirror needs."""
    return Partial(slim(seen.metadata))
