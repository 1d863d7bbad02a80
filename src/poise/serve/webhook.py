"""Serves the webhook to the API server: TLS, one kind of request, and an answer to whatever comes."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from poise.serve.beside import serve_beside
from poise.serve.connections import App, Connection, Message, Receive, Send

# etcd takes 1.5 MiB. A review has an object and what it was before, as JSON: 4 MiB where all of both is in base64, and
# as much again for what is escaped. What is larger is not asked about: its object is assigned by the watch.
BODY_MAX = 8 * 1024 * 1024
BODIES_MAX = 64 * 1024 * 1024  # Of all requests at once: anybody who reaches the port can send something.
_IDLE_S = 120  # The API server keeps a line open for 90 s: it, not this side, ends it.
_JSON = (b"content-type", b"application/json")

Answer = Callable[[str, bytes], bytes | None]


class _HookConnection(Connection):
    """A connection of an API server: few, and each request is short."""

    request_s = 5.0
    connections_max = 1_000


class Room:
    """Counts the bytes of bodies that are being read or answered, of all requests together."""

    def __init__(self, most: int = BODIES_MAX) -> None:
        """Begin with none; there is never more than `most`, and a piece of each connection."""
        self.taken = 0
        self.most = most

    def take(self, count: int) -> bool:
        """Take room for some more bytes; False where there is none left for them."""
        if self.taken + count > self.most:
            return False
        self.taken += count
        return True


def webhook_app(answer: Answer, room: Room | None = None) -> App:
    """Make the application; what is no review of a ring is not found."""
    room = room or Room()

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        body = bytearray()
        made: bytes | None = None
        try:
            status = await _read(receive, body, room) if scope["method"] == "POST" else 405
            if status == 200:
                made = answer(scope["path"], bytes(body))
                status = 200 if made is not None else 404
        finally:
            room.taken -= len(body)
        headers = [_JSON, (b"content-length", str(len(made or b"")).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": made or b""})

    return app


async def _read(receive: Receive, body: bytearray, room: Room) -> int:
    """Read a whole body as long as there is room for it; gives the status that this means."""
    if room.taken >= room.most:
        return 503
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return 400
        piece: bytes = message.get("body", b"")
        if len(body) + len(piece) > BODY_MAX:
            return 413
        if not room.take(len(piece)):
            return 503
        body += piece
        if not message.get("more_body", False):
            return 200


async def serve_webhook(
    answer: Answer, context: ssl.SSLContext, sockets: list[socket.socket], ended: asyncio.Event
) -> None:
    """Serve until `ended` is set."""
    await serve_beside(webhook_app(answer), sockets, ended, http=_HookConnection, idle_s=_IDLE_S, context=context)
