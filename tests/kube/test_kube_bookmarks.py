"""Bookmarks of a watch, and the deadline that the server is told: answers are played over a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from poise.errors import Unavailable
from poise.kube import Added, Client, Event, Meta, ObjectRef, Partial, Reflector, Synced
from poise.kube.client import within
from poise.kube.pacing import Pace
from poise.kube.reflector import Following
from poise.kube.resources import SECRETS, Selection

QUICK = Following(pace=Pace(0.01, 0.02))
LIST = '{"metadata": {"resourceVersion": "5"}, "items": []}'
BOOKMARK = '{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}\n'
ADDED = '{"type": "ADDED", "object": {"metadata": {"name": "a", "uid": "u", "resourceVersion": "12"}}}\n'


class Player:
    """Gives these answers, one a request; whoever asks for more waits for ever."""

    def __init__(self, answers: Sequence[str]) -> None:
        self.queries: list[dict[str, list[str]]] = []
        self.tasks: list[asyncio.Task[object]] = []
        self._answers = list(answers)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request, and end the connection after its answer."""
        task = asyncio.current_task()
        assert task is not None
        self.tasks.append(task)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.queries.append(parse_qs(urlsplit(head.split(" ")[1]).query))
        if not self._answers:
            await reader.read()
        else:
            body = self._answers.pop(0)
            lines = ("HTTP/1.1 200 OK", f"Content-Length: {len(body)}", "Connection: close", "", body)
            writer.write("\r\n".join(lines).encode())
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def playing(*answers: str, request_s: float = 10.0) -> AsyncIterator[tuple[Client, Player]]:
    """Play answers to one client."""
    player = Player(answers)
    server = await asyncio.start_server(player.answer, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        async with Client(httpx2.AsyncClient(base_url=address), request_s=request_s) as client:
            yield client, player
        await asyncio.gather(*player.tasks, return_exceptions=True)


def test_a_bookmark_tells_nothing_and_the_next_watch_begins_at_it() -> None:
    async def play() -> tuple[list[Event[Partial]], list[dict[str, list[str]]]]:
        told: list[Event[Partial]] = []
        async with playing(LIST, BOOKMARK, ADDED + BOOKMARK.replace("9", "31")) as (client, player):
            mirror = Reflector(client, Selection(SECRETS), Partial, told.append, following=QUICK)
            task = asyncio.create_task(mirror.run())
            async with asyncio.timeout(60):
                while len(player.queries) < 4:
                    await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert mirror.lists == 1
        return told, player.queries

    told, (listed, *watched) = asyncio.run(play())
    assert "watch" not in listed
    assert [query["resourceVersion"] for query in watched] == [["5"], ["9"], ["31"]]
    assert all((query["watch"], query["allowWatchBookmarks"]) == (["1"], ["true"]) for query in watched)
    assert [type(event) for event in told] == [Synced, Added], "a bookmark is no event"


@pytest.mark.parametrize(
    ("request_s", "limit_s", "told"),
    [(10.0, None, "10s"), (10.0, 4.0, "4s"), (10.0, 0.8, "800ms"), (3.0, 7.5, "3s"), (2.5, None, "2500ms")],
)
def test_the_server_is_told_the_deadline_of_the_block(request_s: float, limit_s: float | None, told: str) -> None:
    async def play() -> list[dict[str, list[str]]]:
        async with playing("{}", "{}", request_s=request_s) as (client, player):
            ref, meta = ObjectRef(SECRETS, "a", "ns"), Meta("a", "ns", "u", "7")
            async with within(limit_s):
                await client.merge(ref, meta, {"metadata": {"labels": {"x": "y"}}}, Partial)
            await client.get(ref, Partial)
        return player.queries

    inside, outside = asyncio.run(play())
    assert inside["timeout"] == [told]
    assert outside["timeout"] == [f"{int(request_s)}s" if request_s == int(request_s) else "2500ms"]


def test_what_takes_longer_than_the_block_allows_is_unavailable() -> None:
    async def play() -> float:
        async with playing() as (client, _player):
            began_s = asyncio.get_running_loop().time()
            with pytest.raises(Unavailable, match="no answer in time"):
                async with within(0.2):
                    await client.get(ObjectRef(SECRETS, "a", "ns"), Partial)
            return asyncio.get_running_loop().time() - began_s

    assert asyncio.run(play()) < 10
