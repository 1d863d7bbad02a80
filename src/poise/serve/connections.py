"""One connection of the server: what is slow, too large or no HTTP is cut off here, before any task is made of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from poise.serve.problems import PROBLEM_JSON, Refused, problem_response

Message = MutableMapping[str, Any]  # As ASGI has it: the one place where Any is the contract.
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

CONNECTION: Final = "poise.connection"
_LAST_S = 5.0  # After the polite end of a slow request: so long may the answer take to reach the client.


class Connection(H11Protocol):
    """Gives every request a time from its first byte to the last of its answer; streams are let off by their call."""

    request_s = 30.0
    connections_max = 10_000

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Let the application reach its connection, so that it can cut off a client that does not read."""
        super().__init__(config, server_state, app_state, _loop)
        self._timer: asyncio.TimerHandle | None = None
        self._flush: asyncio.TimerHandle | None = None
        self._streams = False
        app = self.app

        async def with_connection(scope: Message, receive: Receive, send: Send) -> None:
            await app({**scope, CONNECTION: self}, receive, send)

        self.app = with_connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # As in the base.
        """Begin; where there are too many connections already, this one ends at once."""
        super().connection_made(transport)
        if len(self.connections) > self.connections_max:
            transport.abort()
            return
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._disarm()
        if self._flush is not None:
            self._flush.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the time of a request from its first byte."""
        if self._timer is None and not self._streams:
            self._arm()
        super().data_received(data)

    def on_response_complete(self) -> None:
        """Wait for the next request without a timer of ours: the one for idle connections runs then.

        What the client has not taken yet is only buffered; it gets the time of a request for that, too.
        """
        self._disarm()
        if self._flush is None and self.transport.get_write_buffer_size():
            self._flush = self.loop.call_later(self.request_s, self._unread)
        before = self.cycle
        super().on_response_complete()
        if self.cycle is not before and not self.transport.is_closing():
            self._arm()

    def let_stream(self) -> None:
        """Let this answer go on for ever."""
        self._streams = True
        self._disarm()

    def cut(self) -> None:
        """End the connection at once; what was not read yet is lost."""
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP in the one shape of refusals; headers that are too long have a status of their own."""
        too_long = self.conn.their_state is h11.ERROR and len(self.conn.trailing_data[0]) >= self._head_max()
        self._refuse(431 if too_long else 400, "the headers are too large" if too_long else msg)

    def _head_max(self) -> int:
        return self.config.h11_max_incomplete_event_size or 65_536

    def _refuse(self, status: int, detail: str) -> None:
        """Answer without the application and close; where an answer has begun already, only close."""
        if self.conn.our_state is not h11.IDLE and self.conn.our_state is not h11.SEND_RESPONSE:
            self.transport.abort()
            return
        body = bytes(problem_response(Refused(status, detail)).body)
        headers = [
            (b"content-type", PROBLEM_JSON.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        answer = h11.Response(status_code=status, headers=headers, reason=b"")
        for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _arm(self) -> None:
        self._disarm()
        self._timer = self.loop.call_later(self.request_s, self._late)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _unread(self) -> None:
        """End the connection of a client that does not read its answers."""
        self._flush = None
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _late(self) -> None:
        """End a request whose head never came; one that is under way gets a last moment for its answer."""
        self._timer = None
        if self.transport.is_closing():
            self.transport.abort()
        elif self.cycle is None or self.cycle.response_complete:
            self._refuse(408, f"the headers took longer than {self.request_s:g} s")
        else:
            self._timer = self.loop.call_later(_LAST_S, self.transport.abort)
