"""The small pure parts: places, objects, refusals, patches, lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.kube.fake_time import run

from poise.errors import (
    Conflict,
    Forbidden,
    InvalidSpec,
    NotFound,
    Overloaded,
    PatchRefused,
    PoiseError,
    Unavailable,
    VersionGone,
)
from poise.kube.failures import JSON_PATCH, Request, failure, read_status, retry_after
from poise.kube.lines import gathered, split_lines
from poise.kube.objects import (
    Custom,
    Lease,
    LeaseSpec,
    Meta,
    OwnerReference,
    Partial,
    Status,
    StatusDetails,
    line_decoder,
    slim_partial,
)
from poise.kube.pacing import Pace, asked_wait_s
from poise.kube.patches import Operation, guarded, label_change, pointer, same_label, same_uid, set_label
from poise.kube.resources import LEASES, NAMESPACES, SECRETS, ObjectRef, Resource, Selection

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")


def test_paths() -> None:
    assert SECRETS.path() == "/api/v1/secrets"
    assert SECRETS.path("a") == "/api/v1/namespaces/a/secrets"
    assert DEPLOYMENTS.path("a") == "/apis/apps/v1/namespaces/a/deployments"
    assert DEPLOYMENTS.api_version == "apps/v1"
    assert ObjectRef(NAMESPACES, "a").path == "/api/v1/namespaces/a"
    assert ObjectRef(DEPLOYMENTS, "x", "a", "status").path == "/apis/apps/v1/namespaces/a/deployments/x/status"
    assert ObjectRef(SECRETS, "../x?y#z", "a/b").path == "/api/v1/namespaces/a%2Fb/secrets/..%2Fx%3Fy%23z"


def test_places_read_well() -> None:
    assert str(ObjectRef(LEASES, "web-0", "default")) == "leases.coordination.k8s.io default/web-0"
    assert str(ObjectRef(DEPLOYMENTS, "x", "a", "status")) == "deployments.apps a/x (status)"
    assert str(ObjectRef(NAMESPACES, "a")) == "namespaces a"
    assert str(Selection(SECRETS)) == "secrets"
    assert str(Selection(SECRETS, "a", labels="x=y")) == "secrets (a x=y)"


LINE = (
    b'{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"s",'
    b'"namespace":"n","uid":"u","resourceVersion":"198","generation":3,"creationTimestamp":"2026-11-16T06:55:28Z",'
    b'"deletionTimestamp":"2026-11-16T06:56:28Z","labels":{"a":"1"},"annotations":{"b":"2"},"finalizers":["f"],'
    b'"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"x","uid":"v","controller":true},'
    b'{"apiVersion":"v1","kind":"Node","name":"y","uid":"w"}],"managedFields":[{"manager":"m"}]}}}'
)


def test_metadata_is_decoded_and_slimmed() -> None:
    event = line_decoder(Partial).decode(LINE)
    meta = event.object.metadata
    assert (event.type, meta.key, meta.uid, meta.resource_version, meta.generation) == (
        "ADDED",
        ("n", "s"),
        "u",
        "198",
        3,
    )
    assert (meta.labels, meta.annotations, meta.finalizers) == ({"a": "1"}, {"b": "2"}, ("f",))
    assert meta.deletion_timestamp == "2026-11-16T06:56:28Z"
    assert meta.controller == OwnerReference("apps/v1", "Deployment", "x", "v", True)
    assert [owner.group for owner in meta.owner_references] == ["apps", ""]
    slim = slim_partial(event.object).metadata
    assert (slim.labels, slim.owner_references) == (meta.labels, meta.owner_references)
    assert (slim.annotations, slim.finalizers) == ({}, ())
    twin = slim_partial(line_decoder(Partial).decode(LINE).object).metadata
    assert next(iter(twin.labels)) is next(iter(slim.labels)), "what many objects share is kept once"
    assert twin.namespace is slim.namespace


def test_a_lease_survives_being_read_and_written() -> None:
    held = Lease(Meta("a", "n", labels={"poise.dev/ring": "web"}), LeaseSpec("a_1", 15, renew_time="t"))
    assert msgspec.json.decode(msgspec.json.encode(held), type=Lease) == held
    assert b"holderIdentity" not in msgspec.json.encode(Lease(Meta("a", "n"), LeaseSpec()))


def test_a_custom_resource_as_a_file_would_say_it() -> None:
    body = b'{"apiVersion":"poise.dev/v1alpha1","kind":"ShardRing","metadata":{"name":"web","namespace":"n","uid":"u",'
    body += b'"labels":{"a":"b"},"resourceVersion":"7"},"spec":{"tokens":7},"status":{"conditions":[]}}'
    written = msgspec.json.decode(msgspec.json.decode(body, type=Custom).as_document())
    assert written == {
        "apiVersion": "poise.dev/v1alpha1",
        "kind": "ShardRing",
        "metadata": {"name": "web", "namespace": "n", "labels": {"a": "b"}},
        "spec": {"tokens": 7},
    }


GET = Request("get", SECRETS, "n", "secrets n/a")
JSON = Request("patch", SECRETS, "n", "secrets n/a", JSON_PATCH)
CAUSE = '"reason":"Invalid","code":422,"details":{"causes":[{"message":"bad","field":"%s"}]}'
REFUSALS: dict[str, tuple[Request, int, str, type[PoiseError], str]] = {
    "no credentials": (GET, 401, "{}", Forbidden, "the API server does not accept the credentials"),
    "no right": (GET, 403, '{"message":"m"}', Forbidden, 'may not get secrets of the group "" in the namespace n: m'),
    "nothing there": (GET, 404, '{"message":"m"}', NotFound, "get secrets n/a: m"),
    "no page": (GET, 404, "404 page not found", NotFound, "get secrets n/a: 404 page not found"),
    "a conflict": (GET, 409, '{"message":"m"}', Conflict, "get secrets n/a: m"),
    "too old": (GET, 410, '{"message":"m"}', VersionGone, "get secrets n/a: m"),
    "a failed test": (JSON, 422, '{"reason":"Invalid","code":422,"details":{}}', PatchRefused, "a test failed"),
    "a broken rule": (JSON, 422, "{%s}" % (CAUSE % "metadata.labels"), InvalidSpec, "$.metadata.labels: bad"),
    "another object": (JSON, 422, "{%s}" % (CAUSE % "metadata.uid"), Conflict, "get"),
    "a rule of the whole": (GET, 422, "{%s}" % (CAUSE % "<nil>"), InvalidSpec, "secrets n/a: $: bad"),
    "a bad request": (GET, 400, '{"message":"m"}', InvalidSpec, "get secrets n/a: m"),
    "too large": (GET, 413, "", InvalidSpec, "status 413"),
    "too busy": (GET, 429, "{}", Overloaded, "status 429"),
    "broken": (GET, 500, "<html>\n\x1b[1mno</html>", Unavailable, "<html> [1mno</html>"),
    "a redirect": (GET, 302, "", Unavailable, "status 302"),
}


@pytest.mark.parametrize(("request_", "code", "body", "error", "told"), REFUSALS.values(), ids=REFUSALS)
def test_refusals_are_our_own_errors(
    request_: Request, code: int, body: str, error: type[PoiseError], told: str
) -> None:
    found = failure(request_, code, {}, read_status(body.encode()))
    assert type(found) is error
    if request_ is GET:
        assert told in str(found)
    assert str(found).isprintable()


def test_how_long_to_wait() -> None:
    said = Status(details=StatusDetails(retry_after_seconds=7))
    assert retry_after({"retry-after": "3"}, said) == 3
    assert retry_after({}, said) == 7
    assert retry_after({}, Status()) is None
    assert retry_after({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, Status()) is None
    assert retry_after({"retry-after": "-3"}, Status()) is None
    assert retry_after({"retry-after": "99999999"}, Status()) == 300, "nobody is made to wait for days"
    assert type(failure(GET, 503, {"retry-after": "1"}, Status())) is Overloaded
    assert (asked_wait_s(Overloaded("m", 4.0)), asked_wait_s(Overloaded("m")), asked_wait_s(Unavailable("m"))) == (
        4,
        0,
        0,
    )


def test_a_right_to_a_subresource_is_named_whole() -> None:
    request = Request("patch", DEPLOYMENTS, "", "x", subresource="status")
    told = failure(request, 403, {}, Status())
    assert str(told) == 'may not patch deployments/status of the group "apps" in the whole cluster'


def test_patches() -> None:
    assert pointer("metadata", "labels", "a.b/c~d") == "/metadata/labels/a.b~1c~0d"
    assert msgspec.json.encode([same_uid("u"), same_label("a/b", "1"), set_label("c", "2")]) == (
        b'[{"op":"test","path":"/metadata/uid","value":"u"},'
        b'{"op":"test","path":"/metadata/labels/a~1b","value":"1"},'
        b'{"op":"add","path":"/metadata/labels/c","value":"2"}]'
    )
    assert msgspec.json.encode(Operation("remove", "/a")) == b'{"op":"remove","path":"/a"}'
    assert msgspec.json.encode(Operation("test", "/a", None)) == b'{"op":"test","path":"/a","value":null}'
    seen = Meta("a", "n", "u", "7")
    written = {"metadata": {"labels": {"x": "1", "y": None}, "uid": "u", "resourceVersion": "7"}}
    assert label_change(seen, {"x": "1", "y": None}) == written
    assert guarded(seen, {"spec": {"a": 1}}) == {"spec": {"a": 1}, "metadata": {"uid": "u", "resourceVersion": "7"}}
    for blind in (Meta("a", "n", "u"), Meta("a", "n", "", "7")):
        with pytest.raises(AssertionError):
            label_change(blind, {"x": "1"})


def test_waiting_doubles_up_to_the_longest() -> None:
    pace = Pace(1.0, 10.0)
    assert [pace.wait_s(failures, 1.0) for failures in (1, 2, 3, 4, 5, 5000)] == [1, 2, 4, 8, 10, 10]
    assert pace.wait_s(3, 0.0) == 2.0


def _split(chunks: list[bytes], line_max: int = 100) -> list[bytes]:
    async def given() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def taken() -> list[bytes]:
        return [line async for line in split_lines(given(), line_max)]

    return asyncio.run(taken())


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_lines_however_they_are_cut(size: int) -> None:
    text = b"one\ntwo\n\nthree\nhalf"
    chunks = [text[start : start + size] for start in range(0, len(text), size)]
    assert _split(chunks) == [b"one", b"two", b"", b"three"], "half a line is never taken for a whole one"


def test_a_line_without_end_is_given_up() -> None:
    with pytest.raises(Unavailable, match="more than 100 bytes"):
        _split([b"x" * 60, b"x" * 60])


def test_what_follows_soon_is_read_together_and_the_first_is_not_delayed() -> None:
    """Ten chunks, 10 ms apart: the first is given at once, the others after pauses that gather some of them."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        waiting, given = list[bytes](), asyncio.Event()

        async def arrive() -> None:
            for number in range(10):
                await asyncio.sleep(0.01)
                waiting.append(b"%d" % number)
                given.set()

        async def read() -> AsyncIterator[bytes]:
            for _ in range(10):
                while not waiting:
                    given.clear()
                    await given.wait()
                yield waiting.pop(0)

        task = asyncio.create_task(arrive())
        at = {chunk: loop.time() async for chunk in gathered(read(), 0.05)}
        await task
        assert list(at) == [b"%d" % number for number in range(10)]
        assert round(at[b"0"], 3) == 0.01
        assert len({round(moment, 3) for moment in at.values()}) < 6, "fewer wakings than chunks"

    run(scenario())
