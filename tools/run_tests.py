"""Runs every test: those that wait for leases side by side, and those that only compute behind them, at a low priority.

The first kind has deadlines and leaves processors idle; the second would starve it, and takes what is left. What the
second kind says comes at the end. `python -m tools.run_tests [PROCESSES]`
"""

from __future__ import annotations

import subprocess
import sys
import tempfile


def pytest(marks: str, processes: int) -> list[str]:
    """Give the command of one part."""
    spread = ["-n", str(processes), "--dist", "loadfile", "--no-loadscope-reorder"]
    return [sys.executable, "-m", "pytest", "-m", marks, *spread]


def run(processes: int) -> int:
    """Run both parts; gives the exit code of the first that failed."""
    with tempfile.TemporaryFile() as said:
        behind = subprocess.Popen(["nice", "-n", "19", *pytest("computes", 2)], stdout=said, stderr=said)
        try:
            first = subprocess.run(pytest("not computes", processes), check=False).returncode
            sys.stdout.write("The tests that only compute:\n")
            sys.stdout.flush()
            second = behind.wait()
        except BaseException:
            behind.terminate()
            behind.wait()
            raise
        said.seek(0)
        sys.stdout.buffer.write(said.read())
    return first or second


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]) if len(sys.argv) > 1 else 2))
