"""Events and the scripts that hold them."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import inspect as types

from poise.errors import InvalidSpec
from poise.sim.events import (
    VERBS,
    Add,
    Drain,
    Event,
    Join,
    Leave,
    Remove,
    Reweigh,
    Scale,
    load_script,
    say,
    verb_of,
)


def faults_of(text: str) -> list[str]:
    with pytest.raises(InvalidSpec) as caught:
        load_script(text, "growth.yaml")
    return [str(fault) for fault in caught.value.faults]


SCRIPT = """
events:
- {join: pod-3, weight: 2, capacity: 60, note: a new rack}
- {join: [pod-4, pod-5]}
- {leave: pod-0}
- drain: [pod-1]
- {add: [router9, router 10]}
- {add: 50}
- {add: {mail: 4}}
- {remove: router9}
- {remove: 2}
- {scale: {cart: 9}}
- {weight: {pod-3: 1}}
"""
READ: list[Event] = [
    Join(join=["pod-3"], weight=2, capacity=60, note="a new rack"),
    Join(join=["pod-4", "pod-5"]),
    Leave(leave=["pod-0"]),
    Drain(drain=["pod-1"]),
    Add(add=["router9", "router 10"]),
    Add(add=50),
    Add(add={"mail": 4}),
    Remove(remove=["router9"]),
    Remove(remove=2),
    Scale(scale={"cart": 9}),
    Reweigh(weight={"pod-3": 1}),
]


def test_a_script_reads_every_verb() -> None:
    assert load_script(SCRIPT, "growth.yaml") == READ
    assert {verb_of(event) for event in READ} == set(VERBS)


def test_a_script_in_json_is_the_same() -> None:
    text = msgspec.json.encode({"events": [msgspec.to_builtins(event) for event in READ]})
    assert load_script(text, "growth.json") == READ


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (Join(join=["pod-3"]), "join pod-3"),
        (Leave(leave=["a", "b"]), "leave a, b"),
        (Add(add=50), "add 50"),
        (Add(add=[f"r{i}" for i in range(1203)]), "add r0, r1, r2 and 1,200 more"),
        (Add(add={"mail": 4}), "add mail with 4"),
        (Scale(scale={"cart": 9}), "scale cart to 9"),
        (Reweigh(weight={"pod-0": 2}), "weight pod-0 to 2"),
    ],
)
def test_an_event_is_said_in_a_few_words(event: Event, said: str) -> None:
    assert say(event) == said


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("events: [{jion: a}]", "$.events[0]: expected a mapping with one of join, leave, drain, add, remove, scale"),
        ("events: [pod-0]", '$.events[0]: expected a mapping with one of join, leave, drain, add, remove, scale'),
        ("events: [{leave: a, weight: 2}]", "$.events[0].weight: unknown field"),
        ("events: [{join: [a, '']}]", "$.events[0].join[1]: may not be empty"),
        ("events: [{join: a b}]", "$.events[0].join[0]: expected letters and digits"),
        ("events: [{join: a, weight: -1}]", "$.events[0].weight: expected >= 0, got -1"),
        ("events: [{join: a, weight: 1.5}]", "$.events[0].weight: expected a whole number, got 1.5"),
        ("events: [{join: a, capacity: 0}]", "$.events[0].capacity: expected >= 1, got 0"),
        ("events: [{add: 0}]", "$.events[0].add: expected >= 1, got 0"),
        ("events: [{add: true}]", "$.events[0].add: expected a whole number or a list or a mapping, got true"),
        ("events: [{add: .nan}]", "$.events[0].add: expected a whole number or a list or a mapping"),
        ("events: [{add: 1e308}]", "$.events[0].add: expected a whole number or a list or a mapping, got 1e+308"),
        ("events: [{scale: cart}]", '$.events[0].scale: expected a mapping, got "cart"'),
        ("events: [{scale: {cart: -1}}]", "$.events[0].scale['cart']: expected >= 0, got -1"),
        ("events: [{remove: [a], note: \"two\\nlines\"}]", "$.events[0].note: expected printable text on one line"),
        ("events: &a [{join: a}]\nmore: *a", "$.more: aliases are not allowed"),
        ("events: [{join: a}]\nmore: 1", "$.more: unknown field; a script has only events"),
        ("- {join: a}", "$: expected a mapping with a list of events"),
        ("events: 3", "$: expected a mapping with a list of events"),
        ("", "expected one document with a list of events, got 0"),
        ("events: []\n---\nevents: []", "expected one document with a list of events, got 2"),
        ("events: [", "line 2, column 1: "),
    ],
)  # fmt: skip
def test_a_broken_script_is_refused_with_the_place(text: str, fault: str) -> None:
    (said,) = faults_of(text) if "aliases" not in fault else faults_of(text)[:1]
    assert said.startswith("growth.yaml")
    assert fault in said
    assert "\n" not in said


def test_all_faults_are_told_at_once() -> None:
    told = faults_of("events: [{leave: 3}, {join: a, weight: x}, {fly: a}]")
    assert [each.split(": ")[1] for each in told] == ["$.events[0].leave", "$.events[1].weight", "$.events[2]"]


def test_a_script_has_a_limit() -> None:
    text = msgspec.json.encode({"events": [{"add": 1}] * 100_001})
    with pytest.raises(InvalidSpec, match=r"at most 100,000 events, got 100,001"):
        load_script(text, "x")


def test_no_event_mixes_a_patterned_text_with_a_container() -> None:
    # Two Structs with such a union make msgspec 0.22 crash in the garbage collection at the end of the process.
    for kind in VERBS.values():
        described = types.type_info(kind)
        assert isinstance(described, types.StructType)
        for field in described.fields:
            union = field.type.types if isinstance(field.type, types.UnionType) else (field.type,)
            bare = [each.type if isinstance(each, types.Metadata) else each for each in union]
            patterned = any(isinstance(each, types.StrType) and each.pattern for each in bare)
            assert not patterned or not any(isinstance(each, types.ListType | types.DictType) for each in bare)
