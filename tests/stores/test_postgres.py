"""What is special about a server: its connections, its schema, its limits, and everything that can go wrong with it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import psycopg
import pytest
from tests.postgres_server import running_server
from tests.store_child import add_one
from tests.store_places import Place, do, hears, make_set, owned, put

from poise.errors import Conflict, InvalidSpec, Unavailable
from poise.stores import postgres_pool
from poise.stores.base import Transaction
from poise.stores.migrations import MIGRATIONS
from poise.stores.open import open_store
from poise.stores.postgres import PostgresStore
from poise.stores.postgres_pool import CONNECTIONS_MAX, FORGOTTEN_S, STATEMENT_S, Pool
from poise.stores.postgres_rows import PostgresTransaction

replace = msgspec.structs.replace
SECOND = (*MIGRATIONS, ("ALTER TABLE poise_members ADD COLUMN zone TEXT NOT NULL DEFAULT ''",))
BROKEN = (*MIGRATIONS, ("CREATE TABLE poise_half (a TEXT)", "CREATE TABLE poise_half (a TEXT)"))


@pytest.fixture
def url() -> str:
    return running_server().new_place()


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(url)
    yield store
    store.close()


def ask(url: str, statement: str) -> list[tuple[object, ...]]:
    """Ask the server past the store."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def backend(tx: Transaction) -> int:
    """Give the server's process that a transaction talks to."""
    assert isinstance(tx, PostgresTransaction)
    return tx._connection.info.backend_pid


# The address.


@pytest.mark.parametrize("wrong", ["postgresql://host:port/db", "postgresql://host/db?nonsense=1"])
def test_a_wrong_address_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidSpec, match=r"^\$\.db: this is no address of a PostgreSQL server"):
        open_store(wrong)


@pytest.mark.parametrize("host", ["/nowhere", "127.0.0.1"])
def test_an_unreachable_server_is_unavailable_and_no_password_is_told(host: str) -> None:
    started_s = time.monotonic()
    with pytest.raises(Unavailable) as error:
        open_store(f"postgresql://joe:secret@/db?host={host}&port=1")
    assert time.monotonic() - started_s < postgres_pool.CONNECT_S + 2
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(f"PostgreSQL at {host}, database db")


def test_a_missing_database_is_unavailable() -> None:
    with pytest.raises(Unavailable, match='database "nothing" does not exist'):
        open_store(running_server().url("nothing"))


def test_an_old_server_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_pool, "SERVER_MIN", 990000)
    with pytest.raises(InvalidSpec, match=r"has version 16\.\d+; 14 or newer is needed"):
        open_store(url)


def test_a_server_that_takes_no_writes_is_unavailable(url: str) -> None:
    with pytest.raises(Unavailable, match="takes no writes"):
        open_store(url + "%20-cdefault_transaction_read_only%3Don")


def test_a_user_without_rights_is_refused(url: str) -> None:
    ask(url, "DO $$ BEGIN CREATE ROLE guest LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    with pytest.raises(InvalidSpec, match="no schema has been selected to create in"):
        open_store(url.replace("postgres@", "guest@"))


# The schema.


def test_an_older_schema_is_upgraded_and_keeps_everything(url: str, store: PostgresStore) -> None:
    put(store, owned())
    newer = PostgresStore(url, migrations=SECOND)
    assert do(newer, lambda tx: tx.rows()) == {"0": owned()}
    assert ask(url, "SELECT count(zone) FROM poise_members") == [(0,)]
    newer.close()
    with pytest.raises(Unavailable, match="upgraded by a newer Poise"):
        put(store, owned("1"))


def test_a_newer_schema_is_refused(url: str) -> None:
    PostgresStore(url, migrations=SECOND).close()
    with pytest.raises(InvalidSpec, match="schema 2 of a newer Poise, this one knows 1: upgrade Poise"):
        PostgresStore(url)


def test_a_migration_that_fails_half_way_is_undone(url: str, store: PostgresStore) -> None:
    put(store, owned())
    with pytest.raises(Unavailable, match="already exists"):
        PostgresStore(url, migrations=BROKEN)
    assert ask(url, "SELECT to_regclass('poise_half')") == [(None,)]
    put(store, owned("1"))


def test_processes_that_open_an_empty_place_at_once_make_it_once(url: str) -> None:
    with ThreadPoolExecutor(6) as threads:
        stores = list(threads.map(lambda _: PostgresStore(url), range(6)))
    for store in stores:
        do(store, add_one)
        store.close()


# Connections.


def test_connections_are_bounded_and_a_slow_set_delays_no_other(url: str, store: PostgresStore) -> None:
    go_on = threading.Event()
    with ThreadPoolExecutor(30) as threads:
        slow = [threads.submit(do, store, lambda _: go_on.wait(4)) for _ in range(25)]
        time.sleep(0.2)
        started_s = time.monotonic()
        for number in range(5):
            make_set(store, f"set {number}")
        assert time.monotonic() - started_s < 2.0
        name = url.rpartition("%3D")[2]
        count = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'poise' AND query LIKE '%{name}%'"
        assert ask(url, count)[0][0] in range(CONNECTIONS_MAX + 1)
        go_on.set()
        assert all(each.result() for each in slow)
    assert len(store._pool._idle) <= CONNECTIONS_MAX


def test_a_commit_that_was_told_is_on_disk_whatever_the_servers_default(url: str) -> None:
    pool = Pool(url + "%20-csynchronous_commit%3Doff")
    connection = pool.connect()
    assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
    assert connection.execute("SHOW idle_in_transaction_session_timeout").fetchone() == (f"{FORGOTTEN_S}s",)
    assert connection.execute("SHOW statement_timeout").fetchone() == (f"{STATEMENT_S}s",)
    connection.close()


def test_a_connection_lost_within_a_transaction_is_unavailable_and_leaves_nothing(
    url: str, store: PostgresStore
) -> None:
    make_set(store)

    def work(tx: Transaction) -> None:
        tx.write_rows([owned()])
        ask(url, f"SELECT pg_terminate_backend({backend(tx)}, 2000)")
        tx.write_rows([owned("1")])

    with pytest.raises(Unavailable):
        do(store, work)
    assert do(store, lambda tx: tx.rows()) == {}


def test_a_connection_lost_at_the_commit_is_unavailable(url: str, store: PostgresStore) -> None:
    def work(tx: Transaction) -> None:
        tx.write_rows([owned()])
        ask(url, f"SELECT pg_terminate_backend({backend(tx)}, 2000)")

    with pytest.raises(Unavailable):
        do(store, work)
    assert do(store, lambda tx: tx.rows()) == {}


def test_a_connection_lost_while_idle_is_replaced_unnoticed(url: str, store: PostgresStore) -> None:
    put(store, owned())
    ask(url, "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE application_name = 'poise'")
    put(store, owned("1"))
    ask(url, "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE application_name = 'poise'")
    assert store.sets() == []


def test_a_waiter_whose_connection_was_lost_still_hears(url: str, store: PostgresStore) -> None:
    version = store.version()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(store.wait, version, 10)
        time.sleep(0.3)
        ask(url, "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
        make_set(store)
        assert waiting.result() == version + 1


def test_a_server_that_says_nothing_is_given_up(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_pool, "ANSWER_S", 0.5)
    stopped: list[int] = []

    def work(tx: Transaction) -> None:
        tx.write_rows([owned()])
        stopped.append(backend(tx))
        os.kill(stopped[0], signal.SIGSTOP)
        tx.rows()

    started_s = time.monotonic()
    with pytest.raises(Unavailable):
        do(store, work)
    assert time.monotonic() - started_s < 3.0
    os.kill(stopped[0], signal.SIGCONT)
    assert do(store, lambda tx: tx.rows()) == {}


@pytest.mark.slow
def test_a_process_stopped_within_its_transaction_does_not_keep_the_set(url: str, store: PostgresStore) -> None:
    place = Place("postgres", url)
    child = place.start("hang")
    assert [hears(child), hears(child)] == ["open", "inside"]
    child.send_signal(signal.SIGSTOP)
    started_s = time.monotonic()
    do(store, add_one)
    assert time.monotonic() - started_s < FORGOTTEN_S + 1.5
    child.send_signal(signal.SIGCONT)
    place.close()
    assert do(store, lambda tx: tx.rows()) == {}


def test_a_lock_that_is_not_given_in_time_is_unavailable(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = postgres_pool._SETTINGS.replace(f"'lock_timeout', '{STATEMENT_S}s'", "'lock_timeout', '200ms'")
    monkeypatch.setattr(postgres_pool, "_SETTINGS", settings)
    first, second = PostgresStore(url), PostgresStore(url)
    with pytest.raises(Unavailable, match="had no time for this"):
        do(first, lambda _: do(second, add_one))
    do(second, add_one)
    first.close()
    second.close()


# What cannot be stored, and works that share a commit.


@pytest.mark.parametrize("wrong", [{"epoch": 2**70}, {"reason": "\0"}, {"reason": "\ud800"}])
def test_what_cannot_be_stored_is_refused(store: PostgresStore, wrong: dict[str, str | int]) -> None:
    row = replace(owned(), **wrong)
    with pytest.raises(InvalidSpec, match="cannot be stored"):
        put(store, row)
    with pytest.raises(InvalidSpec, match="cannot be stored"):
        put(store, owned("1"), row)
    assert do(store, lambda tx: tx.rows()) == {}


def test_one_work_that_fails_harms_no_other_of_its_commit(store: PostgresStore) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> int:
        inside.set()
        go_on.wait(3)
        return add_one(tx)

    def wrong(tx: Transaction) -> int:
        add_one(tx)
        raise ZeroDivisionError

    def late(tx: Transaction) -> int:
        tx.write_rows([owned()])
        tx.write_rows([owned()])
        return add_one(tx)

    with ThreadPoolExecutor(12) as threads:
        first = threads.submit(do, store, slow)
        inside.wait(5)
        others = [threads.submit(do, store, (add_one, wrong, late)[number % 3]) for number in range(9)]
        time.sleep(0.1)
        go_on.set()
        assert first.result() == 1
        errors = [type(other.exception()) for other in others]
    assert errors == [type(None), ZeroDivisionError, Conflict] * 3
    job = do(store, lambda tx: tx.job())
    assert job is not None
    assert (job.count, do(store, lambda tx: tx.rows())) == (4, {})


def test_a_closed_store_is_unavailable(store: PostgresStore) -> None:
    store.close()
    with pytest.raises(Unavailable, match="is closed"):
        make_set(store)
    with pytest.raises(Unavailable, match="is closed"):
        store.sets()


def test_a_forked_process_must_connect_itself(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = os.getpid()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: parent + 1)
        with pytest.raises(Unavailable, match="before a fork"):
            make_set(store)
        with pytest.raises(Unavailable, match="before a fork"):
            store.version()


def test_psql_reads_who_owns_what(url: str, store: PostgresStore) -> None:
    put(store, owned())
    assert ask(url, "SELECT id, owner, epoch FROM poise_rows") == [("0", "n1", 7)]
