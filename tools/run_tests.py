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

COMPUTING = tuple(f"tests/{name}" for name in ("conformance", "decide", "laws", "model", "move", "observe", "sim"))
PUNCTUAL = ("tests/chaos", "tests/cluster/test_sharding_chaos.py")
WAITING = ("tests", *(f"--ignore={path}" for path in (*COMPUTING, *PUNCTUAL)))


def begin(chosen: tuple[str, ...], processes: str, into: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """Start one part, some files side by side."""
    spread = ["-n", processes, "--dist", "loadfile", "--no-loadscope-reorder"]
    return subprocess.Popen([sys.executable, "-m", "pytest", *chosen, *spread], stdout=into)


def run(processes: str) -> int:
    """Run all parts, and tell at the end what the one behind has said; gives the worst exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryFile() as said:
        parts = [begin(COMPUTING, "1", said)]
        os.sched_setscheduler(parts[0].pid, os.SCHED_IDLE, os.sched_param(0))
        try:
            for chosen, at_once in ((WAITING, processes), (PUNCTUAL, "2")):
                parts.append(begin(chosen, at_once))
                parts[-1].wait()
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


if __name__ == "__main__":
    sys.exit(run(sys.argv[1] if len(sys.argv) > 1 else "3"))
