"""Rules that reach across fields: each broken one is a line with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.document_texts import division, faults, partitions, pool, ring, split, window, workload

from poise.documents import load

VECTORS = json.loads((Path(__file__).parent / "data" / "capacity_input.json").read_text())
REFERENCE = "expected a reference, {env: NAME} or {file: PATH}: a credential is never stored"

# What is read, and its single fault behind `f.yaml, document 1: `.
RULES: dict[str, tuple[str, str]] = {
    "no source of pods": (
        "kind: TargetPool\nmetadata: {name: a}\nspec: {pods: {}, targets: {list: []}}",
        "$.spec.pods: expected exactly one of endpoints, statefulSet, selector, got none",
    ),
    "two sources of pods": (
        "kind: TargetPool\nmetadata: {name: a}\nspec: {pods: {endpoints: [], selector: {}}, targets: {list: []}}",
        "$.spec.pods: expected exactly one of endpoints, statefulSet, selector, got endpoints and selector",
    ),
    "two sources of targets": (
        pool(targets="list: [], file: x"),
        "$.spec.targets: expected exactly one of list, file, http, configMap, got list and file",
    ),
    "a duplicate endpoint": (
        pool(endpoints="[{name: p}, {name: q}, {name: r}, {name: q}]"),
        "$.spec.pods.endpoints[3].name: duplicate of [1]",
    ),
    "a duplicate target": (
        pool(targets="list: [{name: r}, {name: r}]"),
        "$.spec.targets.list[1].name: duplicate of [0]",
    ),
    "a duplicate pod in the status": (
        pool(status="{members: [{name: p}, {name: p}]}"),
        "$.status.members[1].name: duplicate of [0]",
    ),
    "a duplicate node": (
        partitions("", "{nodes: [{name: n}, {name: n}]}"),
        "$.status.nodes[1].name: duplicate of [0]",
    ),
    "a duplicate partition": (
        partitions("", "{partitions: [{id: '7'}, {id: '7'}]}"),
        "$.status.partitions[1].id: duplicate of [0]",
    ),
    "a duplicate object": (ring("objects: [a, b, a]"), "$.spec.objects[2]: duplicate of [0]"),
    "an empty object": (ring("objects: ['']"), "$.spec.objects[0]: may not be empty"),
    "a duplicate resource": (
        ring("resources: [{resource: pods}, {group: '', resource: pods}]"),
        "$.spec.resources[1]: duplicate of [0]",
    ),
    "a duplicate controlled resource": (
        ring("resources: [{resource: pods, controlled: [{resource: x}, {resource: x}]}]"),
        "$.spec.resources[0].controlled[1]: duplicate of [0]",
    ),
    "a duplicate instance": (
        ring("", "{instances: [{name: i}, {name: i}]}"),
        "$.status.instances[1].name: duplicate of [0]",
    ),
    "a duplicate cluster": (
        division("clusters: [{name: c}, {name: c}]"),
        "$.spec.clusters[1].name: duplicate of [0]",
    ),
    "a duplicate divided workload": (
        division("clusters: [], workloads: [{name: w, replicas: 1}, {name: w, replicas: 2}]"),
        "$.spec.workloads[1].name: duplicate of [0]",
    ),
    "a duplicate split workload": (
        split("workloads: [{name: w, replicas: 1, spotPercentage: 1}, {name: w, replicas: 1, spotPercentage: 1}]"),
        "$.spec.workloads[1].name: duplicate of [0]",
    ),
    "a duplicate pool": (split("pools: [{name: on}, {name: on}]"), "$.spec.pools[1].name: duplicate of [0]"),
    "a weight with hashed": (
        pool("policy: hashed", endpoints="[{name: p, weight: 1}]"),
        "$.spec.pods.endpoints[0].weight: policy hashed has no weights; use sticky",
    ),
    "nowhere to deliver to": (
        pool("delivery: {kind: gnmic}", endpoints="[{name: p}]"),
        "$.spec.pods.endpoints[0].url: required field is missing: delivery gnmic sends to it",
    ),
    "a credential in a target": (
        pool(targets="list: [{name: r, config: {auth: [{user-password: hunter2}]}}]"),
        f"$.spec.targets.list[0].config['auth'][0]['user-password']: {REFERENCE}",
    ),
    "a credential in an output": (
        pool("delivery: {kind: pull, outputs: {o: {Token: {value: x}}}}"),
        f"$.spec.delivery.outputs['o']['Token']: {REFERENCE}",
    ),
    "NaN in a config": (
        pool(targets="list: [{name: r, config: {a: .nan}}]"),
        "$.spec.targets.list[0].config['a']: expected a finite number, got nan",
    ),
    "a number of 100 bits in a config": (
        pool(targets=f"list: [{{name: r, config: {{a: [{2**100}]}}}}]"),
        "$.spec.targets.list[0].config['a'][0]: expected a whole number of at most 64 bits",
    ),
    "a margin as long as the lease": (
        partitions("leaseSeconds: 5, marginSeconds: 5"),
        "$.spec.marginSeconds: expected < 5, the leaseSeconds, got 5: nobody could ever act",
    ),
    "stopping that outlasts the lease": (
        partitions("stopSeconds: 4"),
        "$.spec.stopSeconds: expected <= 3, marginSeconds + graceSeconds, got 4: two could act at once",
    ),
    "an owner of nothing": (
        partitions("", "{partitions: [{id: '0', state: Unassigned, owner: n}]}"),
        "$.status.partitions[0].owner: an Unassigned partition has no owner",
    ),
    "a release by nobody": (
        partitions("", "{partitions: [{id: '0', state: PendingRelease}]}"),
        "$.status.partitions[0].owner: required field is missing: the state is PendingRelease",
    ),
    "a ring with a name too long for a label": (
        f"kind: ShardRing\nmetadata: {{name: {'x' * 64}}}",
        "$.metadata.name: expected at most 63 characters, got 64",
    ),
    "an instance with a name too long for a label": (
        ring("", f"{{instances: [{{name: {'x' * 64}}}]}}"),
        "$.status.instances[0].name: expected at most 63 characters, got 64",
    ),
    "a key from nowhere": (ring("key: {}"), "$.spec.key: expected exactly one of label, jsonPath, got none"),
    "a minimum above its maximum": (
        division("clusters: [{name: c, min: 5, max: 3}]"),
        "$.spec.clusters[0].min: expected <= 3, the max, got 5",
    ),
    "a minimum above its capacity": (
        division("clusters: [{name: c, min: 5, capacity: 0}]"),
        "$.spec.clusters[0].min: expected <= 0, the capacity, got 5",
    ),
    "a minimum of a pool above its maximum": (
        split("pools: [{name: on, min: 2, max: 1}]"),
        "$.spec.pools[0].min: expected <= 1, the max, got 2",
    ),
    "DynamicWeight without capacities": (
        division("clusters: [{name: c}], strategy: DynamicWeight"),
        "$.spec.clusters[0].capacity: required field is missing: DynamicWeight divides by capacity",
    ),
    "a mix with the weighted draw": (
        division("clusters: [], mix: 0.5, draw: weighted"),
        "$.spec.mix: expected 0: only the exact draw mixes capacities in",
    ),
    "two sources of workloads": (
        division("clusters: [], workloads: [{name: w, replicas: 1}], workloadSelector: {}"),
        "$.spec.workloadSelector: expected either workloads or workloadSelector, got both",
    ),
    "no percentage and no pools": (
        split("workloads: [{name: w, replicas: 1}]"),
        "$.spec.workloads[0].spotPercentage: required field is missing: there are no pools",
    ),
    "a percentage and pools": (
        split("workloads: [{name: w, replicas: 1, spotPercentage: 5}], pools: [{name: on}]"),
        "$.spec.workloads[0].spotPercentage: pools take its place: remove one of them",
    ),
    "a minimum on-demand and pools": (
        split("workloads: [{name: w, replicas: 1, minOnDemand: 5}], pools: [{name: on}]"),
        "$.spec.workloads[0].minOnDemand: pools take its place: remove one of them",
    ),
    "a ramp and pools": (
        split("pools: [{name: on}], ramp: {step: 5}"),
        "$.spec.ramp: a ramp raises spotPercentage, and pools take its place: remove one of them",
    ),
    "a ramp whose low is above its high": (
        split("ramp: {low: 0.95}"),
        "$.spec.ramp.low: expected <= 0.9, the high, got 0.95",
    ),
    "a ramp that never rises": (split("ramp: {step: 0}"), "$.spec.ramp.step: expected >= 1, got 0"),
    "a ramp that starts above all": (split("ramp: {initial: 101}"), "$.spec.ramp.initial: expected <= 100, got 101"),
    "a ramp without a half-life": (
        split("ramp: {halfLifeHours: 0}"),
        "$.spec.ramp.halfLifeHours: expected >= 0.001, got 0",
    ),
    "a ramp without trust": (
        split("ramp: {priorPodHours: 0}"),
        "$.spec.ramp.priorPodHours: expected >= 0.001, got 0",
    ),
    "a ramp that rewards interruptions": (
        split("ramp: {penaltyPodHours: -1}"),
        "$.spec.ramp.penaltyPodHours: expected >= 0, got -1",
    ),
    "more Ready than there are": (
        split("", "{workloads: {w: {onDemand: 1, readyOnDemand: 2}}}"),
        "$.status.workloads['w'].readyOnDemand: expected <= 1, the onDemand, got 2",
    ),
    "half a window, without a duration": (
        window("schedule: 0 2 * * *"),
        "$.spec.guards.windows[0].duration: required field is missing",
    ),
    "half a window, without a schedule": (
        window("duration: 4h"),
        "$.spec.guards.windows[0].schedule: required field is missing",
    ),
    "a cron of six fields": (
        window("schedule: 0 0 2 * * *, duration: 4h"),
        "$.spec.guards.windows[0].schedule: expected 5 fields (minute hour day month weekday), got 6 in '0 0 2 * * *'",
    ),
    "an unreadable cron": (
        window("schedule: 0 25 * * *, duration: 4h"),
        "$.spec.guards.windows[0].schedule: expected a cron schedule that can fire, got '0 25 * * *': bad hour",
    ),
    "an unreadable duration": (
        window("schedule: 0 2 * * *, duration: long"),
        "$.spec.guards.windows[0].duration: expected a duration such as '2h30m', got 'long'",
    ),
    "an unknown time zone": (
        window("schedule: 0 2 * * *, duration: 4h, timezone: Mars/Olympus"),
        "$.spec.guards.windows[0].timezone: expected a time zone such as 'Europe/Paris', got 'Mars/Olympus'",
    ),
}


@pytest.mark.parametrize(("text", "line"), RULES.values(), ids=RULES)
def test_a_broken_rule_is_one_line_with_its_place(text: str, line: str) -> None:
    assert faults(text) == [f"f.yaml, document 1: {line}"]


def test_a_credential_is_never_shown() -> None:
    text = pool(targets="list: [{name: r, config: {password: hunter2, api_key: [hunter2], a: {clientSecret: 5}}}]")
    lines = faults(text)
    assert len(lines) == 3
    assert "hunter2" not in "".join(lines)


@pytest.mark.parametrize(
    "value",
    ["{env: NAME}", "{file: /run/x}", "{secret: {name: a, key: b}}", "null"],
    ids=["env", "file", "secret", "none"],
)
def test_a_reference_to_a_credential_is_sound(value: str) -> None:
    assert load(pool(targets=f"list: [{{name: r, config: {{password: {value}}}}}]"), "x")


@pytest.mark.parametrize("value", ["{env: ''}", "{env: A, file: B}", "{}", "{value: x}", "[]", "true", "''"])
def test_anything_else_is_no_reference(value: str) -> None:
    assert faults(pool(targets=f"list: [{{name: r, config: {{password: {value}}}}}]"))


@pytest.mark.parametrize("row", VECTORS["spot_percentage"], ids=lambda row: row["value"])
def test_the_vectors_of_spot_percentages(row: dict[str, object]) -> None:
    text = workload(f"spotPercentage: {json.dumps(row['value'])}")
    if row["ok"]:
        assert load(text, "x")
    else:
        assert faults(text)[0].startswith(
            "f.yaml, document 1: $.spec.workloads[0].spotPercentage: expected a percentage"
        )


@pytest.mark.parametrize("row", VECTORS["min_on_demand"], ids=lambda row: row["value"])
def test_the_vectors_of_minimums(row: dict[str, object]) -> None:
    text = workload(f"spotPercentage: 1, minOnDemand: {row['value']}")
    if row["ok"]:
        assert load(text, "x")
    else:
        assert faults(text)[0].startswith("f.yaml, document 1: $.spec.workloads[0].minOnDemand: expected")


@pytest.mark.parametrize("row", VECTORS["parse"], ids=str)
def test_the_vectors_of_windows(row: dict[str, str | None]) -> None:
    parts = {name: row[name] for name in ("schedule", "duration") if row[name] is not None}
    text = split(f"guards: {{windows: {json.dumps([parts] if parts else [])}}}")
    if parts:
        assert row["result"] is not None
        assert row["result"].startswith("error")
        assert len(faults(text)) == 1
    else:
        assert load(text, "x")
