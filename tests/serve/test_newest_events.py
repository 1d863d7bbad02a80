"""The newest events: so many as are asked for, also where one commit wrote more lines than that, or none at all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.serve.told_store import START

from poise.jobs.stored import SERVERS
from poise.model.ownership import Line
from poise.move.handoff import Transition
from poise.serve import stories
from poise.serve.jobs_api import StoreJobs
from poise.serve.page.newest import KEPT, Newest
from poise.serve.whereabouts import Whereabouts
from poise.stores.memory import MemoryStore


def lines(name: str, many: int, member: str = "m", transition: str = Transition.T1) -> list[Line]:
    return [
        Line(set=name, item=str(number), transition=transition, member=member, epoch=1, at_s=0.0, reason="")
        for number in range(many)
    ]


def written(commits: list[tuple[str, int]]) -> MemoryStore:
    """Write so many lines of a set in each commit; a commit of none changes the version all the same."""
    store = MemoryStore(lambda: 0.0)
    for turn, (name, many) in enumerate(commits):
        store.transact(name, lambda tx, turn=turn: tx.write_note("turn", str(turn)))  # type: ignore[misc]  # A default binds the number of each turn.
        store.transact(name, lambda tx, name=name, many=many: tx.write_lines(lines(name, many)))  # type: ignore[misc]  # So it does here.
    return store


def asking(store: MemoryStore) -> StoreJobs:
    return StoreJobs(store, now=lambda: START, ready=lambda: True)


COMMITS = st.lists(st.tuples(st.sampled_from(["a", "b", SERVERS]), st.integers(0, 40)), max_size=20)


@given(COMMITS, st.integers(1, 60))
@settings(max_examples=80, deadline=None)
def test_the_newest_events_are_the_last_of_all(commits: list[tuple[str, int]], most: int) -> None:
    store = written(commits)
    everything = [line for line in store.events((0, 0), 10_000) if line.set != SERVERS]
    assert [event.line for event in asking(store).events(None, most)] == everything[-most:]


def test_one_commit_of_many_lines_ends_with_the_last_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    api = asking(written([("a", 3), ("b", 2_500)]))
    assert [event.line.item for event in api.events(None, 2)] == ["2498", "2499"]
    assert len(Newest().read(api)) == KEPT
    assert Newest().read(api)[-1].line.item == "2499"
    assert api.events(None, 2_502)[0].line.item == "1", "and they are looked for in the commits before it"
    # A window that reads only its first page would end with a line that is old.
    monkeypatch.setattr(stories.EventReader, "_between", lambda self, begin, _: self._store.events((begin, 0), 1_000))
    assert api.events(None, 2)[-1].line.item == "999"


def test_what_comes_later_is_kept_and_the_oldest_forgotten() -> None:
    store, newest = MemoryStore(lambda: 0.0), Newest()
    api = asking(store)
    assert newest.read(api) == []
    assert newest.zero(api) is None
    for name in ("a", "b"):
        store.transact(name, lambda tx, name=name: tx.write_lines(lines(name, KEPT - 1)))  # type: ignore[misc]  # A default binds the name of each turn.
        found = newest.read(api)
        assert found[-1].line.set == name
    assert len(found) == KEPT
    assert newest.zero(api) == START


def test_lines_of_servers_that_are_read_again_change_nothing() -> None:
    store = MemoryStore(lambda: 0.0)
    whereabouts = Whereabouts(store, "s2")
    api = StoreJobs(store, now=lambda: START, ready=lambda: True, on_servers=whereabouts.take)
    for turn in range(40):
        moved = lines(SERVERS, 1, f"s{turn % 2 + 1}", Transition.T1)
        store.transact(SERVERS, lambda tx, moved=moved: tx.write_lines(moved))  # type: ignore[misc]  # A default binds the lines of each turn.
        store.transact("0", lambda tx: tx.write_lines(lines("0", 1)))
    ended = api.events(None, 1)[0].line
    assert whereabouts.counts(ended), "the last one that it was given to is s2"
    before = api.events(None, 5)[0].line
    for _ in range(2):
        api.events(None, 1_000)  # Everything that the server has forgotten since is read once more.
        assert api.events("0", 1_000)
        assert whereabouts.counts(ended)
        assert whereabouts.counts(before), "as it was four moves before"
        assert not whereabouts.counts(api.events(None, 2)[0].line)


def test_a_listener_hears_the_last_word_first() -> None:
    store, heard = MemoryStore(lambda: 0.0), list[int]()
    api = StoreJobs(store, now=lambda: START, ready=lambda: True, on_servers=lambda line: heard.append(line.version))
    for _ in range(10):
        store.transact(SERVERS, lambda tx: tx.write_lines(lines(SERVERS, 1)))
    api.events(None, 10)
    assert heard == sorted(heard, reverse=True)
    assert len(heard) == 10
