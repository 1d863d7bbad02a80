"""The seat of the demo's server, where a server ends sooner than it is listened to."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from poise.demo.line import Line
from poise.demo.parts import Part
from poise.demo.seats import Seats
from poise.demo.words import FromServer, Loaded, Order, State, Taken


class Brief(Part):
    """A server that says that it could begin, and ends at once; nothing of it is a process."""

    def __init__(self, says: bytes) -> None:
        super().__init__("server", "served", (), Path())
        self._says = says

    def start(
        self,
        hear: Callable[[bytes], None],
        ended: Callable[[], None],
        more: Sequence[str] = (),
        fds: Sequence[int] = (),
    ) -> None:
        """Speak, and be gone before anybody listens."""
        del hear, more
        os.write(fds[-1], self._says)
        ended()


@pytest.mark.parametrize("says", [b"", msgspec.json.encode(Loaded()) + b"\n"])
def test_a_server_that_ends_at_once_breaks_nothing(says: bytes) -> None:
    ends: list[str] = []

    async def work() -> list[BaseException | None]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            seats = Seats(
                lambda _first: Brief(says), listening, State, lambda _said: None, lambda: ends.append("ended")
            )
            seats.start(first=True)
            conversations = list(seats._tasks)
            found = await asyncio.gather(*conversations, return_exceptions=True)
            seats.send(signal.SIGTERM)
            await seats.close()
            return found

    assert asyncio.run(work()) == [None]
    assert ends == ["ended"]


def test_a_step_on_a_job_of_very_many_items_is_heard_on_both_ends() -> None:
    epochs = {str(number): 7 for number in range(20_000)}
    taken = Taken(step="restart-server", subject="server", at=datetime(2026, 1, 1, tzinfo=UTC), epochs=epochs)
    heard: list[FromServer] = []

    class Listening(Brief):
        """A server that stays, and speaks through its end of the line."""

        def start(self, *arguments: object, **more: object) -> None:
            """Keep a copy of the line, as a process would."""
            fds = arguments[3]
            assert isinstance(fds, tuple)
            ends.append(os.dup(fds[-1]))
            del more

    ends: list[int] = []

    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            state = State(taken={"restart-server": taken}, heard=1)
            seats = Seats(lambda _first: Listening(b""), listening, lambda: state, heard.append, lambda: None)
            seats.start(first=True)
            line = await Line.open(ends[0], lambda: None)
            listens = asyncio.create_task(line.listen())
            async with asyncio.timeout(20):
                await line.order(taken)
                while not heard:
                    await asyncio.sleep(0.01)
            listens.cancel()
            await seats.close()
            line._writer.close()
            await line._writer.wait_closed()

    asyncio.run(work())
    assert [each.taken for each in heard if isinstance(each, Order)] == [taken]
