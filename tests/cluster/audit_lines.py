"""The audit file: one line an event, appended whole, so that many processes share it and a kill tears nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Literal

import msgspec
from tests.cluster.audit_case import Patch, Reconcile


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event: a reconcile begins, a write was answered, a reconcile ends."""

    what: Literal["begin", "patch", "end"]
    process: int
    number: int
    at_s: float
    object: str = ""
    family: str = ""
    instance: str = ""
    epoch: int = 0
    sent_s: float = 0.0
    outcome: str = ""
    version: int = 0


def boot_s() -> float:
    """Read the one clock of all times of an audit: it counts suspend, and nobody can set it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class AuditFile:
    """What one process notes of its reconciles."""

    def __init__(self, path: Path, instance: str, process: int | None = None) -> None:
        """Append to this file; others do the same. Instances that share a process give themselves numbers."""
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._process = os.getpid() if process is None else process
        self._instance, self._number = instance, 0

    def begin(self, name: str, family: str, epoch: int) -> Noted:
        """Note that a reconcile begins, before it does anything."""
        self._number += 1
        self.note(self.line("begin", self._number, object=name, family=family, epoch=epoch))
        return Noted(self, self._number)

    def line(self, what: Literal["begin", "patch", "end"], number: int, **more: str | int | float) -> Line:
        """Make a line of this process."""
        facts = {"what": what, "process": self._process, "number": number, "at_s": boot_s(), "instance": self._instance}
        return msgspec.convert({**facts, **more}, Line)

    def note(self, line: Line) -> None:
        """Append one line by one write."""
        os.write(self._file, msgspec.json.encode(line) + b"\n")


class Noted:
    """One reconcile that is being noted."""

    def __init__(self, file: AuditFile, number: int) -> None:
        """Note into this file."""
        self._file, self._number = file, number

    def __enter__(self) -> Noted:
        """Be usable in a block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Note the end, whatever it is."""
        self._file.note(self._file.line("end", self._number, outcome="" if kind is None else kind.__name__))

    def patch(self, sent_s: float, epoch: int, outcome: str, version: str = "0") -> None:
        """Note how a write ended, and at which epoch it was."""
        self._file.note(
            self._file.line("patch", self._number, sent_s=sent_s, epoch=epoch, outcome=outcome, version=int(version))
        )


def read_audit(path: Path) -> tuple[tuple[Reconcile, ...], tuple[Patch, ...]]:
    """Read all reconciles, and all writes, in the order in which they began and were answered.

    Others may append to it meanwhile: a line that is seen half is read the next time.
    """
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    return read_lines(msgspec.json.decode(line, type=Line) for line in whole.splitlines())


def read_lines(lines: Iterable[Line]) -> tuple[tuple[Reconcile, ...], tuple[Patch, ...]]:
    """Put the events of each reconcile together."""
    begun: dict[tuple[str, int, int], Reconcile] = {}
    patches: list[Patch] = []
    for line in lines:
        key = line.instance, line.process, line.number
        match line.what:
            case "begin":
                begun[key] = Reconcile(
                    line.object, line.family, line.instance, line.process, line.epoch, start_s=line.at_s
                )
            case "end":
                begun[key] = begun[key]._replace(end_s=line.at_s)
            case "patch":
                one = begun[key]
                patches.append(
                    Patch(one.object, one.instance, one.process, line.epoch, line.sent_s, line.outcome, line.version)
                )
    return tuple(begun.values()), tuple(patches)
