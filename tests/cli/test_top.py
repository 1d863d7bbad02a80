"""`poise top` against a real server: one picture, a living one on a real terminal, and every way in which it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.small_terminal import Terminal
from tests.hold.processes import await_that
from tests.server_process import ServerProcess

from poise.cli.main import run
from poise.cli.screen import _keys
from poise.cli.top import _turned

ORDERS = """apiVersion: poise.dev/v1alpha1
kind: PartitionSet
metadata: {name: orders}
spec: {partitions: 12, leaseSeconds: 4, graceSeconds: 4, marginSeconds: 1, stopSeconds: 1}
"""
WEB = """apiVersion: poise.dev/v1alpha1
kind: ShardRing
metadata: {name: web}
spec: {policy: balanced, objects: ["שלום", "日本語 👩", "50% <b>"]}
"""
POOL = """apiVersion: poise.dev/v1alpha1
kind: TargetPool
metadata: {name: core}
spec: {pods: {endpoints: [{name: p0, url: "http://127.0.0.1:9"}]}, targets: {list: [{name: r1}, {name: r2}]}}
"""
SHOP = """apiVersion: poise.dev/v1alpha1
kind: ReplicaDivision
metadata: {name: shop}
spec: {clusters: [{name: east, weight: 2}, {name: west}], workloads: [{name: cart, replicas: 6}]}
"""
SPOT = """apiVersion: poise.dev/v1alpha1
kind: CapacitySplit
metadata: {name: spot}
spec: {workloads: [{name: api, replicas: 10, spotPercentage: 70, minOnDemand: 1}]}
status: {workloads: {api: {spot: 6, onDemand: 4, readyOnDemand: 4}}}
"""
Poise = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("top"), ORDERS, WEB, POOL, SHOP, SPOT) as made:
        await_that(lambda: b"r1" in read(made, "/v1/jobs/TargetPool/core/items"))
        yield made


def read(server: ServerProcess, path: str) -> bytes:
    with urllib.request.urlopen(f"{server.url}{path}", timeout=10) as answer:
        return bytes(answer.read())


@pytest.fixture
def poise(server: ServerProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Poise:
    monkeypatch.setenv("POISE_SERVER", server.url)
    monkeypatch.delenv("POISE_TOKEN", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(["top", *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (
            "orders",
            ["PartitionSet orders", "!! 12 of 12 items have no owner", "12 have no owner: 0, 1", "Moves", "Plan"],
        ),
        ("web", ["ShardRing web", "!! 3 of 3 items have no owner", "שלום", "日本語 👩", "50% <b>"]),
        ("TargetPool/core", ["TargetPool core", "2 targets", "Last events"]),
        ("shop", ["ReplicaDivision shop", " east          2        4  4", "== cart   east 4, west 2", "largest error"]),
        ("spot", ["CapacitySplit spot", "now    spot 6  on-demand 4", "wanted spot 7  on-demand 3", "migrate-to-spot"]),
    ],
)
def test_one_picture_of_every_kind(job: str, told: list[str], poise: Poise) -> None:
    code, out, err = poise(job, "--once")
    assert (code, err) == (0, "")
    assert [text for text in told if text not in out] == [], out
    assert "\x1b" not in out


def test_without_a_terminal_it_prints_one_picture_of_all_jobs(poise: Poise) -> None:
    code, out, err = poise()
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("Poise   5 jobs, something is wrong with ")
    assert lines[2].startswith(" !! ")
    assert sum("/" in line for line in lines[2:]) == 5


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["nobody"], 64, "poise: there is no job 'nobody' at "),
        (["Nothing/orders"], 64, "poise: there is no kind 'Nothing'; the kinds are "),
        (["PartitionSet/nobody"], 64, "poise: there is no PartitionSet 'nobody'"),
        (["--server", "nowhere"], 64, "poise: $.server: expected an address"),
        (["--server", "http://127.0.0.1:9", "orders"], 4, "poise: http://127.0.0.1:9 cannot be reached: "),
        (["orders", "web"], 64, "poise: Got unexpected extra argument"),
    ],
)
def test_a_failure_is_one_line_and_its_exit_code(arguments: list[str], code: int, told: str, poise: Poise) -> None:
    answered, out, err = poise(*arguments)
    assert (answered, out, len(err.splitlines())) == (code, "", 1)
    assert err.startswith(told)


def test_the_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["top", "--help"]) == 0
    told = capsys.readouterr().out
    assert [word for word in ("poise top orders", "--once", "q quits", "NO_COLOR", "80") if word not in told] == []


@pytest.mark.slow
def test_an_encoding_without_these_signs_gets_ascii(server: ServerProcess) -> None:
    for job in ("web", "spot", "orders"):
        command = [sys.executable, "-m", "poise", "top", job, "--server", server.url]
        environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
        done = subprocess.run(command, capture_output=True, env=environment, timeout=30, check=True)
        assert done.stdout.isascii()
        assert done.stderr == b""


def test_keys_are_known_also_when_many_come_at_once() -> None:
    assert _keys(b"p\x1b[B\x1b[Aq?x\x1b[6~") == ["page", "down", "up", "quit", "page"]
    assert [_turned(key, 5, 20, 10) for key in ("up", "down", "page", "back")] == [4, 6, 15, 0]
    assert (_turned("page", 20, 20, 10), _turned("down", 20, 20, 10), _turned("back", 0, 0, 10)) == (0, 20, 0)


@pytest.mark.slow
def test_a_killed_worker_is_seen_and_healed_on_a_real_terminal(server: ServerProcess) -> None:
    workers = {name: server.begin("worker", "orders", "--name", name) for name in ("w1", "w2", "w3")}
    with Terminal("top", "orders", "--server", server.url) as terminal:
        terminal.shows("PartitionSet orders   as it should be .* live ", r" w1 +active +4", " w3 +active +4")
        assert terminal.is_other
        assert terminal.is_hidden
        clears = terminal.clears
        workers["w2"].kill()
        terminal.shows("!! 4 of 12 items have no owner", r" w2 +gone +4 +××××", "its owner is not heard")
        terminal.shows("PartitionSet orders   as it should be", r" w1 +active +6", " w3 +active +6", "an owner by w2")
        assert terminal.clears == clears, "only what changed is drawn"
        assert max(map(len, terminal.screen())) <= 80
        terminal.resize(60, 14)
        terminal.until(lambda lines: len(lines) == 14 and max(map(len, lines)) <= 60)
        terminal.type(b"q")
        assert terminal.process.wait(10) == 0
        await_that(terminal.is_as_before)
    for worker in workers.values():
        worker.kill()


@pytest.mark.slow
def test_a_lost_connection_is_shown_and_mended_and_a_deleted_job_ends_it(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, ORDERS) as server, Terminal("top", "orders", "--server", server.url) as terminal:
        terminal.shows("live ", "12 of 12 items have no owner")
        server.stop(signal.SIGKILL)
        terminal.shows("lost, as of ", "!! trying again: .* cannot be reached: ")
        assert any("12 of 12" in line for line in terminal.screen()), "what was known stays"
        server.start()
        terminal.shows("live ")
        address = f"{server.url}/v1/jobs/PartitionSet/orders"
        urllib.request.urlopen(urllib.request.Request(address, method="DELETE"), timeout=10).close()
        assert terminal.process.wait(20) == 0
        await_that(terminal.is_as_before)
        await_that(lambda: "poise: there is no PartitionSet 'orders'; it was there a moment ago" in terminal.text)
        assert "Traceback" not in terminal.text


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["ctrl-c", "ctrl-d", "sigterm", "sighup"])
def test_every_ending_gives_the_terminal_back(ending: str, server: ServerProcess) -> None:
    with Terminal("top", "--server", server.url) as terminal:
        terminal.shows("Poise   5 jobs")
        if ending.startswith("ctrl"):
            terminal.type(b"\x03" if ending == "ctrl-c" else b"\x04")
        else:
            terminal.process.send_signal(signal.SIGTERM if ending == "sigterm" else signal.SIGHUP)
        assert terminal.process.wait(10) == 0
        await_that(terminal.is_as_before)
        assert "Traceback" not in terminal.text


@pytest.mark.slow
def test_it_can_be_stopped_and_goes_on(server: ServerProcess) -> None:
    with Terminal("top", "--server", server.url) as terminal:
        terminal.shows("Poise   5 jobs")
        terminal.type(b"\x1a")
        await_that(lambda: _state(terminal.process.pid) == "T")
        await_that(terminal.is_as_before)
        terminal.process.send_signal(signal.SIGCONT)
        await_that(lambda: terminal.is_other and terminal.is_hidden)
        terminal.shows("Poise   5 jobs")
        terminal.type(b"q")
        assert terminal.process.wait(10) == 0
        await_that(terminal.is_as_before)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.slow
def test_a_terminal_that_knows_no_unicode_gets_ascii(server: ServerProcess) -> None:
    with Terminal("top", "web", "--server", server.url, encoding="ascii", columns=120) as terminal:
        terminal.shows("ShardRing web", r"\\u05e9", "!!!")
        assert all(line.isascii() for line in terminal.screen())
