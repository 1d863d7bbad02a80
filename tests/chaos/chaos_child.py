"""The work on one item: tell the sink every 50 ms who writes, at which epoch, and when. It asks nobody and stops for no
refusal, so that whatever keeps two of them apart is not its own good will.

Run as `python -I -S chaos_child.py PIPE`, with only what starts quickly.
"""

from __future__ import annotations

import os
import signal
import sys
import time

PERIOD_S = 0.05


def born_s() -> float:
    """Give when this process was forked, at the latest: the interpreter's own start is not what is measured."""
    with open("/proc/self/stat", encoding="ascii") as stat:
        ticks = int(stat.read().rpartition(")")[2].split()[19])
    asleep_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    return (ticks + 1) / os.sysconf("SC_CLK_TCK") - asleep_s


def main(pipe: int) -> None:
    """Write until SIGTERM, then say so and end."""
    environment = os.environ
    who = f"{environment['POISE_ITEM']} {environment['POISE_EPOCH']} {os.getpid()}"
    holder = f"{environment['POISE_MEMBER']}/{os.getppid()}"

    def tell(kind: str, at_s: float | None = None) -> None:
        # A line is shorter than PIPE_BUF: it arrives whole, and in the order of the calls of all children.
        os.write(pipe, f"{kind} {who} {holder} {at_s or time.monotonic():.6f}\n".encode())

    def stop(*_: object) -> None:
        tell("stop")
        os._exit(0)

    tell("start", born_s())
    signal.signal(signal.SIGTERM, stop)
    while True:
        tell("write")
        time.sleep(PERIOD_S)


if __name__ == "__main__":
    main(os.open(sys.argv[1], os.O_WRONLY))
