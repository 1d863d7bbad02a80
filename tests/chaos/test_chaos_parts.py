"""The parts of a chaos run: the sink's guard, and the faults that a seed draws."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from pathlib import Path

import pytest
from tests.chaos.chaos_schedule import WORKERS, draw_faults
from tests.chaos.chaos_sink import Sink, read_log


def test_the_sink_refuses_an_epoch_lower_than_it_has_seen_and_logs_all(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "sink.db")
    sink.take([f"write 7 {epoch} 100 w1/99 5.5" for epoch in (2, 2, 1, 3, 2)], now_s=6.0)
    sink.take(["write 8 1 101 w1/99 5.5", "stop 7 1 100 w1/99 5.6"], now_s=6.1)
    sink.close()
    entries = read_log(tmp_path / "sink.db")
    assert [(entry.item, entry.epoch, entry.accepted) for entry in entries if entry.kind == "write"] == [
        ("7", 2, True),
        ("7", 2, True),
        ("7", 1, False),
        ("7", 3, True),
        ("7", 2, False),
        ("8", 1, True),
    ]
    assert entries[-1] == (7, "stop", "7", 1, 100, "w1/99", 5.6, 6.1, True)
    assert entries[-1].member == "w1"
    assert read_log(tmp_path / "sink.db", after=6) == entries[-1:]


@pytest.mark.parametrize("leaders_work", [True, False])
def test_a_seed_draws_the_same_faults_again_and_every_kind(leaders_work: bool) -> None:
    for seed in range(50):
        faults = draw_faults(seed, restarts=2, leaders_work=leaders_work, shortest_pause_s=4.5)
        assert faults == draw_faults(seed, restarts=2, leaders_work=leaders_work, shortest_pause_s=4.5)
        kinds = Counter(fault.kind for fault in faults)
        lost = kinds["kill"] + kinds["stop"] + leaders_work * kinds["coordinator"]
        assert kinds["join"] == lost
        assert min(kinds[kind] for kind in ("kill", "stop", "freeze all", "freeze worker", "coordinator", "store")) >= 2
        steps = ({"join": 1, "kill": -1, "stop": -1, "coordinator": -leaders_work}.get(each.kind, 0) for each in faults)
        assert all(4 <= count <= 7 for count in accumulate(steps, initial=WORKERS))
        assert all(fault.length_s > 4.5 for fault in faults if fault.kind.startswith("freeze"))
    drawn = [draw_faults(seed, restarts=2, leaders_work=True, shortest_pause_s=4.5) for seed in range(50)]
    orders = {tuple(fault.kind for fault in faults) for faults in drawn}
    assert len(orders) == 50
