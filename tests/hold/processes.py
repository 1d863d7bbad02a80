"""Real processes in tests: who is in a group, and children that misbehave."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 60.0
OBEDIENT = ("sh", "-c", "exec sleep 300")
DEAF = ("sh", "-c", 'trap "" TERM; while :; do sleep 0.05; done')
FAMILY = ("sh", "-c", "sleep 300 & sleep 300 & wait")
# What is ignored before a fork stays so after it: at no moment does one of them hear.
DEAF_FAMILY = ("sh", "-c", 'trap "" TERM; while :; do sleep 0.05; done & while :; do sleep 0.05; done & wait')
DEAF_ORPHANS = ("sh", "-c", 'trap "" TERM; while :; do sleep 0.05; done & exit 5')
SHORT_LIVED = ("sh", "-c", "exit 3")


def group(pgid: int) -> list[int]:
    """List the processes of a group that are alive."""
    found = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            state, _, its_group = (path / "stat").read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(its_group) == pgid and state not in "ZX":
            found.append(int(path.name))
    return found


def alive(pid: int) -> bool:
    """Say whether a process runs; one that has ended and waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def await_that(met: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Wait for something that must come."""
    last_s = time.monotonic() + patience_s
    while not met():
        assert time.monotonic() < last_s, "it did not come in time"
        time.sleep(0.02)
