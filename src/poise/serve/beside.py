"""Small servers beside the work of a process: they share its loop, leave its signals alone, and end when told."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from poise.serve.connections import App, Connection

_HEADERS_MAX = 16 * 1024
_END_S = 2


class QuietServer(uvicorn.Server):
    """A server that leaves signals to its process."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def serve_beside(
    app: App | ASGIApp,
    sockets: list[socket.socket],
    ended: asyncio.Event,
    *,
    http: type[Connection],
    idle_s: int,
    context: ssl.SSLContext | None = None,
) -> None:
    """Serve until `ended` is set, with TLS where a context is given. A loop that hangs does not answer."""
    config = uvicorn.Config(
        app,
        http=http,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=_HEADERS_MAX,
        timeout_keep_alive=idle_s,
        timeout_graceful_shutdown=_END_S,
        ssl_context_factory=None if context is None else lambda _config, _default: context,
    )
    server = QuietServer(config)
    serving = asyncio.create_task(server.serve(sockets))
    ending = asyncio.create_task(ended.wait())
    await asyncio.wait([serving, ending], return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    ending.cancel()
    await serving
