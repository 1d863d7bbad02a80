"""Hand-overs between real processes: a crash, planned releases, and a rolling restart; wall-clock time."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from math import ceil
from pathlib import Path
from typing import TypeVar

from tests.chaos.chaos_handover import measure_crashes, measure_releases, measure_rolling_restart
from tests.chaos.chaos_server import own_server
from tests.chaos.chaos_world import TERMS

from benchmarks.measure import Row

Answer = TypeVar("Answer")
_RELEASE_MS = 300


def rows() -> Iterator[Row]:
    """Measure on both stores, with the coordinator inside the workers."""
    yield from _rows("SQLite", lambda folder: f"sqlite:///{folder / 'poise.db'}")
    with own_server() as server:
        yield from _rows("PostgreSQL", lambda _: server.new_place())


def _rows(store: str, new_url: Callable[[Path], str]) -> Iterator[Row]:
    crashes_s = _in_folder(lambda folder: measure_crashes(folder, new_url(folder), own_coordinator=False))
    what = f"{store}: a killed worker's items act again, lease {TERMS.lease_s:g} s, grace {TERMS.grace_s:g} s"
    yield Row(f"{what}, longest of {len(crashes_s)}", max(crashes_s), TERMS.bound_s, "s")
    gaps_s = sorted(_in_folder(lambda folder: measure_releases(folder, new_url(folder), own_coordinator=False)))
    yield Row(f"{store}: planned release, gap between children, median", gaps_s[len(gaps_s) // 2] * 1000, None, "ms")
    p99_s = gaps_s[ceil(len(gaps_s) * 0.99) - 1]
    yield Row(f"{store}: planned release, gap between children, p99 of {len(gaps_s)}", p99_s * 1000, _RELEASE_MS, "ms")
    moved, longest_s = _in_folder(
        lambda folder: measure_rolling_restart(folder, new_url(folder), own_coordinator=False)
    )
    yield Row(f"{store}: rolling restart of all workers, names kept, moves", moved, 0, "moves")
    yield Row(f"{store}: rolling restart, longest gap between children", longest_s, None, "s")


def _in_folder(work: Callable[[Path], Answer]) -> Answer:
    """Do something in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="poise-bench-") as folder:
        return work(Path(folder))
