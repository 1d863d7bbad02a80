"""Serving: uvicorn on given sockets, with our own connections, an orderly end, and certificates that may change."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from starlette.applications import Starlette

from poise.errors import InvalidSpec
from poise.serve.connections import Connection
from poise.serve.door import stamp_of
from poise.serve.settings import ServeSettings, load_certificate, tls_context
from poise.serve.site import Site

_LOOK_S = 1.0
_IDLE_S = 30
_FILES = 16_384
_log = logging.getLogger("poise.serve")


class _Server(uvicorn.Server):
    """A server whose streams end before it waits for its connections, and which leaves signals to its process."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self._site = site

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._site.hub.close()
        await super().shutdown(sockets)


async def serve(app: Starlette, settings: ServeSettings, sockets: list[socket.socket], ended: asyncio.Event) -> None:
    """Serve until `ended` is set; then finish what is under way, for a few seconds at most."""
    _allow_many_files()
    context = tls_context(settings)
    server = _Server(_config(app, settings, context), app.state.site)
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(server.serve(sockets))
        watching = tasks.create_task(_watch_certificate(context, settings)) if context else None
        ending = tasks.create_task(ended.wait())
        await asyncio.wait([serving, ending], return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        ending.cancel()
        if watching is not None:
            watching.cancel()


def _config(app: Starlette, settings: ServeSettings, context: ssl.SSLContext | None) -> uvicorn.Config:
    """Configure uvicorn: no log of its own, no trust in headers of proxies, no websockets."""
    limits = {"request_s": settings.request_s, "connections_max": settings.connections_max}
    connection: type[Connection] = type("Connection", (Connection,), limits)
    made: dict[str, Any] = {"ssl_context_factory": lambda _config, _default: context} if context else {}
    return uvicorn.Config(
        app,
        http=connection,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=settings.headers_max,
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=max(1, round(settings.end_s)),
        **made,
    )


async def _watch_certificate(context: ssl.SSLContext, settings: ServeSettings) -> None:
    """Take a changed certificate for new connections; a broken one changes nothing, and is looked at again."""
    files = [path for path in (settings.tls_cert, settings.tls_key) if path is not None]
    seen = [stamp_of(path) for path in files]
    while True:
        await asyncio.sleep(_LOOK_S)
        now = [stamp_of(path) for path in files]
        if now == seen:
            continue
        try:
            # A trial first: what is half written must not replace what works.
            load_certificate(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), files[0], files[1])
            load_certificate(context, files[0], files[1])
            _log.info("certificate.reloaded")
        except InvalidSpec as error:
            _log.error("certificate.kept reason=%s", error)
        seen = now


def _allow_many_files() -> None:
    """Let as many clients in as the machine allows: many systems start with 1,024 files, sockets included."""
    with suppress(ValueError, OSError):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
