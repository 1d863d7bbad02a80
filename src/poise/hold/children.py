"""One child process for every item that is held, through a watchdog that ends it if this process cannot."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

import msgspec

from poise.clock import boot_s
from poise.hold.watchdog import Begin, Begun, Emptied, Event, Quit, Renew, Rules, adopt_orphans, signal_group

RESTART_S = 0.5  # The pause before a child that ended by itself is started again; it doubles.
RESTART_MAX_S = 30.0
STEADY_S = 10.0  # A child that ran so long starts with the shortest pause again.
LAST_LOOK_S = 0.02

_log = logging.getLogger("poise.children")


class _Child:
    """What is known of the child of one item."""

    def __init__(self, item: str, epoch: int) -> None:
        self.item, self.epoch = item, epoch
        self.pid: int | None = None
        self.begun_s = 0.0
        self.falls = 0
        self.stopping = False
        self.empty = asyncio.Event()
        self.empty.set()
        self.again: asyncio.TimerHandle | None = None


class Children:
    """Starts a command for an item, and lets go of the item only when nobody of its process group is left."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, kill_after_s: float, stop_s: float
    ) -> None:
        """Run this command for every item; `environment` goes beside the item and its epoch."""
        self._command, self._environment = tuple(command), dict(environment)
        self._rules = Rules(kill_after_s, stop_s)
        self._children: dict[str, _Child] = {}
        self._untils: dict[str, float] = {}
        self._encode = msgspec.json.Encoder().encode
        self.gone = asyncio.Event()  # The watchdog has ended.

    async def __aenter__(self) -> Self:
        """Start the watchdog, from the main thread: it outlives everything else of this process."""
        adopt_orphans()  # Should the watchdog be killed, its children become this process's own.
        reading, events = os.pipe()
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "poise.hold.watchdog", str(events)),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=[events],
            start_new_session=True,
        )
        os.close(events)
        loop, stream = asyncio.get_running_loop(), asyncio.StreamReader()
        self._transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(reading, "rb", 0)
        )
        self._send(self._rules)
        self._reader = asyncio.create_task(self._read(stream))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the watchdog go; whatever still runs then is ended by it."""
        del kind, error, trace
        for child in self._children.values():
            self._calm(child)
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._reader
        self._transport.close()

    @property
    def pids(self) -> dict[str, int]:
        """The leaders of the groups that run now."""
        return {item: child.pid for item, child in self._children.items() if child.pid is not None}

    @property
    def watchdog_pid(self) -> int:
        """The process that is the parent of the children."""
        return self._process.pid

    async def start(self, item: str, epoch: int) -> None:
        """Start the child of an item."""
        child = self._children[item] = _Child(item, epoch)
        self._begin(child)

    async def stop(self, item: str, epoch: int) -> None:
        """Ask the child to end, and wait until its whole group is empty."""
        child = self._children.get(item)
        if child is None or child.epoch != epoch:
            return
        child.stopping = True
        self._calm(child)
        self._send(Quit(item))
        if self.gone.is_set():
            await self._end_alone(child)
        else:
            await child.empty.wait()
        del self._children[item]

    def renew(self, untils: dict[str, float]) -> None:
        """Tell the watchdog until when each item may be acted on."""
        self._untils = untils
        self._send(Renew(untils))

    def _begin(self, child: _Child) -> None:
        if child.stopping or self.gone.is_set():
            return
        child.empty.clear()
        child.begun_s = boot_s()
        named = {"POISE_ITEM": child.item, "POISE_EPOCH": str(child.epoch)}
        until_s = self._untils.get(child.item, 0.0)
        self._send(Begin(child.item, child.epoch, self._command, {**self._environment, **named}, until_s))

    def _send(self, order: Begin | Renew | Quit | Rules) -> None:
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(self._encode(order) + b"\n")

    async def _read(self, stream: asyncio.StreamReader) -> None:
        """Hear the watchdog; when it ends without being asked to, its children must not go on."""
        decode = msgspec.json.Decoder(Event).decode
        while line := await stream.readline():
            self._hear(decode(line))
        self.gone.set()
        for child in list(self._children.values()):
            if not child.empty.is_set():
                await self._end_alone(child)

    def _hear(self, event: Event) -> None:
        child = self._children.get(event.item)
        if child is None or child.epoch != event.epoch:
            return
        match event:
            case Begun(pid=pid):
                child.pid = pid
            case Emptied(code=code):
                child.pid = None
                child.empty.set()
                if not child.stopping:
                    self._restart_later(child, code)

    def _restart_later(self, child: _Child, code: int | None) -> None:
        """A child that ended by itself is started again while its item is held, each time after a longer pause."""
        child.falls = 1 if boot_s() - child.begun_s >= STEADY_S else child.falls + 1
        pause_s = min(RESTART_MAX_S, RESTART_S * 2 ** (child.falls - 1))
        _log.warning("child.ended item=%s epoch=%d code=%s again_s=%g", child.item, child.epoch, code, pause_s)
        child.again = asyncio.get_running_loop().call_later(pause_s, self._begin, child)

    def _calm(self, child: _Child) -> None:
        if child.again is not None:
            child.again.cancel()

    async def _end_alone(self, child: _Child) -> None:
        """Kill a group without the watchdog's help, and see it empty: its orphans have become this process's own."""
        while child.pid is not None and signal_group(child.pid, signal.SIGKILL):
            with suppress(ChildProcessError):
                os.waitpid(-child.pid, os.WNOHANG)
            await asyncio.sleep(LAST_LOOK_S)
        child.pid = None
        child.empty.set()
