"""The clock of a member: it counts the time that a machine was suspended, and nobody can set it."""

from __future__ import annotations

import time

# Only Linux has the first; elsewhere the second one is the nearest.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_s() -> float:
    """Read the seconds since this machine was started."""
    return time.clock_gettime(_CLOCK)
