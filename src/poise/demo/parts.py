"""One process of the demo: started, watched until it ends, and read where it says something."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from poise import clock
from poise.demo.leash import PARENT
from poise.demo.words import PartSeen, PartState

_READ_MAX = 1 << 16


class Part:
    """A process that is started again under the same name; the event loop that starts it also hears of its end."""

    def __init__(self, name: str, role: str, arguments: Sequence[str], log: Path) -> None:
        """Prepare; nothing runs yet. What it complains about goes to the log."""
        self.name, self.role, self._arguments, self._log = name, role, tuple(arguments), log
        self.state: PartState = "down"
        self.until: datetime | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.began_s = 0.0
        self.falls = 0
        self.code = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = b""

    @property
    def pid(self) -> int:
        """The number of its process, also of one that has ended."""
        return self._process.pid if self._process is not None else 0

    @property
    def runs(self) -> bool:
        """Say whether there is a process, frozen or not."""
        return self._process is not None and self._process.poll() is None

    def seen(self) -> PartSeen:
        """Show it as the server shall see it."""
        return PartSeen(self.name, self.role, self.state, self.pid, self.until)

    def start(
        self,
        hear: Callable[[bytes], None],
        ended: Callable[[], None],
        more: Sequence[str] = (),
        fds: Sequence[int] = (),
    ) -> None:
        """Start it in a session of its own: what is typed at the terminal is for the parent only."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "poise.demo", *self._arguments, *more],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=fds,
                start_new_session=True,
                env={**os.environ, PARENT: str(os.getpid())},
            )
        self.state, self.until, self.began_s, self._heard = "running", None, clock.boot_s(), b""
        loop, watched = asyncio.get_running_loop(), os.pidfd_open(self._process.pid)
        loop.add_reader(watched, self._collect, watched, ended)
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        loop.add_reader(self._process.stdout, self._read, hear)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if there is still somebody to hear it."""
        if self._process is not None:
            self._process.send_signal(number)

    def _read(self, hear: Callable[[bytes], None]) -> None:
        """Take what it says, line by line."""
        assert self._process is not None
        assert self._process.stdout is not None
        text = os.read(self._process.stdout.fileno(), _READ_MAX)
        *lines, self._heard = (self._heard + text).split(b"\n")
        for line in lines:
            hear(line)
        if not text:
            asyncio.get_running_loop().remove_reader(self._process.stdout)
            self._process.stdout.close()

    def _collect(self, watched: int, ended: Callable[[], None]) -> None:
        """It has ended: note how, and tell."""
        assert self._process is not None
        asyncio.get_running_loop().remove_reader(watched)
        os.close(watched)
        self.code = self._process.wait()
        self.state = "down"
        ended()
