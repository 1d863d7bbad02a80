"""What a request of a shard is for, in every form that clients send."""

from __future__ import annotations

import msgspec
import pytest

from poise.conformance.requests import Asked, Intent, Place, answered, classify, read_place, settle
from poise.model.sharding import Marks

RING, ROOT = "web", "work-own1-abc123"
HELD, DRAINED = Marks("a", 4), Marks("a", 4, "b", 99)
SHARD, EPOCH, DRAIN = (f"{name}.poise.dev/web" for name in ("shard", "epoch", "drain"))
MERGE, JSON_PATCH, APPLY = "application/merge-patch+json", "application/json-patch+json", "application/apply-patch+yaml"
JSON, PROTOBUF = "application/json", "application/vnd.kubernetes.protobuf"


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/api/v1/namespaces/ns/secrets/s", Place("", "secrets", "ns", "s")),
        ("/api/v1/namespaces/ns/secrets", Place("", "secrets", "ns")),
        ("/api/v1/secrets", Place("", "secrets")),
        ("/apis/apps/v1/namespaces/ns/deployments/d/status", Place("apps", "deployments", "ns", "d", "status")),
        ("/apis/coordination.k8s.io/v1/namespaces/ns/leases/l", Place("coordination.k8s.io", "leases", "ns", "l")),
        ("/api/v1/namespaces/ns", Place("", "namespaces", "", "ns")),
        ("/apis/apps/v1/namespaces/ns/deployments/a%2Fb", Place("apps", "deployments", "ns", "a/b")),
        ("/version", None),
        ("/apis/apps/v1", None),
        ("/", None),
    ],
)
def test_a_path_is_read(path: str, place: Place | None) -> None:
    assert read_place(path) == place


def asked(method: str, plural: str, body: object, content_type: str = JSON, before: Marks = HELD) -> Asked:
    """Make a request for an object of the root."""
    path = f"/api/v1/namespaces/ns/{plural}" + ("" if method == "POST" else f"/{ROOT}")
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    made = Asked(
        process="p",
        at_s=1.0,
        method=method,
        path=path,
        content_type=content_type,
        body=raw,
        place=read_place(path),
        before=before,
    )
    return classify(made, RING, [ROOT, "other-abc123"])


def labels(**given: str | None) -> dict[str, object]:
    """Write a body with labels of the ring."""
    return {"metadata": {"labels": {f"{name}.poise.dev/web": value for name, value in given.items()}}}


def put_protobuf(given: dict[str, str], before: Marks) -> Asked:
    """Make a PUT in protobuf; managed fields name labels that are not there any more."""
    entries = [
        bytes([10, len(name)]) + name.encode() + bytes([18, len(text)]) + text.encode() for name, text in given.items()
    ]
    managed = b'{"f:metadata":{"f:labels":{"f:shard.poise.dev/web":{},"f:drain.poise.dev/web":{}}}}'
    body = b"k8s\0" + b"".join(bytes([90, len(each)]) + each for each in entries) + managed
    return asked("PUT", "secrets", body, PROTOBUF, before)


INTENTS = [
    ("a create that names the root", asked("POST", "configmaps", {"metadata": {"name": ROOT}}), Intent.ACT),
    ("a create in protobuf", asked("POST", "configmaps", b"k8s\0\n\x08" + ROOT.encode(), PROTOBUF), Intent.ACT),
    ("an annotation", asked("PATCH", "secrets", {"metadata": {"annotations": {"a": "b"}}}, MERGE), Intent.ACT),
    (
        "a patch that tests the epoch",
        asked(
            "PATCH",
            "secrets",
            [{"op": "test", "path": "/metadata/labels/epoch.poise.dev~1web", "value": "4"}],
            JSON_PATCH,
        ),
        Intent.ACT,
    ),
    (
        "a merge that hands over",
        asked("PATCH", "secrets", labels(shard="b", epoch="5", drain=None), MERGE, DRAINED),
        Intent.HAND_OVER,
    ),
    (
        "a merge of the long form",
        asked("PATCH", "secrets", labels(shard=None, drain=None), MERGE, DRAINED),
        Intent.HAND_OVER,
    ),
    (
        "a JSON Patch that hands over",
        asked(
            "PATCH",
            "secrets",
            [{"op": "replace", "path": "/metadata/labels/shard.poise.dev~1web", "value": "b"}],
            JSON_PATCH,
            DRAINED,
        ),
        Intent.HAND_OVER,
    ),
    (
        "a JSON Patch that removes all labels",
        asked("PATCH", "secrets", [{"op": "add", "path": "/metadata/labels", "value": {}}], JSON_PATCH),
        Intent.HAND_OVER,
    ),
    (
        "an apply that hands over",
        asked("PATCH", "secrets", b"metadata: {labels: {shard.poise.dev/web: b}}", APPLY),
        Intent.HAND_OVER,
    ),
    ("a PUT that hands over", asked("PUT", "secrets", labels(shard="b", epoch="5"), JSON, DRAINED), Intent.HAND_OVER),
    ("a PUT with the labels as they are", asked("PUT", "secrets", labels(shard="a", epoch="4"), JSON), Intent.ACT),
    (
        "a PUT that does not know of the drain yet",
        asked("PUT", "secrets", labels(shard="a", epoch="4"), JSON, DRAINED),
        Intent.ACT,
    ),
    ("a PUT in protobuf that hands over", put_protobuf({SHARD: "b", EPOCH: "5"}, DRAINED), Intent.HAND_OVER),
    ("a PUT in protobuf that lets go", put_protobuf({EPOCH: "4"}, DRAINED), Intent.HAND_OVER),
    ("a PUT in protobuf that raises the epoch", put_protobuf({SHARD: "a", EPOCH: "5"}, HELD), Intent.RAISE),
    ("a PUT in protobuf of something else", put_protobuf({SHARD: "a", EPOCH: "4", DRAIN: ""}, DRAINED), Intent.ACT),
    ("a PUT in CBOR", asked("PUT", "secrets", b"\xd9\xd9\xf7", "application/cbor"), Intent.ACT),
    ("a raised epoch", asked("PATCH", "secrets", labels(epoch="5"), MERGE), Intent.RAISE),
    ("a Lease", asked("PUT", "leases", {}), Intent.LEASE),
    ("an Event", asked("POST", "events", {"involvedObject": {"name": ROOT}}), Intent.ASIDE),
    ("nonsense", asked("PATCH", "secrets", b"\xff\xfe", MERGE), Intent.ACT),
]


@pytest.mark.parametrize(("made", "intent"), [pytest.param(*each, id=name) for name, *each in INTENTS])
def test_what_a_request_is_for(made: Asked, intent: Intent) -> None:
    assert made.intent is intent
    if intent not in (Intent.LEASE, Intent.ASIDE):
        assert made.roots == (ROOT,)


def test_a_request_that_names_no_object_of_the_check_does_not_matter() -> None:
    made = Asked(process="p", at_s=1.0, method="POST", path="/x", place=Place("", "configmaps", "ns"), body=b"{}")
    assert classify(made, RING, [ROOT]).intent is Intent.ASIDE
    assert classify(msgspec.structs.replace(made, method="GET"), RING, [ROOT]).intent is Intent.LOOK
    tried = msgspec.structs.replace(made, body=ROOT.encode(), query={"dryRun": "All"})
    assert classify(tried, RING, [ROOT]).intent is Intent.ASIDE


def after(made: Asked, number: int, marks: dict[str, str], status: int = 200) -> Asked:
    """Let a write be answered with a version and its labels."""
    body = msgspec.json.encode({"metadata": {"resourceVersion": str(number), "labels": marks}})
    return answered(msgspec.structs.replace(made, known=7), status, 2.0, body)


def test_the_answer_tells_what_a_body_that_cannot_be_read_was_for() -> None:
    made, raised = asked("PUT", "secrets", b"\xd9\xd9\xf7", "application/cbor"), {SHARD: "a", EPOCH: "5"}
    assert settle(after(made, 8, raised), HELD, RING).intent is Intent.RAISE
    assert settle(after(made, 7, raised), HELD, RING).intent is Intent.ACT, "it changed nothing"
    assert settle(after(made, 8, raised, 409), HELD, RING).intent is Intent.ACT
    assert settle(answered(made, 200, 2.0, b"k8s\0"), HELD, RING).intent is Intent.ACT


def test_a_check_that_lagged_behind_is_put_right_by_the_answer() -> None:
    lagging = asked("PUT", "secrets", labels(shard="a", epoch="4"), JSON, Marks())
    assert lagging.intent is Intent.HAND_OVER
    assert settle(after(lagging, 9, {SHARD: "a", EPOCH: "4"}), HELD, RING).intent is Intent.ACT


def test_the_holder_is_read_from_the_answer() -> None:
    made = asked("PUT", "leases", {})
    held = answered(made, 200, 2.0, msgspec.json.encode({"spec": {"holderIdentity": "a_1"}}))
    assert (held.holder, held.succeeded) == ("a_1", True)
    assert answered(made, 200, 2.0, b'{"spec": {}}').holder == ""
    assert answered(made, 409, 2.0, b'{"spec": {"holderIdentity": "a_1"}}').holder is None


@pytest.mark.parametrize(
    ("query", "fresh"),
    [
        ({}, True),
        ({"limit": "500", "labelSelector": "x"}, True),
        ({"resourceVersion": ""}, True),
        ({"resourceVersion": "0"}, False),
        ({"resourceVersion": "17", "resourceVersionMatch": "NotOlderThan"}, False),
        ({"watch": "1", "resourceVersion": "17"}, False),
        ({"watch": "true"}, False),
        ({"watch": "true", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}, True),
        ({"watch": "true", "sendInitialEvents": "true", "resourceVersion": "17"}, False),
    ],
)
def test_a_list_is_fresh_when_it_names_no_version(query: dict[str, str], fresh: bool) -> None:
    made = Asked(process="p", at_s=1.0, method="GET", path="/", query=query, place=Place("", "secrets", "ns"))
    assert made.is_fresh_list is fresh
    assert not msgspec.structs.replace(made, place=Place("", "secrets", "ns", "one")).is_fresh_list
    assert not msgspec.structs.replace(made, place=Place("", "configmaps", "ns")).is_fresh_list
