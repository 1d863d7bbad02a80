"""The processes of a chaos run: they are started, hit and ended here, each by its own number and nobody else."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).parent
_POISE = str(Path(sys.executable).with_name("poise"))
_QUICK = (sys.executable, "-I", "-S")
_WAKE_S = 0.2  # A child that wakes writes within its period, if it gets its turn; its watchdog may wake up later.
_BEGIN_S = 20.0
_END_S = 5.0


def start_sink(pipe: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start the sink, and wait until it has its table."""
    os.mkfifo(pipe)
    started = subprocess.Popen([*_QUICK, str(HERE / "chaos_sink.py"), str(pipe), str(log)])
    last_s = time.monotonic() + _BEGIN_S
    while not log.exists() or not log.with_name(f"{log.name}-wal").exists():
        assert started.poll() is None, "the sink has ended"
        assert time.monotonic() < last_s, "the sink did not begin"
        time.sleep(0.02)
    return started


def start_coordinator(url: str, items: int, terms: tuple[float, float, float], said: Path) -> subprocess.Popen[bytes]:
    """Start a coordinator of its own; the terms are lease, grace and restart grace."""
    command = [sys.executable, "-m", "tests.chaos.chaos_coordinator", url, str(items), *map(str, terms)]
    with said.open("ab") as errors:
        return subprocess.Popen(command, stderr=errors, stdin=subprocess.DEVNULL, cwd=HERE.parent.parent)


class Worker:
    """A `poise worker`, with its watchdog and their children."""

    def __init__(self, name: str, url: str, pipe: Path, said: Path, options: tuple[str, ...]) -> None:
        """Start it; its watchdog is known a little later."""
        self.name, self.said = name, said
        self.frozen: frozenset[int] | None = None  # The children that were frozen with it.
        self.ending = False
        command = [_POISE, "worker", "chaos", "--name", name, "--db", url, *options]
        command += ["--", *_QUICK, str(HERE / "chaos_child.py"), str(pipe)]
        with said.open("ab") as errors:
            self.process = subprocess.Popen(command, stderr=errors, stdin=subprocess.DEVNULL)
        self._watchdog: tuple[int, int] | None = None  # Its number, and a handle that no other process can get.

    @property
    def begun(self) -> bool:
        """Say whether it has become a member."""
        return self.watchdog is not None and ": member of " in self.said.read_text()

    @property
    def awake(self) -> bool:
        """Say whether it can be hit: it has begun, and nothing was done to it yet."""
        return self.frozen is None and not self.ending and self.process.poll() is None and self.begun

    @property
    def watchdog(self) -> int | None:
        """Read from what the worker says who its watchdog is."""
        if self._watchdog is None:
            numbers = [line.rpartition(" ")[2] for line in self.said.read_text().splitlines() if ": watchdog " in line]
            if numbers and self.process.poll() is None:
                with suppress(ProcessLookupError):
                    self._watchdog = int(numbers[0]), os.pidfd_open(int(numbers[0]))
        return None if self._watchdog is None else self._watchdog[0]

    def kill(self) -> None:
        """Kill the worker alone; its watchdog must do the rest."""
        self.ending = True
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Ask it to leave."""
        self.ending = True
        self.process.terminate()

    def freeze(self, *, children: bool) -> frozenset[int]:
        """Stop the worker, and perhaps all that belong to it: parents first, so that nobody new comes."""
        self.process.send_signal(signal.SIGSTOP)
        self.frozen = frozenset()
        if children:
            self._tell_watchdog(signal.SIGSTOP)
            self.frozen = frozenset(_children(self.watchdog))
            _tell(self.frozen, signal.SIGSTOP)
        return self.frozen

    def thaw(self) -> None:
        """Let all go on; children first, as it may happen: nobody looks at the clock before their next write."""
        if self.frozen:
            _tell(self.frozen & set(_children(self.watchdog)), signal.SIGCONT)
            time.sleep(_WAKE_S)
        if self.frozen is not None:
            self._tell_watchdog(signal.SIGCONT)
            self.process.send_signal(signal.SIGCONT)
        self.frozen = None

    def end(self) -> None:
        """End everything that belongs to it; children die with their watchdog."""
        watchdog = self.watchdog  # To be asked while the worker is there.
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if watchdog is not None and self._watchdog is not None:
            self._tell_watchdog(signal.SIGKILL)
            assert select.select([self._watchdog[1]], [], [], _END_S)[0], f"watchdog {watchdog} does not end"
            os.close(self._watchdog[1])
            self._watchdog = None

    def _tell_watchdog(self, number: int) -> None:
        if self.watchdog is not None and self._watchdog is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._watchdog[1], number)


def _tell(pids: frozenset[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _children(parent: int | None) -> list[int]:
    """List the children of a process; nobody can take the number of one before its parent has collected it."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                if int((path / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                    found.append(int(path.name))
    return found
