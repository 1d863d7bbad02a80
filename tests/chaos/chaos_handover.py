"""Hand-overs without chaos, for their numbers: planned releases, crashes of one worker, and a rolling restart."""

from __future__ import annotations

import time
from pathlib import Path

from tests.chaos.chaos_audit import Case, Fault, audit
from tests.chaos.chaos_numbers import handovers_s, moves, recoveries
from tests.chaos.chaos_world import PATIENCE_S, World, world

_REST_S = 0.5


def measure_releases(folder: Path, url: str, *, own_coordinator: bool, least: int = 60) -> list[float]:
    """Let workers join and leave, and measure each gap between the exit of an old child and the start of the new."""
    with world(folder, url, items=24, own_coordinator=own_coordinator) as here:
        _fill(here, 3)
        begun_s, number = time.monotonic(), 3
        while len(found := _planned(here, begun_s)) < least:
            here.start(f"w{number}")
            _settle(here)
            leaver = here.present[0]
            leaver.stop()
            assert leaver.process.wait(PATIENCE_S) == 0
            _settle(here)
            number += 1
        _assert_sound(here, begun_s)
        return found


def measure_crashes(folder: Path, url: str, *, own_coordinator: bool, times: int = 3) -> list[float]:
    """Kill one worker after the other, whoever plans first, and measure until each of its items acts again."""
    with world(folder, url, items=16, own_coordinator=own_coordinator) as here:
        _fill(here, 4)
        begun_s = time.monotonic()
        for number in range(times):
            victim = next((worker for worker in here.present if here.leads(worker)), here.present[0])
            here.faults.append(Fault(time.monotonic(), "kill", victim.name))
            victim.kill()
            here.start(f"w{4 + number}")
            _settle(here)
        return [gap.length_s for gap in recoveries(_assert_sound(here, begun_s))]


def measure_rolling_restart(folder: Path, url: str, *, own_coordinator: bool, workers: int = 4) -> tuple[int, float]:
    """Restart every worker under its name; give how often an item changed its worker, and the longest gap."""
    with world(folder, url, items=16, own_coordinator=own_coordinator) as here:
        _fill(here, workers, "--on-exit", "keep")
        begun_s = time.monotonic()
        for leaver in list(here.present):
            leaver.stop()
            assert leaver.process.wait(PATIENCE_S) == 0
            here.start(leaver.name, "--on-exit", "keep")
            _settle(here)
        entries = [entry for entry in _assert_sound(here, begun_s).entries if entry.sink_s >= begun_s]
        return moves(entries), max(handovers_s(entries))


def _fill(here: World, workers: int, *options: str) -> None:
    for number in range(workers):
        here.start(f"w{number}", *options)
    _settle(here)


def _settle(here: World) -> None:
    """Wait for rest, and a little longer: what has moved once must not move again."""
    assert here.await_settled(), "the items were never shared evenly"
    time.sleep(_REST_S)
    assert here.await_settled()


def _planned(here: World, begun_s: float) -> list[float]:
    """Measure the hand-overs since then; whatever is under way counts when it has ended."""
    return handovers_s(entry for entry in here.entries() if entry.sink_s >= begun_s)


def _assert_sound(here: World, begun_s: float) -> Case:
    """Hold what happened against all laws: quick and wrong would be worth nothing."""
    settled_s = time.monotonic()
    time.sleep(_REST_S)
    case = here.case(begun_s, settled_s)
    broken = audit(case)
    assert broken == [], broken
    return case
