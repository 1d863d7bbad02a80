"""What is special about a file: its schema, its machine, its clock, and everything that can be wrong with it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest
from tests.store_child import add_one
from tests.store_places import ROOT, do, hears, machine, make_set, owned, put, used

from poise.errors import InvalidSpec, Unavailable
from poise.model.ownership import MemberRow, Row
from poise.stores.base import Transaction
from poise.stores.boot import this_machine
from poise.stores.migrations import MIGRATIONS
from poise.stores.sqlite import SqliteStore
from poise.stores.sqlite_file import APPLICATION_ID

replace = msgspec.structs.replace
SECOND = (*MIGRATIONS, ("ALTER TABLE poise_members ADD COLUMN zone TEXT NOT NULL DEFAULT ''",))
BROKEN = (*MIGRATIONS, ("CREATE TABLE poise_half (a TEXT)", "CREATE TABLE poise_half (a TEXT)"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "poise.db"


def test_a_file_is_safe_against_the_loss_of_power_and_shared_by_processes(path: Path) -> None:
    store = SqliteStore(path)
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


# The schema.


def test_the_columns_are_the_fields(path: Path) -> None:
    used(path)
    with sqlite3.connect(path) as file:
        columns = [str(each[1]) for each in file.execute("PRAGMA table_info(poise_rows)")]
        assert columns == ["set_name", *Row.__struct_fields__]
        columns = [str(each[1]) for each in file.execute("PRAGMA table_info(poise_members)")]
        assert columns == ["set_name", *MemberRow.__struct_fields__]
        assert file.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert file.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    file.close()


def test_an_older_file_is_upgraded_and_keeps_everything(path: Path) -> None:
    used(path)
    store = SqliteStore(path, machine=machine(), migrations=SECOND)
    assert do(store, lambda tx: tx.rows()) == {"0": owned()}
    assert store._connection.execute("PRAGMA user_version").fetchone() == (len(SECOND),)
    assert store._connection.execute("SELECT count(zone) FROM poise_members").fetchone() == (0,)
    store.close()


def test_a_newer_file_is_refused_and_left_alone(path: Path) -> None:
    store = SqliteStore(path, machine=machine(), migrations=SECOND)
    store.close()
    before = path.read_bytes()
    with pytest.raises(InvalidSpec, match=r"schema 2 of a newer Poise, this one knows 1: upgrade Poise"):
        SqliteStore(path, machine=machine())
    assert path.read_bytes() == before


def test_a_migration_that_fails_half_way_is_undone(path: Path) -> None:
    used(path)
    with pytest.raises(Unavailable, match="already exists"):
        SqliteStore(path, machine=machine(), migrations=BROKEN)
    store = SqliteStore(path, machine=machine())
    assert do(store, lambda tx: tx.rows()) == {"0": owned()}
    assert store._connection.execute("SELECT name FROM sqlite_master WHERE name = 'poise_half'").fetchall() == []
    store.close()


def test_a_process_killed_within_a_migration_leaves_the_old_schema(path: Path) -> None:
    used(path)
    script = f"""
import sqlite3, sys
from pathlib import Path
from poise.stores.migrations import MIGRATIONS
from poise.stores.sqlite import SqliteStore
from tests.store_places import ROOT, do, hears, machine, make_set, owned, put, used
many = tuple(f"CREATE TABLE poise_new{{n}} AS SELECT * FROM poise_rows" for n in range(50))
def stop(*_):
    print("inside", flush=True); sys.stdin.readline()
connect = sqlite3.connect
def watched(*words, **more):
    made = connect(*words, **more)
    made.create_function("stop", 0, stop)
    return made
sqlite3.connect = watched
SqliteStore(Path({str(path)!r}), machine=machine(), migrations=(*MIGRATIONS, (*many, "SELECT stop()")))
"""
    child = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert hears(child) == "inside"
    child.kill()
    child.communicate()
    store = SqliteStore(path, machine=machine())
    assert do(store, lambda tx: tx.rows()) == {"0": owned()}
    assert store._connection.execute("SELECT count(*) FROM sqlite_master WHERE name LIKE 'poise_new%'").fetchone() == (
        0,
    )
    store.close()


def test_an_upgrade_under_a_running_process_ends_its_writing(path: Path) -> None:
    older = SqliteStore(path, machine=machine())
    make_set(older)
    newer = SqliteStore(path, machine=machine(), migrations=SECOND)
    with pytest.raises(Unavailable, match="upgraded by a newer Poise"):
        put(older, owned())
    assert do(newer, lambda tx: tx.rows()) == {}
    older.close()
    newer.close()


# What can be wrong with a file.


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_text("orders: 12\n" * 100)
    with pytest.raises(InvalidSpec, match="is no database"):
        SqliteStore(path)
    assert path.read_text() == "orders: 12\n" * 100


def test_a_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    file = sqlite3.connect(path)
    file.execute("CREATE TABLE songs (title TEXT)")
    file.close()
    before = path.read_bytes()
    with pytest.raises(InvalidSpec, match="database of another program"):
        SqliteStore(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("where", "meaning"), [("", "is a directory"), ("missing/poise.db", "there is no directory")])
def test_a_path_that_cannot_be_a_file_is_refused(tmp_path: Path, where: str, meaning: str) -> None:
    with pytest.raises(InvalidSpec, match=meaning):
        SqliteStore(tmp_path / where)


@pytest.mark.parametrize("mode", [0o444, 0o000])
def test_a_file_that_may_not_be_written_is_one_clear_error(path: Path, mode: int) -> None:
    used(path)
    path.chmod(mode)
    path.parent.chmod(0o755)
    path.with_name("poise.db-lock").chmod(0o666)
    script = (
        "import os, sys; from pathlib import Path; from poise.stores.sqlite import SqliteStore; "
        "os.geteuid() or (os.setgid(65534), os.setuid(65534)); SqliteStore(Path(sys.argv[1]))"
    )
    for parent in path.parents:
        if parent.is_relative_to("/tmp") and parent != Path("/tmp"):
            parent.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] in (
        f"poise.errors.Unavailable: {path} cannot be written",
        f"poise.errors.Unavailable: {path} cannot be opened",
        f"poise.errors.Unavailable: {path} cannot be used: Permission denied",
    )
    path.chmod(0o644)
    store = SqliteStore(path, machine=machine())
    assert do(store, lambda tx: tx.rows()) == {"0": owned()}
    store.close()


def test_a_full_disk_loses_nothing_and_goes_on_when_there_is_room(path: Path) -> None:
    store = SqliteStore(path)
    make_set(store)
    put(store, owned())
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    many = [Row(id=f"item {number}", reason="x" * 500, revision=1) for number in range(1000)]
    version = store.version()
    with pytest.raises(Unavailable, match="the disk is full"):
        put(store, *many)
    assert do(store, lambda tx: tx.rows()) == {"0": owned()}
    assert store.version() == version
    do(store, lambda tx: tx.renew_rows([replace(owned(), lease_until_s=200.0)]))
    store._connection.execute("PRAGMA max_page_count = 1000000")
    put(store, *many)
    assert len(do(store, lambda tx: tx.rows())) == 1001
    store.close()


def test_a_locked_file_is_unavailable_after_a_named_time(path: Path) -> None:
    store = SqliteStore(path, busy_s=0.3)
    make_set(store)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    started_s = time.monotonic()
    with pytest.raises(Unavailable, match="is locked by another process for too long"):
        put(store, owned())
    assert 0.25 <= time.monotonic() - started_s < 2.0
    other.execute("ROLLBACK")
    other.close()
    put(store, owned())
    store.close()


def test_a_work_that_does_not_begin_in_time_never_begins(path: Path) -> None:
    store = SqliteStore(path, busy_s=0.2)
    inside, go_on = threading.Event(), threading.Event()

    def slow(_: Transaction) -> None:
        inside.set()
        go_on.wait(10)

    thread = threading.Thread(target=do, args=(store, slow))
    thread.start()
    inside.wait(5)
    with pytest.raises(Unavailable, match="had no time for this"):
        put(store, owned())
    go_on.set()
    thread.join()
    assert do(store, lambda tx: tx.rows()) == {}
    store.close()


def test_a_file_that_was_replaced_is_not_written(path: Path) -> None:
    store = SqliteStore(path)
    make_set(store)
    for each in path.parent.glob("poise.db*"):
        each.unlink()
    with pytest.raises(Unavailable, match="No such file"):
        put(store, owned())
    used(path, this_machine())
    with pytest.raises(Unavailable, match="was replaced by another file"):
        put(store, owned())
    store.close()


def test_a_damaged_file_is_one_clear_error(path: Path) -> None:
    used(path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    with pytest.raises(Unavailable, match="is damaged: restore a backup"):
        SqliteStore(path, machine=machine())


@pytest.mark.parametrize("row", [replace(owned(), epoch=2**70), replace(owned(), reason="\ud800")])
def test_what_cannot_be_stored_is_refused(path: Path, row: Row) -> None:
    store = SqliteStore(path)
    with pytest.raises(InvalidSpec, match="cannot be stored"):
        put(store, row)
    assert do(store, lambda tx: tx.rows()) == {}
    store.close()


def test_a_closed_store_is_unavailable(path: Path) -> None:
    store = SqliteStore(path)
    store.close()
    store.close()
    with pytest.raises(Unavailable, match="is closed"):
        make_set(store)
    with pytest.raises(Unavailable, match="is closed"):
        store.version()


def test_a_forked_process_must_open_the_file_itself(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(path)
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    with pytest.raises(Unavailable, match="before a fork"):
        make_set(store)
    monkeypatch.undo()
    store.close()


# Works share a commit, but not their errors.


def test_one_work_that_fails_harms_no_other_of_its_commit(path: Path) -> None:
    store = SqliteStore(path)
    inside, go_on = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        inside.set()
        go_on.wait(10)
        add_one(tx)

    errors: list[Exception] = []

    def wrong(tx: Transaction) -> None:
        add_one(tx)
        raise ZeroDivisionError

    def caught() -> None:
        try:
            do(store, wrong)
        except ZeroDivisionError as error:
            errors.append(error)

    threads = [threading.Thread(target=do, args=(store, slow))]
    threads[0].start()
    inside.wait(5)
    threads += [threading.Thread(target=caught if number % 2 else lambda: do(store, add_one)) for number in range(8)]
    for thread in threads[1:]:
        thread.start()
    time.sleep(0.1)
    go_on.set()
    for thread in threads:
        thread.join()
    job = do(store, lambda tx: tx.job())
    assert job is not None
    assert (job.count, len(errors)) == (5, 4)
    store.close()
