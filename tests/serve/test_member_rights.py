"""What a member's token is good for: its own set and nothing else; and whose asking is a pod's sign of life."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import httpx2
import msgspec
import pytest
from tests.serve.live_server import DIVISION, ORDERS, POOL, LiveServer, token_line, tokens_file

from poise.jobs.dividing import divide_stored
from poise.model.ownership import MemberRow
from poise.serve.settings import ServeSettings

WEB = {"kind": "ShardRing", "metadata": {"name": "web"}, "spec": {"policy": "balanced", "objects": ["a", "b"]}}
TARGETS = "/v1/pools/core/pods/gnmic-0/targets"
PEOPLE = {
    "vera": "viewer",
    "olga": "operator",
    "mona": "member:orders",
    "core": "member:core",
    "pods": "member:TargetPool/core",
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Serve with a token of every sort."""
    lines = [token_line(name, role) for name, role in PEOPLE.items()]
    with LiveServer(ServeSettings(tokens=tokens_file(tmp_path_factory.mktemp("tokens"), *lines))) as server:
        with server.client("aglo") as operator:
            for document in (ORDERS, WEB, POOL):
                server.put(document, operator)
        yield server


def asked(server: LiveServer, name: str, path: str) -> httpx2.Response:
    with server.client(name[::-1]) as client:
        return client.get(path)


def test_a_member_learns_what_its_set_promises_before_it_registers(guarded: LiveServer) -> None:
    told = asked(guarded, "mona", "/v1/sets/orders")
    assert told.status_code == 200
    assert (told.json()["lease_s"], told.json()["grace_s"], told.json()["revoke"]) == (10.0, 2.0, True)
    assert told.json()["period_s"] == pytest.approx(10 / 3)
    assert guarded.store.view("orders", lambda tx: tx.member("n1")) is None, "nobody has registered"
    with guarded.client("anom") as member:
        registered = member.post("/v1/sets/orders/members/n1", json={"process": "p"}).json()
    assert registered == {"incarnation": 1, **told.json()}, "the answer to a registration promises the same"


@pytest.mark.parametrize(
    ("name", "path", "status"),
    [
        ("mona", "/v1/sets/web", 403),
        ("core", "/v1/sets/orders", 403),
        ("vera", "/v1/sets/orders", 403),
        ("olga", "/v1/sets/orders", 200),
        ("core", "/v1/sets/core", 404),
        ("pods", "/v1/sets/TargetPool%2Fcore", 404),
        ("olga", "/v1/sets/poise.servers", 404),
        ("mona", "/v1/events?job=web", 403),
        ("mona", "/v1/jobs/PartitionSet/orders", 403),
        ("mona", "/v1/jobs/PartitionSet/orders/history", 403),
        ("mona", TARGETS, 403),
        ("core", TARGETS, 403),
        ("pods", "/v1/pools/other/pods/gnmic-0/targets", 403),
        ("vera", TARGETS, 200),
        ("pods", TARGETS, 200),
    ],
)
def test_who_may_ask_what(guarded: LiveServer, name: str, path: str, status: int) -> None:
    assert asked(guarded, name, path).status_code == status


def heard(server: LiveServer, token: str, query: str, count: int) -> list[dict[str, object]]:
    """Read so many events of all that there ever were."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        headers = {"Authorization": f"Bearer {token}", "Last-Event-ID": "0"}
        connection.request("GET", f"/v1/events{query}", headers=headers)
        response = connection.getresponse()
        assert response.status == 200
        events: list[dict[str, object]] = []
        while len(events) < count:
            line = response.readline().decode()
            assert line, "the stream has ended"
            if line.startswith("data: "):
                events.append(msgspec.json.decode(line[6:], type=dict[str, object]))
        return events
    finally:
        connection.close()


@pytest.mark.parametrize("query", ["", "?job=orders"])
def test_a_member_hears_of_its_own_set_only(guarded: LiveServer, query: str) -> None:
    with guarded.client("aglo") as operator:
        guarded.put({**DIVISION, "metadata": {"name": "orders"}}, operator)
        divide_stored(guarded.store, "orders", guarded.api._now())
        operator.post("/v1/sets/web/members/w1", json={"process": "p"})
        operator.post(f"/v1/sets/orders/members/n{query[-1:] or 'x'}", json={"process": "p"})
    mine = len(guarded.store.journal("orders"))
    everything = heard(guarded, "aglo", query, mine + 1)
    assert {event["kind"] for event in everything} > {"PartitionSet"}, "others happen in between"
    told = heard(guarded, "anom", query, mine)
    assert {(event["kind"], event["job"]) for event in told} == {("PartitionSet", "orders")}


def see(server: LiveServer) -> MemberRow | None:
    return server.store.view("TargetPool/core", lambda tx: tx.member("gnmic-0"))


def test_only_the_pod_itself_is_a_sign_of_its_life(guarded: LiveServer) -> None:
    asked(guarded, "pods", TARGETS)
    first = see(guarded)
    assert first is not None
    for _ in range(2):
        assert asked(guarded, "vera", TARGETS).status_code == 200
        assert see(guarded) == first, "whoever only looks is not the pod"
    asked(guarded, "pods", TARGETS)
    second = see(guarded)
    assert second is not None
    assert second.seq == first.seq + 1
    asked(guarded, "olga", TARGETS)
    third = see(guarded)
    assert third is not None
    assert third.seq == second.seq + 1


def test_a_viewer_never_makes_a_pod_known(tmp_path: Path) -> None:
    settings = ServeSettings(tokens=tokens_file(tmp_path, token_line("olga", "operator"), token_line("vera", "viewer")))
    with LiveServer(settings) as server:
        with server.client("aglo") as operator:
            server.put(POOL, operator)
        assert asked(server, "vera", TARGETS).json() == []
        assert see(server) is None
        assert asked(server, "vera", TARGETS.replace("gnmic-0", "none")).status_code == 404


def test_on_open_loopback_every_asking_counts(server: LiveServer) -> None:
    with server.client() as client:
        server.put(POOL, client)
        assert client.get(TARGETS).json() == []
        first = see(server)
        client.get(TARGETS)
        second = see(server)
    assert first is not None
    assert second is not None
    assert second.seq == first.seq + 1
