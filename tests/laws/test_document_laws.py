"""The laws of documents, on sound documents with random edits and on random text, and that each law can break."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from poise.documents import dump, load, load_targets, write_yaml
from poise.documents.dump import _Writer
from poise.documents.faults import Faults
from poise.documents.structure import walk
from poise.documents.types import type_of
from poise.documents.yaml_values import yaml_values
from poise.errors import InvalidSpec
from poise.model import KINDS

PAGE = (Path(__file__).parents[2] / "docs" / "documents.md").read_text()
TEXT = "---\n".join(re.findall(r"^```yaml\n((?:apiVersion|kind).*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
FULL: list[object] = list(yaml_values(TEXT, Faults("docs")))

# Values on either side of every limit, and of every type that a field may or may not have.
NUMBERS = [
    0,
    1,
    -1,
    5,
    100,
    101,
    10**6,
    10**6 + 1,
    10**9,
    10**9 + 1,
    2**63,
    2**64,
    10**30,
    10**400,
    1.0,
    0.5,
    1.5,
    -0.1,
]
FLOATS = [float("nan"), float("inf"), 1e308, 1e15, 0.0]
TEXTS = ["", "a", "on", "a b", "a\n", "a\nb", "x" * 253, "x" * 254, "x" * 1025, "20%", "101%", "070%", "70", "http://x"]
LOOKS = [
    "12:30",
    "0o17",
    "1e5",
    "0x1f",
    ".5",
    "+1",
    "1_000",
    "~",
    "null",
    "=",
    "<<",
    "\x7f",
    "\u2028",
    "\u200f",
    "é",
    "😀",
]
KNOWN = ["sticky", "hashed", "Assigned", "Unassigned", "weighted", "DynamicWeight", "gnmic", "7/2", "0/0", "UTC", "2h"]
TIMES = ["2026-11-15T02:00:00Z", "2026-11-15T02:00:00", "0001-01-01T00:00:00Z", "2026-13-15T02:00:00Z"]
NESTED: list[object] = [[], {}, ["a", "a"], {"a": 1}, [{"name": "a"}, {"name": "a"}], {"env": "X"}, {"label": "x"}]
VALUES = st.sampled_from([None, True, *NUMBERS, *FLOATS, *TEXTS, *LOOKS, *KNOWN, *TIMES, *NESTED])
KEYS = st.sampled_from(
    ["name", "x", "config", "weight", "min", "max", "capacity", "password", "on", "1", "a b", "policy"]
)
PIECES = ["[", "]", "{", "}", ":", ", ", "- ", " ", "\n", "\t", '"', "'", "&a ", "*a", "!!str ", "!x ", "|", "\n---\n"]
RARE = ["\n...\n", "%YAML 1.2\n", "%TAG ! x\n", "#", "? ", "<<: ", "\0", "\x85", "\u2028", "\ufeff", "\\ud800", "1e999"]
FUZZ = settings(max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """List the paths to everything within a value."""
    inner: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [each for key, entry in inner for each in ((*path, key), *places(entry, (*path, key)))]


@st.composite
def edited(draw: st.DrawFn) -> dict[str, object]:
    """Draw a sound document, then change, add or remove up to three things in it."""
    value: dict[str, object] = copy.deepcopy(draw(st.sampled_from([each for each in FULL if isinstance(each, dict)])))
    for _ in range(draw(st.integers(0, 3))):
        if value:
            edit(draw, value, draw(st.sampled_from(places(value))))
    return value


def edit(draw: st.DrawFn, holder: object, path: tuple[str | int, ...]) -> None:
    """Change, remove or double what a path leads to, or add something beside it."""
    key, *rest = path
    how = draw(st.sampled_from(["set", "drop", "more"])) if not rest else "enter"
    other = copy.deepcopy(draw(VALUES)) if not rest else None
    if isinstance(holder, dict):
        if how == "enter":
            edit(draw, holder[key], tuple(rest))
        elif how == "drop":
            del holder[key]
        else:
            holder[key if how == "set" else draw(KEYS)] = other
    elif isinstance(holder, list) and isinstance(key, int):
        if how == "enter":
            edit(draw, holder[key], tuple(rest))
        elif how == "drop":
            del holder[key]
        elif how == "set":
            holder[key] = other
        else:
            holder.append(copy.deepcopy(holder[key]))


@st.composite
def scrambled(draw: st.DrawFn) -> str:
    """Draw the text of sound documents with pieces of YAML written over it."""
    text = TEXT
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        text = text[:start] + draw(st.sampled_from(PIECES + RARE)) + text[start + draw(st.sampled_from([0, 1, 40])) :]
    return text


def check_verdicts(value: dict[str, object]) -> None:
    """Law: msgspec refuses a value exactly where the walk finds a fault, and both build the same."""
    kind = value.get("kind")
    shape = KINDS.get(kind if isinstance(kind, str) else "", KINDS["TargetPool"])
    faults = Faults("x")
    built = walk(value, type_of(shape), "$", faults)
    try:
        converted = msgspec.convert(value, shape)
    except msgspec.ValidationError:
        assert faults.count, "msgspec saw a fault that the walk missed"
    else:
        assert not faults.count, "the walk saw a fault that msgspec missed"
        assert repr(built) == repr(converted)  # A NaN does not equal itself.


def check_refusal(text: bytes | str) -> None:
    """Law: whatever is read, it is sound or InvalidSpec, and each fault is one printable line."""
    for read in (load, load_targets):
        try:
            read(text, "f")
        except InvalidSpec as error:
            lines = [str(fault) for fault in error.faults]
        else:
            continue
        assert lines
        assert all(line.isprintable() and len(line) < 1000 for line in lines)


def check_round_trip(value: dict[str, object]) -> None:
    """Law: a document that was read, written and read again is the same, in YAML and in JSON."""
    try:
        documents = load(write_yaml(value), "f")
    except InvalidSpec:
        return
    values = dump(documents[0])
    assert load(write_yaml(values), "f") == documents
    assert load(json.dumps(values), "f") == documents


def check_paths(value: dict[str, object]) -> None:
    """Law: JSON has the faults of the same text read as YAML; only a line and column may differ."""

    def told(text: str) -> list[str]:
        try:
            return [str(document) for document in load(text, "f")]
        except InvalidSpec as error:
            return [re.sub(r"line \d+, column \d+", "", str(fault)) for fault in error.faults]

    text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    assert told(text) == told(f"# JSON is YAML\n{text}")


@FUZZ
@given(edited())
def test_msgspec_and_the_walk_agree(value: dict[str, object]) -> None:
    check_verdicts(value)


@FUZZ
@given(edited())
def test_an_edited_document_is_sound_or_invalid(value: dict[str, object]) -> None:
    check_refusal(write_yaml(value))


@FUZZ
@given(st.one_of(scrambled(), scrambled().map(str.encode), st.text(), st.binary(), st.text("[]{}:,-? \n\"'&*!|>#%0a")))
def test_any_text_is_sound_or_invalid(text: bytes | str) -> None:
    check_refusal(text)


@FUZZ
@given(edited())
def test_what_is_written_is_read_again(value: dict[str, object]) -> None:
    check_round_trip(value)


@FUZZ
@given(edited())
def test_json_and_yaml_mean_the_same(value: dict[str, object]) -> None:
    if not re.search("NaN|Infinity", json.dumps(value)):
        check_paths(value)


@settings(max_examples=examples(200), deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_text_survives_yaml(text: str) -> None:
    """Law: what is text stays this text, whatever it looks like."""
    (read,) = yaml_values(write_yaml({"key": text, "list": [text]}), Faults("x"))
    assert read == {"key": text, "list": [text]}


def breaks(check: object, value: object) -> bool:
    """Tell whether a law's check fails on a value."""
    assert callable(check)
    try:
        check(value)
    except (AssertionError, ValueError, RecursionError, InvalidSpec):
        return True
    return False


RING: dict[str, object] = {"kind": "ShardRing", "metadata": {"name": "a"}, "spec": {"tokens": 0}}


def test_a_walk_that_overlooks_bounds_breaks_the_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not breaks(check_verdicts, RING)
    monkeypatch.setattr("poise.documents.leaves._number_fault", lambda _value, _expected: None)
    assert breaks(check_verdicts, RING)


def test_a_walk_that_overlooks_unknown_fields_breaks_the_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    value: dict[str, object] = {"kind": "ShardRing", "metadata": {"name": "a"}, "x": 1}
    assert not breaks(check_verdicts, value)
    monkeypatch.setattr(Faults, "add", lambda _self, _path, _message: None)
    assert breaks(check_verdicts, value)


def test_numbers_without_a_limit_break_the_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"kind: ShardRing\nmetadata: {{name: a}}\nspec: {{tokens: {'9' * 5000}}}"
    assert not breaks(check_refusal, text)
    monkeypatch.setattr("poise.documents.scalars.NUMBER_LENGTH_MAX", 10_000)
    assert breaks(check_refusal, text)


def test_control_characters_as_they_are_break_the_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'kind: "\\e[31m"'
    assert not breaks(check_refusal, text)
    monkeypatch.setattr("poise.documents.faults._escaped", lambda sign: sign)
    assert breaks(check_refusal, text)


def test_numbers_of_version_1_1_break_the_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    target = {"name": "1e5", "config": {"a": "0o17"}}
    spec = {"pods": {"endpoints": []}, "targets": {"list": [target]}}
    text = json.dumps({"kind": "TargetPool", "metadata": {"name": "a"}, "spec": spec})
    values = dump(load(text, "f")[0])
    assert load(write_yaml(values), "f") == load(text, "f")
    monkeypatch.setattr(_Writer, "yaml_implicit_resolvers", yaml.SafeDumper.yaml_implicit_resolvers)
    with pytest.raises(InvalidSpec):
        load(write_yaml(values), "f")


def test_a_duplicate_key_that_json_hides_breaks_the_sameness(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"kind": "ShardRing", "metadata": {"name": "a", "name": "b"}}'
    with pytest.raises(InvalidSpec):
        load(text, "f")
    decoder = json.JSONDecoder()
    monkeypatch.setattr("poise.documents.json_values._DECODER", decoder)
    assert load(text, "f") != []
