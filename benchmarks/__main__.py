"""Print every figure with its bound; a machine under load may show an OVER that a quiet one does not."""

from __future__ import annotations

import os
import platform

from tests.pool import pool_numbers

from benchmarks import counts, handover, items, ownership, page, serving

_PARTS = (items, counts, ownership, handover, serving, page, pool_numbers)


def main() -> None:
    """Measure and print."""
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}; planners: CPU time, the rest: wall time")
    for row in (row for part in _PARTS for row in part.rows()):
        print(row, flush=True)


if __name__ == "__main__":
    main()
