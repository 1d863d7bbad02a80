"""How a demo begins, goes on and ends: nothing is left running, and nothing is lost between two of them."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.demo.demo_process import Demo, await_met, cpu_s
from tests.hold.processes import alive

from poise.cli.main import run
from poise.demo.documents import RISEN, RISING

GONE_S = 15.0
EXTRA = """apiVersion: poise.dev/v1alpha1
kind: PartitionSet
metadata: {name: extra}
spec: {partitions: 3}
"""


def await_gone(pids: set[int]) -> None:
    """Wait until none of these runs."""
    assert len(pids) >= 15, "all of the demo was seen"
    await_met(lambda: not any(alive(pid) for pid in pids), GONE_S)


@pytest.mark.slow
def test_the_first_page_is_drawn_soon(tmp_path: Path) -> None:
    """The goal is 3 s by the clock on a quiet machine; what is computed until then is the same on a busy one."""
    with Demo(tmp_path) as demo:
        assert 'id="demo"' in demo.client.get("/").text
        assert cpu_s([demo.process.pid, *demo.pids("served")]) < 3.0
        assert demo.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda each: each.name)
def test_a_signal_ends_everything(tmp_path: Path, number: signal.Signals) -> None:
    with Demo(tmp_path) as demo:
        demo.await_parts()
        assert demo.end(number) == 0
        await_gone(demo.seen)
        await_met(lambda: "nothing of it runs any more" in demo.said[-1], 5)


@pytest.mark.slow
def test_a_killed_parent_takes_everything_along_even_what_is_frozen(tmp_path: Path) -> None:
    with Demo(tmp_path) as demo:
        demo.await_parts()
        os.kill(demo.pids("worker-b")[0], signal.SIGSTOP)
        demo.look()
        demo.process.kill()
        await_gone(demo.seen)


@pytest.mark.slow
def test_a_closed_terminal_ends_everything(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    # A shell that leads a session gets the terminal that it opens first; the demo then takes its place.
    command = f"exec {sys.executable} -m poise up --demo --listen 127.0.0.1:0 <{os.ttyname(theirs)} 2>said"
    with Demo(tmp_path, command=["sh", "-c", command], said=tmp_path / "said") as demo:
        os.close(theirs)
        demo.await_parts()
        os.close(ours)
        await_gone(demo.seen)


@pytest.mark.slow
def test_a_second_demo_goes_on_where_the_first_ended_and_a_fresh_one_does_not(tmp_path: Path) -> None:
    (tmp_path / "extra.yaml").write_text(EXTRA)
    with Demo(tmp_path, "extra.yaml") as first:
        first.await_well()
        first.take("change-weight")
        before = first.items("PartitionSet", "orders")
        assert first.items("PartitionSet", "extra").keys() == {"0", "1", "2"}
        assert first.end() == 0
    with Demo(tmp_path) as second:
        assert any("goes on where it ended" in line for line in second.said)
        assert "↩ Change the weight back" in second.strip()
        second.await_well()
        assert second.members("ReplicaDivision", "fleet")[RISING].weight == RISEN
        after = second.items("PartitionSet", "orders")
        assert all(after[item].epoch >= view.epoch for item, view in before.items())
        assert second.client.get("/v1/jobs/PartitionSet/extra").status_code == 200
        assert second.end() == 0
    (tmp_path / "poise-demo" / "mine.txt").write_text("kept")
    with Demo(tmp_path, "--fresh") as third:
        assert "4 Change a weight" in third.strip()
        assert third.members("ReplicaDivision", "fleet")[RISING].weight != RISEN
        assert third.client.get("/v1/jobs/PartitionSet/extra").status_code == 404
        assert third.end() == 0
    assert (tmp_path / "poise-demo" / "mine.txt").read_text() == "kept", "only what a demo makes is deleted"


@pytest.mark.slow
def test_a_second_demo_in_the_same_folder_is_refused_and_another_store_is_honoured(tmp_path: Path) -> None:
    with Demo(tmp_path, "--db", "sqlite:///other.db") as demo:
        command = [sys.executable, "-m", "poise", "up", "--demo", "--listen", "127.0.0.1:0"]
        refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert refused.returncode == 1
        (line,) = refused.stderr.splitlines()
        assert f"the demo in poise-demo runs already (process {demo.process.pid})" in line
        assert demo.client.get("/v1/jobs").status_code == 200
        assert (tmp_path / "other.db").exists()
        assert not (tmp_path / "poise-demo" / "poise.db").exists()
        assert demo.end() == 0


@pytest.mark.slow
def test_a_server_that_cannot_start_says_why_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.db").write_text("this is no database " * 100)
    command = [sys.executable, "-m", "poise", "up", "--demo", "--listen", "127.0.0.1:0", "--db", "sqlite:///broken.db"]
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1
    (line,) = refused.stderr.splitlines()
    assert "the server did not start" in line


def test_a_taken_port_is_told_in_one_line_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run(["up", "--demo", "--listen", f"127.0.0.1:{taken.getsockname()[1]}"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"is taken by process {os.getpid()}" in line
    assert line.endswith("--listen 127.0.0.1:0")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(["--demo", "--tokens", "t.txt"], "--tokens is not for the demo", id="tokens"),
        pytest.param(["--demo", "--name", "s1"], "--name is not for the demo", id="a name"),
        pytest.param(["--demo", "--fresh", "--db", "x.db"], "--fresh and --db exclude each other", id="fresh and db"),
        pytest.param(["--fresh"], "are for the demo: say --demo, too", id="fresh without demo"),
        pytest.param(["--folder", "x"], "are for the demo: say --demo, too", id="folder without demo"),
        pytest.param(["--demo", "missing.yaml"], "missing.yaml: cannot be read", id="a missing file"),
        pytest.param(["--demo", "--listen", "0.0.0.0:0"], "can be reached by others", id="an open door"),
    ],
)
def test_bad_input_is_one_line_and_makes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["up", *arguments]) == 64
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_used_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("a file")
    assert run(["up", "--demo", "--folder", "taken", "--listen", "127.0.0.1:0"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "name another with --folder" in line
