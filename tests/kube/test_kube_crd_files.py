"""The generated definitions: current in the checkout, and structural as the API server wants them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal

import msgspec
import pytest
from msgspec import structs
from tools import crds

from poise.kube.crds import DEFINED, custom_resource, definition
from poise.kube.crds.rules import LIST_KEYS, RULES
from poise.kube.crds.schema import re2
from poise.kube.crds.status import Condition, put_condition
from poise.model import KINDS, ShardRing
from poise.model.common import Metadata, Name, Url


def test_the_files_are_current() -> None:
    assert crds.stale() == [], "run: python -m tools.crds"


def test_a_changed_struct_makes_them_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    status = ("status", type(ShardRing(metadata=Metadata("a")).status))
    changed = msgspec.defstruct("ShardRing", [("metadata", Metadata), ("spec", int), status])
    monkeypatch.setitem(KINDS, "ShardRing", changed)
    assert crds.stale() == ["shardrings.yaml"]


def test_a_file_of_no_kind_is_stale(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crds, "FOLDER", tmp_path)
    assert len(crds.stale()) == 6
    crds.write()
    assert crds.stale() == []
    (crds.FOLDER / "old.yaml").write_text("x")
    assert crds.stale() == ["old.yaml"]
    crds.write()
    assert crds.stale() == []


def test_every_kind_has_a_definition() -> None:
    assert DEFINED.keys() == KINDS.keys()
    shorts = [defined.short for defined in DEFINED.values()]
    assert len(set(shorts)) == len(shorts)
    assert custom_resource("ShardRing").path("n") == "/apis/poise.dev/v1alpha1/namespaces/n/shardrings"


def nodes(schema: object) -> Iterator[dict[str, object]]:
    """Give every mapping of a definition."""
    if isinstance(schema, dict):
        yield schema
        for inner in schema.values():
            yield from nodes(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from nodes(inner)


def found(kind: str) -> str:
    return msgspec.json.encode(definition(kind)).decode()


def test_every_rule_and_every_list_key_is_used() -> None:
    """A Struct that was renamed or is no longer part of a document would leave its rules behind."""
    whole = "".join(map(found, DEFINED))
    for rules in RULES.values():
        for rule in rules:
            assert msgspec.json.encode(rule.message).decode() in whole, rule
    keys = {tuple(keys) for kind in DEFINED for node in nodes(definition(kind)) if (keys := _keys(node))}
    assert keys == set(LIST_KEYS.values())


def _keys(node: dict[str, object]) -> list[str]:
    keys = node.get("x-kubernetes-list-map-keys", [])
    assert isinstance(keys, list)
    return keys


def test_no_pattern_has_what_go_does_not_read() -> None:
    patterns = [
        str(node["pattern"])
        for kind in DEFINED
        for node in nodes(definition(kind))
        if isinstance(node.get("pattern"), str)
    ]
    assert len(patterns) > 20
    for pattern in patterns:
        assert r"\Z" not in pattern
        assert r"\u" not in pattern
        assert pattern.endswith("$")


@pytest.mark.parametrize("shape", [Name, Url], ids=["name", "address"])
def test_patterns_mean_the_same(shape: object) -> None:
    (meta,) = (each for each in getattr(shape, "__metadata__", ()))
    ours, theirs = re.compile(meta.pattern), re2(meta.pattern)
    again = re.compile(re.sub(r"\\x\{([0-9a-fA-F]{4})\}", r"\\u\1", theirs).removesuffix("$") + r"\Z")
    for text in ("a", "a-b", "http://x", "http://x\n", "a\n", "-a", "", "http://\u202e", "a" * 300):
        assert bool(ours.search(text)) == bool(again.search(text))


def test_a_condition_keeps_the_time_of_its_last_transition() -> None:
    def ready(status: Literal["True", "False"], minute: int, message: str = "") -> Condition:
        moment = datetime(2026, 11, 15, 2, minute, tzinfo=UTC)
        return Condition(type="Ready", status=status, reason="Held", message=message, last_transition_time=moment)

    other = structs.replace(ready("True", 0), type="Balanced")
    first = put_condition([other], ready("False", 1))
    assert first == [other, ready("False", 1)]
    same = put_condition(first, ready("False", 2, "still"))
    assert same == [other, ready("False", 1, "still")]
    assert put_condition(same, ready("True", 3)) == [other, ready("True", 3)]
    assert put_condition(first, ready("False", 2)) == first, "nothing new is no write"
