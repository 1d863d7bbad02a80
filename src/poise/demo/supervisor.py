"""The parent of the demo: it starts the server and the parts, breaks what it is told to break, and mends it later.

Order for safety: the address is taken first, the server starts before its parts, and at the end nothing is left: parts
go first, so that they can say goodbye, then the server. Should this process be killed, the kernel ends them all.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta

import msgspec

from poise import clock
from poise.demo.folder import Folder, Kept
from poise.demo.parts import Part
from poise.demo.seats import Seats
from poise.demo.words import Answers, FromServer, Late, Order, Settled, State, Taken
from poise.errors import PoiseError

RESTART_S, FREEZE_S = 16.0, 15.0  # How long a killed part stays down, and a frozen one still.
_RESTART_MAX_S = 300.0
_FALL_S = 5.0  # A part that ends sooner than this after its start has fallen.
_START_S = 60.0
_APART_S = 0.12  # Parts start one after the other, so that the first page need not wait for all of them.
_GOODBYE_S, _SERVER_END_S = 1.5, 5.0
_BURST_S = 0.8  # Late writes come together, and are told together.

SERVER_LOG = "server"

Say = Callable[[str], None]


class Supervisor:
    """Looks after all processes of one demo. One event loop owns all of it."""

    def __init__(self, parts: Sequence[Part], folder: Folder, kept: Kept, say: Say) -> None:
        """Look after these; `say` is told what is worth a line."""
        self._parts, self._folder, self._say = {part.name: part for part in parts}, folder, say
        self._kept, self._heard = kept, 0
        self._taken: dict[str, Taken] = {}
        self._late: dict[str, int] = {}
        self._answers, self._ending, self._gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def run(
        self, make_server: Callable[[bool], Part], listening: socket.socket, ready: Callable[[], None]
    ) -> None:
        """Run until a signal comes; `ready` is called when the server answers."""
        self._server = Seats(make_server, listening, self._state, self._hear, self._server_ended)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal)
        try:
            self._server.start(first=True)
            if not await self._first_answer():
                return
            ready()
            for part in self._parts.values():
                self._start(part)
                self._server.tell()
                await _within(self._ending.wait(), _APART_S)
            await self._ending.wait()
        finally:
            await self._end()

    async def _first_answer(self) -> bool:
        """Wait for the server; one that cannot start says why in the last line of its log."""
        waits = [asyncio.create_task(each.wait()) for each in (self._answers, self._ending, self._gone)]
        await asyncio.wait(waits, timeout=_START_S, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()
        if not self._answers.is_set() and not self._ending.is_set():
            log = self._folder.log(SERVER_LOG)
            lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
            raise PoiseError(f"the server did not start: {lines[-1].removeprefix('poise: ') if lines else 'no answer'}")
        return self._answers.is_set()

    def _on_signal(self) -> None:
        """Twice means now."""
        if self._ending.is_set():
            self._kill_all()
        self._ending.set()

    # The server.

    def _state(self) -> State:
        parts = tuple(part.seen() for part in self._parts.values())
        return State(parts=parts, taken=self._taken, done=self._kept.done, heard=self._heard)

    def _hear(self, said: FromServer) -> None:
        match said:
            case Answers():
                self._on_answers()
            case Order():
                self._obey(said)
            case Settled():
                self._note(said)
        self._server.tell()

    def _on_answers(self) -> None:
        again, taken = self._answers.is_set(), self._taken.get("restart-server")
        self._answers.set()
        if again:
            self._say(f"the server answers again (process {self._server.pid})")
        if taken is not None and taken.back_at is None:
            self._taken["restart-server"] = msgspec.structs.replace(taken, back_at=clock.now())

    def _server_ended(self) -> None:
        """Nobody asked for it: before the first answer that is the end of the demo, later a new one is started."""
        self._gone.set()
        if not self._ending.is_set() and self._answers.is_set():
            self._say("the server has ended, and is started again; the parts go on")

    def _note(self, said: Settled) -> None:
        taken = self._taken.get(said.step)
        if taken is not None:
            self._taken[said.step] = msgspec.structs.replace(
                taken, settled_s=said.settled_s, over=said.over, text=said.text
            )
            if said.news:
                self._say(said.text)

    # What is broken on purpose.

    def _obey(self, order: Order) -> None:
        """Do what a step needs of this process; the rest of it the server has done."""
        taken, part = order.taken, self._parts.get(order.taken.subject)
        self._heard = order.number
        self._taken.pop(taken.step, None)
        self._taken[taken.step] = taken  # The newest step is the last one.
        match taken.step:
            case "kill-worker" if part is not None:
                part.send(signal.SIGKILL)
            case "freeze-worker" if part is not None:
                self._freeze(part)
            case "restart-server":
                self._say("the server is restarted; the parts go on")
                self._server.start()
            case "drain-collector" if not taken.back:
                self._say(f"{taken.subject} is drained: its {len(taken.epochs)} targets leave one after the other")
            case "change-weight":
                self._say(f"{taken.subject} weighs {taken.weights[1]} instead of {taken.weights[0]}")
        if taken.step not in self._kept.done:
            self._kept = msgspec.structs.replace(self._kept, done=(*self._kept.done, taken.step))
            self._folder.write(self._kept)

    def _freeze(self, part: Part) -> None:
        if part.state != "running":
            return
        part.send(signal.SIGSTOP)
        part.state, part.until = "frozen", clock.now() + timedelta(seconds=FREEZE_S)
        part.timer = asyncio.get_running_loop().call_later(FREEZE_S, self._thaw, part)
        self._say(f"{part.name} is frozen (SIGSTOP) for {FREEZE_S:.0f} s: it believes that it holds what it held")

    def _thaw(self, part: Part) -> None:
        if part.state == "frozen":
            part.send(signal.SIGCONT)
            part.state, part.until = "running", None
            self._say(f"{part.name} goes on (SIGCONT)")
            self._server.tell()

    # The parts.

    def _start(self, part: Part) -> None:
        if self._ending.is_set():
            return
        back = part.pid != 0
        part.start(lambda line: self._listen(part, line), lambda: self._ended(part))
        if back:
            self._say(f"{part.name} is back (process {part.pid})")
            self._server.tell()

    def _ended(self, part: Part) -> None:
        """A part is missed for a while, so that everybody can see what happens; one that falls, for longer."""
        if self._ending.is_set():
            return
        if part.timer is not None:
            part.timer.cancel()
        part.falls = part.falls + 1 if clock.boot_s() - part.began_s < _FALL_S else 0
        pause_s = min(_RESTART_MAX_S, RESTART_S * 2**part.falls)
        part.until = clock.now() + timedelta(seconds=pause_s)
        part.timer = asyncio.get_running_loop().call_later(pause_s, self._start, part)
        how = f"was killed ({signal.Signals(-part.code).name})" if part.code < 0 else f"has ended (code {part.code})"
        self._say(f"{part.name} {how}; it is started again in {pause_s:.0f} s")
        self._server.tell()

    def _listen(self, part: Part, line: bytes) -> None:
        """Hear of a late write, and tell of all that come together at once."""
        with suppress(msgspec.DecodeError):
            msgspec.json.decode(line, type=Late)
            if part.name not in self._late:
                asyncio.get_running_loop().call_later(_BURST_S, self._tell_late, part.name)
            self._late[part.name] = self._late.get(part.name, 0) + 1

    def _tell_late(self, name: str) -> None:
        late = self._late.pop(name)
        self._say(f"{name} tried {late} late write{'s' if late != 1 else ''} with old epochs: refused, every one")
        taken = self._taken.get("freeze-worker")
        if taken is not None and taken.subject == name:
            self._taken["freeze-worker"] = msgspec.structs.replace(taken, late=taken.late + late)
        self._server.tell()

    # The end.

    async def _end(self) -> None:
        """Let the parts say goodbye, end the server, and leave nobody behind."""
        self._ending.set()
        for part in self._parts.values():
            part.send(signal.SIGKILL if part.state == "frozen" else signal.SIGTERM)
        await _until(lambda: not any(part.runs for part in self._parts.values()), _GOODBYE_S)
        for part in self._parts.values():
            part.send(signal.SIGKILL)
        self._server.send(signal.SIGTERM)
        await _until(lambda: not self._server.runs, _SERVER_END_S)
        self._kill_all()
        await _until(lambda: not (self._server.runs or any(part.runs for part in self._parts.values())), _GOODBYE_S)
        await self._server.close()

    def _kill_all(self) -> None:
        self._server.send(signal.SIGKILL)
        for part in self._parts.values():
            part.send(signal.SIGKILL)


async def _within(waits: Awaitable[object], seconds: float) -> None:
    """Wait for something, but no longer than this."""
    with suppress(TimeoutError):
        await asyncio.wait_for(waits, seconds)


async def _until(met: Callable[[], bool], within_s: float) -> None:
    """Wait for something for a time."""
    last_s = clock.boot_s() + within_s
    while not met() and clock.boot_s() < last_s:
        await asyncio.sleep(0.02)
