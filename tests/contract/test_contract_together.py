"""What a store promises to several threads and processes: one at a time, nothing lost by a kill, waking."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import msgspec
import pytest
from tests.store_child import add_one
from tests.store_places import Place, do, hears, make_set, owned, put

from poise.errors import Conflict
from poise.model.ownership import MemberRow, Row
from poise.stores.base import Store, Transaction

replace = msgspec.structs.replace

_SOON_S = 2.0  # A wake-up comes sooner than this, also on a busy machine.
_PATIENCE_S = 10.0


def count(store: Store) -> int:
    job = do(store, lambda tx: tx.job())
    return job.count if job is not None else 0


@contextmanager
def in_thread(work: threading.Thread) -> Iterator[None]:
    work.start()
    yield
    work.join()


# Promise 1: one transaction at a time for a set.


def test_threads_take_turns(place: Place) -> None:
    stores = [place.open(), place.open()]
    with ThreadPoolExecutor(8) as threads:
        counts = list(threads.map(lambda number: do(stores[number % 2], add_one), range(160)))
    assert sorted(counts) == list(range(1, 161))
    assert count(stores[0]) == 160
    assert len(stores[0].journal("orders")) == 160


def test_processes_take_turns(shared_place: Place) -> None:
    store = shared_place.open()
    children = [shared_place.start("count", "30") for _ in range(3)]
    for _ in range(30):
        do(store, add_one)
    assert [child.wait(30) for child in children] == [0, 0, 0]
    assert count(store) == 120
    assert [line.number for line in store.journal("orders")] == list(range(1, 121))


def test_store_time_is_read_once_the_set_is_free(place: Place) -> None:
    first, second = place.open(), place.open()
    inside, started_s = threading.Event(), [0.0]

    def hold(tx: Transaction) -> None:
        started_s[0] = tx.now_s
        inside.set()
        time.sleep(0.3)

    with in_thread(threading.Thread(target=do, args=(first, hold))):
        inside.wait(5)
        now_s = do(second, lambda tx: tx.now_s)
    assert now_s - started_s[0] >= 0.3


def test_what_was_read_is_still_true_at_the_commit(place: Place) -> None:
    first, second = place.open(), place.open()
    put(first, Row(id="0", revision=1))
    inside = threading.Event()

    def slow(tx: Transaction) -> None:
        row = tx.rows()["0"]
        inside.set()
        time.sleep(0.2)
        tx.write_rows([replace(row, owner="n1", revision=row.revision + 1)])

    def quick(tx: Transaction) -> str | None:
        return tx.rows()["0"].owner

    with in_thread(threading.Thread(target=do, args=(first, slow))):
        inside.wait(5)
        assert do(second, quick) == "n1"


def test_a_row_of_an_older_reading_is_a_conflict(place: Place) -> None:
    first, second = place.open(), place.open()
    put(first, Row(id="0", revision=1))
    seen = do(first, lambda tx: tx.rows())["0"]
    put(second, replace(seen, owner="n2", revision=2))
    with pytest.raises(Conflict):
        put(first, replace(seen, owner="n1", revision=2))
    assert do(first, lambda tx: tx.rows())["0"].owner == "n2"


# Promise 2: all or nothing, for works that are committed together and for a process that dies.


def test_what_a_failed_work_wrote_is_unknown_to_those_committed_with_it(place: Place) -> None:
    store = place.open()
    make_set(store)
    inside, go_on = threading.Event(), threading.Event()

    def hold(_tx: Transaction) -> None:
        inside.set()
        go_on.wait(5)

    def grow(tx: Transaction, *, fails: bool) -> int:
        job = tx.job()
        assert job is not None
        tx.write_job(replace(job, count=job.count + 1, revision=job.revision + 1))
        if fails:
            raise ZeroDivisionError
        return job.count + 1

    before = count(store)
    with ThreadPoolExecutor(8) as threads:
        holding = threads.submit(do, store, hold)
        inside.wait(5)
        growing = [threads.submit(do, store, partial(grow, fails=number % 2 == 1)) for number in range(6)]
        time.sleep(0.2)  # All of them wait by now: they share the next commit.
        go_on.set()
        holding.result()
        failed = [each.exception() is not None for each in growing]
        grown = sorted(each.result() for each in growing if each.exception() is None)
    assert failed == [False, True] * 3
    assert grown == [before + 1, before + 2, before + 3]
    assert count(store) == before + 3


def test_a_process_killed_within_its_transaction_leaves_nothing(shared_place: Place) -> None:
    store = shared_place.open()
    do(store, add_one)
    child = shared_place.start("hang")
    assert [hears(child), hears(child)] == ["open", "inside"]
    child.kill()
    child.wait()
    assert do(store, lambda tx: tx.rows()) == {}
    assert count(store) == 1
    assert len(store.journal("orders")) == 1
    do(store, add_one)


def test_a_process_killed_after_its_commit_leaves_everything(shared_place: Place) -> None:
    child = shared_place.start("commit")
    assert [hears(child), hears(child)] == ["open", "committed"]
    child.kill()
    child.wait()
    store = shared_place.open()
    assert count(store) == 1
    assert len(store.journal("orders")) == 1


def test_everything_is_there_after_closing_and_opening(shared_place: Place) -> None:
    store = shared_place.open()
    make_set(store)
    put(store, owned())
    version = store.version()
    store.close()
    again = shared_place.open()
    assert again.sets() == ["orders"]
    assert do(again, lambda tx: tx.rows()) == {"0": owned()}
    assert again.version() == version


# Promise 8: waking.


def test_waiting_ends_after_its_timeout(store: Store) -> None:
    make_set(store)
    version, started_s = store.version(), time.monotonic()
    assert store.wait(version, 0.2) == version
    assert 0.19 <= time.monotonic() - started_s < 0.2 + _SOON_S


def test_waiting_for_what_has_happened_ends_at_once(store: Store) -> None:
    version = store.version()
    make_set(store)
    started_s = time.monotonic()
    assert store.wait(version, 10) == store.version() != version
    assert time.monotonic() - started_s < _SOON_S


def test_a_commit_of_another_thread_wakes_every_waiter(place: Place) -> None:
    first, second = place.open(), place.open()
    version = first.version()
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(store.wait, version, _PATIENCE_S) for store in (first, first, second, second)]
        time.sleep(0.3)
        started_s = time.monotonic()
        make_set(first)
        assert {each.result() for each in waiting} == {first.version()}
        assert time.monotonic() - started_s < _SOON_S


def test_a_commit_of_another_process_wakes(shared_place: Place) -> None:
    store = shared_place.open()
    version = store.version()
    child = shared_place.start("commit")
    started_s = time.monotonic()
    assert store.wait(version, 20) != version
    assert hears(child) == "open"
    assert time.monotonic() - started_s < 15


def test_reading_and_failing_wake_nobody(store: Store) -> None:
    make_set(store)
    version = store.version()

    def fail(tx: Transaction) -> None:
        tx.write_rows([owned()])
        raise ZeroDivisionError

    do(store, lambda tx: (tx.rows(), tx.members(), tx.job()))
    with pytest.raises(ZeroDivisionError):
        do(store, fail)
    assert store.wait(version, 0.1) == version


@pytest.mark.parametrize(
    "after",
    [
        pytest.param({"leaving": "stop"}, id="leaving"),
        pytest.param({"draining": True}, id="draining"),
        pytest.param({"weight": 5}, id="weight"),
        pytest.param({"incarnation": 2}, id="incarnation"),
    ],
)
def test_what_a_member_says_of_itself_wakes(store: Store, after: dict[str, str | int]) -> None:
    def born(tx: Transaction) -> MemberRow:
        member = MemberRow(name="n1", incarnation=1, lease_until_s=tx.now_s + 60)
        tx.write_member(member)
        return member

    member = do(store, born)
    version = store.version()
    do(store, lambda tx: tx.write_member(msgspec.convert(msgspec.structs.asdict(member) | after, MemberRow)))
    assert store.version() != version


def test_a_member_that_comes_back_wakes(store: Store) -> None:
    do(store, lambda tx: tx.write_member(MemberRow(name="n1", lease_until_s=tx.now_s - 1)))
    version = store.version()

    def back(tx: Transaction) -> None:
        member = tx.member("n1")
        assert member is not None
        tx.write_member(replace(member, lease_until_s=tx.now_s + 10, seq=1))

    do(store, back)
    assert store.version() != version


def test_heartbeats_that_change_nothing_wake_nobody(shared_place: Place) -> None:
    store = shared_place.open()
    do(store, lambda tx: tx.write_member(MemberRow(name="n1", lease_until_s=tx.now_s + 60)))
    put(store, owned())
    version = store.version()

    def beat(tx: Transaction) -> None:
        member = tx.member("n1")
        assert member is not None
        tx.write_member(replace(member, lease_until_s=tx.now_s + 70, seq=member.seq + 1))
        tx.renew_rows([replace(owned(), lease_until_s=tx.now_s + 70)])

    do(store, beat)
    assert store.wait(version, 0.1) == version
