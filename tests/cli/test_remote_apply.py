"""`poise apply`: the plan, the question, the write on a condition, and the way until it is done."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import msgspec
import pytest
from tests.hold.processes import await_that
from tests.serve_process import ServedFolder

from poise.cli.main import run
from poise.cli.remote import Server
from poise.jobs.entries import Planned
from poise.model import Document

SET = """apiVersion: poise.dev/v1alpha1
kind: PartitionSet
metadata: {name: orders}
spec: {partitions: 4, leaseSeconds: 3, graceSeconds: 1GUARDS}
"""
RING = """---
apiVersion: poise.dev/v1alpha1
kind: ShardRing
metadata: {name: web}
spec: {objects: [a, b]}
"""
POOL = """apiVersion: poise.dev/v1alpha1
kind: TargetPool
metadata: {name: core}
spec:
  pods: {endpoints: [{name: p1, url: "http://127.0.0.1:9"}]}
  targets: {http: {url: "http://127.0.0.1:9/targets"}}
"""
SPOT = """apiVersion: poise.dev/v1alpha1
kind: CapacitySplit
metadata: {name: services}
spec: {workloads: [{name: api, replicas: 10, spotPercentage: 70, minOnDemand: 1}]}
"""
SLOW = ("sh", "-c", 'trap "sleep 1; exit" TERM; while :; do sleep 0.05; done')
Poise = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServedFolder]:
    with ServedFolder(tmp_path) as made:
        yield made


@pytest.fixture
def poise(
    server: ServedFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Poise:
    """Run a verb in this process against the server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POISE_SERVER", server.url)

    def perform(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(list(arguments))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return perform


def write(folder: Path, text: str, guards: str = "") -> str:
    (folder / "file.yaml").write_text(text.replace("GUARDS", guards))
    return "file.yaml"


def revision(poise: Poise, job: str) -> str:
    return poise("get", job)[1].split("revision ")[1].split()[0]


def answer(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object], yes: bool = True) -> None:
    """Sit at a terminal, and answer after something has happened."""

    def confirm(text: str, err: bool) -> bool:
        assert (text[:6], err) == ("Apply ", True)
        meanwhile()
        return yes

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(click, "confirm", confirm)


def test_new_changed_and_unchanged_documents(poise: Poise, server: ServedFolder, tmp_path: Path) -> None:
    file = write(tmp_path, SET + RING)
    code, plans, said = poise("apply", file, "--yes")
    assert code == 0
    assert plans.count("Plan: ") == 2
    assert said.splitlines()[-4:] == [
        "PartitionSet orders: new",
        "ShardRing web: new",
        "PartitionSet orders: done, but 4 of 4 have no owner: no active node",
        "ShardRing web: done, but 2 of 2 have no owner: there is no instance to hold it",
    ]
    server.begin("worker", "orders", "--name", "w1")
    await_that(lambda: "as it should be" in poise("get", "orders")[1])
    file = write(tmp_path, SET.replace("4", "6"))
    code, plans, said = poise("apply", "-f", file, "--dry-run")
    assert (code, said) == (0, "PartitionSet orders: changed\n")
    assert "Plan: 0 moves, 2 placed first, 4 stay." in plans
    assert revision(poise, "orders") == "1", "nothing is written"
    code, again, said = poise("apply", file, "--yes")
    assert (code, again) == (0, plans)
    assert said.endswith("PartitionSet orders: done; 6 held, spread 0\n")
    assert poise("apply", file, "--yes", "--no-wait")[2] == "PartitionSet orders: unchanged\n"
    assert revision(poise, "orders") == "2"
    assert poise("apply", write(tmp_path, SPOT), "--yes")[2].endswith(
        "the next action is for whoever runs the replicas\n"
    )


def test_what_is_got_can_be_applied_and_its_status_is_not_written(poise: Poise, tmp_path: Path) -> None:
    assert poise("apply", write(tmp_path, SET), "--yes")[0] == 0
    text = poise("get", "orders", "-o", "yaml")[1].replace("Unassigned", "Assigned, owner: w9", 1)
    assert poise(
        "apply", write(tmp_path, text.replace("state: Assigned, owner: w9", "owner: w9\n    state: Assigned")), "--yes"
    )[2].startswith("PartitionSet orders: unchanged\n")
    assert "w9" not in poise("get", "orders")[1]


def test_nobody_to_ask(poise: Poise, tmp_path: Path) -> None:
    code, printed, said = poise("apply", write(tmp_path, SET))
    assert (code, printed) == (64, "")
    assert "nobody can be asked here: say --yes, or --dry-run" in said
    assert "There is no job yet" in poise("get")[1]


def test_a_no_writes_nothing(poise: Poise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, lambda: None, yes=False)
    code, plans, said = poise("apply", write(tmp_path, SET))
    assert (code, plans.count("Plan: ")) == (1, 1)
    assert said.endswith("poise: nothing was written\n")
    assert "There is no job yet" in poise("get")[1]


def test_a_real_terminal_is_asked_and_shows_a_bar(server: ServedFolder, tmp_path: Path) -> None:
    here, there = pty.openpty()
    command = [sys.executable, "-m", "poise", "apply", write(tmp_path, SET), "--server", server.url]
    asking = subprocess.Popen(command, cwd=tmp_path, stdin=there, stdout=there, stderr=there)
    os.close(there)
    seen = b""
    while b"Apply PartitionSet orders? [y/N]:" not in seen:
        seen += os.read(here, 65_536)
    os.write(here, b"y\n")
    while b"done, but 4 of 4 have no owner" not in seen.split(b"\r\x1b[2K")[-1]:
        seen += os.read(here, 65_536)
    assert asking.wait(20) == 0
    os.close(here)


@pytest.mark.parametrize("what", ["the document", "the world"])
def test_an_overtaken_plan_is_refused(
    what: str, poise: Poise, server: ServedFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert poise("apply", write(tmp_path, SET), "--yes")[0] == 0
    server.begin("worker", "orders", "--name", "w1")
    await_that(lambda: "as it should be" in poise("get", "orders")[1])
    (tmp_path / "other.yaml").write_text(SET.replace("GUARDS", "").replace("4", "5"))

    def join() -> None:
        server.begin("worker", "orders", "--name", "w2")
        await_that(lambda: "w2" in server.poise("get", "orders").stdout)

    answer(monkeypatch, join if what == "the world" else lambda: server.poise("apply", "other.yaml", "--yes"))
    code, plans, said = poise("apply", write(tmp_path, SET.replace("4", "8")))
    assert (code, plans.count("Plan: ")) == (3, 1)
    assert said.splitlines()[-1].startswith("poise: PartitionSet orders would lead to another plan by now")
    assert revision(poise, "orders") == ("1" if what == "the world" else "2")


@pytest.mark.parametrize("exists", [True, False], ids=["changed", "created"])
def test_a_race_at_the_write_itself_is_lost_and_said(
    exists: bool, poise: Poise, server: ServedFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if exists:
        assert poise("apply", write(tmp_path, SET), "--yes")[0] == 0
    (tmp_path / "other.yaml").write_text(SET.replace("GUARDS", "").replace("4", "5"))
    real = Server.try_put

    def overtaken(self: Server, document: Document) -> tuple[Planned, str]:
        answered = real(self, document)
        if document.kind == "PartitionSet":
            assert server.poise("apply", "other.yaml", "--yes").returncode == 0
        return answered

    monkeypatch.setattr(Server, "try_put", overtaken)
    code, _, said = poise("apply", write(tmp_path, RING + "---\n" + SET.replace("4", "8")), "--yes")
    assert code == 3
    seen = "orders is at revision 2, not 1" if exists else "orders is at revision 1, not 0"
    assert said.endswith(f"poise: PartitionSet orders: {seen}: look at it again; web has been written\n")
    assert "5 partitions" in poise("get")[1]


def loads(poise: Poise) -> dict[str, int]:
    """Say what the active members of the set hold."""
    jobs = msgspec.json.decode(poise("get", "members", "orders", "-o", "json")[1], type=list[_Members])
    return {each.name: each.load for job in jobs for each in job.members if each.state == "active"}


class _Members(msgspec.Struct):
    members: list[_Held]


class _Held(msgspec.Struct):
    name: str
    state: str
    load: int


def test_progress_until_a_slow_worker_has_let_go(poise: Poise, server: ServedFolder, tmp_path: Path) -> None:
    one = ", weights: {w2: 0}, guards: {movesInFlightMax: 1, perSourceMax: 1, perTargetMax: 1}"
    many = SET.replace("partitions: 4", "partitions: 12")  # Some of the moves are seen in flight, however slow we are.
    assert poise("apply", write(tmp_path, many, one), "--yes")[0] == 0
    for name in ("w1", "w2"):
        server.begin("worker", "orders", "--name", name, "--", *SLOW)
    await_that(lambda: loads(poise) == {"w1": 12, "w2": 0})
    file = write(tmp_path, many, one.replace("{w2: 0}", "{w2: 1}"))
    code, plans, said = poise("apply", file, "--yes")
    assert "Plan: 6 moves" in plans
    assert code == 0, said
    assert "PartitionSet/orders: 1 move in flight, " in said
    assert said.endswith("PartitionSet orders: done; 12 held, spread 0\n")
    code, _, said = poise("apply", write(tmp_path, many, one), "--yes", "--timeout", "0.1")
    assert code == 1
    assert "poise: not done after 0.1 s: PartitionSet/orders: " in said


def test_what_a_guard_holds_back_is_not_waited_for(poise: Poise, server: ServedFolder, tmp_path: Path) -> None:
    assert poise("apply", write(tmp_path, SET, ", weights: {w2: 0}"), "--yes")[0] == 0
    for name in ("w1", "w2"):
        server.begin("worker", "orders", "--name", name)
    await_that(lambda: loads(poise) == {"w1": 4, "w2": 0})
    closed = ', guards: {windows: [{schedule: "0 0 29 2 *", duration: 1h}]}'
    code, _, said = poise("apply", write(tmp_path, SET, closed), "--yes")
    assert code == 0
    assert "PartitionSet orders: 2 moves held back: " in said
    assert poise("pause", "orders")[0] == 0
    code, _, said = poise("apply", write(tmp_path, SET), "--yes")
    assert code == 0
    assert said.endswith("PartitionSet orders: paused; 2 moves held back until: poise resume orders\n")
    assert poise("resume", "orders")[0] == 0
    assert poise("apply", write(tmp_path, SET), "--yes")[2].endswith("done; 4 held, spread 0\n")


def test_the_targets_of_a_new_pool_are_the_servers_to_read(poise: Poise, tmp_path: Path) -> None:
    (tmp_path / "routers.yaml").write_text("[{name: r1, address: a}, {name: r2, address: b}]")
    listed = POOL.replace('http: {url: "http://127.0.0.1:9/targets"}', "file: routers.yaml").replace("core", "listed")
    code, printed, said = poise("apply", write(tmp_path, listed), "--yes", "--timeout", "3")
    assert (code, printed) == (1, "")
    assert said.splitlines()[0] == "TargetPool listed: new; the server plans it when it has read the targets"
    assert "not done after 3 s: TargetPool/listed: " in said, "nobody answers for the pod"
    assert "+  r1   -> p1   new item" in poise("plan", "listed")[1]
    code, printed, said = poise("apply", write(tmp_path, POOL), "--yes", "--no-wait")
    assert (code, printed) == (0, "")
    assert said == "TargetPool core: new; the server plans it when it has read the targets\n"
    assert "http" in poise("get", "core", "-o", "yaml")[1]


def test_a_name_that_another_kind_has(poise: Poise, tmp_path: Path) -> None:
    assert poise("apply", write(tmp_path, SET), "--yes")[0] == 0
    code, _, said = poise("apply", write(tmp_path, RING.replace("web", "orders")), "--yes")
    assert code == 3
    assert said.endswith("orders is a PartitionSet: it cannot become a ShardRing; nothing was written\n")


def test_a_bad_document_and_an_absent_server(poise: Poise, server: ServedFolder, tmp_path: Path) -> None:
    code, printed, said = poise("apply", write(tmp_path, SET.replace("4", "-4") + RING.replace("web", "-")), "--yes")
    assert (code, printed) == (64, "")
    assert "file.yaml, document 1: $.spec.partitions: " in said
    assert "file.yaml, document 2: $.metadata.name: " in said
    assert poise("apply")[0] == 64
    server.stop(signal.SIGTERM)
    code, printed, said = poise("apply", write(tmp_path, SET), "--yes")
    assert (code, printed) == (4, "")
    assert said.startswith(f"poise: {server.url} cannot be reached: ")
