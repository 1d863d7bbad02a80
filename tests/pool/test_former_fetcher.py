"""A pod that fetched before its pool was pushed to: whoever goes on asking in its name is never given targets again."""

from __future__ import annotations

import msgspec
import pytest
from tests.pool.pool_world import SET, document, listed, put
from tests.pool.test_pool_pull import PULL, Pulling

from poise.jobs.pool import facts, pull
from poise.jobs.pool.settings import PODS_NOTE
from poise.jobs.pool.state import read_notes, write_notes
from poise.stores.base import Transaction

URL: dict[str, object] = {"name": "p1", "url": "http://127.0.0.1:9"}
NAMES = ["r0", "r1", "r2", "r3"]


class Changed(Pulling):
    """A pool whose pod fetched, and whose document then says something else."""

    def __init__(self) -> None:
        super().__init__("p1")
        self.ask("p1")
        self.plan()
        assert self.ask("p1") == NAMES

    def change(self, delivery: dict[str, object] | None) -> None:
        """Change the way of delivery, and let the engine take that on."""
        put(self.store, document([URL], listed(NAMES), delivery=delivery))
        text = self.store.transact(SET, facts.read_note)
        self.last = self.store.transact(SET, lambda tx: facts.adopt(tx, SET, text, self.last)).last

    def free(self) -> None:
        """Let the engine find that its former place is free: the pod has asked twice, or was silent for too long."""

        def work(tx: Transaction) -> None:
            notes = read_notes(tx.note(PODS_NOTE))
            freed = {name: msgspec.structs.replace(note, former="") for name, note in notes.items()}
            tx.write_note(PODS_NOTE, write_notes(freed))

        self.store.transact(SET, work)


@pytest.mark.parametrize("asked", [0, 1, 2, 3])
def test_it_stays_empty_handed_when_its_collector_is_driven(asked: int) -> None:
    pool = Changed()
    pool.change({"kind": "http"})
    assert [pool.ask("p1") for _ in range(asked)] == [[]] * asked
    pool.free()
    version = pool.store.version()
    for _ in range(3):
        assert pool.ask("p1") == [], "the collector has them now"
    assert pool.store.version() == version, "nothing idle writes"


def test_it_fetches_again_when_its_pool_is_fetched_again() -> None:
    pool = Changed()
    pool.change({"kind": "http"})
    pool.ask("p1")
    pool.ask("p1")
    pool.free()
    pool.change(PULL)
    assert pool.ask("p1") == [], "its collector is not free yet"
    pool.free()
    assert pool.ask("p1") == NAMES


def test_pods_that_never_fetched_are_shown_what_they_have() -> None:
    pool = Pulling("p1")
    pool.ask("p1")
    pool.plan()
    put(pool.store, document([URL], listed(NAMES), delivery={"kind": "http"}))
    text = pool.store.transact(SET, facts.read_note)
    pool.store.transact(SET, lambda tx: tx.write_note(PODS_NOTE, None))
    pool.store.transact(SET, lambda tx: facts.adopt(tx, SET, text, pool.last))
    assert pool.ask("p1") == NAMES


def test_mutant_that_forgets_who_fetched_gives_everything_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "_has_fetched", lambda _tx, _pod, _note: False)
    pool = Changed()
    pool.change({"kind": "http"})
    pool.ask("p1")
    pool.ask("p1")
    pool.free()
    assert pool.ask("p1") == NAMES
