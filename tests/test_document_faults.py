"""Documents that are broken: one clear line for each fault, with its place."""

from __future__ import annotations

import pytest
from tests.document_texts import division, faults, partitions, pool, ring, split, window, workload

from poise.documents import load
from poise.errors import Fault, InvalidSpec

FIVE = "expected one of TargetPool, PartitionSet, ShardRing, ReplicaDivision, CapacitySplit"
NAMED = "expected letters and digits, with '-', '.' or '_' between them"
QUOTED = "(put it in quotes)"
STATES = "Unassigned, Assigned, RequestedRelease, PendingRelease"
REFERENCE = "expected a reference, {env: NAME} or {file: PATH}: a credential is never stored"

# What is read, and its single fault behind `f.yaml, document 1: `.
SINGLE: dict[str, tuple[str, str]] = {
    # The text.
    "a document that is text": ("hello", '$: expected a mapping, got "hello"'),
    "a document that is a list": ("[1]", "$: expected a mapping, got a list"),
    "a document that is a number": ("7", "$: expected a mapping, got 7"),
    "an unknown kind": ("kind: Foo", f'$.kind: {FIVE}, got "Foo"'),
    "no kind": ("metadata: {name: a}", f"$.kind: {FIVE}, but the field is missing"),
    "a kind that is no text": ("kind: [TargetPool]", f"$.kind: {FIVE}, got a list"),
    "another version": ("apiVersion: v1\n" + ring(), '$.apiVersion: expected poise.dev/v1alpha1, got "v1"'),
    "a duplicate key": (ring("tokens: 1, tokens: 2"), "$.spec.tokens: duplicate key (line 3, column 19)"),
    "a duplicate key in JSON": (
        '{"kind": "ShardRing", "metadata": {"name": "a", "name": "b"}}',
        "$.metadata.name: duplicate key (line 1, column 49)",
    ),
    "a key that is a number": (
        partitions("weights: {1: 2}"),
        f"$.spec.weights: expected a key of text, got 1 {QUOTED} (line 3, column 33)",
    ),
    "a key that is null": (ring("~: 2"), f"$.spec: expected a key of text, got null {QUOTED} (line 3, column 8)"),
    "a key that is a list": (ring("? [a] : 2"), "$.spec: expected a key of text, got a list (line 3, column 12)"),
    "an alias": (
        ring("objects: [&x a, *x]"),
        '$.spec.objects[1]: aliases are not allowed, got "*x": write the value out (line 3, column 24)',
    ),
    "a tag of Python": (
        ring("tokens: !!python/object:os.system 1"),
        '$.spec.tokens: tags are not allowed, got "tag:yaml.org,2002:python/object:os.system" (line 3, column 16)',
    ),
    "a tag on a mapping": (ring("guards: !x {}"), '$.spec.guards: tags are not allowed, got "!x" (line 3, column 16)'),
    "a tag on a list": (ring("objects: !x []"), '$.spec.objects: tags are not allowed, got "!x" (line 3, column 17)'),
    "a number of 5,000 digits": (
        ring(f"tokens: {'9' * 5000}"),
        "$.spec.tokens: a number of more than 1000 digits (line 3, column 16)",
    ),
    "a number of 4,000 digits in JSON": (
        f'{{"kind": "ShardRing", "metadata": {{"name": "a"}}, "spec": {{"tokens": {"9" * 4000}}}}}',
        f"$.spec.tokens: expected <= 10000, got {'9' * 40}… (4000 characters)",
    ),
    # Structure.
    "no metadata": ("kind: ShardRing", "$.metadata: required field is missing"),
    "no name": ("kind: ShardRing\nmetadata: {}", "$.metadata.name: required field is missing"),
    "an unknown field with a neighbour": (
        pool("capcity: 1"),
        '$.spec.capcity: unknown field; did you mean "capacity"?',
    ),
    "a field in the wrong case": (
        partitions("lease_seconds: 1"),
        '$.spec.lease_seconds: unknown field; did you mean "leaseSeconds"?',
    ),
    "an unknown field far from all": (ring("zzz: 1"), "$.spec.zzz: unknown field"),
    "an unknown field with signs": (ring("'a\\b\"c d\te': 1"), "$.spec['a\\\\b\"c d\\te']: unknown field"),
    "a merge key": (ring("<<: {}"), "$.spec['<<']: unknown field"),
    "a float for a count": (partitions("leaseSeconds: 1.5"), "$.spec.leaseSeconds: expected a whole number, got 1.5"),
    "a whole float for a count": (ring("tokens: 1.0"), "$.spec.tokens: expected a whole number, got 1.0"),
    "a bool for a count": (ring("tokens: true"), "$.spec.tokens: expected a whole number, got true"),
    "text for a count": (ring("tokens: many"), '$.spec.tokens: expected a whole number, got "many"'),
    "null for a count": (ring("tokens: ~"), "$.spec.tokens: expected a whole number, got null"),
    "1e308 for a count": (ring("tokens: 1e308"), "$.spec.tokens: expected a whole number, got 1e+308"),
    "NaN for a count": (ring("tokens: .nan"), "$.spec.tokens: expected a whole number, got nan"),
    "a negative weight": (
        pool(endpoints="[{name: p, weight: -1}]"),
        "$.spec.pods.endpoints[0].weight: expected >= 0, got -1",
    ),
    "a weight too large": (
        partitions("weights: {n1: 1000001}"),
        "$.spec.weights['n1']: expected <= 1000000, got 1000001",
    ),
    "partitions too many": (
        "kind: PartitionSet\nmetadata: {name: a}\nspec: {partitions: 1000001}",
        "$.spec.partitions: expected <= 100000, got 1000001",
    ),
    "tokens too many": (ring("tokens: 10001"), "$.spec.tokens: expected <= 10000, got 10001"),
    "replicas too many": (
        division("clusters: [], workloads: [{name: w, replicas: 1000000001}]"),
        "$.spec.workloads[0].replicas: expected <= 1000000000, got 1000000001",
    ),
    "capacity 0 of a pool": (pool("capacity: 0"), "$.spec.capacity: expected >= 1, got 0"),
    "capacity 0 of a pod": (
        pool(endpoints="[{name: p, capacity: 0}]"),
        "$.spec.pods.endpoints[0].capacity: expected >= 1, got 0",
    ),
    "a lease of no time": (partitions("leaseSeconds: 0"), "$.spec.leaseSeconds: expected >= 1, got 0"),
    "a percentage above 100": (pool("dropMaxPercent: 101"), "$.spec.dropMaxPercent: expected <= 100, got 101"),
    "a percentage below 0": (ring("brakePercent: -1"), "$.spec.brakePercent: expected >= 0, got -1"),
    "an unknown policy": (pool("policy: foo"), '$.spec.policy: expected one of sticky, hashed, got "foo"'),
    "an unknown state of a pod": (
        pool(status="{members: [{name: p, state: up}]}"),
        '$.status.members[0].state: expected one of ready, draining, gone, got "up"',
    ),
    "an unknown state of a partition": (
        partitions("", "{partitions: [{id: '0', state: Lost}]}"),
        f'$.status.partitions[0].state: expected one of {STATES}, got "Lost"',
    ),
    "an unknown state of an instance": (
        ring("", "{instances: [{name: i, state: up}]}"),
        '$.status.instances[0].state: expected one of ready, expired, uncertain, dead, orphaned, got "up"',
    ),
    "a list for a mapping": (ring("guards: []"), "$.spec.guards: expected a mapping, got a list"),
    "a mapping for a list": (ring("objects: {}"), "$.spec.objects: expected a list, got a mapping"),
    "text for a mapping of weights": (partitions("weights: x"), '$.spec.weights: expected a mapping, got "x"'),
    "a number for a name": ("kind: ShardRing\nmetadata: {name: 5}", f"$.metadata.name: expected text, got 5 {QUOTED}"),
    "an empty name": ("kind: ShardRing\nmetadata: {name: ''}", "$.metadata.name: may not be empty"),
    "a name with a space": ("kind: ShardRing\nmetadata: {name: a b}", f'$.metadata.name: {NAMED}, got "a b"'),
    "a name with a line break": (
        'kind: ShardRing\nmetadata: {name: "a\\n"}',
        f'$.metadata.name: {NAMED}, got "a\\n"',
    ),
    "a name of 10,000 characters": (
        f"kind: ShardRing\nmetadata: {{name: {'x' * 10_000}}}",
        "$.metadata.name: expected at most 253 characters, got 10,000",
    ),
    "an empty target": (pool(targets="list: [{name: ''}]"), "$.spec.targets.list[0].name: may not be empty"),
    "a target with a line break": (
        pool(targets='list: [{name: "a\\nb"}]'),
        '$.spec.targets.list[0].name: expected printable text on one line, got "a\\nb"',
    ),
    "a target that ends in a line break": (
        pool(targets='list: [{name: "a\\n"}]'),
        '$.spec.targets.list[0].name: expected printable text on one line, got "a\\n"',
    ),
    "a target that turns the writing direction": (
        pool(targets='list: [{name: "a\\u202Eb"}]'),
        '$.spec.targets.list[0].name: expected printable text on one line, got "a\\u202eb"',
    ),
    "a target of 10,000 characters": (
        pool(targets=f"list: [{{name: {'x' * 10_000}}}]"),
        "$.spec.targets.list[0].name: expected at most 1,024 characters, got 10,000",
    ),
    "a key of an assignment with a bell": (
        pool(status='{assignment: {"a\\a": p}}'),
        "$.status.assignment['a\\x07']: the key: expected printable text on one line, got \"a\\x07\"",
    ),
    "an address that is no address": (
        pool(endpoints="[{name: p, url: 'ftp://x'}]"),
        '$.spec.pods.endpoints[0].url: expected an http:// or https:// address, got "ftp://x"',
    ),
    "text for a bool": (
        partitions("", "{partitions: [{id: '0', confirmed: yes}]}"),
        '$.status.partitions[0].confirmed: expected true or false, got "yes"',
    ),
    "a partition that is no number": (
        partitions("", "{partitions: [{id: a}]}"),
        '$.status.partitions[0].id: expected a number from "0" to "99999", as text, got "a"',
    ),
    "a partition that is not quoted": (
        partitions("", "{partitions: [{id: 0}]}"),
        f"$.status.partitions[0].id: expected text, got 0 {QUOTED}",
    ),
    "a partition with a leading zero": (
        partitions("", "{partitions: [{id: '01'}]}"),
        '$.status.partitions[0].id: expected a number from "0" to "99999", as text, got "01"',
    ),
    "a moment without a zone": (
        partitions("", "{partitions: [{id: '0', since: 2026-11-15T02:00:00}]}"),
        '$.status.partitions[0].since: expected a time such as 2026-11-15T02:00:00Z, got "2026-11-15T02:00:00"',
    ),
    "a moment before all clocks": (
        split("", "{workloads: {w: {lastActionAt: 1969-12-31T23:59:59Z}}}"),
        "$.status.workloads['w'].lastActionAt: expected a time from 1970 to 8999, got 1969-12-31T23:59:59+00:00",
    ),
    "a mix above 1": (division("clusters: [], mix: 1.5"), "$.spec.mix: expected <= 1, got 1.5"),
    "a mix of NaN": (division("clusters: [], mix: .nan"), "$.spec.mix: expected >= 0, got nan"),
    "a mix without end": (division("clusters: [], mix: .inf"), "$.spec.mix: expected <= 1, got inf"),
    "a mix of text": (division("clusters: [], mix: all"), '$.spec.mix: expected a number, got "all"'),
    "a limit above 100 %": (
        split("guards: {budgets: [{limit: 120%, windowSeconds: 1}]}"),
        '$.spec.guards.budgets[0].limit: expected a percentage from 0% to 100%, such as 20%, got "120%"',
    ),
    "a limit below 0": (
        split("guards: {budgets: [{limit: -1, windowSeconds: 1}]}"),
        "$.spec.guards.budgets[0].limit: expected >= 0, got -1",
    ),
    "a limit that is no number": (
        split("guards: {budgets: [{limit: 1.5, windowSeconds: 1}]}"),
        "$.spec.guards.budgets[0].limit: expected a whole number or a percentage from 0% to 100%, such as 20%, got 1.5",
    ),
    "a budget without a time": (
        split("guards: {budgets: [{limit: 1}]}"),
        "$.spec.guards.budgets[0].windowSeconds: required field is missing",
    ),
    "too many windows": (
        split(f"guards: {{windows: [{'{schedule: x, duration: y},' * 101}]}}"),
        "$.spec.guards.windows: expected at most 100 entries, got 101",
    ),
    "a JSONPath without braces": (
        ring("key: {jsonPath: .spec.a}"),
        '$.spec.key.jsonPath: expected a JSONPath such as {.spec.tenant}, got ".spec.a"',
    ),
    "an unknown key": (ring("key: name"), '$.spec.key: expected one of object, namespace, got "name"'),
    "a key of another type": (ring("key: 5"), "$.spec.key: expected one of object, namespace or a mapping, got 5"),
    "a fraction that is none": (
        division(
            "clusters: []", "{divisions: {w: {replicas: 1, weights: {}, strategy: Duplicated, result: {}, mix: x}}}"
        ),
        '$.status.divisions[\'w\'].mix: expected a fraction as text, such as "7/2", got "x"',
    ),
}


@pytest.mark.parametrize(("text", "line"), SINGLE.values(), ids=SINGLE)
def test_a_single_fault_is_one_line_with_its_place(text: str, line: str) -> None:
    assert faults(text) == [f"f.yaml, document 1: {line}"]


def test_all_faults_of_all_documents_come_at_once() -> None:
    text = "---\n".join(
        [
            pool("capcity: 1\n  policy: hashed", endpoints="[{name: p}, {name: p, weight: -1}, {name: q, weight: 2}]"),
            "kind: Foo\n",
            partitions("leaseSeconds: -1, marginSeconds: 50", "{nodes: [{name: n}, {name: n}, {name: 5}, {name: 6}]}"),
            window("schedule: x, timezone: Mars"),
            "a: [",
        ]
    )
    assert [line.removeprefix("f.yaml, document ") for line in faults(text)] == [
        "1: $.spec.pods.endpoints[1].weight: expected >= 0, got -1",
        '1: $.spec.capcity: unknown field; did you mean "capacity"?',
        "1: $.spec.pods.endpoints[1].name: duplicate of [0]",
        "1: $.spec.pods.endpoints[2].weight: policy hashed has no weights; use sticky",
        f'2: $.kind: {FIVE}, got "Foo"',
        "3: $.spec.leaseSeconds: expected >= 1, got -1",
        f"3: $.status.nodes[2].name: expected text, got 5 {QUOTED}",
        f"3: $.status.nodes[3].name: expected text, got 6 {QUOTED}",
        "3: $.status.nodes[1].name: duplicate of [0]",
        "4: $.spec.guards.windows[0].duration: required field is missing",
        "4: $.spec.guards.windows[0].schedule: expected 5 fields (minute hour day month weekday), got 1 in 'x'",
        "4: $.spec.guards.windows[0].timezone: expected a time zone such as 'Europe/Paris', got 'Mars'",
        "5: line 23, column 1: while parsing a flow node, did not find expected node content",
    ]


QUIET = {
    "a source that is no list still counts as given": pool(endpoints="5"),
    "a source that is no text still counts as given": pool(targets="file: 5"),
    "an unsound percentage is not also missing": workload("spotPercentage: 150"),
    "an unsound lease judges no margin": partitions("leaseSeconds: -1, marginSeconds: 90"),
    "an unsound grace judges no time to stop": partitions("graceSeconds: -1, stopSeconds: 90"),
    "an unsound maximum judges no minimum": division("clusters: [{name: c, min: 5, max: -1}]"),
    "an unsound state needs no owner": partitions("", "{partitions: [{id: '0', state: x}]}"),
    "an unsound schedule is told once": window("schedule: 5, duration: 1h"),
    "an alias is not also a wrong type": "kind: ShardRing\nmetadata: &a {name: a}\nspec: {tokens: *a}",
    "a broken kind is told once": "kind: !x ShardRing\nmetadata: {name: 5}",
    "a tagged document is told once": "!x hello",
}


@pytest.mark.parametrize("text", QUIET.values(), ids=QUIET)
def test_a_fault_does_not_lead_to_others(text: str) -> None:
    assert len(faults(text)) == 1


def test_without_a_note_of_what_is_unsound_a_fault_would_lead_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poise.documents.faults.Faults._is_spoilt", lambda _self, _path: False)
    assert sum(len(faults(text)) > 1 for text in QUIET.values()) >= 5


def test_faults_without_number_are_cut_off_and_counted() -> None:
    lines = faults(
        "---\n".join(f"kind: ShardRing\nmetadata: {{name: a{n}}}\nspec: {{x: 1, y: 2}}\n" for n in range(40))
    )
    assert len(lines) == 51
    assert lines[-1] == "f.yaml: and 30 more faults"
    assert lines[-2].startswith("f.yaml, document 25: ")
    assert faults(ring(f"objects: [{'1,' * 51}]"))[-1] == "f.yaml: and 1 more fault"


def test_a_fault_carries_source_path_and_message_apart() -> None:
    with pytest.raises(InvalidSpec) as caught:
        load(ring("tokens: 0"), "dir/f.yaml")
    assert caught.value.faults == (Fault("$.spec.tokens", "expected >= 1, got 0", "dir/f.yaml, document 1"),)


def test_no_document_passes_where_the_walk_would_miss_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poise.documents.structure.fault_of", lambda _value, _expected: None)
    assert faults(ring("tokens: 0")) == ["f.yaml, document 1: $: Expected `int` >= 1 - at `$.spec.tokens`"]
