"""A small server for health and numbers alone: nothing can be changed here, and nobody is asked who they are."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager

import msgspec
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from poise.serve.calls.health import Health
from poise.serve.connections import Connection
from poise.serve.problems import busy, on_error, problem_response

_HEADERS_MAX = 16 * 1024
_IDLE_S, _END_S = 30, 2


class _ProbeConnection(Connection):
    """A connection of a probe or a scraper: few, and short."""

    request_s = 10.0
    connections_max = 100


class QuietServer(uvicorn.Server):
    """A server that leaves signals to its process."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def probe_app(dead: Callable[[], str], unready: Callable[[], str], metrics: Callable[[], bytes]) -> Starlette:
    """Make the application; the first two say what is wrong, and nothing when all is well."""

    async def livez(_request: Request) -> Response:
        return _health(dead())

    async def readyz(_request: Request) -> Response:
        return _health(unready())

    async def numbers(_request: Request) -> Response:
        return Response(metrics(), media_type=CONTENT_TYPE_LATEST)

    routes = [Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", numbers)]
    return Starlette(routes=routes, exception_handlers={HTTPException: on_error})


def _health(wrong: str) -> Response:
    if wrong:
        return problem_response(busy(wrong))
    return Response(msgspec.json.encode(Health()), media_type="application/json")


async def serve_probes(app: ASGIApp, sockets: list[socket.socket], ended: asyncio.Event) -> None:
    """Serve until `ended` is set. It shares the loop of the process: a loop that hangs does not answer."""
    config = uvicorn.Config(
        app,
        http=_ProbeConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=_HEADERS_MAX,
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=_END_S,
    )
    server = QuietServer(config)
    serving = asyncio.create_task(server.serve(sockets))
    ending = asyncio.create_task(ended.wait())
    await asyncio.wait([serving, ending], return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    ending.cancel()
    await serving
