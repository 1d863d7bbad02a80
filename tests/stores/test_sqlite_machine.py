"""A file belongs to one machine and its clock; after a reboot every time starts again."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import msgspec
import pytest
from tests.store_places import do, machine, make_set, owned, put, used

from poise.clock import boot_s
from poise.errors import InvalidSpec, Unavailable
from poise.model.ownership import LeaderRow, MemberRow, OwnerState, Row, SetRow, Terms
from poise.stores.base import Transaction
from poise.stores.sqlite import SqliteStore

replace = msgspec.structs.replace


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "poise.db"


def test_store_time_is_the_boot_clock(path: Path) -> None:
    store = SqliteStore(path)
    before_s = boot_s()
    assert before_s <= do(store, lambda tx: tx.now_s) <= boot_s()
    store.close()


def test_another_machine_is_refused(path: Path) -> None:
    used(path)
    with pytest.raises(InvalidSpec, match="belongs to another machine"):
        SqliteStore(path, machine=machine("boot 9", machine_id="m2"))
    SqliteStore(path, machine=machine()).close()


def test_a_container_of_the_same_machine_is_let_in(path: Path) -> None:
    used(path)
    SqliteStore(path, machine=machine("boot 1", machine_id="container")).close()


def test_a_file_is_adopted_only_when_asked_and_only_when_nobody_has_it(path: Path) -> None:
    first = SqliteStore(path, machine=machine())
    other = machine("boot 9", machine_id="m2")
    with pytest.raises(Unavailable, match="in use by processes of another machine or boot"):
        SqliteStore(path, machine=other, adopt=True, busy_s=0.2)
    first.close()
    SqliteStore(path, machine=other, adopt=True).close()
    SqliteStore(path, machine=other).close()


def test_a_machine_without_an_id_is_kept_out_while_another_is_in(path: Path) -> None:
    first = SqliteStore(path, machine=machine())
    with pytest.raises(Unavailable, match="in use by processes of another machine or boot"):
        SqliteStore(path, machine=machine("boot 2", machine_id=""), busy_s=0.2)
    first.close()


def left_at_boot_one(path: Path) -> None:
    """Leave a set with everything that has a time, at 1000 s of the first boot."""
    store = SqliteStore(path, machine=machine())
    terms = Terms(lease_s=10.0, grace_s=2.0, release_s=30.0, restart_grace_s=60.0)
    releasing = replace(owned("1"), state=OwnerState.REQUESTED_RELEASE, target="n2", deadline_s=1010.0)
    waiting = Row(id="3", target="n1", deadline_s=1020.0, reason="restart", revision=1, since_s=1000.0)

    def work(tx: Transaction) -> None:
        tx.write_job(
            SetRow(name="orders", count=4, terms=terms, quarantine_until_s=1.0, granted_max_s=20.0, revision=1)
        )
        tx.write_rows([replace(owned("0"), granted_s=25.0), releasing, replace(owned("2"), granted_s=1.0), waiting])
        tx.write_member(MemberRow(name="n1", incarnation=3, lease_until_s=1005.0, seq=8, leaving="restart"))
        tx.write_leader(LeaderRow(term=4, holder="c1", lease_until_s=1003.0))

    do(store, work)
    store.close()


def test_after_a_reboot_every_time_starts_again_at_full_length(path: Path) -> None:
    left_at_boot_one(path)
    store = SqliteStore(path, machine=machine("boot 2", now_s=5.0))
    now_s = do(store, lambda tx: tx.now_s)
    rows = do(store, lambda tx: tx.rows())
    assert now_s >= 1000.0  # Store time does not fall below what was written.
    assert [rows[item].lease_until_s - now_s for item in "0123"] == [25.0, 10.0, 10.0, -now_s]
    assert [rows[item].deadline_s for item in "0123"] == [None, now_s + 30.0, None, now_s + 60.0]
    assert {row.revision for row in rows.values()} == {1}
    assert rows["1"].target == "n2"
    member = MemberRow(name="n1", incarnation=3, lease_until_s=now_s + 20.0, seq=8, leaving="restart")
    assert do(store, lambda tx: tx.members()) == {"n1": member}
    assert do(store, lambda tx: tx.leader()) == LeaderRow(term=4, holder="c1", lease_until_s=now_s + 20.0)
    job = do(store, lambda tx: tx.job())
    assert job is not None
    assert (job.quarantine_until_s, job.revision) == (now_s + 22.0, 2)
    assert [line.reason for line in store.journal("orders")] == ["the machine has restarted: every lease starts again"]
    store.close()


def test_a_second_opening_after_a_reboot_changes_nothing(path: Path) -> None:
    left_at_boot_one(path)
    first = SqliteStore(path, machine=machine("boot 2", now_s=5.0))
    before = do(first, lambda tx: (tx.rows(), tx.members(), tx.leader(), tx.job()))
    second = SqliteStore(path, machine=machine("boot 2", now_s=8.0))
    assert do(second, lambda tx: (tx.rows(), tx.members(), tx.leader(), tx.job())) == before
    assert do(second, lambda tx: tx.now_s) == do(first, lambda tx: tx.now_s) + 3.0
    first.close()
    second.close()


def test_many_processes_may_open_at_once_after_a_reboot(path: Path) -> None:
    left_at_boot_one(path)
    stores: list[SqliteStore] = []
    threads = [
        threading.Thread(target=lambda: stores.append(SqliteStore(path, machine=machine("boot 2", now_s=5.0))))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores) == 6
    assert len(stores[0].journal("orders")) == 1
    for store in stores:
        store.close()


def test_a_reboot_that_is_cut_off_begins_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_at_boot_one(path)

    def cut_off(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("poise.stores.sqlite_file.Line", cut_off)
    with pytest.raises(KeyboardInterrupt):
        SqliteStore(path, machine=machine("boot 2", now_s=5.0))
    monkeypatch.undo()
    file = sqlite3.connect(path)
    assert file.execute("SELECT lease_until_s FROM poise_rows WHERE id = '0'").fetchone() == (100.5,)
    file.close()
    store = SqliteStore(path, machine=machine("boot 2", now_s=5.0))
    assert len(store.journal("orders")) == 1
    store.close()


def test_a_copy_made_by_sqlite_is_a_store(path: Path, tmp_path: Path) -> None:
    store = SqliteStore(path)
    make_set(store)
    put(store, owned())
    backup = sqlite3.connect(tmp_path / "backup.db")
    store._reader.backup(backup)
    backup.close()
    store.close()
    copy = SqliteStore(tmp_path / "backup.db")
    assert do(copy, lambda tx: tx.rows()) == {"0": owned()}
    copy.close()
