"""One part of the demo: `python -m poise.demo ROLE ARGUMENTS…`, started by the demo and ended with it."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from poise.demo.leash import PARENT, end_with

ROLES = ("served", "worker", "collector", "replayer")


def main(arguments: list[str]) -> int:
    """Be bound to the parent first, and only then import what the role needs."""
    parent = os.environ.get(PARENT, "")
    if not arguments or arguments[0] not in ROLES or not parent.isdigit():
        sys.stderr.write("poise: this is a part of the demo; start it with: poise up --demo\n")
        return 64
    end_with(int(parent), gently=arguments[0] == "served")
    import_module(f"poise.demo.{arguments[0]}").main(arguments[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
