"""Members that are refused, and servers that answer something else: one clear line, and the right end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme
from tests.hold.leading import put, until
from tests.hold.served_set import Diary, serving, token_line
from tests.serve.live_server import LiveServer, tokens_file

from poise.errors import Conflict, InvalidSpec, NotFound, PoiseError, Unavailable
from poise.hold import http_link
from poise.hold.http_link import HttpLink
from poise.hold.http_words import Address, written
from poise.hold.member import Member
from poise.model.ownership import Heartbeat
from poise.serve.settings import ServeSettings


@pytest.mark.parametrize(
    ("token", "job", "error", "told"),
    [
        pytest.param("", "orders", PoiseError, r"needs a token; set POISE_TOKEN \(role member\)", id="none"),
        pytest.param("wrong", "orders", PoiseError, "the token in POISE_TOKEN is not known", id="unknown"),
        pytest.param(
            "w-token", "web", PoiseError, "w is a member of set orders.* needs the role member", id="another set"
        ),
        pytest.param("v-token", "orders", PoiseError, "v is a viewer.* needs the role member", id="a viewer"),
        pytest.param("o-token", "nope", NotFound, "there is no set 'nope'", id="no such set"),
        pytest.param("ö", "orders", InvalidSpec, r"\$\.token: expected printable ASCII", id="no token at all"),
    ],
)
def test_a_refused_member_says_why(token: str, job: str, error: type[PoiseError], told: str, tmp_path: Path) -> None:
    async def main(live: LiveServer) -> None:
        async with Member(live.url, set=job, name="w1", token=token):
            pass

    lines = [token_line("w", "member:orders"), token_line("v", "viewer"), token_line("o", "operator")]
    with LiveServer(ServeSettings(tokens=tokens_file(tmp_path, *lines))) as live:
        put(live.store, 1)
        with pytest.raises(error, match=told):
            asyncio.run(main(live))


def test_the_token_of_the_environment_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(live: LiveServer) -> None:
        diary = Diary()
        async with diary.member(live.url):
            await until(lambda: len(diary.has) == 1)

    monkeypatch.setenv("POISE_TOKEN", "w-token")
    with serving(1, settings=ServeSettings(tokens=tokens_file(tmp_path, token_line("w", "member:orders")))) as live:
        asyncio.run(main(live))


def test_a_certificate_must_be_trusted_and_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    cert = authority.issue_cert("127.0.0.1")
    for name, blob in (("key", cert.private_key_pem), ("cert", cert.cert_chain_pems[0]), ("ca", authority.cert_pem)):
        blob.write_to_path(str(tmp_path / name))

    async def main(live: LiveServer) -> None:
        diary = Diary()
        async with diary.member(live.url):
            await until(lambda: len(diary.has) == 1)

    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with serving(1, settings=ServeSettings(tls_cert=tmp_path / "cert", tls_key=tmp_path / "key")) as live:
        assert live.url.startswith("https:")
        with pytest.raises(Unavailable, match="its certificate is not trusted; SSL_CERT_FILE names"):
            asyncio.run(main(live))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca"))
        asyncio.run(main(live))


@pytest.mark.parametrize(
    "url",
    ["http://", "https://:7878", "http://host:0x", "http://host:99999", "http://h/?a=b", "http://u:p@h", "http://h#x"],
)
def test_a_wrong_address_is_told_before_anything_is_asked(url: str) -> None:
    async def main() -> None:
        async with Member(url, set="orders", name="w1"):
            pass

    with pytest.raises(InvalidSpec, match=r"\$\.server: expected an address such as http://127\.0\.0\.1:7878"):
        asyncio.run(main())


def test_names_are_written_so_that_they_stay_one_part_of_a_path() -> None:
    assert written("v1", "a/b", "..", "ü?#", "%2F") == "/v1/a%2Fb/%2E%2E/%C3%BC%3F%23/%252F"
    assert Address.read("http://h:1/", "t").url == "http://h:1"


class _Odd(BaseHTTPRequestHandler):
    """Answers as something that is no Poise server; what, is written in its server."""

    post: tuple[int, str, bytes] = (200, "text/html", b"<html>")
    put: tuple[int, str, bytes] = post

    def do_GET(self) -> None:
        if self.path.startswith("/v1/sets/"):
            self._answer(*self.post)
        else:
            self.send_error(403)

    def do_POST(self) -> None:
        self._answer(*self.post)

    def do_PUT(self) -> None:
        self._answer(*self.put)

    def _answer(self, status: int, media: str, body: bytes) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.send_response(status)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  The name is the base's.
        del format, args


class _OddServer(ThreadingHTTPServer):
    """A server that does not complain when a client has gone."""

    def handle_error(self, request: object, client_address: object) -> None:
        del request, client_address


@contextmanager
def odd_server(post: tuple[int, str, bytes], put: tuple[int, str, bytes]) -> Iterator[str]:
    """Answer registrations and heartbeats with something else."""
    handler = type("Handler", (_Odd,), {"post": post, "put": put})
    with _OddServer(("127.0.0.1", 0), handler) as odd:
        thread = threading.Thread(target=odd.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{odd.server_port}"
        finally:
            odd.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        pytest.param((200, "text/html", b"<html>"), PoiseError, "does not answer as a Poise server: 200", id="a page"),
        pytest.param((200, "application/json", b'{"incarnation": "x"}'), PoiseError, "does not answer as", id="types"),
        pytest.param((302, "text/plain", b""), PoiseError, "does not answer as a Poise server: 302", id="elsewhere"),
        pytest.param((500, "application/problem+json", b"{"), PoiseError, "does not answer as", id="half a problem"),
        pytest.param((503, "text/plain", b"busy"), Unavailable, "not now", id="a proxy that is busy"),
    ],
)
def test_strange_servers_are_one_clear_line(answer: tuple[int, str, bytes], error: type[PoiseError], told: str) -> None:
    with odd_server(answer, answer) as url, pytest.raises(error, match=told):
        asyncio.run(_try(url))


REGISTERED = b'{"incarnation": 1, "lease_s": 9, "grace_s": 2, "period_s": 3}'
PROBLEM = b'{"type": "x", "title": "A fault", "status": 500, "detail": "of ours", "errors": []}'


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param((500, "application/problem+json", PROBLEM), Unavailable, id="a fault of the server"),
        pytest.param((502, "text/html", b"<html>"), Unavailable, id="a proxy without a server"),
        pytest.param((404, "text/html", b"<html>"), Unavailable, id="a proxy that is being changed"),
        pytest.param((200, "text/html", b"<html>"), Unavailable, id="a page"),
        pytest.param((409, "application/problem+json", PROBLEM), Conflict, id="a lost race"),
        pytest.param((403, "application/problem+json", PROBLEM), PoiseError, id="not allowed any more"),
    ],
)
def test_only_a_refusal_of_poise_itself_ends_a_member(answer: tuple[int, str, bytes], error: type[PoiseError]) -> None:
    """A member goes on after Unavailable and Conflict, while its leases last."""

    async def main(url: str) -> None:
        link = HttpLink(url, "orders", "w1", "p1")
        try:
            assert (await link.register(lambda _: None)).terms.lease_s == 9
            with pytest.raises(error) as raised:
                await link.beat(Heartbeat(process="p1", incarnation=1, seq=1))
            assert raised.type is error
        finally:
            await link.close(1.0)

    with odd_server((200, "application/json", REGISTERED), answer) as url:
        asyncio.run(main(url))


def test_nobody_there_and_nobody_answering_are_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match=r"http://127\.0\.0\.1:1 cannot be reached"):
        asyncio.run(_try("http://127.0.0.1:1"))
    monkeypatch.setattr(http_link, "_ANSWER_S", 0.2)
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), _Odd) as silent,
        pytest.raises(Unavailable, match="did not answer in time"),
    ):
        asyncio.run(_try(f"http://127.0.0.1:{silent.server_port}"))


async def _try(url: str) -> None:
    async with Member(url, set="orders", name="w1"):
        pass
