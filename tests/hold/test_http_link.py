"""Members over HTTP: a real server in a thread, real members, and servers that answer something else."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme
from tests.hold.leading import SHORT, leading, owners, put, until
from tests.serve.live_server import LiveServer, tokens_file

from poise.clock import boot_s
from poise.errors import Conflict, InvalidSpec, NotFound, PoiseError, Replaced, Unavailable
from poise.hold import http_link
from poise.hold.changes import Gained
from poise.hold.http_link import HttpLink
from poise.hold.http_words import Address, written
from poise.hold.member import Member
from poise.hold.sync import SyncMember
from poise.model.ownership import Heartbeat, Hold, Reply, Terms, Word
from poise.move.executor import drain_member
from poise.move.heartbeat import Stale, Superseded
from poise.serve.settings import ServeSettings

PROMPT_S = 0.6  # A call is heard within 0.3 s; the rest is for a machine that does other things, too.


class Diary:
    """What a member was told, and when."""

    def __init__(self) -> None:
        self.has: dict[str, int] = {}
        self.changed_s = 0.0

    async def gain(self, item: str, epoch: int) -> None:
        self.has[item], self.changed_s = epoch, boot_s()

    async def lose(self, item: str, epoch: int) -> None:
        assert self.has.pop(item) == epoch
        self.changed_s = boot_s()

    def member(self, where: str | HttpLink, name: str = "w1", token: str | None = None) -> Member:
        return Member(where, set="orders", name=name, on_gain=self.gain, on_loss=self.lose, token=token)


@contextmanager
def serving(count: int = 4, terms: Terms = SHORT, settings: ServeSettings | None = None) -> Iterator[LiveServer]:
    """Serve a set that somebody leads."""
    with LiveServer(settings) as live:
        put(live.store, count, terms)
        with leading(live.store):
            yield live


def token_line(name: str, role: str) -> str:
    return f"{name} {role} {hashlib.sha256(f'{name}-token'.encode()).hexdigest()}"


def test_members_gain_share_and_let_go_over_http() -> None:
    async def main(live: LiveServer) -> None:
        first, second = Diary(), Diary()
        async with first.member(live.url) as member:
            await until(lambda: len(first.has) == 4)
            assert (member.items, member.epoch("2"), member.incarnation) == (("0", "1", "2", "3"), 1, 1)
            async with second.member(live.url, "w2"):
                await until(lambda: len(first.has) == len(second.has) == 2)
                assert not set(first.has) & set(second.has)
                live.store.transact("orders", lambda tx: drain_member(tx, "orders", "w1", True))
                await until(lambda: len(second.has) == 4)
                assert first.has == {}
            assert second.has == {}, "leaving the block lets go"
        assert set(owners(live.store).values()) == {None}

    with serving() as live:
        asyncio.run(main(live))


@pytest.mark.parametrize("role", ["operator", "member:orders"])
def test_a_grant_and_a_request_are_heard_at_once_by_the_stream_or_without_it(role: str, tmp_path: Path) -> None:
    """The lease is long, so that no ordinary heartbeat comes in time; a member's token may not read the stream."""

    async def main(live: LiveServer) -> None:
        first, second = Diary(), Diary()
        async with first.member(live.url, token="w-token"):
            await until(lambda: len(first.has) == 2)
            await asyncio.sleep(1.0)
            begun_s = boot_s()
            async with second.member(live.url, "w2", token="w-token"):
                await until(lambda: len(second.has) == 1)
                assert second.changed_s - begun_s < 2 * PROMPT_S + 0.3, "a request to one, then a grant to the other"

    settings = ServeSettings(tokens=tokens_file(tmp_path, token_line("w", role)))
    with serving(2, Terms(lease_s=60, grace_s=5), settings) as live:
        asyncio.run(main(live))


@pytest.mark.slow
def test_without_calls_a_grant_waits_for_the_next_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same story with a link that is deaf: what the test above measures is what the link does."""

    async def main(live: LiveServer) -> None:
        first, second = Diary(), Diary()
        async with first.member(live.url):
            await until(lambda: len(first.has) == 2)
            async with second.member(live.url, "w2"):
                await asyncio.sleep(2 * PROMPT_S + 0.3)
                assert second.has == {}

    async def deaf(link: HttpLink, timeout_s: float) -> bool:
        del link
        await asyncio.sleep(timeout_s)
        return False

    monkeypatch.setattr(HttpLink, "called", deaf)
    with serving(2, Terms(lease_s=9, grace_s=5)) as live:
        asyncio.run(main(live))


@pytest.mark.slow
def test_time_counts_from_when_a_heartbeat_is_sent() -> None:
    """A slow server makes leases shorter for the member: the time that the answer took is gone."""
    left_s: list[float] = []

    def note(untils: dict[str, float]) -> None:
        left_s.extend(until_s - boot_s() for until_s in untils.values())

    async def main(live: LiveServer) -> None:
        async with Member(live.url, set="orders", name="w1", on_beat=note):
            live.store.slow_s = 0.4
            await until(lambda: len(left_s) > 0)

    terms = Terms(lease_s=6, grace_s=2)
    with serving(1, terms) as live:
        asyncio.run(main(live))
    assert 0 < max(left_s) <= terms.lease_s - terms.margin_s - 0.4


def test_a_poll_repeats_the_last_heartbeat_and_changes_nothing(tmp_path: Path) -> None:
    async def main(live: LiveServer) -> None:
        link = HttpLink(live.url, "orders", "w1", "p1", token="w-token")
        try:
            registered = await link.register(lambda _: None)
            reply = await link.beat(Heartbeat(process="p1", incarnation=registered.incarnation, seq=1))
            assert isinstance(reply, Reply)
            live.cycle()
            before = live.store.version()
            assert await link.called(0.0), "a grant waits"
            assert await link.called(0.0), "and still does, until a heartbeat has taken it"
            assert live.store.version() == before
            await link.beat(Heartbeat(process="p1", incarnation=registered.incarnation, seq=2))
            assert not await link.called(0.0)
        finally:
            await link.close(1.0)

    settings = ServeSettings(tokens=tokens_file(tmp_path, token_line("w", "member:orders")))
    with LiveServer(settings) as live:
        put(live.store, 1)
        asyncio.run(main(live))


def test_the_three_answers_to_a_heartbeat() -> None:
    terms = Terms(lease_s=3, grace_s=4, release_s=5, restart_grace_s=6, revoke=False, margin_s=0.5, stop_s=0.25)

    async def main(live: LiveServer) -> None:
        old, new = (HttpLink(live.url, "orders", "w1", process) for process in ("p1", "p2"))
        try:
            first = await old.register(lambda _: None)
            assert await old.register(lambda _: None) == first, "the same process gets the same answer"
            assert (first.incarnation, first.period_s) == (1, terms.lease_s / 3)
            assert first.terms == terms, "every promise of the set comes over the wire"
            holds = (Hold("0", 0, Word.RELEASED),)
            assert isinstance(await old.beat(Heartbeat(process="p1", incarnation=1, seq=7, holds=holds)), Reply)
            assert await old.beat(Heartbeat(process="p1", incarnation=1, seq=5)) == Stale(7)
            assert (await new.register(lambda _: None)).incarnation == 2
            assert await old.beat(Heartbeat(process="p1", incarnation=1, seq=8)) == Superseded(2)
        finally:
            await old.close(1.0)
            await new.close(1.0)

    with LiveServer() as live:
        put(live.store, 1, terms)
        asyncio.run(main(live))


def test_a_newer_process_of_the_name_ends_the_older_one() -> None:
    async def main(live: LiveServer) -> None:
        first, second = Diary(), Diary()
        async with first.member(live.url):
            await until(lambda: len(first.has) == 4)
            async with second.member(live.url):
                await until(lambda: first.has == {} and len(second.has) == 4)
                await asyncio.sleep(60)

    with serving() as live, pytest.raises(Replaced, match="incarnation 2 of w1 has registered"):
        asyncio.run(main(live))


@pytest.mark.slow
def test_work_goes_on_while_the_server_cannot_answer_and_ends_before_the_lease_does() -> None:
    terms = Terms(lease_s=4, grace_s=1)

    async def main(live: LiveServer) -> None:
        diary = Diary()
        async with diary.member(live.url) as member:
            await until(lambda: len(diary.has) == 4)
            live.store.away = True
            await asyncio.sleep(0.5)
            assert len(member.items) == 4, "a short silence takes nothing away"
            live.store.away = False
            await asyncio.sleep(1.0)
            assert set(diary.has.values()) == {1}, "the same epochs: nothing was lost"
            live.store.away, away_s = True, boot_s()
            await until(lambda: diary.has == {})
            assert boot_s() - away_s < terms.lease_s, "it fences itself"
            live.store.away = False
            await until(lambda: len(diary.has) == 4)

    with serving(terms=terms) as live:
        asyncio.run(main(live))


def test_settings_that_could_let_two_act_are_refused_and_the_member_leaves_again() -> None:
    async def main(live: LiveServer) -> None:
        with pytest.raises(InvalidSpec, match=r"\$\.stop_s: work may last"):
            async with Member(live.url, set="orders", name="w1", stop_s=9.0):
                pass

    with LiveServer() as live:
        put(live.store, 1)
        asyncio.run(main(live))
        member = live.store.transact("orders", lambda tx: tx.member("w1"))
        assert member is not None
        assert member.leaving == "stop"


def test_a_synchronous_member_speaks_to_a_server_too() -> None:
    with serving(1) as live, SyncMember(live.url, set="orders", name="w1") as member:
        change = next(member.changes())
        assert isinstance(change, Gained)
        assert (change.item, member.epoch("0")) == ("0", 1)


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
        self.send_error(403)

    def do_POST(self) -> None:
        self._answer(*self.post)

    def do_PUT(self) -> None:
        self._answer(*self.put)

    def _answer(self, status: int, media: str, body: bytes) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
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
