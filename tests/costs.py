"""What work costs, for comparisons within one run: how fast a machine is says nothing about a program."""

from __future__ import annotations

import time
from collections.abc import Callable


def cost_s(work: Callable[[], object], times: int = 5) -> float:
    """Give the CPU of the cheapest of some tries."""

    def once() -> float:
        began_s = time.process_time()
        work()
        return time.process_time() - began_s

    return min(once() for _ in range(times))
