"""The one folder in which everything of a demo lives, and which one demo at a time may use."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

import msgspec

from poise.errors import PoiseError

_MARK = "demo.json"  # Written before anything else of a demo, and deleted last: where it lies, the rest is a demo's.
_STORES = ("poise.db*", "work.db*")
_OWN = (*_STORES, "logs/*.log", f"{_MARK}.new", _MARK)


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
        try:
            self._check_mark()
            if self._fresh:
                self._clear()
        except BaseException:
            lock.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Let others have it."""
        assert self._lock is not None
        self._lock.close()

    def _check_mark(self) -> None:
        """Refuse a folder with stores that no demo has made: `poise up` keeps its own under the same name."""
        strange = sorted(path.name for pattern in _STORES for path in self.path.glob(pattern))
        if strange and not (self.path / _MARK).exists():
            told = f"{self.path} holds {strange[0]}, which no demo has made"
            raise PoiseError(f"{told}: name another folder with --folder")

    def _clear(self) -> None:
        """Delete what a demo makes, and nothing else that may lie here."""
        for path in [path for pattern in _OWN for path in self.path.glob(pattern)]:
            try:
                path.unlink()
            except OSError as error:
                raise PoiseError(f"{path} cannot be deleted: {error.strerror}") from None

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
            return msgspec.json.decode((self.path / _MARK).read_bytes(), type=Kept)
        return Kept()

    def write(self, kept: Kept) -> None:
        """Keep something for the next demo: all of it, or nothing."""
        made = self.path / f"{_MARK}.new"
        made.write_bytes(msgspec.json.encode(kept))
        made.replace(self.path / _MARK)
