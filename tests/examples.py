"""How many examples a law is tried with: all of them in `make test`, a part in `make check`, which must be quick."""

from __future__ import annotations

FEWEST = 20
part = 1  # One of so many is tried; conftest.py sets it before the tests are read.


def examples(count: int) -> int:
    """Give the number to try of so many."""
    return max(min(count, FEWEST), count // part)
