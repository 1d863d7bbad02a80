"""What every store promises of its notes, and of events: the lines of all sets in the order of their commits."""

from __future__ import annotations

import threading

import pytest

from poise.model.ownership import Line, SetRow
from poise.stores.base import Store, Transaction


def line(name: str, item: str) -> Line:
    return Line(set=name, item=item, transition="assigned", member="n1", epoch=7, at_s=1.5, reason="")


def write(store: Store, name: str, *items: str) -> None:
    store.transact(name, lambda tx: tx.write_lines([line(name, item) for item in items]))


def told(lines: list[Line]) -> list[tuple[str, str]]:
    return [(each.set, each.item) for each in lines]


def test_events_of_all_sets_come_in_the_order_of_their_commits(store: Store) -> None:
    write(store, "b", "1", "2")
    write(store, "a", "3")
    write(store, "b", "4")
    events = store.events((0, 0))
    assert told(events) == [("b", "1"), ("b", "2"), ("a", "3"), ("b", "4")]
    assert [each.number for each in events] == [1, 2, 1, 3]
    versions = [each.version for each in events]
    assert versions[0] == versions[1] < versions[2] < versions[3] == store.version()


def test_events_are_read_on_from_any_line_and_so_many(store: Store) -> None:
    write(store, "b", "1", "2")
    write(store, "a", "3")
    events = store.events((0, 0))
    for place, each in enumerate(events):
        assert store.events((each.version, each.number)) == events[place + 1 :]
    assert store.events((0, 0), most=2) == events[:2]
    assert store.events((store.version(), 99)) == []


def test_a_reader_beside_writers_misses_no_event(store: Store) -> None:
    names, rounds = ("a", "b", "c"), 20

    def work(name: str) -> None:
        for number in range(rounds):
            write(store, name, str(number))

    writers = [threading.Thread(target=work, args=(name,)) for name in names]
    for writer in writers:
        writer.start()
    seen: list[Line] = []
    while any(writer.is_alive() for writer in writers) or store.events(_last(seen)):
        seen += store.events(_last(seen), most=5)
    for writer in writers:
        writer.join()
    assert sorted(told(seen)) == sorted((name, str(number)) for name in names for number in range(rounds))
    assert [(each.version, each.number) for each in seen] == sorted((each.version, each.number) for each in seen)


def _last(seen: list[Line]) -> tuple[int, int]:
    return (seen[-1].version, seen[-1].number) if seen else (0, 0)


def test_what_was_not_committed_is_no_event(store: Store) -> None:
    def fail(tx: Transaction) -> None:
        tx.write_lines([line("a", "1")])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.transact("a", fail)
    assert store.events((0, 0)) == []
    write(store, "a", "2")
    assert told(store.events((0, 0))) == [("a", "2")]


def test_notes_belong_to_a_set_and_wake_whoever_waits(store: Store) -> None:
    store.transact("a", lambda tx: tx.write_job(SetRow(name="a", revision=1)))
    version = store.version()
    store.transact("a", lambda tx: tx.write_note("document", "☃ {}"))
    assert store.wait(version, 0.0) != version
    store.transact("a", lambda tx: tx.write_note("document", "second"))
    store.transact("a", lambda tx: tx.write_note("other", ""))
    assert store.transact("a", lambda tx: (tx.note("document"), tx.note("other"), tx.note("none"))) == (
        "second",
        "",
        None,
    )
    assert store.transact("b", lambda tx: tx.note("document")) is None
    store.transact("a", lambda tx: tx.write_note("document", None))
    assert store.transact("a", lambda tx: tx.note("document")) is None
