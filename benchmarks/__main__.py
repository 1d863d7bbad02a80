"""Print every figure with its bound; a machine under load may show an OVER that a quiet one does not."""

from __future__ import annotations

import os
import platform
import sys

from tests.pool import pool_numbers

from benchmarks import counts, handover, items, ownership, page, serving
from benchmarks.measure import show

_PARTS = (items, counts, ownership, handover, serving, page, pool_numbers)


def main() -> int:
    """Measure and print."""
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}; planners: CPU time, the rest: wall time")
    return show(row for part in _PARTS for row in part.rows())


if __name__ == "__main__":
    sys.exit(main())
