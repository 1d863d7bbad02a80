"""Measuring: CPU seconds of the best of a few runs, the peak of memory in a process of its own, and rows to print."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple


class Row(NamedTuple):
    """One line of the report: what was measured, the figure, its bound (None: only shown), and how both read.

    A bound is the most that a figure may be; with `at_least` it is the least.
    """

    what: str
    figure: float
    bound: float | None
    unit: str
    at_least: bool = False

    def __str__(self) -> str:
        """Show the figure beside its bound."""
        bound = "" if self.bound is None else f"at {'least' if self.at_least else 'most'} {self.bound:g} {self.unit}"
        verdict = "" if self.bound is None else "ok" if self.holds else "UNDER" if self.at_least else "OVER"
        return f"{self.what:<78} {self.figure:>9.3g} {self.unit:<8} {bound:<22} {verdict}"

    @property
    def holds(self) -> bool:
        """Say whether the figure keeps its bound."""
        return self.bound is None or (self.figure >= self.bound if self.at_least else self.figure <= self.bound)


def show(rows: Iterable[Row]) -> int:
    """Print every row as it comes; gives the exit code, which is 1 where a bound is broken."""
    broken = 0
    for row in rows:
        print(row, flush=True)
        broken += not row.holds
    print("every bound holds" if not broken else f"{broken} broken: a busy machine may show what a quiet one does not")
    return int(bool(broken))


def cpu_s(work: Callable[[], object], times: int = 3) -> float:
    """Take the CPU seconds of the best run: the machine is noisy, and noise only adds."""
    best = float("inf")
    for _ in range(times):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def p99_ms(took_s: list[float]) -> float:
    """Give what 99 of 100 stay below."""
    return quantiles(took_s, n=100)[98] * 1000


def process_cpu_s(pid: int) -> float:
    """Read the CPU seconds of another process, all of its threads, up to now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(setup: str, work: str) -> float:
    """Run the setup, then the work, in a process of its own; answer the peak of the work over what the inputs hold."""
    read = "int(next(line for line in open('/proc/self/status') if line.startswith('{}')).split()[1])"
    code = f"{setup}\nbefore = {read.format('VmRSS')}\n{work}\nprint({read.format('VmHWM')} - before)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=os.environ)
    return int(done.stdout) / 1024


def command_cpu_s(*arguments: str, times: int = 5) -> float:
    """Take the CPU seconds of a command, children included, the best of a few runs."""
    best = float("inf")
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(arguments, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best
