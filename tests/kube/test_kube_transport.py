"""Answers over real TLS connections: records are read together, and what is cut off is an error of Poise's own."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx2
import pytest
import trustme

from poise.errors import Unavailable
from poise.kube import Client, Partial, transport
from poise.kube.resources import SECRETS, Selection
from poise.kube.transport import Transport

EVENTS = 500
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def event(number: int) -> bytes:
    line = b'{"type":"MODIFIED","object":{"metadata":{"name":"s%d","resourceVersion":"%d"}}}\n' % (number, number)
    return b"%x\r\n%s\r\n" % (len(line), line)


@asynccontextmanager
async def serving(records: Sequence[bytes]) -> AsyncIterator[Client]:
    """Serve one answer, each part of it a TLS record of its own, all of them sent before the first can be read."""
    authority = trustme.CA()
    own, trusted = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(own)
    authority.configure_trust(trusted)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for record in records:
            writer.write(record)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=own)
    address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    http = httpx2.AsyncClient(base_url=address, transport=Transport(trusted, httpx2.Limits()))
    async with server, Client(http, request_s=10.0) as client:
        yield client


async def names(client: Client) -> list[str]:
    async with client.watch(Selection(SECRETS), Partial, "1") as lines:
        return [line.object.metadata.name async for line in lines]


def test_events_that_have_arrived_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    read = transport._Greedy.read

    async def counted(self: transport._Greedy, max_bytes: int, timeout: float | None = None) -> bytes:
        sizes.append(len(found := await read(self, max_bytes, timeout)))
        assert len(found) <= max_bytes
        return found

    async def play() -> list[str]:
        async with serving([HEAD, *map(event, range(EVENTS)), END]) as client:
            return await names(client)

    monkeypatch.setattr(transport._Greedy, "read", counted)
    assert asyncio.run(play()) == [f"s{number}" for number in range(EVENTS)]
    assert len(sizes) < EVENTS / 5


@pytest.mark.parametrize("kept", [[], [HEAD], [HEAD, event(1)], [HEAD, event(1), event(2)[:9]]])
def test_an_answer_that_is_cut_off_is_unavailable(kept: list[bytes]) -> None:
    async def play() -> None:
        async with serving(kept) as client:
            await names(client)

    with pytest.raises(Unavailable, match="watch secrets: RemoteProtocolError"):
        asyncio.run(play())


def test_an_address_where_nobody_answers_is_unavailable() -> None:
    async def play() -> None:
        trusting = Transport(ssl.create_default_context(), httpx2.Limits())
        async with Client(httpx2.AsyncClient(base_url="https://127.0.0.1:1", transport=trusting)) as client:
            await names(client)

    with pytest.raises(Unavailable, match="watch secrets: ConnectError"):
        asyncio.run(play())
