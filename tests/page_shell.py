"""Pages whose commands are executed: in one shell, in their order, and they must show what the text shows."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

DONE = "-- done --"
PATIENCE_S = 60.0  # For what has no time in the text: processes that start on a busy machine.
CLOSE_S = 5.0


class Step(NamedTuple):
    """The commands of one block, what they print, and how soon the text says that they print it."""

    line: int
    commands: str
    shown: str | None
    within_s: float


def read_steps(text: str, patience_s: float = PATIENCE_S) -> list[Step]:
    """Read the `sh` blocks, each with the `text` block that follows it at once and the words before it."""
    found, said = [], 0
    for block in re.finditer(r"^```sh\n(.*?)^```\n(?:```text\n(.*?)^```$)?", text, re.MULTILINE | re.DOTALL):
        named = re.findall(r"[Ww]ithin (\d+) seconds", text[said : block.start()])
        line = text.count("\n", 0, block.start()) + 1
        found.append(Step(line, block[1], block[2], float(named[-1]) if named else patience_s))
        said = block.end()
    return found


class Shell:
    """One shell, as a reader has it; everything that it started is ended with it."""

    def __init__(self, folder: Path, total_s: float, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._total_s, self.ends_s = total_s, time.monotonic() + total_s

    def run(self, commands: str) -> str:
        """Run commands, and return what they printed."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{commands}\necho '{DONE}'\n".encode())
        self.process.stdin.flush()
        return self._read(commands)

    def _read(self, commands: str) -> str:
        assert self.process.stdout is not None
        printed = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not printed.endswith(f"{DONE}\n".encode()):
                ready = selector.select(max(0.0, self.ends_s - time.monotonic()))
                assert ready, f"the page takes more than {self._total_s:.0f} s, in: {commands}"
                some = os.read(self.process.stdout.fileno(), 65536)
                assert some, f"the shell has ended in: {commands}"
                printed += some
        return printed.decode().removesuffix(f"{DONE}\n")

    def processes(self) -> list[int]:
        """Find who works in the folder: workers, watchdogs, counters, the shell."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and (entry / "cwd").readlink().is_relative_to(self.folder):
                    found.append(int(entry.name))
        return found

    def close(self) -> None:
        """End them one by one, until nobody is left to start another one."""
        until_s = time.monotonic() + CLOSE_S
        while (left := self.processes()) and time.monotonic() < until_s:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.poll()
            time.sleep(0.02)
        self.process.wait(CLOSE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


def follow(shell: Shell, step: Step, says: Callable[[Step, str], bool], page: Path) -> None:
    """Run a block; what has output below it only looks, and looks again until its time is over."""
    until_s = time.monotonic() + step.within_s
    printed = shell.run(step.commands)
    while step.shown and not says(step, printed) and time.monotonic() < until_s:
        time.sleep(0.2)
        printed = shell.run(step.commands)
    place = f"{page.name}:{step.line}, within {step.within_s:.0f} s"
    assert says(step, printed), f"{place}: {step.commands}{printed}"
