"""Whatever is done to a set, every store answers the same and holds the same as the one in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.postgres_server import running_server

from poise.decide.partition_values import Step, StepKind
from poise.errors import PoiseError
from poise.model.ownership import Heartbeat, Hold, SetRow, Terms, Word
from poise.move.executor import (
    apply_plan,
    drain_member,
    lead,
    pause_set,
    put_set,
    register_member,
    snapshot,
    take_heartbeat,
)
from poise.stores import postgres
from poise.stores.base import Store, Transaction
from poise.stores.boot import Machine
from poise.stores.memory import MemoryStore
from poise.stores.postgres import PostgresStore
from poise.stores.sqlite import SqliteStore

Work = Callable[[Transaction], object]
MEMBERS = st.sampled_from(["n1", "n2", "n3"])
KINDS = ["put", "register", "lead", "drain", "pause"] + ["say", "plan"] * 3
LEAVING: list[Literal["stop", "restart"] | None] = [None, None, "stop", "restart"]
ITEMS = st.integers(0, 4).map(str)


class Clock:
    """A clock that every store of a test has."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def said(draw: st.DrawFn) -> Work:
    holds = draw(st.lists(st.builds(Hold, ITEMS, st.integers(0, 4), st.sampled_from(Word)), max_size=3))
    leaving = draw(st.sampled_from(LEAVING))
    member, seq = draw(MEMBERS), draw(st.integers(0, 6))
    words = Heartbeat(process="p1", incarnation=draw(st.integers(1, 2)), seq=seq, holds=tuple(holds), leaving=leaving)
    return lambda tx: take_heartbeat(tx, "orders", member, words)


def planned(draw: st.DrawFn) -> Work:
    targets = st.sampled_from(["n1", "n2", None])
    steps = draw(st.lists(st.builds(Step, st.sampled_from(StepKind), ITEMS, st.none(), targets, st.just("why"))))
    stale, term = draw(st.integers(0, 9)) == 0, draw(st.sampled_from([1, 1, 1, 2]))

    def work(tx: Transaction) -> object:
        seen = {item: row.revision - stale for item, row in tx.rows().items()}
        return apply_plan(tx, "orders", term, seen, steps, 7)

    return work


@st.composite
def works(draw: st.DrawFn) -> Work:
    """Draw one operation on a set."""
    kind = draw(
        st.sampled_from(["put", "register", "say", "say", "say", "plan", "plan", "plan", "lead", "drain", "pause"])
    )
    member, flag = draw(MEMBERS), draw(st.booleans())
    match kind:
        case "say":
            return said(draw)
        case "plan":
            return planned(draw)
        case "put":
            job = SetRow(
                name="orders", count=draw(st.integers(0, 5)), terms=Terms(lease_s=draw(st.sampled_from([5.0, 9.0])))
            )
            return lambda tx: put_set(tx, job)
        case "register":
            process = draw(st.sampled_from(["p1", "p2"]))
            return lambda tx: register_member(tx, "orders", member, process)
        case "lead":
            return lambda tx: lead(tx, "c1" if flag else "c2", 10.0)
        case "drain":
            return lambda tx: drain_member(tx, "orders", member, flag)
        case _:
            return lambda tx: pause_set(tx, "orders", flag)


HISTORIES = st.lists(st.tuples(works(), st.sampled_from([0.0, 0.5, 3.0, 12.0])), min_size=5, max_size=25)


def begun() -> list[Work]:
    """Give every history a set, two members and a leader, so that much can happen."""
    return [
        lambda tx: put_set(tx, SetRow(name="orders", count=4)),
        lambda tx: register_member(tx, "orders", "n1", "p1"),
        lambda tx: register_member(tx, "orders", "n2", "p1"),
        lambda tx: lead(tx, "c1", 1000.0),
    ]


def outcome(store: Store, work: Work) -> object:
    try:
        return store.transact("orders", work)
    except PoiseError as error:
        return type(error)


def run_both(one: Store, other: Store, clock: Clock, history: list[tuple[Work, float]]) -> None:
    for work, wait_s in [(work, 0.0) for work in begun()] + history:
        clock.now_s += wait_s
        assert outcome(one, work) == outcome(other, work)
        assert outcome(one, lambda tx: (snapshot(tx, "orders"), tx.tombstones(), tx.last_line())) == outcome(
            other, lambda tx: (snapshot(tx, "orders"), tx.tombstones(), tx.last_line())
        )
    assert one.journal("orders") == other.journal("orders")


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(history=HISTORIES)
def test_a_file_is_the_same_as_memory(history: list[tuple[Work, float]]) -> None:
    clock = Clock()
    with tempfile.TemporaryDirectory() as directory:
        machine = Machine(machine_id="m1", boot_id="b1", clock=clock)
        store = SqliteStore(Path(directory) / "poise.db", machine=machine)
        store._connection.execute("PRAGMA synchronous = OFF")  # Quicker; nothing here survives the test.
        try:
            run_both(store, MemoryStore(clock), clock, history)
        finally:
            store.close()


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=HISTORIES)
def test_a_server_is_the_same_as_memory(monkeypatch: pytest.MonkeyPatch, history: list[tuple[Work, float]]) -> None:
    clock, begin = Clock(), postgres._begin
    with monkeypatch.context() as patch:
        patch.setattr(postgres, "_begin", lambda *words: begin(*words)._replace(now_s=clock()))
        store = PostgresStore(running_server().new_place())
        try:
            run_both(store, MemoryStore(clock), clock, history)
        finally:
            store.close()
