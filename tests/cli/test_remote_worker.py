"""`poise worker --server` with real processes: a server that is stopped, killed and started again under its workers."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.hold.leading import owners
from tests.hold.processes import alive, await_that
from tests.serve_process import ServedFolder

from poise.stores.open import open_store

SET = """apiVersion: poise.dev/v1alpha1
kind: PartitionSet
metadata: {name: orders}
spec: {partitions: 4, leaseSeconds: 6, graceSeconds: 1, marginSeconds: 1, stopSeconds: 1}
"""
PATIENT_S = 12
# Writes its process, item and epoch to a file of its own, then waits.
SIGN = ("sh", "-c", 'echo "$POISE_ITEM $POISE_EPOCH $POISE_MEMBER" > "signs/$$"; exec sleep 300')


class World(ServedFolder):
    """A server of one set, and workers whose children sign a book."""

    def sign(self, name: str) -> subprocess.Popen[str]:
        return self.begin("worker", "orders", "--name", name, "--server", self.url, "--", *SIGN)

    def children(self) -> dict[int, tuple[str, int, str]]:
        """Who runs now: process -> item, epoch, member."""
        found = {}
        for path in (self.folder / "signs").iterdir():
            words = path.read_text().split()
            if len(words) == 3 and alive(int(path.name)):
                found[int(path.name)] = (words[0], int(words[1]), words[2])
        return found

    def loads(self) -> dict[str, int]:
        members = [member for _, _, member in self.children().values()]
        return {member: members.count(member) for member in members}

    def owners(self) -> set[str | None]:
        with closing(open_store(str(self.folder / "poise.db"))) as store:
            return set(owners(store).values())


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    (tmp_path / "signs").mkdir()
    with World(tmp_path, SET) as made:
        yield made


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[World]:
    """The same with leases that outlast the start of a server on a busy machine."""
    (tmp_path / "signs").mkdir()
    with World(tmp_path, SET.replace("leaseSeconds: 6", f"leaseSeconds: {PATIENT_S}")) as made:
        yield made


def shared(world: World, loads: dict[str, int]) -> bool:
    """Say whether the items are shared so; at no time does one of them have two children."""
    items = [item for item, _, _ in world.children().values()]
    assert len(items) == len(set(items)), "two children of one item"
    return world.loads() == loads


@pytest.mark.slow
def test_gain_share_drain_and_leave(world: World) -> None:
    first, second = world.sign("w1"), None
    await_that(lambda: world.loads() == {"w1": 4})
    second = world.sign("w2")
    await_that(lambda: shared(world, {"w1": 2, "w2": 2}))
    drained = world.poise("drain", "w1")
    assert (drained.returncode, drained.stdout) == (0, "")
    assert "PartitionSet/orders: w1 holds nothing and may stop\n" in drained.stderr
    await_that(lambda: shared(world, {"w2": 4}))
    assert world.poise("undrain", "w1").returncode == 0
    await_that(lambda: world.loads() == {"w1": 2, "w2": 2})
    for worker in (first, second):
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
    assert world.children() == {}
    assert world.owners() == {None}, "nobody has to wait for a lease"


@pytest.mark.slow
def test_a_killed_workers_children_end_and_its_items_go_to_another(world: World) -> None:
    first = world.sign("w1")
    await_that(lambda: world.loads() == {"w1": 4})
    world.sign("w2")
    await_that(lambda: world.loads() == {"w1": 2, "w2": 2})
    first.kill()
    await_that(lambda: shared(world, {"w2": 4}))


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_work_goes_on_over_a_restart_of_the_server(patient: World, ending: signal.Signals) -> None:
    patient.sign("w1")
    patient.sign("w2")
    await_that(lambda: patient.loads() == {"w1": 2, "w2": 2})
    before = patient.children()
    patient.stop(ending)
    time.sleep(0.5)
    patient.start()
    time.sleep(PATIENT_S + 2)
    assert patient.children() == before, "the same processes at the same epochs: nothing was lost"


@pytest.mark.slow
def test_a_server_that_stays_away_ends_the_work_in_time_and_gives_it_back_later(world: World) -> None:
    worker = world.sign("w1")
    await_that(lambda: world.loads() == {"w1": 4})
    world.stop()
    stopped_s = time.monotonic()
    await_that(lambda: world.children() == {})
    assert time.monotonic() - stopped_s < 6.0, "before the lease ends"
    assert worker.poll() is None
    world.start()
    await_that(lambda: world.loads() == {"w1": 4})
    assert {epoch for _, epoch, _ in world.children().values()} <= {1, 2}


@pytest.mark.slow
def test_two_workers_of_one_name(world: World) -> None:
    first = world.sign("w1")
    await_that(lambda: world.loads() == {"w1": 4})
    world.sign("w1")
    assert first.wait(20) == 3, "a conflict"
    assert "poise: incarnation 2 of w1 has registered; this is an older one" in first.communicate()[1]
    await_that(lambda: {epoch for _, epoch, _ in world.children().values()} == {2} and world.loads() == {"w1": 4})


@pytest.mark.slow
def test_gains_are_printed_and_bad_usage_is_one_line(world: World) -> None:
    printing = world.begin("worker", "orders", "--name", "w1")
    assert printing.stdout is not None
    gained = [json.loads(printing.stdout.readline()) for _ in range(4)]
    assert [line["item"] for line in gained] == ["0", "1", "2", "3"]
    printing.send_signal(signal.SIGINT)
    assert printing.wait(20) == 0
    for arguments, code, told in (
        (["nope"], 64, f"there is no set 'nope' at {world.url}; write it with: poise apply FILE --server {world.url}"),
        (["orders", "--db", "poise.db", "--server", world.url], 64, "--server and --db exclude each other"),
        (["orders", "--coordinate"], 64, "--coordinate needs --db: a server plans by itself"),
        (["orders", "--server", "ftp://x"], 64, "$.server: expected an address such as http://127.0.0.1:7878"),
        (["orders", "--server", "http://127.0.0.1:1"], 4, "http://127.0.0.1:1 cannot be reached"),
        (["orders", "--stop", "9"], 64, "$.stop_s: work may last"),
    ):
        done = world.poise("worker", *arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr
        assert told in done.stderr
    local = world.begin("worker", "orders", "--name", "w2", "--db", "poise.db", "--no-coordinate")
    await_that(lambda: world.owners() == {"w2"})
    local.send_signal(signal.SIGTERM)
    assert local.wait(20) == 0, "a store that is said goes before a server of the environment"
