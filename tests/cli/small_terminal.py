"""A small terminal for tests: a real pseudo-terminal, and a screen that knows the few orders that pictures use."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.hold.processes import await_that

_ORDER = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])")
# Makes the terminal that of the process, so that its keys become signals, and turns into the verb.
_LOGIN = """import os, sys
os.login_tty(int(sys.argv[1]))
os.execv(sys.executable, [sys.executable, "-m", "poise", *sys.argv[2:]])
"""


class Terminal:
    """Runs a verb on a terminal of its own, and keeps what is on its screen."""

    def __init__(self, *arguments: str, columns: int = 80, lines: int = 24, encoding: str = "utf-8") -> None:
        self._here, there = pty.openpty()
        self.before = termios.tcgetattr(there)
        self.resize(columns, lines)
        environment = {**os.environ, "NO_COLOR": "1", "TERM": "xterm", "PYTHONIOENCODING": encoding}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _LOGIN, str(there), *arguments],
            env=environment,
            pass_fds=(there,),
        )
        self._there = there
        self.grid: dict[int, str] = {}
        self.is_other, self.is_hidden, self.clears, self.text = False, False, 0, ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        os.close(self._there)
        self._reader.join(10)
        os.close(self._here)

    def resize(self, columns: int, lines: int) -> None:
        """Give the terminal another size; the kernel tells whoever runs there."""
        fcntl.ioctl(self._here, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        """Type on its keyboard."""
        os.write(self._here, keys)

    def screen(self) -> list[str]:
        """Give its lines."""
        grid = dict(self.grid)
        return [grid.get(line, "") for line in range(1, max(grid, default=0) + 1)]

    def shows(self, *texts: str, within_s: float = 30.0) -> None:
        """Wait until all texts stand on the screen."""
        self.until(lambda lines: all(any(re.search(text, line) for line in lines) for text in texts), within_s)

    def until(self, met: Callable[[list[str]], bool], within_s: float = 30.0) -> None:
        """Wait until the screen is as it must become."""
        try:
            await_that(lambda: met(self.screen()), within_s)
        except AssertionError:
            raise AssertionError("\n".join(self.screen())) from None

    def is_as_before(self) -> bool:
        """Say whether everything was put back: the screen, the cursor and the keyboard."""
        return not self.is_other and not self.is_hidden and termios.tcgetattr(self._there) == self.before

    def _read(self) -> None:
        left = b""
        while True:
            try:
                got = os.read(self._here, 65_536)
            except OSError:
                return
            if not got:
                return
            left += got
            whole = left[: left.rfind(b"\x1b")] if b"\x1b" in left[-12:] else left
            text = whole.decode("utf-8", "ignore")
            left = left[len(whole) :]
            self.text += text
            self._take(text)
            if left and left.endswith((b"h", b"l", b"K", b"J", b"H", b"m")):
                self._take(left.decode())
                self.text += left.decode()
                left = b""

    def _take(self, text: str) -> None:
        """Carry out orders, and write what is between them at the cursor."""
        line, end = getattr(self, "_line", 1), 0
        for order in [*_ORDER.finditer(text), None]:
            plain = text[end : order.start() if order else len(text)]
            if plain:
                self.grid[line] = self.grid.get(line, "") + plain
            if order is None:
                break
            end = order.end()
            line = self._obey(order, line)
        self._line = line

    def _obey(self, order: re.Match[str], line: int) -> int:
        private, numbers, letter = order.groups()
        match private, letter:
            case "?", "h" | "l":
                self.is_other = letter == "h" if numbers == "1049" else self.is_other
                self.is_hidden = letter == "l" if numbers == "25" else self.is_hidden
            case "", "J" if numbers == "2":
                self.grid.clear()
                self.clears += 1
            case "", "J":
                self.grid = {place: said for place, said in self.grid.items() if place < line}
            case "", "H":
                line = int(numbers.split(";")[0] or 1)
                self.grid[line] = ""
        return line
