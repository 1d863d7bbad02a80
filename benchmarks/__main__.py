"""Print every figure with its bound; a machine under load may show an OVER that a quiet one does not."""

from __future__ import annotations

import os
import platform

from benchmarks import counts, items, ownership


def main() -> None:
    """Measure and print."""
    print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}; CPU time, best of several runs; stores: wall time"
    )
    for row in (row for part in (items, counts, ownership) for row in part.rows()):
        print(row, flush=True)


if __name__ == "__main__":
    main()
