"""Sinks that refuse a stale writer: a table, a file, a request."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poise.errors import Fenced, InvalidSpec
from poise.hold.fencing import EPOCH_MAX, Ask, FileGuard, SqlGuard, admit_request, epoch_header, read_header


def table() -> tuple[SqlGuard, sqlite3.Connection]:
    sink = sqlite3.connect(":memory:")
    guard = SqlGuard()
    sink.execute(guard.schema)
    sink.execute("CREATE TABLE writes (item TEXT, epoch INTEGER)")
    sink.commit()
    return guard, sink


def asking(sink: sqlite3.Connection) -> Ask:
    def ask(statement: str, parameters: tuple[str | int, ...]) -> Sequence[object] | None:
        row: tuple[object, ...] | None = sink.execute(statement, parameters).fetchone()
        return row

    return ask


def write(guard: SqlGuard, sink: sqlite3.Connection, item: str, epoch: int) -> None:
    with sink:
        guard.admit(asking(sink), item, epoch)
        sink.execute("INSERT INTO writes VALUES (?, ?)", (item, epoch))


def test_a_table_refuses_an_epoch_below_the_largest_it_has_seen() -> None:
    guard, sink = table()
    write(guard, sink, "7", 3)
    write(guard, sink, "7", 3)
    write(guard, sink, "8", 1)
    write(guard, sink, "7", 4)
    with pytest.raises(Fenced, match="item 7: epoch 3 is over, 4 has begun") as caught:
        write(guard, sink, "7", 3)
    assert (caught.value.item, caught.value.epoch, caught.value.seen) == ("7", 3, 4)
    assert sink.execute("SELECT * FROM writes").fetchall() == [("7", 3), ("7", 3), ("8", 1), ("7", 4)]
    sink.close()


def test_a_write_that_fails_leaves_no_epoch_behind() -> None:
    guard, sink = table()

    def fail() -> None:
        with sink:
            guard.admit(asking(sink), "7", 9)
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        fail()
    write(guard, sink, "7", 1)
    sink.close()


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5)), max_size=20))
def test_accepted_epochs_never_fall(tries: list[tuple[str, int]]) -> None:
    guard, sink = table()
    seen: dict[str, int] = {}
    for item, epoch in tries:
        if epoch >= seen.get(item, 0):
            write(guard, sink, item, epoch)
            seen[item] = epoch
        else:
            with pytest.raises(Fenced, match=f"{seen[item]} has begun"):
                write(guard, sink, item, epoch)
    sink.close()


def test_without_its_condition_the_table_lets_a_stale_write_pass() -> None:
    guard, sink = table()

    def careless(statement: str, parameters: tuple[str | int, ...]) -> Sequence[object] | None:
        return asking(sink)(statement.replace("WHERE poise_epochs.epoch <= excluded.epoch", ""), parameters)

    guard.admit(careless, "7", 4)
    guard.admit(careless, "7", 3)
    assert sink.execute("SELECT epoch FROM poise_epochs").fetchall() == [(3,)]
    sink.close()


def test_a_table_has_a_plain_name() -> None:
    with pytest.raises(InvalidSpec, match=r"\$\.table"):
        SqlGuard("epochs; DROP TABLE writes")


@pytest.mark.parametrize("epoch", [-1, 2**63, True, 1.0, "1", None])
def test_what_is_no_epoch_is_refused(epoch: int, tmp_path: Path) -> None:
    guard, sink = table()
    with pytest.raises(InvalidSpec, match=r"\$\.epoch"):
        guard.admit(asking(sink), "7", epoch)
    with pytest.raises(InvalidSpec, match=r"\$\.epoch"), FileGuard(tmp_path).admit("7", epoch):
        pass
    with pytest.raises(InvalidSpec, match=r"\$\.epoch"):
        epoch_header("7", epoch)
    sink.close()


def test_a_file_refuses_an_epoch_below_the_largest_it_has_seen(tmp_path: Path) -> None:
    guard, written = FileGuard(tmp_path / "epochs"), tmp_path / "log"

    def append(item: str, epoch: int) -> None:
        with guard.admit(item, epoch), written.open("a") as log:
            log.write(f"{item} {epoch}\n")

    append("a/b", 2)
    append("../c", 1)
    append("a/b", EPOCH_MAX)
    with pytest.raises(Fenced):
        append("a/b", 2)
    again = FileGuard(tmp_path / "epochs")
    with pytest.raises(Fenced, match=str(EPOCH_MAX)), again.admit("a/b", 3):
        pass
    assert written.read_text() == f"a/b 2\n../c 1\na/b {EPOCH_MAX}\n"
    assert [path.name for path in tmp_path.iterdir()] in (["epochs", "log"], ["log", "epochs"]), (
        "no item left its folder"
    )


def test_a_newer_owner_waits_for_a_write_that_is_under_way(tmp_path: Path) -> None:
    guard, told = FileGuard(tmp_path), list[str]()
    begun = threading.Event()

    def newer() -> None:
        begun.wait()
        with FileGuard(tmp_path).admit("7", 2):
            told.append("newer")

    thread = threading.Thread(target=newer)
    thread.start()
    with guard.admit("7", 1):
        begun.set()
        thread.join(0.3)
        told.append("older")
    thread.join()
    assert told == ["older", "newer"]


def test_a_crash_in_the_block_refuses_too_much_rather_than_too_little(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"), FileGuard(tmp_path).admit("7", 9):
        raise OSError("the disk is full")
    with pytest.raises(Fenced, match="epoch 8 is over, 9 has begun"), FileGuard(tmp_path).admit("7", 8):
        pass


def test_an_item_never_leaves_the_folder_and_never_meets_another(tmp_path: Path) -> None:
    for epoch, item in enumerate(["a/b", "../c", "a_b", "A/B", "é", "."], start=1):
        with FileGuard(tmp_path / "epochs").admit(item, epoch):
            pass
    with pytest.raises(Fenced, match="1 is over, 2 has begun"), FileGuard(tmp_path / "epochs").admit("../c", 1):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["epochs"]
    assert len(list((tmp_path / "epochs").iterdir())) == 6


@given(st.text(min_size=1, max_size=30).filter(lambda text: text.isprintable()), st.integers(0, EPOCH_MAX))
def test_a_header_carries_item_and_epoch(item: str, epoch: int) -> None:
    headers = epoch_header(item, epoch)
    assert all(value.isascii() for value in headers.values())
    assert read_header({name.lower(): value for name, value in headers.items()}) == (item, epoch)


@pytest.mark.parametrize("value", ["", "7", "7;", "x;61", "-1;61", "7;6", "7;ff", "99999999999999999999;61", "7;61\n"])
def test_a_bad_header_is_refused(value: str) -> None:
    with pytest.raises(InvalidSpec):
        read_header({"Poise-Epoch": value})


def test_a_request_is_judged_by_the_guard_of_its_sink(tmp_path: Path) -> None:
    def admit(item: str, epoch: int) -> None:
        with FileGuard(tmp_path).admit(item, epoch):
            pass

    assert admit_request(epoch_header("7", 2), admit) == 200
    assert admit_request(epoch_header("7", 1), admit) == 412
    assert admit_request({}, admit) == 400


@pytest.mark.slow
def test_in_the_example_a_frozen_worker_wakes_up_and_its_late_write_is_refused() -> None:
    example = Path(__file__).parents[2] / "examples" / "fenced_writes.py"
    said = subprocess.run([sys.executable, example], capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout.splitlines() == [
        "first   wrote item 0 at epoch 1",
        "first   is frozen; its lease runs out",
        "second  wrote item 0 at epoch 2",
        "first   woke up, and its late write was refused: item 0: epoch 1 is over, 2 has begun",
    ]
    assert said.stderr == ""
