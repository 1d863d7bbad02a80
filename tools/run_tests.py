"""Runs every test: first those that mostly wait, then those that are judged by the second, which need the machine.

What only computes runs behind all of them, while the machine would be idle. `python -m tools.run_tests [PROCESSES]`
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import IO

COMPUTING = tuple(f"tests/{name}" for name in ("conformance", "decide", "laws", "model", "move", "observe", "sim"))
PUNCTUAL = ("tests/chaos", "tests/cluster/test_sharding_chaos.py")
WAITING = ("tests", *(f"--ignore={path}" for path in (*COMPUTING, *PUNCTUAL)))


def begin(chosen: tuple[str, ...], processes: str, into: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """Start one part, some files side by side."""
    spread = ["-n", processes, "--dist", "loadfile", "--no-loadscope-reorder"]
    return subprocess.Popen([sys.executable, "-m", "pytest", *chosen, *spread], stdout=into)


def run(processes: str) -> int:
    """Run all parts; gives the worst exit code."""
    with tempfile.TemporaryFile() as said:
        computing = begin(COMPUTING, "1", said)
        os.sched_setscheduler(computing.pid, os.SCHED_IDLE, os.sched_param(0))
        try:
            codes = [begin(WAITING, processes).wait(), begin(PUNCTUAL, "2").wait(), computing.wait()]
        except BaseException:
            computing.terminate()
            computing.wait()
            raise
        said.seek(0)
        sys.stdout.buffer.write(said.read())
    return max(codes, key=abs)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1] if len(sys.argv) > 1 else "3"))
