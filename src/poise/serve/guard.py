"""Around every request: its size, its Host, who asks, where from, how long it may take; and headers that protect."""

from __future__ import annotations

import asyncio
import logging
import traceback

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from poise.serve.connections import CONNECTION, Connection
from poise.serve.problems import Refused, busy, problem_response
from poise.serve.site import Site

DEADLINE, WHO = "poise.deadline", "poise.who"
_log = logging.getLogger("poise.requests")

_PROTECTING = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# As they are sent: they go out with every answer, so they are written once.
_ADDED = [(name.lower().encode(), value.encode()) for name, value in _PROTECTING.items()]


class Exchange:
    """What happened so far: whether all of the body has come, and whether the answer has begun."""

    def __init__(self, receive: Receive, send: Send) -> None:
        """Look at both ways."""
        self._receive, self._send = receive, send
        self.all_received = False
        self.started = False

    async def receive(self) -> Message:
        """Note the end of the body."""
        message = await self._receive()
        self.all_received = self.all_received or not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Add the headers that protect; what is not sent in full yet cannot be followed by another request."""
        if message["type"] == "http.response.start":
            self.started = True
            said = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(each for each in _ADDED if each[0] not in said)]
            if not self.all_received:
                MutableHeaders(scope=message)["Connection"] = "close"
        await self._send(message)


class Guard:
    """The outermost part of the application; nothing of a body is read before it has said yes."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        """Guard an application with the door of its site."""
        self._app, self._site = app, site
        self._door, self._settings = site.door, site.settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request through, and see that it ends in time."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(receive, send)
        # A request without a body has been received in full with its head.
        headers = Headers(scope=scope)
        exchange.all_received = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
        try:
            async with asyncio.timeout(self._settings.request_s) as deadline:
                await self._app(
                    {**scope, **self._checked(scope, headers), DEADLINE: deadline}, exchange.receive, exchange.send
                )
        except TimeoutError:
            await self._end_late(scope, exchange)
        except Exception as error:
            await self._end_badly(scope, exchange, error)

    def _checked(self, scope: Scope, headers: Headers) -> dict[str, object]:
        """Check what a head says; paths stay percent-encoded, so that a name may hold a slash."""
        size = (
            len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(k) + len(v) + 4 for k, v in scope["headers"])
        )
        if size > self._settings.headers_max:
            told = f"the headers are larger than {self._settings.headers_max} bytes"
            raise Refused(431, told, headers={"Connection": "close"})
        self._door.check_host(headers, (scope.get("server") or ("",))[0])
        who, by_cookie = self._door.identify(headers)
        self._door.check_origin(scope["method"], headers, by_cookie)
        return {WHO: who, "path": scope["raw_path"].decode("ascii")}

    async def _end_late(self, scope: Scope, exchange: Exchange) -> None:
        """Say that it took too long, if that can still be said."""
        limit_s = self._settings.request_s
        if exchange.started:
            connection_of(scope).cut()
        elif exchange.all_received:
            _log.warning("request.late method=%s path=%s", scope["method"], shown_path(scope))
            await problem_response(busy(f"no answer within {limit_s:g} s"))(scope, exchange.receive, exchange.send)
        else:
            late = Refused(408, f"the body took longer than {limit_s:g} s")
            await problem_response(late)(scope, exchange.receive, exchange.send)

    async def _end_badly(self, scope: Scope, exchange: Exchange, error: Exception) -> None:
        """Answer a refusal of the door, or a fault of ours: that one is logged, and its text is not told."""
        if not isinstance(error, Refused):
            # The bare text of the trace: values of variables could be secrets.
            trace = "".join(traceback.format_exception(error))
            _log.error("request.fault method=%s path=%s\n%s", scope["method"], shown_path(scope), trace)
        if exchange.started:
            connection_of(scope).cut()
        else:
            await problem_response(error)(scope, exchange.receive, exchange.send)


def shown_path(scope: Scope) -> str:
    """Show a path in a log: it is still percent-encoded, so nothing in it can forge a line."""
    return bytes(scope["raw_path"])[:200].decode("ascii", "replace")


def connection_of(scope: Scope) -> Connection:
    """Find the connection of a request."""
    found = scope[CONNECTION]
    assert isinstance(found, Connection), "requests come over our own connections"
    return found
