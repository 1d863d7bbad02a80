"""The one folder in which everything of a demo lives, and which one demo at a time may use."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

import msgspec

from poise.errors import PoiseError

_OWN = ("poise.db*", "work.db*", "demo.json", "logs/*.log")


class Kept(msgspec.Struct, frozen=True):
    """What a demo remembers for its next start: where its collectors listened, and which steps were taken."""

    ports: dict[str, int] = {}
    done: tuple[str, ...] = ()


class Folder:
    """Holds the folder while its block runs; the kernel lets go of it however this process ends."""

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        """Use this folder; with `fresh` what an earlier demo left in it is deleted first."""
        self.path, self._fresh = path, fresh
        self._lock: IO[str] | None = None

    def __enter__(self) -> Self:
        """Take the folder, or say who has it."""
        try:
            (self.path / "logs").mkdir(parents=True, exist_ok=True)
            lock = (self.path / "lock").open("a+")
        except OSError as error:
            raise PoiseError(f"{self.path} cannot be used: {error.strerror}; name another with --folder") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            pid = lock.read(20).strip()
            lock.close()
            told = f"the demo in {self.path} runs already (process {pid or '?'})"
            raise PoiseError(f"{told}: end it with Ctrl-C there, or name another folder with --folder") from None
        self._lock = lock
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        if self._fresh:
            self._clear()
        return self

    def __exit__(self, *_: object) -> None:
        """Let others have it."""
        assert self._lock is not None
        self._lock.close()

    def _clear(self) -> None:
        """Delete what a demo makes, and nothing else that may lie here."""
        for pattern in _OWN:
            for path in self.path.glob(pattern):
                path.unlink()

    @property
    def store(self) -> str:
        """Give the address of the store."""
        return f"sqlite:///{self.path / 'poise.db'}"

    @property
    def sink(self) -> Path:
        """Name the file into which the workers work."""
        return self.path / "work.db"

    def log(self, name: str) -> Path:
        """Name the log of a process."""
        return self.path / "logs" / f"{name}.log"

    def read(self) -> Kept:
        """Read what the last demo left; where that cannot be read, there was none."""
        with suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode((self.path / "demo.json").read_bytes(), type=Kept)
        return Kept()

    def write(self, kept: Kept) -> None:
        """Keep something for the next demo: all of it, or nothing."""
        made = self.path / "demo.json.new"
        made.write_bytes(msgspec.json.encode(kept))
        made.replace(self.path / "demo.json")
