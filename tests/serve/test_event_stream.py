"""Server-sent events: every transition, resumable, pinged, bounded, and one reader for all."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator

import httpx2
import msgspec
import pytest
from tests.serve.live_server import ORDERS, LiveServer, read_all
from tests.serve.talking_member import TalkingMember, settle

from poise.move.executor import release_brake
from poise.serve.events import Hub, as_text
from poise.serve.facade import Event
from poise.serve.settings import ServeSettings


class Listener:
    """Reads a stream in a thread of its own, as a browser does."""

    def __init__(self, server: LiveServer, last: str | None = None, query: str = "") -> None:
        self._path = f"/v1/events{query}"
        self.events: list[tuple[str, dict[str, object]]] = []
        self.pings = 0
        self.first = threading.Event()
        self.ended = threading.Event()
        self._headers = {"Last-Event-ID": last} if last else {}
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        self._connection.connect()
        self._socket = self._connection.sock
        threading.Thread(target=self._listen, daemon=True).start()
        assert self.first.wait(10)

    def _listen(self) -> None:
        with contextlib.suppress(http.client.HTTPException, OSError, ValueError):
            self._connection.request("GET", self._path, headers=self._headers)
            response = self._connection.getresponse()
            assert response.headers["content-type"].startswith("text/event-stream")
            identity = ""
            while line := response.readline().decode():
                if line.startswith("retry:"):
                    self.first.set()
                elif line.startswith(": ping"):
                    self.pings += 1
                elif line.startswith("id: "):
                    identity = line[4:].strip()
                elif line.startswith("data: "):
                    self.events.append((identity, msgspec.json.decode(line[6:], type=dict[str, object])))
        self.ended.set()

    def wait(self, count: int, timeout_s: float = 10) -> list[tuple[str, dict[str, object]]]:
        end_s = time.monotonic() + timeout_s
        while len(self.events) < count and not self.ended.is_set() and time.monotonic() < end_s:
            time.sleep(0.01)
        assert len(self.events) >= count
        return self.events

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.ended.wait(5)
        self._connection.close()


def transitions(events: list[tuple[str, dict[str, object]]]) -> list[tuple[str, str]]:
    lines = [event["line"] for _, event in events]
    return [(str(line["item"]), str(line["transition"])) for line in lines if isinstance(line, dict)]


@pytest.fixture
def listening(server: LiveServer, client: httpx2.Client) -> Iterator[Listener]:
    assert client.get("/livez").status_code == 200
    quiet(server)
    listener = Listener(server)
    yield listener
    listener.close()


def quiet(server: LiveServer) -> None:
    """Wait until the reader has handed out what the fixtures wrote."""
    last, end_s = -1, time.monotonic() + 5
    while time.monotonic() < end_s:
        now = server.site.hub.head
        if now == last:
            return
        last = now
        time.sleep(0.15)


def test_every_transition_is_told_in_order(server: LiveServer, client: httpx2.Client, listening: Listener) -> None:
    settle(server, TalkingMember(client, "n1"))
    events = listening.wait(9)
    assert transitions(events)[0] == ("", "set")
    assert sorted(transitions(events)[1:5]) == [(str(item), "assigned") for item in range(4)]
    assert sorted(transitions(events)[5:]) == [(str(item), "confirmed") for item in range(4)]
    assert all(event["id"] == identity and event["job"] == "orders" for identity, event in events)


def test_a_stream_goes_on_after_the_last_event_that_was_seen(
    server: LiveServer, client: httpx2.Client, listening: Listener
) -> None:
    settle(server, TalkingMember(client, "n1"))
    events = listening.wait(9)
    for missed in (0, 3, 8):
        again = Listener(server, last=events[missed][0])
        assert again.wait(8 - missed) == events[missed + 1 :]
        again.close()


def test_a_stream_from_long_ago_is_read_from_the_store_without_loss_or_twins() -> None:
    with LiveServer(ServeSettings(lag_max=5)) as server, server.client() as client:
        server.put({**ORDERS, "spec": {"partitions": 30}}, client)
        member = TalkingMember(client, "n1")
        settle(server, member)
        story = server.api.events("0", 1000)
        listener = Listener(server, last="0")
        assert [identity for identity, _ in listener.wait(len(story))] == [event.id for event in story]
        client.post("/v1/jobs/PartitionSet/orders/members/n1/drain")
        live = listener.wait(len(story) + 1)
        assert len({identity for identity, _ in live}) == len(live)
        listener.close()


def test_a_stream_can_be_of_one_job_or_one_member(server: LiveServer, client: httpx2.Client) -> None:
    quiet(server)
    all_of_it, ring, second = (
        Listener(server),
        Listener(server, query="?kind=ShardRing&job=web"),
        Listener(server, query="?member=n2"),
    )
    settle(server, TalkingMember(client, "n1"), TalkingMember(client, "n2"))
    TalkingMember(client, "w1", "web")
    everything = all_of_it.wait(11)
    assert ring.wait(1)[0][1]["job"] == "web"
    assert second.wait(4) == [each for each in everything if member_of(each[1]) == "n2"]
    again = Listener(server, last="0", query="?member=n2")
    assert again.wait(4) == second.events
    time.sleep(0.3)
    assert len(ring.events) == 1
    for listener in (all_of_it, ring, second, again):
        listener.close()


def member_of(event: dict[str, object]) -> object:
    assert isinstance(event["line"], dict)
    return event["line"]["member"]


@pytest.mark.parametrize("last", ["nonsense", "1.2.3", "-1.0", "9" * 200, "é"])
def test_an_id_that_is_none_is_refused(server: LiveServer, last: str) -> None:
    with server.client() as client:
        response = client.get("/v1/events", headers=[(b"Last-Event-ID", last.encode())])
        assert response.status_code == 400
        assert response.json()["errors"][0]["path"] == "Last-Event-ID"


def test_names_cannot_forge_lines_of_the_stream(server: LiveServer) -> None:
    with server.client() as client:
        server.put({"kind": "ShardRing", "metadata": {"name": "web"}, "spec": {"objects": ["<b>&\\n"]}}, client)
    event = server.api.events("0", 1)[0]
    forged = msgspec.structs.replace(event, line=msgspec.structs.replace(event.line, reason="a\n\nid: 9\ndata: x\r\n"))
    text = as_text(forged)
    assert text.count(b"\n") == 4
    assert msgspec.json.decode(text.split(b"\n")[2][6:], type=Event) == forged


def test_a_silent_stream_is_pinged_and_a_slow_request_is_not_meant() -> None:
    with LiveServer(ServeSettings(ping_s=0.2, request_s=0.5)) as server:
        listener, filtered = Listener(server), Listener(server, query="?job=other")
        with server.client() as client:
            server.put(ORDERS, client)
            end_s = time.monotonic() + 1.2
            while time.monotonic() < end_s:
                server.store.transact("orders", lambda tx: release_brake(tx, "orders"))
                time.sleep(0.05)
        time.sleep(0.5)
        assert listener.pings >= 1
        assert filtered.pings >= 4, "what is not wanted is no sign of life"
        assert filtered.events == []
        filtered.close()
        assert not listener.ended.is_set(), "a stream may last longer than a request"
        listener.close()


def test_more_clients_than_the_limit_are_asked_to_come_again() -> None:
    assert ServeSettings().streams_max == 1_000
    with LiveServer(ServeSettings(streams_max=2)) as server, server.client() as client:
        listeners = [Listener(server), Listener(server)]
        refused = client.get("/v1/events")
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        listeners[0].close()
        end_s = time.monotonic() + 5
        while server.site.hub.clients == 2 and time.monotonic() < end_s:
            time.sleep(0.02)
        listeners[0] = Listener(server)
        for listener in listeners:
            listener.close()


def test_a_client_that_never_reads_is_dropped_and_nobody_waits_for_it() -> None:
    with LiveServer(ServeSettings(lag_max=300)) as server, server.client() as client:
        server.put(ORDERS, client)
        server.shrink_buffers()
        deaf = listen_deaf(server)
        reading = Listener(server)
        begun, end_s = server.site.hub.head, time.monotonic() + 30
        while server.site.hub.clients == 2 and time.monotonic() < end_s:
            for _ in range(20):
                server.store.transact("orders", lambda tx: release_brake(tx, "orders"))
            time.sleep(0.02)
        assert server.site.hub.clients == 1, "the deaf one is dropped"
        assert len(reading.wait(server.site.hub.head - begun)) > 300, "who reads has missed nothing"
        assert not reading.ended.is_set()
        deaf.settimeout(5)
        read_all(deaf)
        deaf.close()
        reading.close()


def listen_deaf(server: LiveServer, headers: bytes = b"") -> socket.socket:
    """Open a stream, and never read it."""
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    deaf.connect(("127.0.0.1", server.port))
    deaf.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n")
    return deaf


def test_a_client_that_never_reads_what_it_missed_is_cut_off() -> None:
    with LiveServer(ServeSettings(request_s=0.8)) as server, server.client() as client:
        server.put({**ORDERS, "spec": {"partitions": 500}}, client)
        settle(server, TalkingMember(client, "n1"), rounds=3)
        server.shrink_buffers()
        with listen_deaf(server, b"Last-Event-ID: 0\r\n"):
            until(lambda: server.site.hub.clients == 1)
            until(lambda: server.site.hub.clients == 0)


def until(holds: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Wait until something is true."""
    end_s = time.monotonic() + timeout_s
    while not holds() and time.monotonic() < end_s:
        time.sleep(0.01)
    assert holds()


@pytest.mark.slow
def test_a_burst_of_many_pages_drops_nobody_who_reads() -> None:
    with LiveServer(ServeSettings(lag_max=1_500)) as server, server.client() as client:
        listeners = [Listener(server) for _ in range(5)]
        server.put({**ORDERS, "spec": {"partitions": 12_000}}, client)
        TalkingMember(client, "n1")
        server.cycle()
        for listener in listeners:
            assert len(listener.wait(12_002, 20)) == 12_002
            assert not listener.ended.is_set()
            listener.close()


def test_streams_end_in_order_with_the_server() -> None:
    with LiveServer() as server:
        listeners = [Listener(server) for _ in range(3)]
        begun = time.monotonic()
        server.end()
        for listener in listeners:
            assert listener.ended.wait(5)
        assert time.monotonic() - begun < 4
        for listener in listeners:
            listener.close()


def test_the_reader_goes_on_after_the_store_was_away(
    server: LiveServer, client: httpx2.Client, listening: Listener
) -> None:
    server.store.away = True
    time.sleep(0.5)
    server.store.away = False
    TalkingMember(client, "n1")
    assert transitions(listening.wait(1))[0] == ("", "set")


def test_one_reader_serves_all_clients(server: LiveServer, client: httpx2.Client) -> None:
    quiet(server)
    listeners = [Listener(server) for _ in range(20)]
    calls = 0
    real = server.store.events

    def counted(after: tuple[int, int], most: int = 1000) -> list[object]:
        nonlocal calls
        calls += 1
        return list(real(after, most))

    server.store.events = counted  # type: ignore[method-assign, assignment]  # Counts how often the store is read.
    try:
        TalkingMember(client, "n1")
        for listener in listeners:
            listener.wait(1)
        assert calls <= 4
    finally:
        del server.store.events
        for listener in listeners:
            listener.close()


@pytest.mark.slow
def test_without_pacing_a_burst_would_drop_those_who_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hub, "_pace", lambda _hub, _told: None)
    with pytest.raises(AssertionError):
        test_a_burst_of_many_pages_drops_nobody_who_reads()
