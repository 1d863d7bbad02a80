"""Coordinators at work in threads: elected, woken, and none held up by another's set."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from poise.errors import Unavailable
from poise.jobs.coordination import Coordination
from poise.jobs.coordinator import Coordinator, Cycle
from poise.model.ownership import Heartbeat, Hold, SetRow, Terms, Word
from poise.move.executor import put_set, register_member, take_heartbeat
from poise.stores.base import Store
from poise.stores.open import open_store

TERMS = Terms(lease_s=2, grace_s=1, release_s=5)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(open_store(str(tmp_path / "poise.db"))) as opened:
        yield opened


def make(store: Store, name: str, *members: str, terms: Terms = TERMS) -> None:
    store.transact(name, lambda tx: put_set(tx, SetRow(name=name, count=4, terms=terms)))
    for member in members:
        store.transact(name, partial(register_member, name=name, member=member, process="p"))


def owned(store: Store, name: str) -> int:
    return sum(row.owner is not None for row in store.transact(name, lambda tx: tx.rows()).values())


def soon(met: Callable[[], bool], within_s: float = 30.0) -> bool:
    until_s = time.monotonic() + within_s
    while not met() and time.monotonic() < until_s:
        time.sleep(0.02)
    return met()


def test_sets_that_are_there_and_sets_that_come_are_planned(store: Store) -> None:
    make(store, "first", "a")
    with Coordination(store, "c1"):
        assert soon(lambda: owned(store, "first") == 4)
        make(store, "second", "a")
        assert soon(lambda: owned(store, "second") == 4)


def test_only_one_set_where_one_is_asked_for(store: Store) -> None:
    make(store, "first", "a")
    make(store, "second", "a")
    with Coordination(store, "c1", only="second"):
        assert soon(lambda: owned(store, "second") == 4)
        assert owned(store, "first") == 0


def test_a_set_that_is_slow_and_one_that_is_broken_hold_up_no_other(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    honest, go_on, failed = Coordinator.cycle, threading.Event(), threading.Event()

    def cycle(self: Coordinator, name: str) -> Cycle:
        if name == "slow":
            go_on.wait(10)
        if name == "broken":
            failed.set()
            raise ZeroDivisionError("a mistake in this set's planning")
        return honest(self, name)

    monkeypatch.setattr(Coordinator, "cycle", cycle)
    for name in ("broken", "good", "slow"):
        make(store, name, "a")
    with Coordination(store, "c1"):
        assert failed.wait(5)
        assert soon(lambda: owned(store, "good") == 4)
        assert owned(store, "slow") == 0
        go_on.set()
        assert soon(lambda: owned(store, "slow") == 4)
    assert any("coordinator.broken set=broken" in each.getMessage() for each in caplog.records)


def test_a_set_that_always_has_something_to_do_leaves_half_of_the_time_to_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(store, "busy", "a")
    began, ended = list[float](), list[float]()

    def cycle(_self: Coordinator, name: str) -> Cycle:
        began.append(time.monotonic())
        time.sleep(0.1)
        ended.append(time.monotonic())
        return Cycle(f"{name}: more", 0.0, written=1)

    monkeypatch.setattr(Coordinator, "cycle", cycle)
    with Coordination(store, "c1"):
        assert soon(lambda: len(ended) > 3)
    pauses = [later - earlier for earlier, later in zip(ended, began[1:], strict=False)]
    assert min(pauses) >= 0.09


def test_a_store_that_is_away_for_a_while_costs_only_that_while(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    make(store, "orders")
    honest, away = store.wait, threading.Event()

    def wait(version: int, timeout_s: float) -> int:
        if away.is_set():
            raise Unavailable("away")
        return honest(version, timeout_s)

    monkeypatch.setattr(store, "wait", wait)
    with Coordination(store, "c1"):
        assert soon(lambda: store.transact("orders", lambda tx: tx.leader()).holder == "c1")
        away.set()
        time.sleep(0.3)
        away.clear()
        store.transact("orders", lambda tx: register_member(tx, "orders", "a", "p"))
        assert soon(lambda: owned(store, "orders") == 4)


def test_one_leads_and_the_next_takes_over_as_soon_as_it_resigns(store: Store) -> None:
    make(store, "orders", "a")

    def leader() -> str:
        return store.transact("orders", lambda tx: tx.leader()).holder

    with Coordination(store, "c1") as first:
        assert soon(lambda: leader() == "c1")
        with Coordination(store, "c2"):
            time.sleep(2 * TERMS.lease_s)
            assert leader() == "c1"
            first.__exit__(None, None, None)
            assert leader() in ("", "c2"), "given up, not waited out; c2 may have looked already"
            assert soon(lambda: leader() == "c2", TERMS.lease_s)


def test_a_change_wakes_the_leader_at_once(store: Store) -> None:
    make(store, "orders", "a", terms=Terms(lease_s=60, grace_s=1, release_s=5))
    with Coordination(store, "c1"):
        assert soon(lambda: owned(store, "orders") == 4)
        row = store.transact("orders", lambda tx: tx.member("a"))
        assert row is not None
        # Whoever leaves frees its items when it says so; the next owner has them long before any time is due.
        items = store.transact("orders", lambda tx: tx.rows())
        holds = tuple(Hold(item, each.epoch, Word.RELEASED) for item, each in items.items())
        said = Heartbeat(process="p", incarnation=row.incarnation, seq=1, holds=holds, leaving="stop")
        store.transact("orders", lambda tx: register_member(tx, "orders", "b", "p"))
        began_s = time.monotonic()
        store.transact("orders", lambda tx: take_heartbeat(tx, "orders", "a", said))
        assert soon(lambda: {each.owner for each in store.transact("orders", lambda tx: tx.rows()).values()} == {"b"})
        assert time.monotonic() - began_s < 1.0


def test_an_idle_coordination_writes_nothing_but_its_lead(store: Store) -> None:
    make(store, "orders", "a")
    with Coordination(store, "c1"):
        assert soon(lambda: owned(store, "orders") == 4)
        time.sleep(0.5)
        lines = store.transact("orders", lambda tx: tx.last_line())
        time.sleep(1.0)
        assert store.transact("orders", lambda tx: tx.last_line()) == lines
