"""A small server for health and numbers alone: nothing can be changed here, and nobody is asked who they are."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from poise.serve.beside import serve_beside
from poise.serve.calls.health import Health
from poise.serve.connections import Connection
from poise.serve.problems import busy, on_error, problem_response

_IDLE_S = 30


class _ProbeConnection(Connection):
    """A connection of a probe or a scraper: few, and short."""

    request_s = 10.0
    connections_max = 100


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
    """Serve until `ended` is set."""
    await serve_beside(app, sockets, ended, http=_ProbeConnection, idle_s=_IDLE_S)
