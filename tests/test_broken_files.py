"""Files that cannot be read, or shall do harm: one clear line, in bounded time and memory; files of targets alike."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from tests.document_texts import faults, ring

from poise.documents import BYTES_MAX, load, load_targets

REFERENCE = "expected a reference, {env: NAME} or {file: PATH}: a credential is never stored"

FILES: dict[str, tuple[bytes | str, str]] = {
    "an empty file": ("", "f.yaml: no document"),
    "only comments": ("# nothing\n", "f.yaml: no document"),
    "only dashes": ("---\n---\n", "f.yaml: no document"),
    "binary garbage": (bytes(range(200, 256)) * 100, "f.yaml: line 1, byte 1: 0xc8 is not UTF-8 text"),
    "Latin-1": ("kind: x\nname: é".encode("latin-1"), "f.yaml: line 2, byte 15: 0xe9 is not UTF-8 text"),
    "UTF-16": ("kind: x".encode("utf-16"), "f.yaml: line 1, byte 1: 0xff is not UTF-8 text"),
    "a NUL": ("kind: x\nname: \0", "f.yaml: line 2, column 7: the character U+0000 is not allowed"),
    "a bell": (b"a: \x07", "f.yaml: line 1, column 4: the character U+0007 is not allowed"),
    "half of a surrogate pair": ("a: \ud800", "f.yaml: line 1, column 4: half of a surrogate pair is no text"),
    "half of a surrogate pair in JSON": (
        '["\\ud800"]',
        "f.yaml: line 1, column 5: while parsing a quoted scalar, found invalid Unicode character escape code",
    ),
    "50 MB": (b"x" * 50_000_000, "f.yaml: larger than 16 MiB: split it into several files"),
    "50 MB of text": ("é" * 10_000_000, "f.yaml: larger than 16 MiB: split it into several files"),
    "an open bracket": (
        "kind: [a",
        "f.yaml, document 1: line 2, column 1: while parsing a flow sequence, did not find expected ',' or ']'",
    ),
    "a tab": (
        "a:\n\t- b",
        (
            "f.yaml, document 1: line 2, column 1: while scanning for the next token, found character that cannot "
            "start any token"
        ),
    ),
    "a later document that is no YAML": (
        ring() + "---\n- ]",
        "f.yaml, document 2: line 6, column 3: while parsing a block node, did not find expected node content",
    ),
    "100,000 brackets": ("[" * 100_000, "f.yaml, document 1: line 1, column 65: nested more than 64 levels deep"),
    "100,000 closed brackets": (
        "[" * 100_000 + "]" * 100_000,
        "f.yaml, document 1: line 1, column 65: nested more than 64 levels deep",
    ),
    "100,000 mappings": (
        '{"a":' * 100_000,
        "f.yaml, document 1: line 1, column 321: nested more than 64 levels deep",
    ),
    "100,000 dashes": ("- " * 100_000, "f.yaml, document 1: line 1, column 129: nested more than 64 levels deep"),
    "40,000 directives": (
        "".join(f"%TAG !a{n}! b{n}\n" for n in range(40_000)) + "--- a",
        "f.yaml: line 1, column 1: %TAG directives are not allowed",
    ),
    "the same name twice": (ring() + "---\n" + ring(), "f.yaml, document 2: $.metadata.name: duplicate of document 1"),
}


@pytest.mark.parametrize(("text", "line"), FILES.values(), ids=FILES)
def test_a_file_that_cannot_be_read_is_one_line(text: bytes | str, line: str) -> None:
    assert faults(text) == [line]


def test_the_largest_file_is_read_and_one_byte_more_is_not() -> None:
    text = ring().encode()
    assert load(text + b"#" * (BYTES_MAX - len(text)), "x")
    assert faults(text + b"#" * (BYTES_MAX + 1 - len(text))) == [
        "f.yaml: larger than 16 MiB: split it into several files"
    ]


def test_a_bomb_of_aliases_costs_nothing() -> None:
    levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    lines = faults(f"a0: &a0 lol\n{levels}")
    assert (
        lines[0]
        == 'f.yaml, document 1: $.a1[0]: aliases are not allowed, got "*a0": write the value out (line 2, column 10)'
    )
    assert lines[-1] == "f.yaml: and 212 more faults"


HOSTILE = {
    "documents": ("--- a\n" * 30_000, 29_950),
    "unknown fields": (ring(",".join(f"f{n}: 1" for n in range(30_000))), 29_950),
    "long keys": (ring(",".join(f"{n:0>1000}a: 1" for n in range(5_000))), 4_950),
    "duplicates": (ring(f"objects: [{'a,' * 30_000}]"), 29_949),
    "wrong types": (ring(f"objects: [{'1,' * 30_000}]"), 29_950),
}


@pytest.mark.parametrize(("text", "more"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_prints_no_more_than_another(text: str, more: int) -> None:
    lines = faults(text)
    assert (len(lines), lines[-1]) == (51, f"f.yaml: and {more} more faults")
    assert max(map(len, lines)) < 300


@pytest.mark.slow
def test_a_hostile_file_takes_bounded_memory() -> None:
    script = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_AS, (10**9, 10**9))\n"
        "from poise.documents import load\n"
        "from poise.errors import InvalidSpec\n"
        "try:\n"
        "    load('[' + '{a},' * 4_000_000 + ']', 'f')\n"
        "except InvalidSpec as error:\n"
        "    raise SystemExit(str(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == (
        "f, document 1: line 1, column 4000003: more than 3,000,000 values: split the file into several\n"
    )


def test_a_million_values_stop_the_reading_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poise.documents.yaml_values.VALUES_MAX", 10)
    assert faults("[a, a, a, a, a, a, a, a, a, a, a]") == [
        "f.yaml, document 1: line 1, column 32: more than 10 values: split the file into several"
    ]


def test_a_deep_config_is_refused_also_where_json_is_read() -> None:
    deep = {"a": json.loads("[" * 80 + "]" * 80)}
    spec = {"pods": {"endpoints": []}, "targets": {"list": [{"name": "r", "config": deep}]}}
    whole = json.dumps({"kind": "TargetPool", "metadata": {"name": "a"}, "spec": spec})
    assert re.search(r"\[0\]: nested more than 64 levels deep$", faults(whole)[0])


TARGET_FILES: dict[str, tuple[str, list[str]]] = {
    "text": ("hello", ['document 1: $: expected a list of targets or a mapping of them by name, got "hello"']),
    "nothing": ("# none", ["no document"]),
    "a duplicate": ("[{name: a}, {name: b}, {name: a}]", ["document 1: $[2].name: duplicate of [0]"]),
    "a duplicate key": ("{a: {}, a: {}}", ["document 1: $.a: duplicate key (line 1, column 9)"]),
    "several": (
        "[{name: ''}, 5, {nam: x}, {name: c, config: {token: x}}]",
        [
            "document 1: $[0].name: may not be empty",
            "document 1: $[1]: expected a mapping, got 5",
            'document 1: $[2].nam: unknown field; did you mean "name"?',
            "document 1: $[2].name: required field is missing",
            f"document 1: $[3].config['token']: {REFERENCE}",
        ],
    ),
    "a mapping": (
        "{a: {name: b}, c: 5, d: {adress: x}, e: {config: {token: x}}}",
        [
            'document 1: $[\'a\'].name: expected "a", its key, got "b"',
            "document 1: $['c']: expected a mapping, got 5",
            "document 1: $['d'].adress: unknown field; did you mean \"address\"?",
            f"document 1: $['e'].config['token']: {REFERENCE}",
        ],
    ),
    "two documents": ("[]\n---\n[]", ["document 2: $: expected one document: a list of targets"]),
    "an alias": (
        "a: &x {}\nb: *x",
        ['document 1: $.b: aliases are not allowed, got "*x": write the value out (line 2, column 4)'],
    ),
}


@pytest.mark.parametrize(("text", "lines"), TARGET_FILES.values(), ids=TARGET_FILES)
def test_a_broken_file_of_targets_is_told_the_same_way(text: str, lines: list[str]) -> None:
    found = faults(text, load_targets)
    assert [re.sub(r"^f\.yaml(, |: )", "", line) for line in found] == lines
