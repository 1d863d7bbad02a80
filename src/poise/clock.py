"""The only reader of time: the wall clock for people, and for leases a clock that counts suspend."""

from __future__ import annotations

import time
from datetime import UTC, datetime

# Only Linux has the first; elsewhere the second one is the nearest.
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> datetime:
    """Read the wall clock, in UTC."""
    return datetime.now(UTC)


def boot_s() -> float:
    """Count the seconds since this machine started, those asleep included; nobody can set this clock."""
    return time.clock_gettime(_BOOT_CLOCK)
