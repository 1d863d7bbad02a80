"""Protection: every sentence of the contract's part, on a real server and with raw sockets."""

from __future__ import annotations

import hashlib
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from tests.serve.live_server import ORDERS, LiveServer, read_all, token_line, tokens_file

from poise.errors import InvalidSpec
from poise.serve.settings import ServeSettings, read_settings

PATH = "/v1/jobs/PartitionSet/orders"
JSON = b"Content-Type: application/json\r\n"


def serve_guarded(folder: Path) -> LiveServer:
    """Serve with tokens of every role."""
    people = (("vera", "viewer"), ("olga", "operator"), ("orders", "member"), ("mia", "member:web"))
    lines = [token_line(name, role) for name, role in people]
    return LiveServer(ServeSettings(tokens=tokens_file(folder, "# who may", *lines)))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Serve with tokens for all tests that leave their file alone."""
    with serve_guarded(tmp_path_factory.mktemp("tokens")) as server:
        with server.client("aglo") as client:
            server.put(ORDERS, client)
        yield server


def test_loopback_without_tokens_is_open(server: LiveServer) -> None:
    assert server.settings.is_open
    with server.client() as client:
        server.put(ORDERS, client)
        assert client.get("/v1/jobs").status_code == 200


@pytest.mark.parametrize("listen", ["0.0.0.0:7878", ":7878", "[::]:7878", "10.0.0.1:7878", "example.org:7878"])
def test_any_other_address_needs_tokens_or_insecure(listen: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="give --tokens FILE, or say --insecure"):
        read_settings(listen=listen)
    assert read_settings(listen=listen, insecure=True).is_open
    assert not read_settings(listen=listen, tokens=str(tokens_file(tmp_path, token_line("olga", "operator")))).is_open


def test_without_a_token_nothing_is_told(guarded: LiveServer) -> None:
    with guarded.client() as client:
        for method, path in (("GET", "/v1/jobs"), ("PUT", PATH), ("GET", "/metrics"), ("GET", "/v1/events")):
            response = client.request(method, path)
            assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
        assert client.get("/livez").status_code == 200
        assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize("sent", ["wrong", "arev x", "AREV", "are", hashlib.sha256(b"arev").hexdigest(), "ü" * 9])
def test_a_wrong_token_is_refused(guarded: LiveServer, sent: str) -> None:
    with guarded.client() as client:
        header = f"Bearer {sent}".encode()
        response = client.get("/v1/jobs", headers=[(b"Authorization", header)])
        assert response.status_code == (200 if sent.strip() == "arev" else 401)


def test_a_viewer_reads_an_operator_writes(guarded: LiveServer) -> None:
    with guarded.client("arev") as viewer, guarded.client("aglo") as operator:
        assert viewer.get(PATH).status_code == 200
        assert viewer.post(f"{PATH}/plan", json={"add": ["n1"]}).status_code == 200
        for method, path in (
            ("PUT", PATH),
            ("DELETE", PATH),
            ("POST", f"{PATH}/pause"),
            ("POST", f"{PATH}/members/n1/drain"),
            ("POST", "/v1/sets/orders/members/n1"),
        ):
            assert viewer.request(method, path, json={}).status_code == 403, path
        assert operator.post(f"{PATH}/pause").status_code == 200
        assert operator.post("/v1/sets/orders/members/n1", json={"process": "p"}).status_code == 200


def test_a_member_may_only_heartbeat_for_its_set(guarded: LiveServer) -> None:
    with guarded.client("sredro") as member, guarded.client("aim") as other:
        assert member.post("/v1/sets/orders/members/n1", json={"process": "p"}).status_code == 200
        assert member.put("/v1/sets/orders/members/n1", json={"incarnation": 1, "seq": 1}).status_code == 200
        for method, path in (("GET", "/v1/jobs"), ("GET", PATH), ("PUT", PATH), ("GET", "/metrics")):
            assert member.request(method, path).status_code == 403
        assert other.post("/v1/sets/orders/members/n1", json={"process": "p"}).status_code == 403
        assert other.post("/v1/sets/web/members/n1", json={"process": "p"}).status_code == 404


@pytest.mark.slow
def test_a_token_can_be_withdrawn_while_the_server_runs(tmp_path: Path) -> None:
    with serve_guarded(tmp_path) as server, server.client("arev") as viewer, server.client("aglo") as operator:
        assert viewer.get("/v1/jobs").status_code == 200
        tokens_file(tmp_path, token_line("olga", "operator"))
        time.sleep(1.1)
        assert viewer.get("/v1/jobs").status_code == 401
        tokens_file(tmp_path, "broken")
        time.sleep(1.1)
        assert operator.get("/v1/jobs").status_code == 200, "a broken file changes nothing"


def log_in(server: LiveServer, token: str) -> httpx2.Response:
    with server.client() as client:
        return client.post("/login", json={"token": token}, headers={"Origin": server.url})


def test_the_page_logs_in_with_a_token_and_keeps_a_cookie(guarded: LiveServer) -> None:
    made = log_in(guarded, "aglo")
    assert made.status_code == 204
    cookie = made.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Secure" not in cookie
    assert "aglo" not in cookie
    value = {"Cookie": cookie.partition(";")[0]}
    with guarded.client() as page:
        assert page.get("/v1/jobs", headers=value).status_code == 200
        assert page.post(f"{PATH}/pause", headers={**value, "Origin": guarded.url}).status_code == 200
        out = page.post("/logout", headers={**value, "Origin": guarded.url})
        assert "Max-Age=0" in out.headers["set-cookie"]
        assert page.get("/v1/jobs", headers=value).status_code == 401, "a copy of the cookie is worth nothing"


def test_the_page_logs_in_without_scripts_by_a_form(guarded: LiveServer) -> None:
    with guarded.client() as page:
        made = page.post("/login", data={"token": "arev"}, headers={"Origin": guarded.url})
        assert (made.status_code, made.headers["location"]) == (303, "/")
        cookie = {"Cookie": made.headers["set-cookie"].partition(";")[0]}
        assert page.get("/v1/jobs", headers=cookie).status_code == 200
        origin = {"Origin": guarded.url}
        assert page.post("/login", data={"token": "wrong"}, headers=origin).status_code == 401
        assert page.post("/login", data={"tok": "x"}, headers=origin).status_code == 400


@pytest.mark.slow
def test_a_session_ends_with_its_time_and_with_its_token(tmp_path: Path) -> None:
    settings = ServeSettings(
        tokens=tokens_file(tmp_path, token_line("olga", "operator"), token_line("vera", "viewer")), session_s=1.5
    )
    with LiveServer(settings) as server, server.client() as page:
        cookie = {"Cookie": log_in(server, "arev").headers["set-cookie"].partition(";")[0]}
        assert page.get("/v1/jobs", headers=cookie).status_code == 200
        time.sleep(1.6)
        assert page.get("/v1/jobs", headers=cookie).status_code == 401, "its time is over"
        cookie = {"Cookie": log_in(server, "arev").headers["set-cookie"].partition(";")[0]}
        tokens_file(tmp_path, token_line("olga", "operator"))
        time.sleep(1.1)
        assert page.get("/v1/jobs", headers=cookie).status_code == 401, "its token is gone"
        assert page.get("/v1/jobs", headers={"Cookie": "poise_session=guess"}).status_code == 401


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "ftp://127.0.0.1", "x" * 2_000]
)
def test_a_changing_request_of_another_origin_is_refused(server: LiveServer, origin: str) -> None:
    with server.client() as client:
        for method, path in (("PUT", PATH), ("DELETE", PATH), ("POST", f"{PATH}/pause"), ("POST", "/login")):
            response = client.request(method, path, json=ORDERS, headers={"Origin": origin})
            assert response.status_code == 403, path
        assert client.get("/v1/jobs", headers={"Origin": origin}).status_code == 200
        assert client.put(PATH, json=ORDERS, headers={"Origin": server.url}).status_code == 201


def test_a_browser_that_says_cross_site_is_refused(server: LiveServer) -> None:
    with server.client() as client:
        refused = client.put(PATH, json=ORDERS, headers={"Sec-Fetch-Site": "cross-site"})
        assert refused.status_code == 403


def test_a_cookie_without_an_origin_changes_nothing(guarded: LiveServer) -> None:
    cookie = {"Cookie": log_in(guarded, "aglo").headers["set-cookie"].partition(";")[0]}
    with guarded.client() as page:
        assert page.post(f"{PATH}/pause", headers=cookie).status_code == 403
        forged = page.post(f"{PATH}/pause", headers={**cookie, "Origin": "http://evil.example"})
        assert forged.status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7878", "127.0.0.1.evil.example", "", "[::2]", "localhost.evil"]
)
def test_a_host_that_is_not_ours_is_refused(server: LiveServer, host: str) -> None:
    with server.client() as client:
        for path in ("/v1/jobs", "/livez", "/"):
            response = client.get(path, headers={"Host": host})
            assert response.status_code == 421
            assert response.headers["content-type"] == "application/problem+json"


def test_our_own_names_are_welcome() -> None:
    with LiveServer(ServeSettings(hosts=("poise.example",))) as server, server.client() as client:
        for host in ("localhost", "LOCALHOST:99", "127.0.0.1", "[::1]:7878", "poise.example"):
            assert client.get("/livez", headers={"Host": host}).status_code == 200, host


def test_every_answer_carries_the_headers_that_protect(server: LiveServer) -> None:
    with server.client() as client:
        for path in ("/v1/jobs", "/nope", "/metrics"):
            headers = client.get(path).headers
            assert "default-src 'self'" in headers["content-security-policy"]
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert "server" not in headers


def request(server: LiveServer, head: bytes, body: bytes = b"") -> bytes:
    """Send raw bytes, and read until the server closes."""
    with server.raw() as connection:
        connection.sendall(head + b"Host: 127.0.0.1\r\n\r\n" + body)
        connection.settimeout(15)
        return read_all(connection)


def test_a_body_over_the_limit_is_cut_off_before_it_is_read(server: LiveServer) -> None:
    said = request(server, b"PUT /v1/jobs/PartitionSet/orders HTTP/1.1\r\nContent-Length: 8388609\r\n" + JSON)
    assert said.startswith(b"HTTP/1.1 413")
    assert b"problem+json" in said
    most = b"PUT /v1/jobs/PartitionSet/orders HTTP/1.1\r\nConnection: close\r\nContent-Length: 8388608\r\n" + JSON
    assert request(server, most, b" " * 8388608).startswith(b"HTTP/1.1 400"), "8 MiB may be sent"


def test_a_body_without_an_end_is_cut_off_at_the_limit(server: LiveServer) -> None:
    with server.raw() as connection:
        connection.sendall(
            b"PUT /v1/jobs/PartitionSet/orders HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
            + JSON
            + b"\r\n"
        )
        chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
        try:
            for _ in range(20):
                connection.sendall(chunk)
            got = read_all(connection)
        except (ConnectionError, TimeoutError):
            return  # It was cut off while it still sent.
        assert got.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("at_once", [True, False])
def test_headers_over_the_limit_are_cut_off(server: LiveServer, at_once: bool) -> None:
    many = b"".join(b"X-%d: %b\r\n" % (number, b"a" * 1000) for number in range(80))
    with server.raw() as connection:
        head = b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n" + many + b"\r\n"
        try:
            for begin in range(0, len(head), len(head) if at_once else 20_000):
                connection.sendall(head[begin : begin + (len(head) if at_once else 20_000)])
                time.sleep(0 if at_once else 0.05)
            got = read_all(connection)
        except ConnectionError:
            return  # It was cut off while it still sent.
        assert got.startswith(b"HTTP/1.1 431")
        assert b"problem+json" in got


@pytest.mark.parametrize(
    "rubbish", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x00" * 99 + b"\r\n\r\n"]
)
def test_what_is_no_http_is_refused_in_the_same_shape(server: LiveServer, rubbish: bytes) -> None:
    with server.raw() as connection:
        connection.sendall(rubbish)
        connection.shutdown(socket.SHUT_WR)
        got = read_all(connection)
    assert got == b"" or (got.startswith(b"HTTP/1.1 4") and b"problem+json" in got)
    with server.client() as client:
        assert client.get("/livez").status_code == 200


@pytest.fixture(scope="module")
def hasty() -> Iterator[LiveServer]:
    """Serve with little patience, and room for few streams."""
    with LiveServer(ServeSettings(request_s=0.5, connections_max=40)) as server:
        yield server


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", b"408"),
        (b"GET /livez HT", b"408"),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-A: ", b"408"),
        (b"PUT /v1/jobs/ShardRing/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n" + JSON + b"\r\n{", b"408"),
    ],
    ids=["nothing", "a word", "half a head", "half a body"],
)
def test_a_slow_request_is_cut_off(hasty: LiveServer, sent: bytes, status: bytes) -> None:
    with hasty.raw() as connection:
        begun = time.monotonic()
        connection.sendall(sent)
        got = read_all(connection)
        assert 0.4 < time.monotonic() - begun < 4
        assert got.startswith(b"HTTP/1.1 " + status)


def trickle(connection: socket.socket, until_s: float) -> None:
    """Send one byte after the other."""
    while time.monotonic() < until_s:
        connection.sendall(b"a")
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "head", [b"GET /livez HTTP/1.1\r\nX-A: ", b"PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n"]
)
def test_a_request_that_trickles_is_cut_off_all_the_same(hasty: LiveServer, head: bytes) -> None:
    with hasty.raw() as connection:
        begun = time.monotonic()
        connection.sendall(head)
        with pytest.raises(ConnectionError):
            trickle(connection, until_s=begun + 10)
        assert time.monotonic() - begun < 8


@pytest.mark.slow
def test_a_client_that_never_reads_its_answer_is_cut_off(hasty: LiveServer) -> None:
    with hasty.client() as client:
        with hasty.raw() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            # Pipelined requests whose answers nobody reads: the server's buffers fill, and it does not wait.
            ask = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
            begun = time.monotonic()
            try:
                while time.monotonic() - begun < 15:
                    connection.sendall(ask * 50)
                    time.sleep(0.2)
                pytest.fail("it was never cut off")
            except (ConnectionError, TimeoutError):
                pass
        assert client.get("/livez").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("ending", [b"", b"Connection: close\r\n"], ids=["kept", "closing"])
def test_one_large_answer_that_nobody_reads_is_not_kept(ending: bytes) -> None:
    with LiveServer(ServeSettings(request_s=0.6)) as server, socket.socket() as deaf:
        server.shrink_buffers()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        deaf.connect(("127.0.0.1", server.port))
        deaf.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n" + ending + b"\r\n")
        time.sleep(2.0)
        deaf.settimeout(5)
        assert len(read_all(deaf)) < 120_000, "the rest of the answer was thrown away"


def test_a_connection_may_live_longer_than_a_request(hasty: LiveServer) -> None:
    with hasty.client() as client:
        for _ in range(5):
            assert client.get("/livez").status_code == 200
            time.sleep(0.2)
    with hasty.raw() as connection:
        ask = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
        connection.sendall(ask * 3 + ask.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert read_all(connection).count(b"HTTP/1.1 200") == 4


def test_a_full_lane_asks_to_come_again(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poise.serve.site._WAITING_MAX", 0)
    with server.client() as client:
        full = client.get("/v1/jobs")
        assert (full.status_code, full.headers["retry-after"]) == (503, "2")
        assert client.get("/livez").status_code == 200
        monkeypatch.undo()
        assert client.get("/v1/jobs").status_code == 200, "it is not full for ever"


def test_a_page_has_its_place_behind_the_same_guard() -> None:
    async def page(request: Request) -> Response:
        return HTMLResponse(f"<p>{request.scope['poise.who'].name}</p>")

    with LiveServer(pages=[Route("/", page)]) as server, server.client() as client:
        shown = client.get("/")
        assert shown.text == "<p>anybody</p>"
        assert "default-src 'self'" in shown.headers["content-security-policy"]
        assert client.get("/", headers={"Host": "evil.example"}).status_code == 421


def test_too_many_connections_are_ended_and_the_others_go_on(hasty: LiveServer) -> None:
    idle = [hasty.raw() for _ in range(45)]
    try:
        time.sleep(0.2)
        ended = 0
        for connection in idle:
            connection.setblocking(False)
            try:
                ended += connection.recv(1) == b""
            except BlockingIOError:
                pass
            except ConnectionError:
                ended += 1
        assert ended >= 4
    finally:
        for connection in idle:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
    time.sleep(0.2)
    with hasty.client() as client:
        assert client.get("/livez").status_code == 200


def test_a_server_on_every_address_knows_its_names_and_the_address_that_was_reached(tmp_path: Path) -> None:
    settings = ServeSettings(host="0.0.0.0", tokens=tokens_file(tmp_path, token_line("vera", "viewer")))
    with LiveServer(settings) as server, server.client("arev") as client:
        for host in ("127.0.0.1", "localhost", socket.gethostname()):
            assert client.get("/v1/jobs", headers={"Host": host}).status_code == 200
        for host in ("evil.example", "0.0.0.0", "10.9.8.7"):
            assert client.get("/v1/jobs", headers={"Host": host}).status_code == 421


def test_who_changed_what_is_logged_and_no_token_is(guarded: LiveServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"), guarded.client("aglo") as client:
        client.post(f"{PATH}/pause")
        client.get(PATH)
        client.get("/v1/jobs/PartitionSet/%0Aforged")
    assert [record.getMessage() for record in caplog.records if record.name == "poise.requests"] == [
        f"request.done who=olga method=POST path={PATH}/pause"
    ]
    assert "aglo" not in caplog.text
