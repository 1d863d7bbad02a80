"""The port of the webhook: anybody may send something, so that all bodies together take a bounded room."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from poise.serve.connections import App, Message
from poise.serve.webhook import BODIES_MAX, BODY_MAX, Room, webhook_app

PIECE = b"x" * 65_536


class Caller:
    """One request whose pieces come when the test says so."""

    def __init__(self, path: str = "/assign", method: str = "POST") -> None:
        """Begin with nothing sent."""
        self._scope: Message = {"type": "http", "method": method, "path": path}
        self._pieces: asyncio.Queue[Message] = asyncio.Queue()
        self.read = 0
        self.sent: list[Message] = []

    def send(self, pieces: Iterable[bytes], *, ends: bool = False) -> Caller:
        """Send some pieces of the body."""
        for piece in pieces:
            self._pieces.put_nowait({"type": "http.request", "body": piece, "more_body": True})
        if ends:
            self._pieces.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        return self

    def leave(self) -> Caller:
        """Go away in the middle."""
        self._pieces.put_nowait({"type": "http.disconnect"})
        return self

    async def call(self, app: App) -> int:
        """Ask, and give the status."""

        async def receive() -> Message:
            message = await self._pieces.get()
            self.read += len(message.get("body", b""))
            return message

        async def send(message: Message) -> None:
            self.sent.append(message)

        await app(self._scope, receive, send)
        status: int = self.sent[0]["status"]
        return status


def answer(path: str, body: bytes) -> bytes | None:
    """Answer with the length of what came."""
    return None if path != "/assign" else str(len(body)).encode()


def test_a_body_is_answered_as_a_whole_and_gives_its_room_back() -> None:
    async def scenario() -> None:
        room = Room()
        app = webhook_app(answer, room)
        caller = Caller().send([b"abc", b"", b"de"], ends=True)
        assert await caller.call(app) == 200
        assert caller.sent[1]["body"] == b"5"
        assert await Caller("/elsewhere").send([b"abc"], ends=True).call(app) == 404
        assert await Caller(method="GET").call(app) == 405
        assert await Caller().send([b"abc"]).leave().call(app) == 400
        largest = Caller().send([PIECE] * (BODY_MAX // len(PIECE)), ends=True)
        assert await largest.call(app) == 200
        assert await Caller().send([PIECE] * (BODY_MAX // len(PIECE)), ends=False).send([b"y"]).call(app) == 413
        assert room.taken == 0

    asyncio.run(scenario())


def test_an_answer_that_fails_gives_its_room_back() -> None:
    def fail(_path: str, _body: bytes) -> bytes | None:
        raise RuntimeError("broken")

    async def scenario() -> None:
        room = Room()
        with pytest.raises(RuntimeError):
            await Caller().send([b"abc"], ends=True).call(webhook_app(fail, room))
        assert room.taken == 0

    asyncio.run(scenario())


def test_all_bodies_together_have_a_limit() -> None:
    """Those who came before go on; who finds no room is sent away, and nothing of what it sends is read."""

    async def scenario() -> None:
        room = Room(4 * len(PIECE))
        app = webhook_app(answer, room)
        slow = [Caller().send([PIECE, PIECE]) for _ in range(2)]
        asking = [asyncio.create_task(each.call(app)) for each in slow]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert room.taken == room.most
        late = Caller().send([PIECE])
        assert await late.call(app) == 503
        assert late.read == 0
        for each in slow:
            each.send([], ends=True)
        # One of them needs no more room; nor does the other.
        assert await asyncio.gather(*asking) == [200, 200]
        assert room.taken == 0
        assert await Caller().send([PIECE], ends=True).call(app) == 200

    asyncio.run(scenario())


def test_one_that_grows_beyond_the_room_is_sent_away() -> None:
    async def scenario() -> None:
        room = Room(3 * len(PIECE))
        app = webhook_app(answer, room)
        slow = Caller().send([PIECE, PIECE])
        asking = asyncio.create_task(slow.call(app))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert await Caller().send([PIECE[:10], PIECE], ends=True).call(app) == 503
        assert room.taken == 2 * len(PIECE)
        slow.send([], ends=True)
        assert await asking == 200

    asyncio.run(scenario())


def test_several_of_the_largest_fit_at_once() -> None:
    assert BODIES_MAX // BODY_MAX >= 8
    assert BODY_MAX > 2 * 1.5 * 1024 * 1024 * 4 / 3, "two objects of etcd's largest size, all in base64"
