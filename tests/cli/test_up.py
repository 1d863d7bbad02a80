"""`poise up` and coordinators inside workers, as real processes on one file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.hold.leading import owners
from tests.hold.processes import await_that

from poise.cli.main import run
from poise.documents import load
from poise.jobs.stored import put_document
from poise.stores.open import open_store

SET = """apiVersion: poise.dev/v1alpha1
kind: PartitionSet
metadata: {name: orders}
spec: {partitions: 6, leaseSeconds: 3, graceSeconds: 1, marginSeconds: 1, stopSeconds: 1}
"""
RING = """---
apiVersion: poise.dev/v1alpha1
kind: ShardRing
metadata: {name: web}
spec: {leaseSeconds: 4, objects: [a, b, c, d, e]}
"""


@contextmanager
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Collect processes, and leave none of them running."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        yield started
    finally:
        for each in started:
            if each.poll() is None:
                each.kill()
            each.communicate(timeout=10)


def poise(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "poise", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def held(folder: Path, name: str) -> set[str | None]:
    if not (folder / "poise.db").exists():
        return set()
    with closing(open_store(str(folder / "poise.db"))) as store:
        return set(owners(store, name).values()) if name in store.sets() else set()


@pytest.mark.slow
def test_sets_and_rings_are_planned_until_a_signal_comes(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(SET + RING)
    with processes() as started:
        up = poise(tmp_path, "up", "all.yaml", "--listen", "127.0.0.1:0")
        started.append(up)
        await_that(lambda: held(tmp_path, "web") == {None})
        for name in ("orders", "web"):
            started.append(poise(tmp_path, "worker", name, "--name", "w1", "--no-coordinate"))
        await_that(lambda: held(tmp_path, "orders") == {"w1"} and held(tmp_path, "web") == {"w1"})
        up.send_signal(signal.SIGTERM)
        assert up.wait(10) == 0
        assert b"poise: answers on http://127.0.0.1:" in up.communicate()[1]


@pytest.mark.slow
def test_workers_elect_one_of_them_and_another_when_it_is_killed(tmp_path: Path) -> None:
    (tmp_path / "set.yaml").write_text(SET)
    with processes() as started:
        up = poise(tmp_path, "up", "set.yaml", "--listen", "127.0.0.1:0")
        started.append(up)
        await_that(lambda: held(tmp_path, "orders") == {None})
        up.send_signal(signal.SIGINT)
        assert up.wait(10) == 0
        workers = {name: poise(tmp_path, "worker", "orders", "--name", name) for name in ("w1", "w2", "w3")}
        started.extend(workers.values())
        await_that(lambda: held(tmp_path, "orders") == {"w1", "w2", "w3"})
        with closing(open_store(str(tmp_path / "poise.db"))) as store:
            leader = store.transact("orders", lambda tx: tx.leader()).holder.split()[0]
        os.kill(workers[leader].pid, signal.SIGKILL)
        await_that(lambda: held(tmp_path, "orders") == {"w1", "w2", "w3"} - {leader})


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        pytest.param(["missing.yaml"], 64, "missing.yaml: cannot be read: No such file", id="no such file"),
        pytest.param(["--listen", "127.0.0.1:http"], 64, "--listen: expected ADDRESS:PORT", id="a strange port"),
        pytest.param(["--listen", "0.0.0.0:0"], 64, "can be reached by others: give --tokens", id="an open door"),
        pytest.param(["--db", "mysql://x/y"], 64, "$.db: expected sqlite:///FILE", id="a strange address"),
        pytest.param(["--db", "no/such/folder/poise.db"], 64, "no/such/folder", id="a place that is not there"),
    ],
)
def test_bad_input_is_one_line_and_starts_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["up", *arguments]) == code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert told in lines[0]
    assert not (tmp_path / "poise.db").exists()


def test_a_set_of_another_kind_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    with closing(open_store("poise.db")) as store:
        put_document(store, load(SET, "set.yaml")[0], datetime.now(UTC))
    (tmp_path / "ring.yaml").write_text(RING.replace("web", "orders"))
    assert run(["up", "ring.yaml", "--listen", "127.0.0.1:0"]) == 3
    assert "orders is a PartitionSet: it cannot become a ShardRing" in capsys.readouterr().err
