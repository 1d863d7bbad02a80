"""The parts of the demo one by one: the sink, the collector, the market, the leash, the folder, ports and documents."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.hold.processes import alive, await_that

from poise import clock
from poise.demo import sink as sinks
from poise.demo.collector import Collector, answer
from poise.demo.documents import documents
from poise.demo.folder import Folder, Kept
from poise.demo.leash import PARENT
from poise.demo.names import COLLECTORS
from poise.demo.ports import choose_ports, listener_of
from poise.demo.replayer import Interruption, Trace, read_trace
from poise.demo.sink import Sink
from poise.documents import dump, load
from poise.errors import Fenced, PoiseError
from poise.hold.settings import Settings, check_inequality
from poise.jobs.planning import plan_document
from poise.model import PartitionSet
from poise.model.ownership import Terms

PORTS = {name: 7890 + place for place, name in enumerate(COLLECTORS)}


# The sink.


def late_write_is_refused(path: Path) -> bool:
    """Write at an epoch, at a later one, and then at the first again."""
    with closing(Sink(path)) as sink:
        sink.write("7", 4, "worker-a")
        sink.write("7", 5, "worker-b")
        try:
            sink.write("7", 4, "worker-a")
        except Fenced as error:
            return (error.epoch, error.seen, sink.done(), sink.refused()) == (4, 5, 2, 1)
        return False


def test_a_late_write_is_refused_and_counted(tmp_path: Path) -> None:
    assert late_write_is_refused(tmp_path / "work.db")


def test_a_sink_without_its_guard_would_be_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks._GUARD, "admit", lambda *_: None)
    assert not late_write_is_refused(tmp_path / "work.db")


# The collector.


def ask(collector: Collector, method: str, path: str, body: object = None) -> tuple[int, object]:
    status, text = answer(collector, method, path, b"" if body is None else json.dumps(body).encode())
    return status, json.loads(text) if text else None


async def collected() -> None:
    collector = Collector()
    assert ask(collector, "GET", "/api/v1/healthz") == (200, {"status": "healthy"})
    assert ask(collector, "GET", "/api/v1/config/targets") == (200, {})
    assert ask(collector, "GET", "/api/v1/targets") == (200, [])
    two = {name: {"address": "192.0.2.1:57400"} for name in ("r1", "r2")}
    status, told = ask(collector, "POST", "/api/v1/config/apply", {"targets": two})
    assert (status, "at least one subscription" in str(told)) == (400, True)
    assert ask(collector, "POST", "/api/v1/config/apply", {"targets": two, "subscriptions": {"s": {}}}) == (200, None)
    await asyncio.sleep(0.2)
    assert collector.readings["r1"] == 1, "it collects"
    _, live = ask(collector, "GET", "/api/v1/targets")
    assert isinstance(live, list)
    assert [each["name"] for each in live] == ["r1", "r2"]
    one = {"targets": {"r2": two["r2"]}, "subscriptions": {"s": {}}}
    assert ask(collector, "POST", "/api/v1/config/apply", one) == (200, None)
    assert "r1" in collector.streams, "it answers before the stream is torn down"
    await asyncio.sleep(0.5)
    assert list(collector.streams) == ["r2"]
    assert ask(collector, "GET", "/api/v1/config/targets/r1") == (404, {"errors": ["target r1 not found"]})
    assert ask(collector, "GET", "/api/v1/config/targets/r2")[0] == 200
    assert answer(collector, "POST", "/api/v1/config/apply", b"{")[0] == 400
    assert answer(collector, "POST", "/api/v1/config/apply", b'{"targets": [1]}')[0] == 400
    assert list(collector.streams) == ["r2"], "what cannot be read changes nothing"
    assert 'demo_readings_total{target="r1"} 1' in answer(collector, "GET", "/metrics", b"")[1]
    for stream in collector.streams.values():
        stream.cancel()


def test_a_collector_answers_as_a_real_one_and_collects() -> None:
    asyncio.run(collected())


# The market.


def test_a_trace_comes_again_every_round_and_each_interruption_once() -> None:
    trace = Trace((Interruption(2, "api", 1), Interruption(9, "web", 2)), 10)
    counted: dict[str, int] = {}
    for turn in range(100, 160):
        for each in trace.between(turn * 0.5, turn * 0.5 + 0.5):
            counted[each.workload] = counted.get(each.workload, 0) + 1
    assert counted == {"api": 3, "web": 3}


def test_the_trace_of_the_demo_is_about_its_workloads() -> None:
    trace = read_trace((Path(sinks.__file__).parent / "interruptions.csv").read_text())
    spot = dump(documents(PORTS)[-1])
    assert {each.workload for each in trace.interruptions} == {"api", "batch", "web"}
    assert all(each.workload in str(spot) and each.taken > 0 for each in trace.interruptions)
    assert trace.length_s > max(each.second for each in trace.interruptions)


# The documents.


def test_the_documents_are_sound_and_can_be_planned() -> None:
    made = documents(PORTS)
    assert [each.kind for each in made] == [
        "PartitionSet",
        "TargetPool",
        "ShardRing",
        "ReplicaDivision",
        "CapacitySplit",
    ]
    for each in made:
        assert load(json.dumps(dump(each)), "demo") == [each]
        assert plan_document(each, clock.now()).faults == []
    assert made[-1].metadata.name.startswith("simulated"), "what is simulated says so in its name"


def test_the_leases_of_the_demo_keep_the_law() -> None:
    spec = next(each.spec for each in documents(PORTS) if isinstance(each, PartitionSet))
    lease_s, grace_s = spec.lease_seconds, spec.grace_seconds
    terms = Terms(lease_s=lease_s, grace_s=grace_s, margin_s=spec.margin_seconds, stop_s=spec.stop_seconds)
    check_inequality(terms, Settings(set="orders", name="worker-a"))
    assert lease_s + grace_s <= 10, "it heals while somebody looks"


# The leash.

PARENT_CODE = """
import os, subprocess, sys
environment = {**os.environ, sys.argv[2]: str(os.getpid())}
subprocess.Popen([sys.executable, "-c", sys.argv[1]], env=environment)
sys.stdin.read()
"""
BOUND = "from poise.demo.leash import *\nend_with(int(os.environ[PARENT]))\n"
READY = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)"


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "free"])
def test_a_bound_child_ends_with_its_parent_also_when_it_is_frozen(bound: bool) -> None:
    command = [sys.executable, "-c", PARENT_CODE, f"import os\n{BOUND if bound else ''}{READY}", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(pid, signal.SIGSTOP)
        parent.kill()
    if bound:
        await_that(lambda: not alive(pid))
    else:
        assert alive(pid), "without the leash it would be left behind"
        os.kill(pid, signal.SIGKILL)


def test_a_part_is_started_by_the_demo_only() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "poise.demo", "worker"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (64, "poise: this is a part of the demo; start it with: poise up --demo\n")


# The folder and the ports.


def test_a_folder_is_one_demos_at_a_time_and_keeps_what_it_is_told(tmp_path: Path) -> None:
    kept = Kept({"collector-a": 4711}, ("kill-worker",))
    with Folder(tmp_path) as folder:
        folder.write(kept)
        with pytest.raises(PoiseError, match=f"process {os.getpid()}"), Folder(tmp_path, fresh=True):
            pass
        assert folder.read() == kept, "a refused demo deletes nothing"
    with Folder(tmp_path) as folder:
        assert folder.read() == kept
    (tmp_path / "demo.json").write_text("{half")
    with Folder(tmp_path) as folder:
        assert folder.read() == Kept()
    (tmp_path / "poise.db-wal").write_text("old")
    (tmp_path / "mine").write_text("mine")
    with Folder(tmp_path, fresh=True) as folder:
        assert folder.read() == Kept()
    assert not (tmp_path / "poise.db-wal").exists()
    assert (tmp_path / "mine").exists()


def test_ports_are_free_different_and_the_same_again() -> None:
    first = choose_ports(COLLECTORS, {})
    assert len(set(first.values())) == 4
    assert choose_ports(COLLECTORS, first) == first
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert choose_ports(["a"], {"a": port})["a"] != port
        assert listener_of(port).startswith(f"process {os.getpid()}, ")
    assert listener_of(port) == ""
