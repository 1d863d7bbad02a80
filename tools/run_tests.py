"""Runs every test: first those that wait for leases, with the machine to themselves, then those that only compute.

The first kind has deadlines, and the second would starve it. `python -m tools.run_tests [PROCESSES]`
"""

from __future__ import annotations

import subprocess
import sys


def run(marks: str, processes: str) -> int:
    """Run one part, some files side by side; gives its exit code."""
    spread = ["-n", processes, "--dist", "loadfile", "--no-loadscope-reorder"]
    return subprocess.run([sys.executable, "-m", "pytest", "-m", marks, *spread], check=False).returncode


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else "2"
    codes = [run(marks, chosen) for marks in ("not computes", "computes")]
    sys.exit(max(codes, key=abs))
