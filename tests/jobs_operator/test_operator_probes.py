"""Health and numbers of the operator over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx2
import pytest

from poise.serve.probes import probe_app, serve_probes
from poise.serve.settings import ServeSettings, open_sockets


class Wrong:
    """What the operator says of itself."""

    def __init__(self) -> None:
        self.dead = ""
        self.unready = ""


def visit(scenario: Callable[[httpx2.AsyncClient, Wrong], Awaitable[None]]) -> None:
    """Serve while a scenario asks."""

    async def played() -> None:
        wrong, ended = Wrong(), asyncio.Event()
        app = probe_app(lambda: wrong.dead, lambda: wrong.unready, lambda: b"poise_leads 1.0\n")
        sockets = open_sockets(ServeSettings(port=0))
        url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
        serving = asyncio.create_task(serve_probes(app, sockets, ended))
        try:
            async with asyncio.timeout(20), httpx2.AsyncClient(base_url=url) as client:
                await scenario(client, wrong)
        finally:
            ended.set()
            await serving
            sockets[0].close()

    asyncio.run(played())


def test_all_is_well() -> None:
    async def scenario(client: httpx2.AsyncClient, _wrong: Wrong) -> None:
        for path in ("/livez", "/readyz"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()) == (200, {"ok": True})
        numbers = await client.get("/metrics")
        assert numbers.text == "poise_leads 1.0\n"
        assert numbers.headers["content-type"].startswith("text/plain; version=")

    visit(scenario)


def test_what_is_wrong_is_said() -> None:
    async def scenario(client: httpx2.AsyncClient, wrong: Wrong) -> None:
        wrong.dead, wrong.unready = "the operator has ended", "the rings are not listed yet"
        for path, told in (("/livez", wrong.dead), ("/readyz", wrong.unready)):
            answer = await client.get(path)
            assert answer.status_code == 503
            assert answer.json()["detail"] == told
            assert answer.headers["content-type"] == "application/problem+json"

    visit(scenario)


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/", 404), ("POST", "/livez", 405)])
def test_there_is_nothing_else(method: str, path: str, status: int) -> None:
    async def scenario(client: httpx2.AsyncClient, _wrong: Wrong) -> None:
        answer = await client.request(method, path)
        assert answer.status_code == status
        assert answer.json()["status"] == status

    visit(scenario)


def test_headers_without_end_are_cut_off() -> None:
    async def scenario(client: httpx2.AsyncClient, _wrong: Wrong) -> None:
        answer = await client.get("/livez", headers={"X-Long": "x" * 2_000_000})
        assert answer.status_code == 431

    visit(scenario)
