"""A store in memory: for tests, simulations and single processes that need no second life."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import msgspec

from poise.errors import Conflict, Unavailable
from poise.model.ownership import LeaderRow, MemberRow, Row, SetRow
from poise.stores.base import Answer, Line, Transaction
from poise.stores.tables import is_only_longer


class _Facts(msgspec.Struct):
    """One set; a transaction works on a copy, which takes its place when it commits."""

    job: SetRow | None = None
    leader: LeaderRow = LeaderRow()
    members: dict[str, MemberRow] = msgspec.field(default_factory=dict)
    rows: dict[str, Row] = msgspec.field(default_factory=dict)
    tombstones: dict[str, int] = msgspec.field(default_factory=dict)
    lines: list[Line] = msgspec.field(default_factory=list)
    notes: dict[str, str] = msgspec.field(default_factory=dict)

    def copy(self) -> _Facts:
        """Copy what a transaction may change; the values themselves never change."""
        return _Facts(
            self.job,
            self.leader,
            dict(self.members),
            dict(self.rows),
            dict(self.tombstones),
            list(self.lines),
            dict(self.notes),
        )


class MemoryStore:
    """Keeps everything in this process, with the promises of the port but the survival of a crash."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start empty, with a clock that counts suspend and cannot be set."""
        self._clock = clock
        self._sets: dict[str, _Facts] = {}
        self._changed = threading.Condition()
        self._version = 0

    @classmethod
    def still(cls, name: str, tx: Transaction, notes: Iterable[str]) -> MemoryStore:
        """Keep what a transaction sees of a set, at its time for ever: many questions about one instant."""
        now_s = tx.now_s
        store = cls(lambda: now_s)
        texts = {key: text for key in notes if (text := tx.note(key)) is not None}
        store._sets[name] = _Facts(tx.job(), tx.leader(), tx.members(), tx.rows(), notes=texts)
        return store

    def transact(self, name: str, work: Callable[[Transaction], Answer]) -> Answer:
        """Run work alone; only when it returns does the copy take the place of the set."""
        with self._changed:
            facts = self._sets.get(name, _Facts()).copy()
            transaction = _MemoryTransaction(facts, self._clock(), self._version + 1)
            answer = work(transaction)
            if transaction.failed is not None:
                raise transaction.failed
            if transaction.wrote:
                self._sets[name] = facts
            if transaction.changed:
                self._version += 1
                self._changed.notify_all()
            return answer

    def view(self, name: str, work: Callable[[Transaction], Answer]) -> Answer:
        """Run work on a copy that nobody else sees; one that writes is refused."""
        now_s = self._clock()
        # What was committed is never changed, only replaced: no lock is needed.
        transaction = _MemoryTransaction(self._sets.get(name, _Facts()).copy(), now_s, self._version)
        answer = work(transaction)
        if transaction.wrote:
            raise Unavailable("nothing can be written in a view")
        return answer

    def sets(self) -> list[str]:
        """Name all sets that have not ended."""
        with self._changed:
            return sorted(name for name, facts in self._sets.items() if facts.job is not None and not facts.job.ended)

    def journal(self, name: str, item: str | None = None, after: int = 0, most: int = 1000) -> list[Line]:
        """Read lines of the journal in their order."""
        with self._changed:
            lines = self._sets[name].lines if name in self._sets else []
            return [line for line in lines[after:] if item is None or line.item == item][:most]

    def events(self, after: tuple[int, int], most: int = 1000) -> list[Line]:
        """Read lines of all sets in the order of their commits."""
        with self._changed:
            lines = [line for facts in self._sets.values() for line in facts.lines]
        later = [line for line in lines if (line.version, line.number) > after]
        return sorted(later, key=lambda line: (line.version, line.number))[:most]

    def version(self) -> int:
        """Count the commits that changed more than leases."""
        return self._version

    def wait(self, version: int, timeout_s: float) -> int:
        """Wait for a commit."""
        with self._changed:
            self._changed.wait_for(lambda: self._version != version, timeout_s)
            return self._version

    def close(self) -> None:
        """Keep nothing."""


class _MemoryTransaction:
    """The facts of one set, while one piece of work has them."""

    def __init__(self, facts: _Facts, now_s: float, version: int) -> None:
        self._facts = facts
        self._version = version
        self.now_s = now_s
        self.wrote = False
        self.changed = False  # Something other than a lease was written: whoever waits is woken.
        self.failed: Conflict | None = None

    def _conflict(self, told: str) -> Conflict:
        """Remember a lost race: work that hides it must not be committed by half."""
        self.failed = Conflict(told)
        return self.failed

    def job(self) -> SetRow | None:
        return self._facts.job

    def leader(self) -> LeaderRow:
        return self._facts.leader

    def members(self) -> dict[str, MemberRow]:
        return dict(self._facts.members)

    def member(self, name: str) -> MemberRow | None:
        return self._facts.members.get(name)

    def rows(self) -> dict[str, Row]:
        return dict(self._facts.rows)

    def rows_for(self, owner: str, names: Iterable[str]) -> dict[str, Row]:
        wanted = set(names)
        return {item: row for item, row in self._facts.rows.items() if row.owner == owner or item in wanted}

    def tombstones(self) -> dict[str, int]:
        return dict(self._facts.tombstones)

    def last_line(self) -> int:
        return len(self._facts.lines)

    def write_job(self, job: SetRow) -> None:
        before = self._facts.job.revision if self._facts.job else 0
        if job.revision != before + 1:
            raise self._conflict(f"set {job.name} is at revision {before}")
        self._facts.job, self.wrote, self.changed = job, True, True

    def write_leader(self, leader: LeaderRow) -> None:
        if leader.term < self._facts.leader.term:
            raise self._conflict(f"term {self._facts.leader.term} has begun")
        before = self._facts.leader
        self.changed |= (before.term, before.holder) != (leader.term, leader.holder)
        self._facts.leader, self.wrote = leader, True

    def write_member(self, member: MemberRow) -> None:
        self.changed |= not is_only_longer(self._facts.members.get(member.name), member, self.now_s)
        self._facts.members[member.name], self.wrote = member, True

    def write_rows(self, rows: Iterable[Row]) -> None:
        for row in rows:
            before = self._facts.rows[row.id].revision if row.id in self._facts.rows else 0
            if row.revision != before + 1:
                raise self._conflict(f"{row.id} is at revision {before}")
            self._facts.rows[row.id], self.wrote, self.changed = row, True, True
            self._facts.tombstones.pop(row.id, None)

    def renew_rows(self, rows: Iterable[Row]) -> None:
        for row in rows:
            before = self._facts.rows.get(row.id)
            if before is None or (before.revision, before.epoch, before.owner) != (row.revision, row.epoch, row.owner):
                raise self._conflict(f"{row.id} has changed")
            renewed = msgspec.structs.replace(before, lease_until_s=row.lease_until_s, granted_s=row.granted_s)
            self._facts.rows[row.id], self.wrote = renewed, True

    def bury_rows(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if row.id not in self._facts.rows or self._facts.rows[row.id].revision != row.revision:
                raise self._conflict(f"{row.id} has changed")
            del self._facts.rows[row.id]
            self._facts.tombstones[row.id], self.wrote, self.changed = row.epoch, True, True

    def write_lines(self, lines: Iterable[Line]) -> None:
        for line in lines:
            number = len(self._facts.lines) + 1
            self._facts.lines.append(msgspec.structs.replace(line, number=number, version=self._version))
            self.wrote = self.changed = True

    def note(self, key: str) -> str | None:
        return self._facts.notes.get(key)

    def write_note(self, key: str, text: str | None) -> None:
        self.wrote = self.changed = True
        if text is None:
            self._facts.notes.pop(key, None)
        else:
            self._facts.notes[key] = text
