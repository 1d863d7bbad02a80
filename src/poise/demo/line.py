"""The server's end of the line to its parent: it hears how things stand, and says what somebody asks for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Self

import msgspec

from poise.demo.words import LINE_MAX, FromServer, Order, State, Taken
from poise.errors import Unavailable

_HEARD_S = 3.0


class Line:
    """One line; its event loop owns it, other threads only read `state`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: Callable[[], None]) -> None:
        """Speak on an open line; `cut` is called when there is nobody at the other end any more."""
        self._reader, self._writer, self._cut = reader, writer, cut
        self._changed = asyncio.Condition()
        self._number = 0
        self.state = State()

    @classmethod
    async def open(cls, descriptor: int, cut: Callable[[], None]) -> Self:
        """Open the line that this process was given."""
        line = socket.socket(fileno=descriptor)
        return cls(*await asyncio.open_unix_connection(sock=line, limit=LINE_MAX), cut)

    async def listen(self) -> None:
        """Take every state; a parent that is gone takes the server with it."""
        decode = msgspec.json.Decoder(State).decode
        with suppress(OSError):
            while line := await self._reader.readline():
                self.state = decode(line)
                self._number = max(self._number, self.state.heard)
                async with self._changed:
                    self._changed.notify_all()
        self._cut()

    def say(self, said: FromServer) -> None:
        """Say something to the parent."""
        self._writer.write(msgspec.json.encode(said) + b"\n")

    async def order(self, taken: Taken) -> None:
        """Ask the parent for its part of a step, and wait until it has heard."""
        self._number += 1
        number = self._number
        self.say(Order(number, taken))
        try:
            async with asyncio.timeout(_HEARD_S), self._changed:
                await self._changed.wait_for(lambda: self.state.heard >= number)
        except TimeoutError:
            raise Unavailable("the demo's parent process does not answer") from None

    async def change(self, within_s: float) -> None:
        """Wait for news, or for a time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s), self._changed:
                await self._changed.wait()
