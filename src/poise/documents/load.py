"""Files to documents: every fault of every document at once, or none and all of them."""

from __future__ import annotations

from collections.abc import Iterator

from poise.documents.faults import Faults, at_key, shown
from poise.documents.json_values import json_value
from poise.documents.rules import check_rules
from poise.documents.rules.items import open_configs
from poise.documents.rules.shared import unique
from poise.documents.structure import build
from poise.documents.text import read_text
from poise.documents.yaml_values import BROKEN, yaml_values
from poise.model import KINDS, Document, Target

_Identity = tuple[str, str | None, str]


def load(text: bytes | str, source: str) -> list[Document]:
    """Read all documents of a file, YAML or JSON; InvalidSpec with the faults of all of them."""
    faults = Faults(source)
    documents: list[Document] = []
    seen: dict[_Identity, int] = {}
    for number, value in _values(read_text(text, source), faults):
        document = _document(value, faults)
        if document is not None:
            _check_identity(document, number, seen, faults)
            documents.append(document)
    faults.raise_any()
    return documents


def _values(text: str, faults: Faults) -> Iterator[tuple[int, object]]:
    """Number the documents; an empty one (a line --- too many) is passed over, a file of none is a fault."""
    found = json_value(text)
    if found is not None:
        faults.enter(1)
        yield 1, found
        return
    some = False
    for number, value in enumerate(yaml_values(text, faults), start=1):
        if value is not None:
            some = True
            yield number, value
    if not some and not faults.count:
        faults.leave()
        faults.add("", "no document")


def _document(value: object, faults: Faults) -> Document | None:
    if not isinstance(value, dict):
        if value is not BROKEN:
            faults.add("$", f"expected a mapping, got {shown(value)}")
        return None
    kind = value.get("kind")
    if kind is BROKEN:
        return None
    if not isinstance(kind, str) or kind not in KINDS:
        told = f"got {shown(kind)}" if "kind" in value else "but the field is missing"
        faults.add("$.kind", f"expected one of {', '.join(KINDS)}, {told}")
        return None
    document = build(value, KINDS[kind], faults)
    if not faults.full:
        check_rules(document, faults)
    return document


def _check_identity(document: Document, number: int, seen: dict[_Identity, int], faults: Faults) -> None:
    metadata = document.metadata
    first = seen.setdefault((document.kind, metadata.namespace, metadata.name), number)
    if first != number:
        faults.rule("$.metadata.name", f"duplicate of document {first}", "$.metadata.namespace")


def load_targets(text: bytes | str, source: str) -> list[Target]:
    """Read a list of targets from a file of its own: a list of entries, or a mapping from names to entries."""
    faults = Faults(source)
    targets: list[Target] = []
    for number, value in _values(read_text(text, source), faults):
        if number > 1:
            faults.add("$", "expected one document: a list of targets")
        elif value is not BROKEN:
            targets = _targets(value, faults)
    faults.raise_any()
    return targets


def _targets(value: object, faults: Faults) -> list[Target]:
    if isinstance(value, list):
        targets = build(value, list[Target], faults)
        unique("$", [target.name for target in targets], faults)
        open_configs(((f"$[{place}]", target) for place, target in enumerate(targets)), faults)
        return targets
    if isinstance(value, dict):
        named = [_named(name, entry, faults) for name, entry in value.items()]
        open_configs(((at_key("$", target.name), target) for target in named), faults)
        return named
    faults.add("$", f"expected a list of targets or a mapping of them by name, got {shown(value)}")
    return []


def _named(name: str, entry: object, faults: Faults) -> Target:
    """Build a target of a mapping: its key is its name."""
    path = at_key("$", name)
    if not isinstance(entry, dict):
        return build({"name": name} if entry is None else entry, Target, faults, path)
    if entry.get("name", name) not in (name, BROKEN):
        faults.rule(f"{path}.name", f"expected {shown(name)}, its key, got {shown(entry['name'])}")
    return build({**entry, "name": name}, Target, faults, path)
