"""The gate between a shard and the API server: it sees every request, and can hold any back. The shard needs no help.

It listens on loopback and speaks plain HTTP/1.1. Each process has an address of its own with a secret in its path, and
the gate signs what it passes on: so no credentials are given to the shard, and client certificates work as well.
Nothing is changed outside of the namespace of the check, whatever the shard asks for.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl, unquote

import httpx2
import msgspec
import uvicorn

from poise.clock import boot_s
from poise.conformance.requests import Asked, answered, classify, read_place, settle, version_number
from poise.conformance.stage import Stage
from poise.errors import Unavailable
from poise.serve.beside import QuietServer

# An ASGI server speaks in mappings whose values are of any type.
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

BODY_MAX = 8 * 1024 * 1024
_LOOKS = ("GET", "HEAD", "OPTIONS")
# Headers that belong to one connection, or that the gate sets itself.
_OWN = {"host", "authorization", "connection", "keep-alive", "content-length", "transfer-encoding", "accept-encoding"}
_KEPT_S, _END_S = 3600, 1


class Hold:
    """Requests that are kept from the API server until they are let go; all of them, or the first that fits."""

    def __init__(self, fits: Callable[[Asked], bool], *, once: bool) -> None:
        """Wait for a request that fits."""
        self.caught: list[int] = []
        self._fits, self._once, self._open = fits, once, asyncio.Event()

    def wants(self, asked: Asked) -> bool:
        """Say whether this request is to be held."""
        return not self._open.is_set() and not (self._once and self.caught) and self._fits(asked)

    async def wait(self) -> None:
        """Wait until it is let go."""
        await self._open.wait()

    def let_go(self) -> None:
        """Pass on what was held, and hold nothing more. What its sender gave up meanwhile arrives all the same."""
        self._open.set()


class Gate:
    """Passes requests on and keeps a log of them, in the order in which they came."""

    def __init__(self, stage: Stage) -> None:
        """Stand before the API server of a stage."""
        self.log: list[Asked] = []
        self.names: list[str] = []
        self._stage = stage
        self._doors: dict[str, str] = {}
        self._holds: list[Hold] = []
        self._port = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Gate]:
        """Listen while the block runs."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self._port = listening.getsockname()[1]
            server = QuietServer(_config(self._answer))
            serving = asyncio.create_task(server.serve([listening]))
            try:
                yield self
            finally:
                self._doors.clear()
                for hold in self._holds:
                    hold.let_go()
                server.should_exit = True
                await serving

    def admit(self, process: str) -> str:
        """Give a process its address."""
        secret = secrets.token_urlsafe(16)
        self._doors[secret] = process
        return f"http://127.0.0.1:{self._port}/{secret}"

    def dismiss(self, process: str) -> None:
        """Let a process that has ended ask for nothing more: what is left of it must not disturb others."""
        self._doors = {secret: name for secret, name in self._doors.items() if name != process}

    def hold(self, fits: Callable[[Asked], bool], *, once: bool = True) -> Hold:
        """Hold the next request that fits, or all that fit."""
        made = Hold(fits, once=once)
        self._holds.append(made)
        return made

    def of(self, process: str) -> list[Asked]:
        """Give what one process asked for, in order."""
        return [asked for asked in self.log if asked.process == process]

    # What happens to a request.

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "nothing else is served"
        _, secret, rest = [*scope["raw_path"].decode("latin-1").split("/", 2), "", ""][:3]
        process, body = self._doors.get(secret), await _read(receive)
        if process is None or body is None:
            await _refuse(send, 404 if body is not None else 413, "the check has ended, or this address is not its own")
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        query = scope["query_string"].decode("latin-1")
        number = self._note(process, scope["method"], f"/{rest}", query, headers, body)
        if self._is_outside(self.log[number]):
            self.log[number] = msgspec.structs.replace(self.log[number], status=403, answered_s=boot_s())
            await _refuse(send, 403, f"the check lets nothing be changed outside of {self._stage.namespace}")
            return
        hold = next((each for each in self._holds if each.wants(self.log[number])), None)
        if hold is not None:
            hold.caught.append(number)
            self.log[number] = msgspec.structs.replace(self.log[number], held=True)
            await hold.wait()
        try:
            await self._pass_on(number, f"/{rest}?{query}" if query else f"/{rest}", headers, receive, send)
        except Unavailable as error:
            await _refuse(send, 502, f"the API server does not answer: {error}")

    def _note(self, process: str, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> int:
        place = read_place(path)
        asked = Asked(
            process=process,
            at_s=boot_s(),
            method=method,
            path=path,
            query=dict(parse_qsl(query, keep_blank_values=True)),
            content_type=headers.get("content-type", ""),
            body=body,
            place=place,
        )
        if place is not None:
            number, marks = self._stage.known(place)
            asked = msgspec.structs.replace(asked, before=marks, known=number)
        self.log.append(classify(asked, self._stage.ring, self.names))
        return len(self.log) - 1

    def _settled(self, done: Asked) -> Asked:
        """Learn from an answer what there is now, and what the write was for."""
        if not done.is_write or not done.succeeded or done.answer is None or done.place is None or not done.place.name:
            return done
        meta = done.answer.metadata
        self._stage.learn(done.place.plural, meta)
        return settle(done, self._stage.known(done.place, version_number(meta))[1], self._stage.ring)

    def _is_outside(self, asked: Asked) -> bool:
        """Say whether a request would change something that is not of the check; reviews change nothing."""
        if {".", ".."} & set(unquote(asked.path).split("/")):
            return True
        if asked.method in _LOOKS or (asked.place is not None and asked.place.plural.endswith("reviews")):
            return False
        return asked.place is None or asked.place.namespace != self._stage.namespace

    async def _pass_on(
        self, number: int, target: str, headers: Mapping[str, str], receive: Receive, send: Send
    ) -> None:
        asked = self.log[number]
        passed = {name: value for name, value in headers.items() if name not in _OWN}
        passed |= {"accept": _readable(headers.get("accept", "*/*")), "accept-encoding": "identity"}
        response = await self._stage.client.forward(asked.method, target, passed, asked.body)
        try:
            if asked.method not in _LOOKS:
                body = await _whole(response)
                self.log[number] = self._settled(answered(asked, response.status_code, boot_s(), body))
                await _begin(send, response)
                await send({"type": "http.response.body", "body": body})
                return
            # A watch is answered when it begins; a list is when all of it has come.
            self.log[number] = msgspec.structs.replace(asked, status=response.status_code, answered_s=boot_s())
            await _begin(send, response)
            await _until_gone(_stream(response, send), receive)
            if "watch" not in asked.query:
                self.log[number] = msgspec.structs.replace(self.log[number], answered_s=boot_s())
        finally:
            await response.aclose()


def _config(app: Callable[[Message, Receive, Send], Awaitable[None]]) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="h11",
        interface="asgi3",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=_KEPT_S,
        timeout_graceful_shutdown=_END_S,
    )


def _readable(accept: str) -> str:
    """Ask for JSON where the sender takes it, too: so the answer can be read here."""
    takes_json = "application/json" in accept or "*/*" in accept
    return "application/json" if takes_json and ("protobuf" in accept or "cbor" in accept) else accept


async def _read(receive: Receive) -> bytes | None:
    """Read a whole body; None where it is too large."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = bool(message.get("more_body", False))
        if len(body) > BODY_MAX:
            return None
    return body


async def _begin(send: Send, response: httpx2.Response) -> None:
    kept = [(name.lower(), value) for name, value in response.headers.raw if name.decode().lower() not in _OWN]
    await send({"type": "http.response.start", "status": response.status_code, "headers": kept})


async def _whole(response: httpx2.Response) -> bytes:
    try:
        return await response.aread()
    except httpx2.HTTPError as error:
        raise Unavailable(str(error)) from error


async def _stream(response: httpx2.Response, send: Send) -> None:
    """Pass on bytes as they come; where the API server breaks off, so does the gate."""
    with suppress(httpx2.HTTPError, httpx2.StreamError):
        async for chunk in response.aiter_raw():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _until_gone(streaming: Awaitable[None], receive: Receive) -> None:
    """Stream until the end, or until nobody listens any more."""
    stream, gone = asyncio.ensure_future(streaming), asyncio.ensure_future(receive())
    try:
        await asyncio.wait((stream, gone), return_when=asyncio.FIRST_COMPLETED)
        if stream.done():
            await stream
    finally:
        stream.cancel()
        gone.cancel()
        await asyncio.gather(stream, gone, return_exceptions=True)


async def _refuse(send: Send, code: int, why: str) -> None:
    """Answer as an API server does that refuses."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": why, "code": code}
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": msgspec.json.encode(status)})
