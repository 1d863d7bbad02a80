"""The tour that `make run` shows: every example is planned, as a person at the terminal would do it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOUR = (
    ("Ten routers on three collectors, and a fourth collector has joined:", "plan examples/routers.yaml"),
    ("Why does router4 move, and what would have kept it?", "explain examples/routers.yaml router4"),
    ("What would it cost to drain a collector? Nothing moves by asking:", "plan examples/routers.yaml --drain gnmic-1"),
    (
        "A worker has died while another joins: what is free, what is handed over, what waits?",
        "plan examples/orders.yaml",
    ),
    ("Objects on the instances of one controller:", "plan examples/web.yaml"),
    ("A fleet over three clusters, exact in total:", "plan examples/shop.yaml"),
    ("Spot and on-demand, one safe action at a time:", "plan examples/spot.yaml --at 2026-11-15T03:00:00Z"),
    (
        "The same routers under four policies, 200 random events:",
        "simulate examples/routers.yaml --events 200 --seed 7",
    ),
)


def main() -> int:
    """Run the stops one after the other."""
    poise = str(Path(sys.executable).with_name("poise"))
    for says, arguments in TOUR:
        sys.stdout.write(f"\n# {says}\n$ poise {arguments}\n")
        sys.stdout.flush()
        done = subprocess.run([poise, *shlex.split(arguments)], cwd=ROOT, check=False)
        if done.returncode:
            return done.returncode
    sys.stdout.write("\nNow with your own file: .venv/bin/poise plan FILE   (.venv/bin/poise --help)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
