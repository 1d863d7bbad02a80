"""One transaction on the tables that SQLite and PostgreSQL share: the same statements, with `?` for a value.

Every write is compare-and-set by its WHERE clause: a write that touches fewer rows than it names is a `Conflict`. Once
one was raised the transaction cannot be committed, whatever the work makes of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import msgspec

from poise.errors import Conflict, PoiseError
from poise.model.ownership import LeaderRow, Line, MemberRow, Row, SetRow
from poise.stores.columns import from_json, made, members_of, rows_of, to_json

Value = str | int | float | None

_ROW = tuple(Row.__struct_fields__)
_MEMBER = tuple(MemberRow.__struct_fields__)
_LINE = ("number", "item", "transition", "member", "epoch", "at_s", "reason", "term", "version")
_LEADER = tuple(LeaderRow.__struct_fields__)
_NAMES_AT_ONCE = 500

_READ_ROWS = f"SELECT {', '.join(_ROW)} FROM poise_rows WHERE set_name = ?"
_READ_MEMBERS = f"SELECT {', '.join(_MEMBER)} FROM poise_members WHERE set_name = ?"
_INSERT_ROW = (
    f"INSERT INTO poise_rows (set_name, {', '.join(_ROW)}) VALUES (?{', ?' * len(_ROW)})"
    " ON CONFLICT (set_name, id) DO NOTHING"
)
_UPDATE_ROW = (
    f"UPDATE poise_rows SET {', '.join(f'{name} = ?' for name in _ROW)} WHERE set_name = ? AND id = ? AND revision = ?"
)
_RENEW_ROW = (
    "UPDATE poise_rows SET lease_until_s = ?, granted_s = ?"
    " WHERE set_name = ? AND id = ? AND revision = ? AND epoch = ? AND coalesce(owner, '') = ?"
)
_BURY_ROW = "DELETE FROM poise_rows WHERE set_name = ? AND id = ? AND revision = ?"
_WRITE_TOMBSTONE = (
    "INSERT INTO poise_tombstones (set_name, id, epoch) VALUES (?, ?, ?)"
    " ON CONFLICT (set_name, id) DO UPDATE SET epoch = excluded.epoch"
)
_DROP_TOMBSTONE = "DELETE FROM poise_tombstones WHERE set_name = ? AND id = ?"
_WRITE_MEMBER = (
    f"INSERT INTO poise_members (set_name, {', '.join(_MEMBER)}) VALUES (?{', ?' * len(_MEMBER)})"
    " ON CONFLICT (set_name, name) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _MEMBER if name != "name")
)
_READ_JOB = "SELECT body FROM poise_sets WHERE set_name = ?"
_INSERT_JOB = (
    "INSERT INTO poise_sets (body, ended, revision, set_name) VALUES (?, ?, ?, ?) ON CONFLICT (set_name) DO NOTHING"
)
_UPDATE_JOB = "UPDATE poise_sets SET body = ?, ended = ?, revision = ? WHERE set_name = ? AND revision = ?"
_READ_LEADER = "SELECT term, holder, lease_until_s FROM poise_leaders WHERE set_name = ?"
_WRITE_LEADER = (
    "INSERT INTO poise_leaders (set_name, term, holder, lease_until_s) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (set_name) DO UPDATE SET term = excluded.term, holder = excluded.holder,"
    " lease_until_s = excluded.lease_until_s WHERE excluded.term >= poise_leaders.term"
)
_WRITE_LINE = f"INSERT INTO poise_journal (set_name, {', '.join(_LINE)}) VALUES (?{', ?' * len(_LINE)})"
_COUNT_CHANGE = "UPDATE poise_version SET value = value + 1 WHERE one = ?"
_READ_NOTE = "SELECT body FROM poise_notes WHERE set_name = ? AND key = ?"
_WRITE_NOTE = (
    "INSERT INTO poise_notes (set_name, key, body) VALUES (?, ?, ?)"
    " ON CONFLICT (set_name, key) DO UPDATE SET body = excluded.body"
)
_DROP_NOTE = "DELETE FROM poise_notes WHERE set_name = ? AND key = ?"
READ_SETS = "SELECT set_name FROM poise_sets WHERE NOT ended ORDER BY set_name"
READ_VERSION = "SELECT value FROM poise_version"
READ_EVENTS = (
    f"SELECT set_name, {', '.join(_LINE)} FROM poise_journal WHERE version > ? OR (version = ? AND number > ?)"
    " ORDER BY version, number LIMIT ?"
)


class SqlTransaction(ABC):
    """The facts of one set in SQL tables; a store gives it the two ways to talk to its database."""

    def __init__(self, name: str, now_s: float, job: SetRow | None = None) -> None:
        self._name = name
        self.now_s = now_s
        self.changed = False  # Something other than a lease was written: whoever waits is woken.
        self._failed: PoiseError | None = None
        self._version: int | None = None
        # Nobody else writes meanwhile, so what was read once stays true.
        self.known_job = job
        self._known: dict[str, MemberRow] = {}

    @abstractmethod
    def ask(self, statement: str, values: Sequence[Value]) -> Sequence[Sequence[object]]:
        """Read."""

    @abstractmethod
    def tell(self, statement: str, values: Sequence[Sequence[Value]]) -> int:
        """Write once for each tuple of values, and say how many rows were touched in all."""

    def finish(self) -> None:
        """Count the change, as the last write before the commit; refuse where a write has failed."""
        if self._failed is not None:
            raise self._failed
        if self.changed:
            self._count()

    def _count(self) -> int:
        """Give the version of this change; it is counted once, and its lock is held from then on to the commit."""
        if self._version is None:
            self.tell(_COUNT_CHANGE, [(1,)])
            self._version = number_of(self.ask(READ_VERSION, ()))
        return self._version

    def job(self) -> SetRow | None:
        if self.known_job is None:
            found = self.ask(_READ_JOB, (self._name,))
            self.known_job = job_of(found[0][0]) if found else None
        return self.known_job

    def leader(self) -> LeaderRow:
        found = self.ask(_READ_LEADER, (self._name,))
        return made(dict(zip(_LEADER, found[0], strict=True)), LeaderRow) if found else LeaderRow()

    def members(self) -> dict[str, MemberRow]:
        self._known = members_of(self.ask(_READ_MEMBERS, (self._name,)))
        return dict(self._known)

    def member(self, name: str) -> MemberRow | None:
        if name in self._known:
            return self._known[name]
        self._known |= members_of(self.ask(_READ_MEMBERS + " AND name = ?", (self._name, name)))
        return self._known.get(name)

    def rows(self) -> dict[str, Row]:
        return rows_of(self.ask(_READ_ROWS, (self._name,)))

    def rows_for(self, owner: str, names: Iterable[str]) -> dict[str, Row]:
        found = rows_of(self.ask(_READ_ROWS + " AND owner = ?", (self._name, owner)))
        others = sorted(set(names) - found.keys())
        for start in range(0, len(others), _NAMES_AT_ONCE):
            named = others[start : start + _NAMES_AT_ONCE]
            marks = ", ".join("?" * len(named))
            found |= rows_of(self.ask(f"{_READ_ROWS} AND id IN ({marks})", (self._name, *named)))
        return found

    def tombstones(self) -> dict[str, int]:
        found = self.ask("SELECT id, epoch FROM poise_tombstones WHERE set_name = ?", (self._name,))
        return dict(made(each, tuple[str, int]) for each in found)

    def last_line(self) -> int:
        found = self.ask("SELECT coalesce(max(number), 0) FROM poise_journal WHERE set_name = ?", (self._name,))
        return number_of(found)

    def write_job(self, job: SetRow) -> None:
        assert job.name == self._name, f"{job.name} is not {self._name}"
        values = (to_json(job), job.ended, job.revision)
        if job.revision == 1:
            written = self.tell(_INSERT_JOB, [(*values, self._name)])
        else:
            written = self.tell(_UPDATE_JOB, [(*values, self._name, job.revision - 1)])
        self._require(written == 1, f"set {job.name} is not at revision {job.revision - 1}")
        self.known_job, self.changed = job, True

    def write_leader(self, leader: LeaderRow) -> None:
        before = self.leader()
        written = self.tell(_WRITE_LEADER, [(self._name, leader.term, leader.holder, leader.lease_until_s)])
        self._require(written == 1, f"a term after {leader.term} has begun")
        self.changed |= (before.term, before.holder) != (leader.term, leader.holder)

    def write_member(self, member: MemberRow) -> None:
        self.changed |= not is_only_longer(self._known.get(member.name), member, self.now_s)
        self.tell(_WRITE_MEMBER, [(self._name, *msgspec.structs.astuple(member))])
        self._known[member.name] = member

    def write_rows(self, rows: Iterable[Row]) -> None:
        wanted = list(rows)
        fresh = [row for row in wanted if row.revision == 1]
        later = [row for row in wanted if row.revision != 1]
        written = self.tell(_INSERT_ROW, [(self._name, *_values(row)) for row in fresh])
        written += self.tell(_UPDATE_ROW, [(*_values(row), self._name, row.id, row.revision - 1) for row in later])
        self._require(written == len(wanted), f"{len(wanted) - written} of {len(wanted)} rows have changed")
        self.tell(_DROP_TOMBSTONE, [(self._name, row.id) for row in fresh])
        self.changed |= bool(wanted)

    def renew_rows(self, rows: Iterable[Row]) -> None:
        wanted = [
            (row.lease_until_s, row.granted_s, self._name, row.id, row.revision, row.epoch, row.owner or "")
            for row in rows
        ]
        written = self.tell(_RENEW_ROW, wanted)
        self._require(written == len(wanted), f"{len(wanted) - written} of {len(wanted)} rows have changed")

    def bury_rows(self, rows: Iterable[Row]) -> None:
        wanted = list(rows)
        gone = self.tell(_BURY_ROW, [(self._name, row.id, row.revision) for row in wanted])
        self._require(gone == len(wanted), f"{len(wanted) - gone} of {len(wanted)} rows have changed")
        self.tell(_WRITE_TOMBSTONE, [(self._name, row.id, row.epoch) for row in wanted])
        self.changed |= bool(wanted)

    def write_lines(self, lines: Iterable[Line]) -> None:
        wanted = list(lines)
        if not wanted:
            return
        version, self.changed = self._count(), True
        numbered = [
            (
                *(self._name, number, line.item, line.transition, line.member),
                *(line.epoch, line.at_s, line.reason, line.term, version),
            )
            for number, line in enumerate(wanted, start=self.last_line() + 1)
        ]
        self.tell(_WRITE_LINE, numbered)

    def note(self, key: str) -> str | None:
        found = self.ask(_READ_NOTE, (self._name, key))
        return str(found[0][0]) if found else None

    def write_note(self, key: str, text: str | None) -> None:
        if text is None:
            self.tell(_DROP_NOTE, [(self._name, key)])
        else:
            self.tell(_WRITE_NOTE, [(self._name, key, text)])
        self.changed = True

    def write_clock_again(self, rows: Iterable[Row]) -> None:
        """Write leases and deadlines that start again with a new clock; no transition, so revisions stay."""
        statement = "UPDATE poise_rows SET lease_until_s = ?, deadline_s = ? WHERE set_name = ? AND id = ?"
        self.tell(statement, [(row.lease_until_s, row.deadline_s, self._name, row.id) for row in rows])
        self.changed = True

    def _require(self, held: bool, otherwise: str) -> None:
        if not held:
            self._failed = Conflict(otherwise)
            raise self._failed


def is_only_longer(before: MemberRow | None, after: MemberRow, now_s: float) -> bool:
    """Say whether a member only goes on living: it was alive, and nothing but its lease and sequence differ."""
    if before is None or now_s >= before.lease_until_s:
        return False
    return after == msgspec.structs.replace(before, lease_until_s=after.lease_until_s, seq=after.seq)


def _values(row: Row) -> tuple[Value, ...]:
    """Give a row's columns in their order."""
    values = msgspec.structs.asdict(row)
    values["offers"] = to_json(row.offers) if row.offers else "{}"
    values["state"] = row.state.value
    return tuple(values.values())


def job_of(body: object) -> SetRow:
    """Read a set from its JSON text."""
    return made(from_json(body), SetRow)


def lines_of(name: str, found: Iterable[Sequence[object]]) -> list[Line]:
    """Read lines of the journal as `journal_statement` selected them."""
    return [made({"set": name, **dict(zip(_LINE, each, strict=True))}, Line) for each in found]


def events_of(found: Iterable[Sequence[object]]) -> list[Line]:
    """Read lines of all sets as `READ_EVENTS` selected them."""
    return [made({"set": name, **dict(zip(_LINE, each, strict=True))}, Line) for name, *each in found]


def number_of(found: Sequence[Sequence[object]]) -> int:
    """Read the one number that was asked for."""
    return made(found[0][0], int)


def journal_statement(item: str | None) -> str:
    """Select lines: the values are the set, the last number seen, the item where one is asked for, and how many."""
    where = "set_name = ? AND number > ?" + ("" if item is None else " AND item = ?")
    return f"SELECT {', '.join(_LINE)} FROM poise_journal WHERE {where} ORDER BY number LIMIT ?"
