"""Patches that are refused when the object is no longer what they were decided on. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from poise.kube.objects import Meta


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation of a JSON Patch."""

    op: Literal["test", "add", "replace", "remove"]
    path: str
    value: object = msgspec.UNSET


def pointer(*parts: str) -> str:
    """Name a place of a document: `/metadata/labels/poise.dev~1ring`."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def same_uid(uid: str) -> Operation:
    """Test that it is still the same object, and not a later one of that name."""
    return Operation("test", pointer("metadata", "uid"), uid)


def same_label(name: str, value: str) -> Operation:
    """Test that a label is as it was; where it is absent the test fails as well."""
    return Operation("test", pointer("metadata", "labels", name), value)


def set_label(name: str, value: str) -> Operation:
    """Set a label of an object that has labels."""
    return Operation("add", pointer("metadata", "labels", name), value)


def label_change(meta: Meta, labels: Mapping[str, str | None]) -> dict[str, object]:
    """Change labels (None removes one) of exactly this version of exactly this object, as a merge patch."""
    return guarded(meta, {"metadata": {"labels": dict(labels)}})


def guarded(meta: Meta, change: Mapping[str, object]) -> dict[str, object]:
    """Let a merge patch carry the uid and the resourceVersion that it was decided on; a stale one is Conflict."""
    assert meta.uid, "a patch is made for an object that was seen"
    assert meta.resource_version, "a patch is made for a version that was seen"
    given = change.get("metadata", {})
    assert isinstance(given, Mapping), "metadata is a mapping"
    return {**change, "metadata": {**given, "uid": meta.uid, "resourceVersion": meta.resource_version}}
