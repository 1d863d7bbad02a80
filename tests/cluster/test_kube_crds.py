"""The generated definitions on a real API server: it accepts and refuses what Poise's own rules do."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from pathlib import Path

import pytest
from tests.cluster.world import Cluster
from tests.document_texts import division, partitions, pool, ring, split, workload
from tests.laws.test_document_laws import FULL, KNOWN, LOOKS, NESTED, NUMBERS, TEXTS, TIMES, places
from tests.test_document_rules import RULES

from poise.documents import load
from poise.documents.faults import Faults
from poise.documents.yaml_values import yaml_values
from poise.errors import InvalidSpec
from poise.kube import Client, Missing, ObjectRef, Partial, find_resource
from poise.kube.crds import custom_resource, definition
from poise.kube.objects import Custom
from poise.kube.resources import DEFINITIONS
from poise.model import ShardRing

GOOD = (Path(__file__).parent.parent / "data" / "documents.yaml").read_text()

# What only the operator can say: a schema does not look into open mappings, schedules or time zones.
ONLY_OURS = {
    "a credential in a target",
    "a credential in an output",
    "NaN in a config",
    "a number of 100 bits in a config",
    "an unreadable cron",
    "an unknown time zone",
}

MORE: dict[str, str] = {
    "a key by label": ring("key: {label: a}"),
    "a key by path": ring('key: {jsonPath: "{.spec.a}"}'),
    "a key by namespace": ring("key: namespace"),
    "a key of another word": ring("key: foo"),
    "a key of no word": ring("key: ''"),
    "a key that is a number": ring("key: 5"),
    "a key that is true": ring("key: true"),
    "a key that is a list": ring("key: []"),
    "a key from two places": ring('key: {label: a, jsonPath: "{.a}"}'),
    "a key by a label that is no text": ring("key: {label: 5}"),
    "a key by something else": ring("key: {other: a}"),
    "a path without braces": ring("key: {jsonPath: .spec.a}"),
    "no pods but null": pool(endpoints="null"),
    "null beside a source": pool(endpoints="null, selector: {matchLabels: {a: b}}"),
    "an owner that is null": partitions("", "{partitions: [{id: '0', state: Assigned, owner: null}]}"),
    "no owner, as null": partitions("", "{partitions: [{id: '0', owner: null}]}"),
    "a plain row": partitions("", "{partitions: [{id: '0'}]}"),
    "the largest epoch": partitions("", "{partitions: [{id: '0', epoch: 9223372036854775807}]}"),
    "an epoch too large": partitions("", "{partitions: [{id: '0', epoch: 9223372036854775808}]}"),
    "a time": partitions("", "{partitions: [{id: '0', since: '2026-11-15T02:00:00Z'}]}"),
    "a time without a zone": partitions("", "{partitions: [{id: '0', since: '2026-11-15T02:00:00'}]}"),
    "a day": partitions("", "{partitions: [{id: '0', since: '2026-11-15'}]}"),
    "a time too late": partitions("", "{partitions: [{id: '0', since: '9999-11-15T02:00:00Z'}]}"),
    "a maximum of null": division("clusters: [{name: c, min: 5, max: null}]"),
    "a capacity of null": division("clusters: [{name: c, capacity: null}], strategy: DynamicWeight"),
    "half a mix": division("clusters: [], mix: 0.5"),
    "a whole mix": division("clusters: [], mix: 1"),
    "a selector of null": division("clusters: [], workloadSelector: null, workloads: [{name: w, replicas: 1}]"),
    "a percentage as text": workload("spotPercentage: 70%"),
    "a percentage as a number": workload("spotPercentage: 70"),
    "a percentage above all": workload("spotPercentage: 101"),
    "a percentage above all as text": workload("spotPercentage: 170%"),
    "a percentage of null": workload("spotPercentage: null"),
    "a limit as a number": split("guards: {budgets: [{limit: 5, windowSeconds: 1}]}"),
    "a limit above all": split("guards: {budgets: [{limit: 120%, windowSeconds: 1}]}"),
    "a limit that is true": split("guards: {budgets: [{limit: true, windowSeconds: 1}]}"),
    "a weight of null with hashed": pool("policy: hashed", endpoints="[{name: p, weight: null}]"),
    "an address of null": pool("delivery: {kind: gnmic}", endpoints="[{name: p, url: null}]"),
    "a high below the usual low": split("ramp: {high: 0.7}"),
    "pools with an empty ramp": split("pools: [{name: on}], ramp: {}"),
    "no limit of moves": ring("guards: {movesInFlightMax: null}"),
    "too many windows": split(f"guards: {{windows: [{', '.join(['{schedule: 0 2 * * *, duration: 4h}'] * 101)}]}}"),
    "two lines in a name": ring("objects: ['a\\nb']"),
    "a line turned around": ring('objects: ["a\\u202Eb"]'),
    "an unknown field": ring("nope: 1"),
    "a config of any shape": pool(targets="list: [{name: r, config: {a: {b: [1, 2]}}}]"),
}


async def verdict(client: Client, text: str, namespace: str) -> str | None:
    """Give what the API server has against the documents of a file; None for nothing."""
    for value in yaml_values(text, Faults("x")):
        assert isinstance(value, dict)
        if told := await judge(client, value, namespace):
            return told
    return None


async def judge(client: Client, value: dict[str, object], namespace: str) -> str | None:
    """Give what the API server has against one document, its status written as its own resource; None for nothing."""
    body = {"apiVersion": "poise.dev/v1alpha1", **value}
    status = body.pop("status", None)
    kind, metadata = body["kind"], body["metadata"]
    assert isinstance(kind, str)
    assert isinstance(metadata, dict)
    ref = ObjectRef(custom_resource(kind), metadata["name"], namespace)
    try:
        made = await client.create(ref, body, dict[str, object])
    except InvalidSpec as error:
        return str(error)
    uid = (await client.get(ref, Custom)).metadata.uid
    try:
        where = ObjectRef(ref.resource, ref.name, namespace, "status")
        await client.replace(where, {**made, "status": status or {}}, dict[str, object])
    except InvalidSpec as error:
        return str(error)
    finally:
        await client.delete(ref, uid=uid)
    return None


def own_verdict(text: str) -> str | None:
    try:
        load(text, "x")
    except InvalidSpec as error:
        return str(error)
    return None


@pytest.mark.usefixtures("definitions")
def test_the_documents_of_the_contract_are_accepted(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        assert await verdict(client, GOOD, namespace) is None

    cluster.run(scenario)


@pytest.mark.usefixtures("definitions")
def test_every_rule_is_judged_as_by_our_own(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> dict[str, str | None]:
        return {name: await verdict(client, text, namespace) for name, (text, _) in RULES.items()}

    said = cluster.run(scenario)
    assert {name for name, told in said.items() if told is None} == ONLY_OURS


@pytest.mark.usefixtures("definitions")
def test_other_documents_are_judged_as_by_our_own(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> dict[str, str | None]:
        return {name: await verdict(client, text, namespace) for name, text in MORE.items()}

    said = cluster.run(scenario)
    ours = {name: own_verdict(text) for name, text in MORE.items()}
    differing = {name: (said[name], ours[name]) for name in MORE if (said[name] is None) != (ours[name] is None)}
    assert differing == {}


# Where the API server and Poise differ, each by its own nature: a null that is not meant counts as absent there.
DIFFERING = ("got null", "a time zone such as", "a credential is never stored", "that can fire", "the key:", "got none")
HUGE = (10**30, 10**400, 2**63, 2**64)  # JSON of other programs has no such numbers.
EDITS = [
    value
    for value in (*NUMBERS, *TEXTS, *LOOKS, *KNOWN, *TIMES, *NESTED)
    if not isinstance(value, float) and value not in HUGE
]


def edits(seed: int, count: int) -> list[dict[str, object]]:
    """Draw sound documents in which one thing was replaced or removed."""
    chance = random.Random(seed)
    whole = [each for each in FULL if isinstance(each, dict)]
    drawn = []
    for _ in range(count):
        document = copy.deepcopy(chance.choice(whole))
        document["metadata"] = {"name": "drawn"}
        path = chance.choice([each for each in places(document) if each[0] in ("spec", "status")])
        holder = document
        for key in path[:-1]:
            holder = holder[key]
        if chance.random() < 0.1:
            del holder[path[-1]]
        else:
            holder[path[-1]] = copy.deepcopy(chance.choice(EDITS))
        drawn.append(document)
    return drawn


@pytest.mark.usefixtures("definitions")
def test_documents_with_one_random_edit_are_judged_as_by_our_own(cluster: Cluster, namespace: str) -> None:
    drawn = edits(seed=7, count=400)

    async def scenario(client: Client) -> list[str | None]:
        return [await judge(client, document, namespace) for document in drawn]

    refused = 0
    for document, told in zip(drawn, cluster.run(scenario), strict=True):
        ours = own_verdict(json.dumps(document))
        refused += told is not None
        if (told is None) != (ours is None):
            assert ours is not None, f"only the API server refuses {document}: {told}"
            assert any(words in ours for words in DIFFERING), f"only Poise refuses {document}: {ours}"
    assert 100 < refused < 380


def test_without_the_rules_the_api_server_would_accept_more(
    cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poise.kube.crds.schema._validations", lambda _rules: {})
    loose = json.loads(json.dumps(definition("ReplicaDivision")).replace("poise.dev", "loose.poise.dev"))
    (value,) = yaml_values(RULES["a minimum above its maximum"][0], Faults("x"))
    assert isinstance(value, dict)

    async def scenario(client: Client) -> None:
        made = await client.apply(ObjectRef(DEFINITIONS, loose["metadata"]["name"]), loose, Partial, force=True)
        try:
            while isinstance(found := await find_resource(client, "loose.poise.dev", "replicadivisions"), Missing):
                await asyncio.sleep(0.1)
            await client.create(
                ObjectRef(found, "a", namespace), {**value, "apiVersion": "loose.poise.dev/v1alpha1"}, Partial
            )
        finally:
            await client.delete(ObjectRef(DEFINITIONS, loose["metadata"]["name"]), uid=made.metadata.uid)

    cluster.run(scenario)


@pytest.mark.usefixtures("definitions")
def test_a_custom_resource_is_read_like_a_file(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        ref = ObjectRef(custom_resource("ShardRing"), "web", namespace)
        body = {"apiVersion": "poise.dev/v1alpha1", "kind": "ShardRing", "metadata": {"name": "web"}, "spec": {}}
        await client.create(ref, body, Custom)
        found = await client.get(ref, Custom)
        (document,) = load(found.as_document(), "web")
        assert isinstance(document, ShardRing)
        assert (document.metadata.namespace, document.spec) == (namespace, type(document.spec)())

    cluster.run(scenario)


@pytest.mark.usefixtures("definitions")
def test_what_people_see_of_a_ring(cluster: Cluster, namespace: str) -> None:
    """The columns, the short name and the category, as the API server serves them."""

    async def scenario(client: Client) -> None:
        ref = ObjectRef(custom_resource("ShardRing"), "web", namespace)
        body = {"apiVersion": "poise.dev/v1alpha1", "kind": "ShardRing", "metadata": {"name": "web"}, "spec": {}}
        made = await client.create(ref, body, dict[str, object])
        moment = "2026-11-15T02:00:00Z"
        condition = {"type": "Ready", "status": "True", "reason": "AllHeld", "lastTransitionTime": moment}
        status = {"observedGeneration": 1, "conditions": [condition], "ready": 3, "drainsPending": 0, "unassigned": 0}
        where = ObjectRef(ref.resource, "web", namespace, "status")
        await client.replace(where, {**made, "status": status}, Custom)

    cluster.run(scenario)
    with cluster.plane.client() as http:
        accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        path = f"/apis/poise.dev/v1alpha1/namespaces/{namespace}/shardrings/web"
        table = http.get(path, headers=accept).json()
        shown = {
            column["name"]: cell
            for column, cell in zip(table["columnDefinitions"], table["rows"][0]["cells"], strict=True)
        }
        assert shown["Policy"] == "ring", "what is not said is shown by its default"
        assert (shown["Ready"], shown["Instances"], shown["Draining"], shown["Unassigned"]) == ("True", 3, 0, 0)
        (served,) = [
            each for each in http.get("/apis/poise.dev/v1alpha1").json()["resources"] if each["name"] == "shardrings"
        ]
        assert (served["shortNames"], served["categories"]) == (["sr"], ["poise"])
