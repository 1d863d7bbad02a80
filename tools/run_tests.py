"""Runs every test: first those that mostly wait, then those that are judged by the second, which need the machine.

What only computes runs behind them, while the machine would be idle. `python -m tools.run_tests [PROCESSES]`
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from typing import IO

COMPUTING = tuple(f"tests/{name}" for name in ("conformance", "decide", "laws", "model", "move", "observe"))
DRILLS = ("tests/sim",)
PUNCTUAL = ("tests/chaos", "tests/cluster/test_sharding_chaos.py")
WAITING = ("tests", *(f"--ignore={path}" for path in (*COMPUTING, *DRILLS, *PUNCTUAL)))


def begin(chosen: tuple[str, ...], processes: str, into: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """Start one part, some files side by side."""
    spread = ["-n", processes, "--dist", "loadfile", "--no-loadscope-reorder"]
    return subprocess.Popen([sys.executable, "-m", "pytest", *chosen, *spread], stdout=into)


def run_both(front: tuple[str, ...], processes: str, behind: tuple[str, ...]) -> int:
    """Run one part, and another behind it that is told of afterwards; gives the worse exit code."""
    with tempfile.TemporaryFile() as said:
        parts = [begin(front, processes), begin(behind, "1", said)]
        os.sched_setscheduler(parts[1].pid, os.SCHED_IDLE, os.sched_param(0))
        try:
            codes = [part.wait() for part in parts]
        except BaseException as error:
            for part in parts:
                if not isinstance(error, KeyboardInterrupt):  # That they have heard themselves.
                    part.send_signal(signal.SIGINT)
                part.wait()
            raise
        said.seek(0)
        sys.stdout.buffer.write(said.read())
        sys.stdout.buffer.flush()
    return max(codes, key=abs)


def run(processes: str) -> int:
    """Run all parts; gives the worst exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return max(run_both(WAITING, processes, COMPUTING), run_both(PUNCTUAL, "2", DRILLS), key=abs)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1] if len(sys.argv) > 1 else "3"))
