"""Pods that fetch: what an asking proves, what it is answered, and what a pod that was gone gets."""

from __future__ import annotations

import msgspec
import pytest
from tests.pool.pool_world import POOL, SET, document, listed, put

from poise.errors import NotFound
from poise.jobs.coordinator import Coordinator
from poise.jobs.pool import facts
from poise.jobs.pool.pull import HttpSd, answer_pull
from poise.jobs.pool.sources import LastList
from poise.model.ownership import OwnerState
from poise.stores.memory import MemoryStore

PULL: dict[str, object] = {"kind": "pull"}


class Pulling:
    """A pool of pods that fetch, on a clock of the test."""

    def __init__(self, *pods: str, targets: int = 4) -> None:
        self.now_s = 1000.0
        self.store = MemoryStore(lambda: self.now_s)
        self.coordinator = Coordinator(self.store, "engine")
        self.last: LastList | None = None
        self.want(*pods, targets=targets)

    def want(self, *pods: str, targets: int = 4) -> None:
        spec = document(pods, listed(f"r{number}" for number in range(targets)), delivery=PULL)
        put(self.store, spec)
        text = self.store.transact(SET, facts.read_note)
        self.last = self.store.transact(SET, lambda tx: facts.adopt(tx, SET, text, self.last)).last

    def ask(self, pod: str) -> list[str]:
        groups = self.store.transact(SET, lambda tx: answer_pull(tx, POOL, pod))
        return sorted(group.labels["__meta_poise_target"] for group in groups)

    def plan(self) -> None:
        for _ in range(3):
            self.coordinator.cycle(SET)

    def owners(self) -> dict[str, str | None]:
        rows = self.store.transact(SET, lambda tx: tx.rows())
        return {name: row.owner for name, row in rows.items()}


def test_an_answer_has_the_form_of_http_sd() -> None:
    pool = Pulling("p1", targets=1)
    pool.ask("p1")
    pool.plan()
    (group,) = pool.store.transact(SET, lambda tx: answer_pull(tx, POOL, "p1"))
    assert group == HttpSd(["r0:57400"], {"__meta_poise_pool": POOL, "__meta_poise_target": "r0"})
    assert msgspec.json.decode(msgspec.json.encode([group])) == [
        {"targets": ["r0:57400"], "labels": {"__meta_poise_pool": POOL, "__meta_poise_target": "r0"}}
    ]


def test_a_target_moves_when_its_pod_has_asked_twice_without_it() -> None:
    pool = Pulling("p1", "p2")
    assert pool.ask("p1") == []
    pool.plan()
    assert pool.ask("p1") == ["r0", "r1", "r2", "r3"]
    pool.ask("p2")
    pool.plan()
    assert pool.ask("p2") == [], "p1 was not told yet"
    kept = pool.ask("p1")
    assert len(kept) == 2
    assert pool.ask("p2") == [], "p1 was told, and may not have heard it"
    assert {row.state for row in pool.store.transact(SET, lambda tx: tx.rows()).values()} == {
        OwnerState.ASSIGNED,
        OwnerState.PENDING_RELEASE,
    }
    assert pool.ask("p1") == kept
    assert sorted(pool.ask("p2") + kept) == ["r0", "r1", "r2", "r3"]


def test_a_pod_that_does_not_ask_is_gone_and_must_ask_twice_to_return() -> None:
    pool = Pulling("p1", "p2")
    pool.ask("p1")
    pool.ask("p2")
    pool.plan()
    assert len(pool.ask("p1")) == 2
    for _ in range(3):
        pool.now_s += 1
        pool.ask("p2")
    pool.plan()
    assert set(pool.owners().values()) == {"p2"}
    assert pool.ask("p1") == []
    pool.plan()
    assert set(pool.owners().values()) == {"p2"}, "it may still collect what it had"
    pool.ask("p1")
    pool.plan()
    pool.ask("p2")
    pool.ask("p2")
    assert sorted(pool.ask("p1") + pool.ask("p2")) == ["r0", "r1", "r2", "r3"]


def test_a_target_that_is_no_longer_listed_is_not_answered_any_more() -> None:
    pool = Pulling("p1")
    pool.ask("p1")
    pool.plan()
    pool.ask("p1")
    pool.want("p1", targets=2)
    assert pool.ask("p1") == ["r0", "r1"]
    pool.plan()
    for _ in range(2):
        pool.ask("p1")
        pool.plan()
    assert set(pool.owners()) == {"r0", "r1"}


def test_a_stranger_is_told_so() -> None:
    pool = Pulling("p1")
    with pytest.raises(NotFound, match="no pod 'p9'"):
        pool.ask("p9")
    with pytest.raises(NotFound, match="no TargetPool 'other'"):
        pool.store.transact("TargetPool/other", lambda tx: answer_pull(tx, "other", "p1"))
