"""The clocks: one for people, and one for leases that counts suspend and cannot be set."""

from __future__ import annotations

import time
from datetime import UTC
from pathlib import Path

from poise import clock


def test_leases_are_measured_by_the_clock_that_counts_suspend() -> None:
    assert time.CLOCK_BOOTTIME == clock._BOOT_CLOCK
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    assert abs(clock.boot_s() - uptime_s) < 5.0


def test_the_wall_clock_has_its_zone() -> None:
    assert clock.now().tzinfo is UTC
