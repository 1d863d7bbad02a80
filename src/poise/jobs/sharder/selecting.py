"""Which namespaces a ring selects, and where the key of an object is read. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from poise.kube import Meta, Partial, Resource
from poise.kube.objects import slim
from poise.model import LabelSelector
from poise.model.common import LabelRule
from poise.model.shard_ring import KeySource
from poise.move.sharding.keys import Json, json_path, object_key, path_key, ring_key


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Say whether a selector chooses something with these labels; an empty one chooses all."""
    plain = all(labels.get(name) == value for name, value in selector.match_labels.items())
    return plain and all(_holds(rule, labels) for rule in selector.match_expressions)


def _holds(rule: LabelRule, labels: Mapping[str, str]) -> bool:
    match rule.operator:
        case "In":
            return labels.get(rule.key) in rule.values
        case "NotIn":
            return labels.get(rule.key) not in rule.values
        case "Exists":
            return rule.key in labels
        case _:
            return rule.key not in labels


class Bodied(Partial, frozen=True):
    """An object of which one value was read, too; only that value is kept."""

    # No object has a field of this name on the wire.
    found: str = msgspec.field(default="", name=" found")
    part: msgspec.Raw = msgspec.Raw(b"null")


class Keys(msgspec.Struct, frozen=True):
    """How the key of an object is read: what to ask the API server for, what to keep of it, and the key in that.

    `fixed`: the key of one object never changes, so it is read once.
    """

    shape: type[Partial]
    keep: Callable[[Partial], Partial]
    read: Callable[[Resource, Partial], str]
    fixed: bool = False


def own_key(resource: Resource, meta: Meta) -> str:
    """Name an object by itself."""
    return object_key(resource.group, resource.kind, meta.namespace, meta.name)


def read_keys(key: str | KeySource) -> Keys:
    """Say how keys are read; only a JSONPath needs more of an object than its metadata."""
    if isinstance(key, KeySource) and key.json_path is not None:
        return _by_path(key.json_path)
    source, label = (key, "") if isinstance(key, str) else ("label", key.label or "")

    def read(resource: Resource, seen: Partial) -> str:
        meta = seen.metadata
        return ring_key(own_key(resource, meta), meta.namespace, meta.labels, source=source, label=label)

    return Keys(Partial, lambda seen: Partial(slim(seen.metadata)), read, fixed=source != "label")


def _by_path(path: str) -> Keys:
    """Read the one top-level part that the path begins with, and keep the value that it leads to."""
    first = str(json_path(path)[0])
    shape = _shape(first)

    def keep(seen: Partial) -> Partial:
        return Bodied(slim(seen.metadata), found=path_key("", path, {first: _part(seen, first)}))

    def read(resource: Resource, seen: Partial) -> str:
        return (seen.found if isinstance(seen, Bodied) else "") or own_key(resource, seen.metadata)

    return Keys(shape, keep, read)


def _shape(first: str) -> type[Partial]:
    """Make the shape whose `part` is the named one; metadata is decoded anyhow."""
    if first in ("metadata", "apiVersion", "kind"):
        return Bodied
    named = msgspec.field(default=msgspec.Raw(b"null"), name=first)
    made = msgspec.defstruct("BodiedPart", [("part", msgspec.Raw, named)], bases=(Bodied,), frozen=True, gc=False)
    assert issubclass(made, Partial), "it has this base"
    return made


def _part(seen: Partial, first: str) -> Json:
    """Give the top-level part of an object; of metadata only what is decoded of it can be a key."""
    if first in ("apiVersion", "kind"):
        return seen.api_version if first == "apiVersion" else seen.kind
    if not isinstance(seen, Bodied):
        return None
    part: Json = msgspec.to_builtins(seen.metadata) if first == "metadata" else msgspec.json.decode(seen.part)
    return part
