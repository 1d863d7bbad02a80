"""What is known of the objects of one kind, and what changed: lists and events in, differences out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

import msgspec

from poise.kube.objects import Meta

Key = tuple[str, str]


class HasMeta(Protocol):
    """Whatever has the metadata of an object."""

    @property
    def metadata(self) -> Meta: ...


Kept = TypeVar("Kept", bound=HasMeta)


class Added(msgspec.Struct, Generic[Kept], frozen=True):
    """An object that was not known."""

    object: Kept


class Modified(msgspec.Struct, Generic[Kept], frozen=True):
    """An object that changed, and what it was before."""

    object: Kept
    old: Kept


class Deleted(msgspec.Struct, Generic[Kept], frozen=True):
    """An object that is gone, or that the selectors no longer choose: read it before treating it as gone.

    `last` is what the server sent with the news; None where only a later list showed that it is not there.
    """

    old: Kept
    last: Kept | None = None


class Synced(msgspec.Struct, frozen=True):
    """The mirror is complete: all that a list showed has been told. Comes after every list."""

    version: str


Event = Added[Kept] | Modified[Kept] | Deleted[Kept] | Synced


class Mirror(Generic[Kept]):
    """The objects as last seen. One that has the name of an earlier one, but not its uid, is another object."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        self._known: dict[Key, Kept] = {}

    @property
    def objects(self) -> Mapping[Key, Kept]:
        """All objects by namespace and name, to be read only."""
        return MappingProxyType(self._known)

    def put(self, seen: Kept) -> Iterator[Event[Kept]]:
        """Take an object that is there, from a list or a watch; what is known already is no news."""
        key, old = seen.metadata.key, self._known.get(seen.metadata.key)
        if old is not None and old.metadata.uid == seen.metadata.uid:
            if old.metadata.resource_version != seen.metadata.resource_version:
                self._known[key] = seen
                yield Modified(seen, old)
            return
        if old is not None:
            del self._known[key]
            yield Deleted(old)
        self._known[key] = seen
        yield Added(seen)

    def drop(self, seen: Kept) -> Iterator[Event[Kept]]:
        """Take the news that an object is gone; one that was never known is no news."""
        old = self._known.pop(seen.metadata.key, None)
        if old is not None:
            yield Deleted(old, seen)

    def replace(self, listed: Iterable[Kept], version: str) -> Iterator[Event[Kept]]:
        """Take a whole list. What it does not show any more is deleted first, then come the others, then Synced."""
        there = {seen.metadata.key: seen for seen in listed}
        for key in [key for key in self._known if key not in there]:
            yield Deleted(self._known.pop(key))
        for seen in there.values():
            yield from self.put(seen)
        yield Synced(version)
