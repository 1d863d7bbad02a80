"""Requests of a shard as the gate sees them, and what each is for: read from path and body, in any encoding. Pure.

Bodies may be JSON, YAML or protobuf. Names are searched for in the bytes: they are made for one check, and occur
nowhere else. What cannot be read at all is judged by what the API server answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from urllib.parse import unquote

import msgspec
import yaml

from poise.kube.objects import LeaseSpec, Meta
from poise.model.sharding import Marks, label_names, label_patch, read_marks

LEASES, EVENTS, SECRETS, CONFIG_MAPS = "leases", "events", "secrets", "configmaps"
_WRITES = ("POST", "PUT", "PATCH", "DELETE")
_JSON_PATCH = "application/json-patch+json"


class Place(msgspec.Struct, frozen=True):
    """What a path leads to; a name is empty for all objects of a kind."""

    group: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        """Read as people write it."""
        return f"{self.plural} {self.namespace}/{self.name}" if self.name else self.plural


def read_place(path: str) -> Place | None:
    """Read a path of the API; None where it leads to no object, such as /version."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[:1] == ["api"] and len(parts) > 2:
        group, rest = "", parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 3:
        group, rest = parts[1], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    name, subresource = [*rest[1:], "", ""][:2]
    return Place(group, rest[0], namespace, name, subresource)


class Intent(StrEnum):
    """What a request is for."""

    LOOK = "reads"
    LEASE = "writes a Lease"
    ACT = "writes in a reconcile"
    RAISE = "raises an epoch"
    HAND_OVER = "hands over"
    ASIDE = "writes something that does not matter here"


class Answer(msgspec.Struct, frozen=True):
    """What of an object that came back is of interest."""

    metadata: Meta = Meta()
    spec: LeaseSpec = LeaseSpec()


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One request of one process; `roots` are the Secrets of the check that it names, wherever in it.

    `before` are the labels of its object as last seen when it came, `known` the version that had them. Times are by the
    clock of the check.
    """

    process: str
    at_s: float
    method: str
    path: str
    query: Mapping[str, str] = {}
    content_type: str = ""
    body: bytes = b""
    place: Place | None = None
    before: Marks = Marks()
    known: int = 0
    intent: Intent = Intent.LOOK
    roots: tuple[str, ...] = ()
    held: bool = False
    status: int | None = None
    answered_s: float | None = None
    answer: Answer | None = None

    @property
    def is_write(self) -> bool:
        """Say whether it changes an object that the check is about."""
        return self.intent in (Intent.ACT, Intent.RAISE, Intent.HAND_OVER)

    @property
    def succeeded(self) -> bool:
        """Say whether the API server did what was asked."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def holder(self) -> str | None:
        """Who holds the Lease after this write; None where it was refused or is no such write."""
        if self.intent is not Intent.LEASE or not self.succeeded or self.answer is None:
            return None
        return self.answer.spec.holder_identity or ""

    @property
    def is_fresh_list(self) -> bool:
        """Say whether it lists Secrets as they are now: no resourceVersion, or a watch that begins with all of them."""
        if self.place is None or self.method != "GET" or self.place.name or self.place.plural != SECRETS:
            return False
        watching = self.query.get("watch", "") not in ("", "0", "false")
        streamed = self.query.get("sendInitialEvents", "") in ("1", "true")
        return not self.query.get("resourceVersion") and (streamed or not watching)

    def __str__(self) -> str:
        """Read as a line of a log."""
        return f"{self.method} {self.place or self.path}"


def classify(asked: Asked, ring: str, names: Iterable[str]) -> Asked:
    """Say what a request is for, and which of the named Secrets it is about."""
    if asked.method not in _WRITES or asked.place is None:
        return asked
    if asked.place.plural == LEASES:
        return msgspec.structs.replace(asked, intent=Intent.LEASE)
    path = unquote(asked.path)
    roots = tuple(name for name in names if name in path or name.encode() in asked.body)
    if asked.place.plural == EVENTS or "dryRun" in asked.query or not roots:
        return msgspec.structs.replace(asked, intent=Intent.ASIDE)
    return msgspec.structs.replace(asked, intent=_intent(asked, ring), roots=roots)


def _intent(asked: Asked, ring: str) -> Intent:
    after = None if asked.method in ("POST", "DELETE") else wanted_marks(asked, ring)
    return Intent.ACT if after is None else _change(asked.before, after)


def _change(before: Marks, after: Marks) -> Intent:
    """Tell by the labels before and after; one that only lags behind, such as a stale PUT, changes no owner."""
    if after.shard != before.shard:
        return Intent.HAND_OVER
    return Intent.RAISE if after.epoch != before.epoch else Intent.ACT


def answered(asked: Asked, status: int, at_s: float, body: bytes) -> Asked:
    """Take what came back."""
    return msgspec.structs.replace(asked, status=status, answered_s=at_s, answer=_read_answer(body))


def settle(done: Asked, before: Marks, ring: str) -> Asked:
    """Say what a write was for, now that the version it made is known, and what was there `before` that one.

    So it is told also of bodies that cannot be read, and where the check lagged behind when the request came.
    """
    if not done.is_write or done.method not in ("PUT", "PATCH") or not done.succeeded or done.answer is None:
        return done
    if version_number(done.answer.metadata) <= done.known:
        return msgspec.structs.replace(done, intent=Intent.ACT)  # It changed nothing.
    after = read_marks(done.answer.metadata.labels, ring)
    return msgspec.structs.replace(done, intent=_change(before, after))


def version_number(meta: Meta) -> int:
    """Read a resourceVersion as a number, to put versions in order."""
    return int(meta.resource_version) if meta.resource_version.isdecimal() else 0


def _read_answer(body: bytes) -> Answer | None:
    try:
        return msgspec.json.decode(body, type=Answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def wanted_marks(asked: Asked, ring: str) -> Marks | None:
    """Read what the labels of a ring would be after a write; None where it cannot be read."""
    if "protobuf" in asked.content_type:
        return read_marks(_protobuf_labels(asked.body, label_names(ring)), ring)
    labels: dict[object, object] = {}
    labels.update(label_patch({}, ring, asked.before))
    try:
        document: object = yaml.safe_load(asked.body) if "yaml" in asked.content_type else _read_json(asked)
    except (msgspec.DecodeError, UnicodeDecodeError, yaml.YAMLError):
        return None
    if asked.content_type.startswith(_JSON_PATCH):
        return read_marks(_after_operations(labels, document), ring)
    given = _labels_of(document)
    if asked.method == "PUT":
        return read_marks(_texts(given), ring)
    return read_marks(_texts({**labels, **given}), ring)


def _read_json(asked: Asked) -> object:
    return msgspec.json.decode(asked.body)


def _protobuf_labels(body: bytes, names: Iterable[str]) -> dict[str, str]:
    """Find labels in an object as protobuf has them: each an entry of a map, key and value with their lengths.

    The managed fields of an object name keys, too, but not in this form.
    """
    found = {}
    for name in names:
        _, there, rest = body.partition(b"\x0a" + bytes([len(name)]) + name.encode() + b"\x12")
        if there:
            found[name] = rest[1 : 1 + rest[0]].decode(errors="replace") if rest else ""
    return found


def _labels_of(document: object) -> Mapping[object, object]:
    meta = document.get("metadata") if isinstance(document, dict) else None
    labels = meta.get("labels") if isinstance(meta, dict) else None
    return labels if isinstance(labels, dict) else {}


def _texts(labels: Mapping[object, object]) -> dict[str, str]:
    """Keep what is a label; None, which removes one in a merge patch, is not."""
    return {name: value for name, value in labels.items() if isinstance(name, str) and isinstance(value, str)}


def _after_operations(labels: Mapping[object, object], operations: object) -> dict[str, str]:
    """Carry out the operations of a JSON Patch that change labels; a test changes nothing."""
    found = dict(labels)
    for each in operations if isinstance(operations, list) else []:
        path = each.get("path") if isinstance(each, dict) else None
        if not isinstance(path, str) or each.get("op") == "test":
            continue
        parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
        if parts == ["metadata", "labels"]:
            value = each.get("value")
            found = dict(value) if isinstance(value, dict) else {}
        elif parts[:2] == ["metadata", "labels"] and len(parts) == 3:
            found[parts[2]] = None if each.get("op") == "remove" else each.get("value")
    return _texts(found)
