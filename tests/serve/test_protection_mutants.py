"""Every protection, taken away: what it keeps out comes in, so the tests of it can fail."""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.serve.live_server import ORDERS, LiveServer, token_line, tokens_file

from poise.move.executor import release_brake
from poise.serve import routing
from poise.serve.connections import Connection
from poise.serve.door import ANYBODY, Door
from poise.serve.events import Client, Hub, Wish
from poise.serve.settings import ServeSettings

PATH = "/v1/jobs/PartitionSet/orders"


def nothing(*_given: object, **_named: object) -> None:
    """Do nothing."""


def test_without_the_check_of_hosts_a_forged_one_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Door, "check_host", nothing)
    with LiveServer() as server, server.client() as client:
        assert client.get("/v1/jobs", headers={"Host": "evil.example"}).status_code == 200


def test_without_the_check_of_origins_another_page_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Door, "check_origin", nothing)
    with LiveServer() as server, server.client() as client:
        assert client.put(PATH, json=ORDERS, headers={"Origin": "http://evil.example"}).status_code == 201


def test_without_tokens_being_read_nobody_is_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Door, "identify", lambda _door, _headers: (ANYBODY, False))
    settings = ServeSettings(tokens=tokens_file(tmp_path, token_line("vera", "viewer")))
    with LiveServer(settings) as server, server.client() as client:
        assert client.put(PATH, json=ORDERS).status_code == 201


def test_without_roles_a_viewer_writes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(routing, "authorize", nothing)
    settings = ServeSettings(tokens=tokens_file(tmp_path, token_line("vera", "viewer")))
    with LiveServer(settings) as server, server.client("arev") as client:
        assert client.put(PATH, json=ORDERS).status_code == 201


def test_a_token_is_compared_in_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("poise.serve.door.hmac.compare_digest", lambda one, other: one[:1] == other[:1])
    first = hashlib.sha256(b"arev").hexdigest()[0]
    wrong = next(str(guess) for guess in range(1000) if hashlib.sha256(str(guess).encode()).hexdigest()[0] == first)
    settings = ServeSettings(tokens=tokens_file(tmp_path, token_line("vera", "viewer")))
    with LiveServer(settings) as server, server.client(wrong) as client:
        assert client.get("/v1/jobs").status_code == 200


def test_without_limits_large_bodies_and_heads_are_read() -> None:
    with LiveServer(ServeSettings(body_max=10**9, headers_max=10**6)) as server, server.client() as client:
        huge = client.put(PATH, content=b" " * (9 * 1024 * 1024), headers={"Content-Type": "application/json"})
        assert huge.status_code == 400
        assert client.get("/v1/jobs", headers={f"X-{number}": "a" * 1000 for number in range(80)}).status_code == 200


def test_without_a_limit_all_bodies_together_are_read() -> None:
    with LiveServer(ServeSettings(buffers_max=1000)) as server, server.client() as client:
        body = b" " * 2000
        assert client.put(PATH, content=body, headers={"Content-Type": "application/json"}).status_code == 503
        for _ in range(3):
            assert client.put(PATH, json=ORDERS).status_code in (200, 201), "what was read is given back"


def test_without_the_timer_half_a_head_stays_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "_late", nothing)
    with LiveServer(ServeSettings(request_s=0.3)) as server, server.raw() as connection:
        connection.sendall(b"GET /livez HT")
        connection.settimeout(1.0)
        with pytest.raises(TimeoutError):
            connection.recv(1)


def test_without_the_limit_of_streams_one_more_is_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def join(hub: Hub, cut: Callable[[], None], wish: Wish) -> Client:
        client = Client(cut, wish)
        hub._clients.add(client)
        return client

    monkeypatch.setattr(Hub, "join", join)
    with LiveServer(ServeSettings(streams_max=0)) as server, server.raw() as connection:
        connection.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 200"


def test_without_dropping_a_client_that_never_reads_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "drop", nothing)
    with LiveServer(ServeSettings(lag_max=50)) as server, server.client() as client:
        server.put(ORDERS, client)
        server.shrink_buffers()
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            deaf.connect(("127.0.0.1", server.port))
            deaf.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            for _ in range(60):
                for _ in range(20):
                    server.store.transact("orders", lambda tx: release_brake(tx, "orders"))
                time.sleep(0.01)
            assert server.site.hub.clients == 1
