"""The seat of the server: one process answers, and another may wait behind it to take over.

Order for safety: the next one is loaded while the last one still answers, and begins when that one has ended, so that a
restart takes less than a lease. The address stays open all the time: who asks in between waits, and is not refused.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from contextlib import closing, suppress

import msgspec

from poise.demo.parts import Part
from poise.demo.words import LINE_MAX, FromServer, Loaded, State

_PAUSE_S = 0.5  # The pause before a server that ended by itself is started again.


class _Seat:
    """One server process and the line to it; it begins when it hears the first state."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.writer: asyncio.StreamWriter | None = None

    def tell(self, state: State) -> None:
        if self.writer is not None and not self.writer.is_closing():
            self.writer.write(msgspec.json.encode(state) + b"\n")


class Seats:
    """The server of a demo, whichever process that is; one event loop owns it."""

    def __init__(
        self,
        make: Callable[[bool], Part],
        listening: socket.socket,
        state: Callable[[], State],
        hear: Callable[[FromServer], None],
        ended: Callable[[], None],
    ) -> None:
        """Make servers on this address; `hear` is told what they say, `ended` that nobody answers any more."""
        self._make, self._listening, self._state, self._hear, self._ended = make, listening, state, hear, ended
        self._seats: list[_Seat] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def pid(self) -> int:
        """The number of the process that answers."""
        return self._seats[0].part.pid if self._seats else 0

    @property
    def runs(self) -> bool:
        """Say whether any server runs."""
        return any(seat.part.runs for seat in self._seats)

    def start(self, *, first: bool = False) -> None:
        """Start a server; where one answers already, it waits for that to end."""
        if self._closed or len(self._seats) > 1:
            return
        ours, theirs = socket.socketpair()
        seat = _Seat(self._make(first))
        self._seats.append(seat)
        with theirs:
            fds = (self._listening.fileno(), theirs.fileno())
            more = ("--listening", str(fds[0]), "--line", str(fds[1]))
            seat.part.start(lambda _line: None, lambda: self._left(seat), more, fds)
        task = asyncio.create_task(self._converse(seat, ours))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def tell(self) -> None:
        """Tell the server that answers how things stand."""
        if self._seats:
            self._seats[0].tell(self._state())

    async def _converse(self, seat: _Seat, ours: socket.socket) -> None:
        """Hear one server until it ends."""
        reader, seat.writer = await asyncio.open_unix_connection(sock=ours, limit=LINE_MAX)
        if self._is_first(seat):
            self.tell()
        decode = msgspec.json.Decoder(FromServer).decode
        with closing(seat.writer), suppress(OSError):
            while line := await reader.readline():
                said = decode(line)
                if not isinstance(said, Loaded):
                    self._hear(said)
                elif self._seats and not self._is_first(seat):
                    self._seats[0].part.send(signal.SIGTERM)

    def _is_first(self, seat: _Seat) -> bool:
        """Say whether this one answers; one that has ended already sits nowhere."""
        return self._seats[:1] == [seat]

    def _left(self, seat: _Seat) -> None:
        """A server has ended: let the next one begin, or start one where there is none."""
        self._seats.remove(seat)
        if self._seats:
            self.tell()
        elif not self._closed:
            self._ended()
            asyncio.get_running_loop().call_later(_PAUSE_S, self._start_again)

    def _start_again(self) -> None:
        if not self._seats:
            self.start()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to every server there is; from now on none is started."""
        self._closed = True
        for seat in self._seats:
            seat.part.send(number)

    async def close(self) -> None:
        """Hang up."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
