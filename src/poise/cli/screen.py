"""A terminal while a picture lives on it: another screen, keys without Enter, and everything put back at the end."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Self

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_KEYS = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1b[5~": "back",
    b"\x1b[6~": "page",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"p": "page",
    b" ": "page",
    b"P": "back",
    b"b": "back",
    b"j": "down",
    b"k": "up",
    b"q": "quit",
    b"Q": "quit",
    b"\x03": "quit",
    b"\x04": "quit",
}


class Screen:
    """Draws lines; only those that differ are written, so that nothing flickers."""

    def __init__(self) -> None:
        """Look at the terminal; it is not changed yet."""
        self._out = sys.stdout.fileno()
        self._in = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._shown: list[str] = []
        self._size = (0, 0)
        self._mode: list[int | list[bytes | int]] | None = None
        self._woken, self._waker = os.pipe()
        self.ended = False

    def __enter__(self) -> Self:
        """Take the terminal over."""
        os.set_blocking(self._waker, False)
        os.set_blocking(self._woken, False)
        self._handlers = {
            number: signal.signal(number, self._hear)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGWINCH, signal.SIGTSTP)
        }
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the terminal back as it was."""
        self._give()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._waker)
        os.close(self._woken)

    def wake(self) -> None:
        """End a wait, from any thread."""
        with suppress(OSError):  # Full of calls already, or closed.
            os.write(self._waker, b".")

    def size(self) -> tuple[int, int]:
        """Measure the terminal: columns and lines."""
        try:
            columns, lines = os.get_terminal_size(self._out)
        except OSError:
            columns, lines = 80, 24
        return max(20, columns or 80), max(5, lines or 24)

    def wait(self, timeout_s: float) -> list[str]:
        """Wait for keys, a signal or a call; give the names of the keys."""
        sources = [self._woken] + ([self._in] if self._in is not None else [])
        ready, _, _ = select.select(sources, [], [], timeout_s)
        if self._woken in ready:
            os.read(self._woken, 4096)
        if self._in is None or self._in not in ready:
            return []
        typed = os.read(self._in, 1024)
        if not typed:
            self._in = None  # The terminal is gone, or somebody typed the end of a file.
        return _keys(typed)

    def draw(self, lines: Sequence[str]) -> None:
        """Show lines; after a change of the size all of them are written anew."""
        size, written = self.size(), []
        if size != self._size:
            written.append("\x1b[2J")
            self._size, self._shown = size, []
        for place, line in enumerate(lines):
            if place >= len(self._shown) or self._shown[place] != line:
                written.append(f"\x1b[{place + 1};1H{line}\x1b[K")
        if len(lines) < len(self._shown):
            written.append(f"\x1b[{len(lines) + 1};1H\x1b[J")
        self._shown = list(lines)
        if written:
            self._write("".join(written))

    def _take(self) -> None:
        if self._in is not None:
            import termios
            import tty

            self._mode = termios.tcgetattr(self._in)
            tty.setcbreak(self._in)
        self._size, self._shown = (0, 0), []
        self._write(_ENTER)

    def _give(self) -> None:
        self._write(_LEAVE)
        if self._in is not None and self._mode is not None:
            import termios

            termios.tcsetattr(self._in, termios.TCSADRAIN, self._mode)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        """Take a signal: a stop gives the terminal back until the process goes on."""
        if number == signal.SIGTSTP:
            self._give()
            os.kill(os.getpid(), signal.SIGSTOP)
            self._take()
        elif number != signal.SIGWINCH:
            self.ended = True
        self.wake()

    def _write(self, text: str) -> None:
        """Write everything; a terminal that is gone ends the show."""
        left = text.encode(sys.stdout.encoding or "utf-8", "replace")
        try:
            while left:
                left = left[os.write(self._out, left) :]
        except OSError:
            self.ended = True


def _keys(typed: bytes) -> list[str]:
    """Name the keys that were typed; others mean nothing here."""
    found = []
    while typed:
        known = next((key for key in _KEYS if typed.startswith(key)), None)
        found += [_KEYS[known]] if known else []
        typed = typed[len(known) if known else 1 :]
    return found
