"""The five steps of one running demo, as a person clicks them: what is broken heals, and what is late is refused."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.demo.demo_process import Demo, await_met, cpu_s
from tests.hold.processes import alive

from poise.demo.documents import CLUSTERS, RISEN, RISING

pytestmark = pytest.mark.slow
HEALS_S = 20.0  # Lease and grace are 7 s; the rest is for a machine that has other things to do.


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with Demo(tmp_path_factory.mktemp("demo")) as running:
        yield running


@pytest.fixture(autouse=True)
def well(demo: Demo) -> None:
    """Begin every step with all well, as the strip suggests."""
    demo.await_well()


def broken(demo: Demo, how: str) -> str:
    """Name the worker that the demo says it has just broken."""
    await_met(lambda: any(how in line for line in demo.said), 10)
    return next(line for line in reversed(demo.said) if how in line).split()[1]


def test_the_page_draws_the_strip_and_the_command_line_reads_the_jobs(demo: Demo) -> None:
    assert "1 Kill a worker" in demo.strip()
    assert "simulated" in demo.strip()
    command = [sys.executable, "-m", "poise", "get", "--server", demo.url]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert all(name in printed for name in ("orders", "routers", "gateway", "fleet", "simulated-spot"))


def test_a_demo_at_rest_is_calm(demo: Demo) -> None:
    """The goal is 15 % of a core, which a quiet machine keeps; a busy one counts more for the same work."""
    pids = [demo.process.pid, *demo.look()]
    before = cpu_s(pids)
    time.sleep(10)
    assert cpu_s(pids) - before < 10 * 0.30


def test_a_killed_worker_heals_and_comes_back(demo: Demo) -> None:
    before, workers = demo.items("PartitionSet", "orders"), set(demo.pids("orders"))
    assert demo.take("kill-worker") == "/jobs/PartitionSet/orders"
    who = broken(demo, "was killed (SIGKILL)")
    lost = {item: view.epoch for item, view in before.items() if view.member == who}
    assert lost
    assert sum(not alive(pid) for pid in workers) == 1

    def healed() -> bool:
        items = demo.items("PartitionSet", "orders")
        return all(items[item].epoch > epoch and items[item].member not in (None, who) for item, epoch in lost.items())

    await_met(healed, HEALS_S)
    kept = [item for item, view in before.items() if view.member != who]
    after = demo.items("PartitionSet", "orders")
    assert all(after[item].epoch == before[item].epoch for item in kept), "nobody else lost anything"
    await_met(lambda: any("Healed in" in line and who in line for line in demo.said), 10)
    assert "✓ Kill a worker" in demo.strip()
    await_met(lambda: any(f"{who} is back" in line for line in demo.said), 40)
    await_met(lambda: demo.members("PartitionSet", "orders")[who].load >= 10, HEALS_S)


def test_a_frozen_worker_heals_and_its_late_writes_are_refused(demo: Demo) -> None:
    demo.take("freeze-worker")
    who = broken(demo, "is frozen (SIGSTOP)")
    lost = [item for item, view in demo.items("PartitionSet", "orders").items() if view.member == who]
    await_met(
        lambda: all(demo.items("PartitionSet", "orders")[item].member not in (None, who) for item in lost), HEALS_S
    )
    with closing(sqlite3.connect(demo.folder / "poise-demo" / "work.db")) as sink:

        def late() -> list[tuple[int, int]]:
            return sink.execute("SELECT epoch, seen FROM refused WHERE writer = ?", (who,)).fetchall()

        def told() -> int:
            found = (re.search(rf"{who} tried (\d+) late write", line) for line in demo.said)
            return sum(int(each[1]) for each in found if each)

        await_met(lambda: bool(late()), 40)
        # They are told in bursts, and more may come while the first are being told.
        await_met(lambda: told() == len(late()), 10)
        assert all(epoch < seen for epoch, seen in late())
    assert re.search(r"late writes? carried old epochs", demo.strip())
    await_met(lambda: demo.members("PartitionSet", "orders")[who].load >= 10, HEALS_S)


def test_a_drained_collector_is_emptied_and_comes_back(demo: Demo) -> None:
    assert demo.take("drain-collector") == "/jobs/TargetPool/routers"
    who = next(name for name, view in demo.members("TargetPool", "routers").items() if view.draining)
    await_met(lambda: demo.members("TargetPool", "routers")[who].load == 0, HEALS_S)
    assert "Bring the collector back" in demo.strip()
    demo.take("drain-collector")
    assert "Not now" in demo.strip(), "one at a time"
    demo.take("drain-collector?back=1")
    await_met(lambda: demo.members("TargetPool", "routers")[who].load == 15, HEALS_S)


def test_a_changed_weight_moves_replicas_to_the_exact_share(demo: Demo) -> None:
    before = demo.members("ReplicaDivision", "fleet")
    total, weights = sum(view.load for view in before.values()), {**CLUSTERS, RISING: RISEN}
    assert demo.take("change-weight") == "/jobs/ReplicaDivision/fleet"

    def is_exact() -> bool:
        after = demo.members("ReplicaDivision", "fleet")
        return all(
            abs(after[name].load - total * weight / sum(weights.values())) < 1 for name, weight in weights.items()
        )

    await_met(is_exact, HEALS_S)
    await_met(lambda: f"weighs {RISEN} instead of {CLUSTERS[RISING]}" in demo.strip(), 10)


def test_a_restarted_server_loses_nothing(demo: Demo) -> None:
    before, (server,) = demo.items("PartitionSet", "orders"), demo.pids("served")
    demo.take("restart-server")
    await_met(lambda: not alive(server) and any("The server was restarted" in line for line in demo.said))
    (new,) = demo.pids("served")
    assert new != server
    after = demo.items("PartitionSet", "orders")
    assert {item: (view.member, view.epoch) for item, view in after.items()} == {
        item: (view.member, view.epoch) for item, view in before.items()
    }
    assert "64 of 64 partitions kept owner and epoch" in demo.strip()


def test_a_server_that_is_killed_is_started_again(demo: Demo) -> None:
    before, (server,) = demo.items("PartitionSet", "orders"), demo.pids("served")
    os.kill(server, signal.SIGKILL)
    await_met(lambda: any("the server has ended" in line for line in demo.said), 10)
    await_met(lambda: demo.pids("served") not in ([], [server]))
    assert demo.items("PartitionSet", "orders").keys() == before.keys()


@pytest.mark.parametrize(
    ("method", "path", "origin", "status"),
    [
        pytest.param("POST", "/demo/kill-worker", "https://elsewhere.example", 403, id="another site"),
        pytest.param("POST", "/demo/kill-everybody", "", 404, id="no such step"),
        pytest.param("GET", "/demo/kill-worker", "", 405, id="only looked at"),
    ],
)
def test_nobody_takes_a_step_by_accident(demo: Demo, method: str, path: str, origin: str, status: int) -> None:
    workers = demo.pids("orders")
    headers = {"Origin": origin} if origin else {}
    assert demo.client.request(method, path, headers=headers).status_code == status
    assert demo.pids("orders") == workers
