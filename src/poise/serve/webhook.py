"""Serves the webhook to the API server: TLS, one kind of request, and an answer to whatever comes."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from poise.serve.beside import serve_beside
from poise.serve.connections import App, Connection, Message, Receive, Send

BODY_MAX = 16 * 1024 * 1024  # An object of etcd's largest size comes twice in one review, as JSON.
_IDLE_S = 120  # The API server keeps a line open for 90 s: it, not this side, ends it.
_JSON = (b"content-type", b"application/json")

Answer = Callable[[str, bytes], bytes | None]


class _HookConnection(Connection):
    """A connection of an API server: few, and each request is short."""

    request_s = 5.0
    connections_max = 1_000


def webhook_app(answer: Answer) -> App:
    """Make the application; what is no review of a ring is not found."""

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        body = await _read(receive) if scope["method"] == "POST" else None
        made = None if body is None else answer(scope["path"], body)
        status = 200 if made is not None else 404 if body is not None else 405 if scope["method"] != "POST" else 413
        headers = [_JSON, (b"content-length", str(len(made or b"")).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": made or b""})

    return app


async def _read(receive: Receive) -> bytes | None:
    """Read a whole body; None where it is too large."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > BODY_MAX:
            return None
        if not message.get("more_body", False):
            return bytes(body)


async def serve_webhook(
    answer: Answer, context: ssl.SSLContext, sockets: list[socket.socket], ended: asyncio.Event
) -> None:
    """Serve until `ended` is set."""
    await serve_beside(webhook_app(answer), sockets, ended, http=_HookConnection, idle_s=_IDLE_S, context=context)
