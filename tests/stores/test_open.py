"""From an address to a store, or to one line that says what is wrong with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.postgres_server import running_server
from tests.store_places import do, make_set

from poise.clock import boot_s
from poise.errors import InvalidSpec
from poise.stores.boot import this_machine
from poise.stores.memory import MemoryStore
from poise.stores.open import open_store
from poise.stores.postgres import PostgresStore
from poise.stores.sqlite import SqliteStore


@pytest.mark.parametrize("form", ["sqlite:///{}", "{}"])
def test_a_file_is_named_by_its_path(tmp_path: Path, form: str) -> None:
    path = tmp_path / "poise.db"
    store = open_store(form.format(path))
    assert isinstance(store, SqliteStore)
    assert path.exists()
    store.close()


def test_three_slashes_are_relative_and_four_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_store("sqlite:///near.db").close()
    open_store(f"sqlite:////{tmp_path}/far.db").close()
    assert {path.name for path in tmp_path.glob("*.db")} == {"near.db", "far.db"}


@pytest.mark.parametrize("form", ["postgresql://", "postgres://"])
def test_a_server_is_named_by_its_address(form: str) -> None:
    store = open_store(running_server().new_place().replace("postgresql://", form))
    assert isinstance(store, PostgresStore)
    store.close()


def test_memory_is_new_every_time_and_has_the_boot_clock() -> None:
    first, second = open_store("memory:"), open_store("memory:")
    assert isinstance(first, MemoryStore)
    make_set(first)
    assert second.sets() == []
    assert abs(boot_s() - do(first, lambda tx: tx.now_s)) < 5.0


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("", "''"),
        ("mysql://joe:secret@host/db", "'mysql'"),
        ("postgre://host/db", "'postgre'"),
        ("http://host", "'http'"),
        ("sqlite://poise.db", "'sqlite'"),
        ("sqlite:///", "'sqlite'"),
        ("sqlite:poise.db", "'sqlite:poise.db'"),
        ("a\0b", r"'a\x00b'"),
    ],
)
def test_any_other_address_is_refused(url: str, shown: str) -> None:
    with pytest.raises(InvalidSpec) as error:
        open_store(url)
    forms = "expected sqlite:///FILE, a file's path, postgresql://HOST/DATABASE, or memory:"
    assert str(error.value) == f"$.db: {forms}, got {shown}"


def test_without_its_package_postgresql_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "poise.stores.postgres")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InvalidSpec, match=r"pip install 'poise\[postgres\]'"):
        open_store("postgresql://host/db")


def test_a_system_without_a_boot_id_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("poise.stores.boot._BOOT_ID", tmp_path / "nothing")
    with pytest.raises(InvalidSpec, match="SQLite stores need Linux"):
        open_store(str(tmp_path / "poise.db"))


def test_a_machine_may_have_no_id_but_has_a_boot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("poise.stores.boot._MACHINE_IDS", (tmp_path / "nothing",))
    found = this_machine()
    assert found.machine_id == ""
    assert len(found.boot_id) == 36
