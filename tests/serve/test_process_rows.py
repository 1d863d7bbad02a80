"""Every row of the API, called on a real server process (`poise up`), and what it answers held against the state."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import httpx2
import msgspec
import pytest
from tests.serve.live_server import DIVISION, KEYS, ORDERS, SHOP, STRANGE
from tests.serve.talking_member import TalkingMember
from tests.serve_process import ServerProcess, await_met, servers

from poise.serve.calls import CALLS

PULLED = {
    "kind": "TargetPool",
    "metadata": {"name": "core"},
    "spec": {
        "pods": {"endpoints": [{"name": "p0"}, {"name": "p1"}]},
        "targets": {"list": [{"name": "router/1", "address": "10.0.0.1:57400"}]},
        "delivery": {"kind": "pull"},
    },
}
SPARE = {"kind": "PartitionSet", "metadata": {"name": "spare"}, "spec": {"partitions": 2}}
JOBS = (ORDERS, KEYS, SHOP, DIVISION, PULLED, SPARE)
JOB, ITEM, MEMBER = "/v1/jobs/{kind}/{name}", "/v1/jobs/{kind}/{name}/items/{item}", "/v1/jobs/{kind}/{name}/members"
SPEAKER = "/v1/sets/{set}/members/{id}"
ORDERED = {"kind": "PartitionSet", "name": "orders"}
Said = dict[str, object]


class World:
    """A server process that runs one job of every kind, and two members who have settled."""

    def __init__(self, process: ServerProcess, client: httpx2.Client) -> None:
        self.process, self.client = process, client
        for document in JOBS:
            assert isinstance(document["metadata"], dict)
            path = f"/v1/jobs/{document['kind']}/{document['metadata']['name']}"
            assert client.put(path, json=document).status_code == 201
        self.members = [TalkingMember(client, "n1"), TalkingMember(client, "n2")]
        other = TalkingMember(client, "w1", "web")
        other.seq = 4
        assert other.say().status_code == 200
        await_met(lambda: self.loads() == [2, 2])
        await_met(lambda: client.get("/v1/jobs/ReplicaDivision/shop/items").json()["items"])
        await_met(lambda: self.pull() == ["10.0.0.1:57400"])

    def loads(self) -> list[int]:
        """Let everybody speak, and say what each holds, confirmed."""
        for member in self.members:
            member.beat()
        items = self.client.get("/v1/jobs/PartitionSet/orders/items").json()["items"]
        return [sum(one["member"] == name and one["confirmed"] for one in items) for name in ("n1", "n2")]

    def pull(self) -> list[str]:
        found = self.client.get("/v1/pools/core/pods/p0/targets").json()
        return [target for group in found for target in group["targets"]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    process = ServerProcess(Path(tmp_path_factory.mktemp("process")))
    with servers(process):
        process.ready()
        with process.client() as client:
            yield World(process, client)


class Row(msgspec.Struct, frozen=True):
    """One call of one row: with which names, and what must be true of the answer."""

    method: str
    path: str
    is_true: Callable[[httpx2.Response, World], bool]
    names: Mapping[str, str] = {}
    body: object = None
    query: Mapping[str, str] = {}
    status: int = 200
    headers: Mapping[str, str] = {}

    def __str__(self) -> str:
        return f"{self.method} {self.path} {' '.join(self.names.values())}"


def names_of(answer: httpx2.Response, key: str = "name") -> list[str]:
    return [one[key] for one in answer.json()["items"]]


def is_story(answer: httpx2.Response, _world: World) -> bool:
    numbers = [line["number"] for line in answer.json()["items"]]
    return numbers == sorted(numbers, reverse=True) and len(numbers) > 1


ROWS = [
    Row("GET", "/v1/jobs", lambda a, _: {"orders", "web", "shop", "core"} <= set(names_of(a))),
    Row(
        "GET",
        f"{JOB}/summary",
        lambda a, _: a.json()["health"] == "as it should be" and not a.json()["problems"],
        ORDERED,
    ),
    Row("GET", JOB, lambda a, _: a.json()["spec"] == ORDERS["spec"] and a.headers["etag"] == '"1"', ORDERED),
    Row(
        "PUT",
        JOB,
        lambda a, _: a.headers["etag"] == '"1"',
        {"kind": "PartitionSet", "name": "made"},
        {**SPARE, "metadata": {"name": "made"}},
        status=201,
    ),
    Row("PUT", JOB, lambda a, _: a.json()["certificate"]["movesMin"] == 0, ORDERED, ORDERS, {"dryRun": "true"}),
    Row("PUT", JOB, lambda a, _: a.json()["status"] == 412, ORDERED, ORDERS, status=412, headers={"If-Match": '"99"'}),
    Row("DELETE", JOB, lambda a, _: not a.content, {"kind": "PartitionSet", "name": "spare"}, status=204),
    Row("GET", f"{JOB}/plan", lambda a, _: a.json()["loads"] == {"n1": 2, "n2": 2} and not a.json()["moves"], ORDERED),
    Row("POST", f"{JOB}/plan", lambda a, _: a.json()["loads"] == {"n2": 4}, ORDERED, {"remove": ["n1"]}),
    Row(
        "POST",
        f"{JOB}/pause",
        lambda _, w: w.client.get("/v1/jobs/PartitionSet/orders/summary").json()["paused"],
        ORDERED,
    ),
    Row(
        "POST",
        f"{JOB}/resume",
        lambda _, w: not w.client.get("/v1/jobs/PartitionSet/orders/summary").json()["paused"],
        ORDERED,
    ),
    Row(
        "PUT",
        f"{JOB}/status",
        lambda a, _: a.json()["status"]["workloads"]["api"]["spot"] == 7,
        {"kind": "CapacitySplit", "name": "shop"},
        {"workloads": {"api": {"spot": 7, "onDemand": 3}}},
    ),
    Row("GET", f"{JOB}/series", lambda a, _: set(a.json()["series"]) >= {"unowned", "moves", "loadMax"}, ORDERED),
    Row("GET", f"{JOB}/items", lambda a, _: names_of(a, "item") == ["0", "1", "2", "3"], ORDERED),
    Row("GET", f"{JOB}/items", lambda a, _: len(names_of(a, "item")) == 2, ORDERED, query={"member": "n1"}),
    Row("GET", f"{JOB}/items", lambda a, _: names_of(a, "item") == [], ORDERED, query={"state": "Unassigned"}),
    Row("GET", ITEM, lambda a, _: (a.json()["epoch"], a.json()["confirmed"]) == (1, True), {**ORDERED, "item": "0"}),
    Row(
        "GET",
        ITEM,
        lambda a, _: a.json()["item"] == STRANGE[0],
        {"kind": "ShardRing", "name": "web", "item": quote(STRANGE[0], safe="")},
    ),
    Row("GET", f"{ITEM}/explain", lambda a, _: len(a.json()["because"]) > 0, {**ORDERED, "item": "0"}),
    Row(
        "POST",
        f"{ITEM}/explain",
        lambda a, _: "n3" in str(a.json()),
        {**ORDERED, "item": "0"},
        {"add": ["n3"], "remove": ["n1"]},
    ),
    Row("GET", f"{ITEM}/history", is_story, {**ORDERED, "item": "0"}, query={"newest": "true"}),
    Row("GET", f"{JOB}/history", is_story, ORDERED, query={"newest": "true"}),
    Row(
        "GET",
        "/v1/pools/{name}/pods/{pod}/targets",
        lambda a, w: a.json() != [] and w.pull() != [],
        {"name": "core", "pod": "p0"},
    ),
    Row("GET", MEMBER, lambda a, _: names_of(a) == ["n1", "n2"] and a.json()["items"][0]["floor"] == 2, ORDERED),
    Row(
        "GET", MEMBER, lambda a, _: a.json()["items"][0]["quota"] == "7/2", {"kind": "ReplicaDivision", "name": "shop"}
    ),
    Row("POST", f"{MEMBER}/{{member}}/drain", lambda a, _: a.json()["draining"] is True, {**ORDERED, "member": "n2"}),
    Row(
        "POST", f"{MEMBER}/{{member}}/undrain", lambda a, _: a.json()["draining"] is False, {**ORDERED, "member": "n2"}
    ),
    Row(
        "GET", f"{MEMBER}/{{member}}/stoppable", lambda a, _: len(a.json()["reasons"]) > 0, {**ORDERED, "member": "n1"}
    ),
    Row("GET", "/v1/sets/{set}", lambda a, _: a.json()["lease_s"] == 10, {"set": "orders"}),
    Row("POST", SPEAKER, lambda a, _: a.json()["incarnation"] == 1, {"set": "web", "id": "w2"}, {"process": "p"}),
    Row(
        "PUT",
        SPEAKER,
        lambda a, _: set(a.json()) == {"incarnation", "seq", "granted", "release"},
        {"set": "web", "id": "w1"},
        {"incarnation": 1, "seq": 7},
    ),
    Row(
        "PUT",
        SPEAKER,
        lambda a, _: a.json()["incarnation"] == 1,
        {"set": "web", "id": "w1"},
        {"incarnation": 9, "seq": 8},
        status=409,
    ),
    Row(
        "PUT",
        SPEAKER,
        lambda a, _: a.json()["seq"] in (5, 7),
        {"set": "web", "id": "w1"},
        {"incarnation": 1, "seq": 0},
        status=412,
    ),
    Row("GET", "/livez", lambda a, _: a.json() == {"ok": True}),
    Row("GET", "/readyz", lambda a, _: a.json() == {"ok": True}),
    Row("GET", "/metrics", lambda a, _: 'poise_items{job="PartitionSet/orders"} 4.0' in a.text),
    Row("GET", "/version", lambda a, _: set(a.json()) == {"version", "python"}),
    Row("GET", "/openapi.json", lambda a, _: a.json()["openapi"] == "3.1.0"),
    Row("POST", "/login", lambda a, _: not a.content, body={"token": "any"}, status=204),
    Row("POST", "/logout", lambda a, _: "Max-Age=0" in a.headers["set-cookie"], body={}, status=204),
]


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_row_answers_what_is_true(world: World, row: Row) -> None:
    path = row.path.format(**row.names)
    answer = world.client.request(row.method, path, json=row.body, params=dict(row.query), headers=dict(row.headers))
    assert answer.status_code == row.status, answer.text
    if row.status >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
    assert row.is_true(answer, world), answer.text


@pytest.mark.slow
def test_the_stream_tells_what_happens(world: World) -> None:
    with world.client.stream("GET", "/v1/events", params={"job": "orders"}, headers={"Last-Event-ID": "0"}) as stream:
        assert stream.status_code == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        first = next(line for line in lines if line.startswith("data: "))
    assert msgspec.json.decode(first[6:], type=Said)["job"] == "orders"


def test_no_row_is_left_out() -> None:
    called = {(row.method, row.path) for row in ROWS} | {("GET", "/v1/events")}
    assert called == {(call.method, call.path) for call in CALLS}


def test_every_call_of_the_contract_is_a_row() -> None:
    """The table of the contract, as it stands in the reference."""
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    listed = set(re.findall(r"^\| \[`(\w+) (\S+)`\]", page, re.MULTILINE))
    assert listed == {(call.method, call.path) for call in CALLS}
