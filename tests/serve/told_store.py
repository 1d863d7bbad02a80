"""A store in memory whose time is told, with the facade over it: what the API shows, without waiting for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from poise.documents import load
from poise.jobs.coordinator import Coordinator
from poise.model.ownership import Heartbeat, Hold, MemberRow, Reply, Word
from poise.move.executor import register_member, take_heartbeat
from poise.serve.jobs_api import StoreJobs
from poise.stores.memory import MemoryStore

START = datetime(2026, 1, 1, tzinfo=UTC)


class ToldStore:
    """Jobs, members that speak when they are told to, and a clock that is set."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.store = MemoryStore(lambda: self.now_s)
        self.api = StoreJobs(self.store, now=self.now, ready=lambda: True)
        self._coordinator = Coordinator(self.store, "leader")

    def now(self) -> datetime:
        return START + timedelta(seconds=self.now_s)

    def put(self, document: Mapping[str, object], **spec: object) -> None:
        """Put a document, with other fields in its spec."""
        assert isinstance(document["spec"], dict)
        changed = {**document, "spec": {**document["spec"], **spec}}
        self.api.put(load(json.dumps(changed).encode(), "test")[0], if_match=None)

    def join(self, where: str, *members: str, process: str = "p") -> None:
        for member in members:
            self.store.transact(where, lambda tx, name=member: register_member(tx, where, name, process))  # type: ignore[misc]  # A default binds the name of each turn.

    def member(self, where: str, name: str) -> MemberRow:
        row = self.store.view(where, lambda tx: tx.member(name))
        assert row is not None
        return row

    def beat(self, where: str, name: str, *, lets_go: bool = True, weight: int = 1) -> Reply:
        """Say honestly what a member holds; one that does not let go stays with what it is asked for."""
        row, rows = self.member(where, name), self.store.view(where, lambda tx: tx.rows())
        holds = []
        for each in rows.values():
            if each.owner == name and each.owner_incarnation == row.incarnation:
                word = Word.HELD if each.state == "Assigned" else Word.RELEASED if lets_go else Word.RELEASING
                holds.append(Hold(each.id, each.epoch, word))
        said = Heartbeat(
            process=row.process, incarnation=row.incarnation, seq=row.seq + 1, holds=tuple(holds), weight=weight
        )
        reply = self.store.transact(where, lambda tx: take_heartbeat(tx, where, name, said))
        assert isinstance(reply, Reply)
        return reply

    def cycle(self, where: str) -> None:
        self._coordinator.cycle(where)

    def settle(self, where: str, *members: str, rounds: int = 5) -> None:
        """Let the coordinator and the members speak until everything is where it should be."""
        for _ in range(rounds):
            self.cycle(where)
            for member in members:
                self.beat(where, member)
