"""The link from a member to a server: the same three calls as the link to a store, over HTTP.

Calls come by the server's stream of events. Whoever may not read it, or finds no room there, repeats its last heartbeat
instead: the same number changes nothing, and its reply names everything that the member may hold by now.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import msgspec

from poise.errors import PoiseError, Unavailable
from poise.hold.http_words import Address, failure, problem_of, refusal, strange, written
from poise.hold.link import CALLS, Registered
from poise.model import ownership
from poise.model.ownership import Heartbeat, Reply, SetTerms, Terms
from poise.move.heartbeat import Stale, Superseded

if TYPE_CHECKING:
    import httpx2

_ANSWER_S = 10.0  # How long one answer may take; a heartbeat is given up on sooner, by the length of its lease.
_SILENCE_S = 45.0  # A stream that does not even ping for so long is dead.
_IDLE_S = 20.0  # A connection that was idle for longer may be closed by the server at any moment: take a new one.
_AGAIN_S, _AGAIN_MAX_S = 0.2, 5.0
_REFUSED_S = 60.0  # Who may not read events today may be allowed tomorrow.

Answer = TypeVar("Answer")


class _Line(msgspec.Struct, frozen=True):
    transition: str
    member: str | None = None


class _Event(msgspec.Struct, frozen=True):
    """What of an event says whether it concerns a member."""

    job: str
    line: _Line


class HttpLink:
    """Speaks for one process of a member with a server; `process` is the random text that it registers with."""

    def __init__(self, url: str, job: str, member: str, process: str, *, token: str | None = None) -> None:
        """Prepare; nothing is asked yet. Without a token the one of POISE_TOKEN is sent, where there is one."""
        self.process = process
        self._address = Address.read(url, token)
        self._job, self._member = job, member
        self._path = written("v1", "sets", job, "members", member)
        self._client: httpx2.AsyncClient | None = None
        self._listener: asyncio.Task[None] | None = None
        self._news, self._streams = asyncio.Event(), False
        self._last: tuple[Heartbeat, Reply] | None = None

    async def register(self, check: Callable[[Terms], None]) -> Registered:
        """Get an incarnation; a process that registers twice gets the same one.

        Where `check` refuses what the set promises, nobody was registered, and nobody superseded. Should the promises
        change in between, the member leaves again at once.
        """
        check((await self._answer("GET", written("v1", "sets", self._job), SetTerms)).terms())
        told = await self._answer("POST", self._path, ownership.Registered, {"process": self.process})
        try:
            check(told.terms())
        except PoiseError:
            said = Heartbeat(process=self.process, incarnation=told.incarnation, seq=1, leaving="stop")
            with suppress(PoiseError):
                await self._put(said)
            raise
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen())
        return Registered(told.incarnation, told.terms(), told.period_s)

    async def beat(self, said: Heartbeat) -> Reply | Superseded | Stale:
        """Send one heartbeat and hear the answer; it is never sent twice by itself, since its time is counted."""
        answer = await self._put(said)
        if isinstance(answer, Reply):
            self._last = (said, answer)
        return answer

    async def called(self, timeout_s: float) -> bool:
        """Wait for an event that concerns this member; where there is no stream, ask whether something has changed."""
        if not self._streams:
            await asyncio.sleep(timeout_s)
            return await self._has_changed()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        heard = self._news.is_set()
        self._news.clear()
        return heard

    async def close(self, timeout_s: float) -> None:
        """End the stream and the connections."""
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait([self._listener], timeout=timeout_s)
        if self._client is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._client.aclose()

    # Speaking.

    def _asker(self) -> httpx2.AsyncClient:
        """Give the client, made where its event loop runs."""
        if self._client is None:
            import httpx2

            limits = httpx2.Limits(max_connections=8, keepalive_expiry=_IDLE_S)
            self._client = httpx2.AsyncClient(**self._address.options(), timeout=_ANSWER_S, limits=limits)
        return self._client

    async def _answer(self, method: str, path: str, kind: type[Answer], body: object = None) -> Answer:
        response = await self._send(method, path, body)
        if response.status_code != 200:
            raise refusal(self._address, "member", response)
        return self._read(response, kind)

    async def _send(self, method: str, path: str, body: object) -> httpx2.Response:
        import httpx2

        content = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            return await self._asker().request(method, path, content=content, headers=headers)
        except (httpx2.RequestError, OSError) as error:
            raise failure(self._address, error) from None

    async def _put(self, said: Heartbeat) -> Reply | Superseded | Stale:
        """Send a heartbeat. Only what Poise itself refuses is a refusal: anything else may be better in a moment."""
        response = await self._send("PUT", self._path, said)
        if response.status_code == 200:
            try:
                return self._read(response, Reply)
            except PoiseError as error:
                raise Unavailable(str(error)) from None
        problem, refused = problem_of(response), refusal(self._address, "member", response)
        if problem is None or response.status_code >= 500:
            raise Unavailable(str(refused))
        if response.status_code == 409 and problem.incarnation is not None:
            return Superseded(problem.incarnation)
        if response.status_code == 412 and problem.seq is not None:
            return Stale(problem.seq)
        raise refused

    def _read(self, response: httpx2.Response, kind: type[Answer]) -> Answer:
        try:
            return msgspec.json.decode(response.content, type=kind)
        except msgspec.DecodeError:
            raise strange(self._address, response) from None

    # Being called.

    async def _has_changed(self) -> bool:
        """Repeat the last heartbeat, and compare what its reply names with what it named before."""
        if self._last is None:
            return False
        said, heard = self._last
        answer = await self._put(said)
        if self._last[0] is not said:
            return False  # Another heartbeat was faster, and knows more.
        return not isinstance(answer, Reply) or _names(answer) != _names(heard)

    async def _listen(self) -> None:
        """Read the stream again and again; whenever it begins anew something may have been missed."""
        pause_s, last = _AGAIN_S, ""
        while True:
            try:
                async for event, data in self._events(last):
                    last, pause_s = event or last, _AGAIN_S
                    if data is None or self._concerns(data):
                        self._news.set()
            except Unavailable:
                pause_s = min(pause_s * 2, _AGAIN_MAX_S)
            except PoiseError:
                pause_s, last = _REFUSED_S, ""
            finally:
                self._streams = False
            await asyncio.sleep(pause_s)

    async def _events(self, last: str) -> AsyncIterator[tuple[str, bytes | None]]:
        """Give the id and data of each event; first of all, an event without data says that the stream has begun."""
        import httpx2

        headers = {"Last-Event-ID": last} if last else {}
        timeout = httpx2.Timeout(_ANSWER_S, read=_SILENCE_S)
        wanted = {"job": self._job, "member": self._member}
        asked = self._asker().stream("GET", "/v1/events", params=wanted, headers=headers, timeout=timeout)
        try:
            async with asked as response:
                if response.status_code != 200:
                    await response.aread()
                    raise refusal(self._address, "viewer", response)
                self._streams = True
                yield "", None
                event = ""
                async for line in response.aiter_lines():
                    if line.startswith("id: "):
                        event = line[4:]
                    elif line.startswith("data: "):
                        yield event, line[6:].encode()
        except (httpx2.RequestError, OSError) as error:
            raise failure(self._address, error) from None

    def _concerns(self, data: bytes) -> bool:
        """Say whether an event is a call for this member."""
        try:
            event = msgspec.json.decode(data, type=_Event)
        except msgspec.DecodeError:
            return False
        return event.job == self._job and event.line.member == self._member and event.line.transition in CALLS


def _names(reply: Reply) -> set[tuple[str, int, bool]]:
    """Name what a reply grants and asks back; how long each still lasts is no news."""
    granted = {(each.item, each.epoch, True) for each in reply.granted}
    return granted | {(each.item, each.epoch, False) for each in reply.release}
