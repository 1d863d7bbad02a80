"""The store of the explored world: facts that never change, and a transaction over them with the promises of the port.

All times stand relative to one instant, NOW, and every number that only grows (revision, term, sequence) relative to a
fixed mark. So two situations that differ only in how long ago they began are one state.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from poise.errors import Conflict
from poise.model.ownership import (
    GENERATION,
    OWNED,
    RESTART,
    RETIREMENT,
    LeaderRow,
    MemberRow,
    OwnerState,
    Row,
    SetRow,
)
from poise.move.handoff import Transition
from poise.stores.base import Line

NOW = 100.0
MARK = 10  # Where revisions, terms and the newest sequence number of a process stand.
OLDEST = 7  # A sequence number below this one is older than everything in flight.
replace = msgspec.structs.replace


class Facts(msgspec.Struct, frozen=True):
    """Everything one set has in the store."""

    job: SetRow
    members: tuple[MemberRow, ...]
    rows: tuple[Row, ...]
    tombstones: tuple[tuple[str, int], ...] = ()


class FactsTransaction:
    """One transaction over facts, with every comparison that a store must make."""

    now_s = NOW

    def __init__(self, facts: Facts, term: int = MARK) -> None:
        """Begin."""
        self._job: SetRow = facts.job
        self._leader = LeaderRow(term=term, holder="x", lease_until_s=NOW)
        self._members = {member.name: member for member in facts.members}
        self._rows = {row.id: row for row in facts.rows}
        self._tombstones = dict(facts.tombstones)
        self.lines: list[Line] = []

    def result(self) -> Facts:
        """Commit: the facts in their normal form."""
        return normal(
            Facts(
                self._job,
                tuple(self._members[name] for name in sorted(self._members)),
                tuple(self._rows[item] for item in sorted(self._rows)),
                tuple(sorted(self._tombstones.items())),
            )
        )

    def job(self) -> SetRow | None:
        """Read the set."""
        return self._job

    def leader(self) -> LeaderRow:
        """Read who may plan this set."""
        return self._leader

    def members(self) -> dict[str, MemberRow]:
        """Read all members."""
        return dict(self._members)

    def member(self, name: str) -> MemberRow | None:
        """Read one member."""
        return self._members.get(name)

    def rows(self) -> dict[str, Row]:
        """Read all rows."""
        return dict(self._rows)

    def rows_for(self, owner: str, names: Iterable[str]) -> dict[str, Row]:
        """Read the rows that a member owns, and the named ones; nothing more, as a store does it."""
        wanted = set(names)
        return {item: row for item, row in self._rows.items() if row.owner == owner or item in wanted}

    def tombstones(self) -> dict[str, int]:
        """Read the epochs of items that are no longer there."""
        return dict(self._tombstones)

    def last_line(self) -> int:
        """Count the lines of this transaction."""
        return len(self.lines)

    def write_job(self, job: SetRow) -> None:
        """Write the set over the revision before it."""
        if job.revision != self._job.revision + 1:
            raise Conflict("the set has changed")
        self._job = job

    def write_leader(self, leader: LeaderRow) -> None:
        """Write who may plan."""
        if leader.term < self._leader.term:
            raise Conflict("a newer term has begun")
        self._leader = leader

    def write_member(self, member: MemberRow) -> None:
        """Write a member."""
        self._members[member.name] = member

    def write_rows(self, rows: Iterable[Row]) -> None:
        """Write rows, each over the revision before it."""
        for row in rows:
            before = self._rows[row.id].revision if row.id in self._rows else 0
            if row.revision != before + 1:
                raise Conflict(f"{row.id} has changed")
            self._rows[row.id] = row
            self._tombstones.pop(row.id, None)

    def renew_rows(self, rows: Iterable[Row]) -> None:
        """Write only the leases."""
        for row in rows:
            before = self._rows[row.id]
            if (before.revision, before.epoch, before.owner) != (row.revision, row.epoch, row.owner):
                raise Conflict(f"{row.id} has changed")
            self._rows[row.id] = replace(before, lease_until_s=row.lease_until_s, granted_s=row.granted_s)

    def bury_rows(self, rows: Iterable[Row]) -> None:
        """Put tombstones in the place of rows."""
        for row in rows:
            if self._rows[row.id].revision != row.revision:
                raise Conflict(f"{row.id} has changed")
            del self._rows[row.id]
            self._tombstones[row.id] = row.epoch

    def write_lines(self, lines: Iterable[Line]) -> None:
        """Append to the journal."""
        self.lines += lines

    def note(self, key: str) -> str | None:
        """Read a text of the set: no operation that is explored may need one."""
        raise AssertionError(key)

    def write_note(self, key: str, text: str | None) -> None:
        """Write a text of the set: no operation that is explored may need one."""
        raise AssertionError(f"{key}: {text}")


class BlindTransaction(FactsTransaction):
    """What no store may be: it lets a leader write over rows as the leader saw them, without comparing."""

    def __init__(self, facts: Facts, view: Facts) -> None:
        """Begin with rows that may be old."""
        super().__init__(facts)
        self._view = {row.id: row for row in view.rows}

    def rows(self) -> dict[str, Row]:
        """Give the rows that the leader saw."""
        return dict(self._view)

    def rows_for(self, owner: str, names: Iterable[str]) -> dict[str, Row]:
        """Give those of the named rows that the leader saw."""
        del owner
        return {item: self._view[item] for item in names if item in self._view}

    def write_rows(self, rows: Iterable[Row]) -> None:
        """Write over anything."""
        self._rows.update({row.id: row for row in rows if row.id in self._rows})

    def bury_rows(self, rows: Iterable[Row]) -> None:
        """Bury anything."""
        super().bury_rows(self._rows[row.id] for row in rows if row.id in self._rows)


def normal(facts: Facts) -> Facts:
    """Forget what no guard looks at: what is over is over, however long ago (grace is at most 1)."""
    return Facts(
        replace(facts.job, revision=MARK, quarantine_until_s=max(facts.job.quarantine_until_s, NOW)),
        tuple(
            replace(each, seq=max(each.seq, OLDEST), lease_until_s=max(each.lease_until_s, NOW))
            for each in facts.members
        ),
        tuple(map(_normal_row, facts.rows)),
        facts.tombstones,
    )


def _normal_row(row: Row) -> Row:
    return replace(
        row,
        lease_until_s=max(row.lease_until_s, NOW - 1.0) if row.state in OWNED else 0.0,
        deadline_s=None if row.deadline_s is None else max(row.deadline_s, NOW),
        offers={},
        since_s=0.0,
        reason=row.reason if row.reason in (RESTART, RETIREMENT) else "",
        plan=0,
        revision=MARK,
    )


def shifted(facts: Facts, by_s: float) -> Facts:
    """Let time pass (by_s < 0), or the store's clock begin anew (by_s > 0): every instant stands elsewhere."""
    return normal(
        Facts(
            replace(facts.job, quarantine_until_s=facts.job.quarantine_until_s + by_s),
            tuple(replace(each, lease_until_s=each.lease_until_s + by_s) for each in facts.members),
            tuple(
                replace(
                    row,
                    lease_until_s=row.lease_until_s + by_s,
                    deadline_s=None if row.deadline_s is None else row.deadline_s + by_s,
                )
                for row in facts.rows
            ),
            facts.tombstones,
        )
    )


def aged(facts: Facts, name: str, process: str) -> Facts:
    """Let the newest sequence number of a process stand at MARK again, after it spoke."""
    members = tuple(
        replace(each, seq=each.seq - 1) if (each.name, each.process) == (name, process) else each
        for each in facts.members
    )
    return normal(replace(facts, members=members))


_FREE, _HELD = OwnerState.UNASSIGNED, OwnerState.ASSIGNED
_ASKED, _ENDING = OwnerState.REQUESTED_RELEASE, OwnerState.PENDING_RELEASE
TABLE: dict[str, tuple[tuple[OwnerState, ...], OwnerState | None]] = {
    Transition.T1: ((_FREE,), _HELD),
    Transition.T2: (OWNED, None),
    Transition.T3: ((_HELD,), _ASKED),
    Transition.T4: ((_ASKED,), _ENDING),
    Transition.T5: (OWNED, _FREE),
    Transition.T6: ((_ASKED,), _HELD),
    Transition.T6B: ((_ASKED, _ENDING), None),
    Transition.T7: (OWNED, _FREE),
    Transition.T9: ((_FREE,), None),
}


def breaches(before: Facts, after: Facts, lines: list[Line]) -> str:
    """Name the first row that changed in a way the table does not know; "" where there is none."""
    if any(line.transition == "set" for line in lines):
        return _set_breach(before, after)
    new = {row.id: row for row in after.rows}
    for row in before.rows:
        said = [line.transition for line in lines if line.item == row.id]
        fault = _row_breach(row, new.get(row.id), said)
        if fault:
            return f"item {row.id}: {fault}"
    return ""


def _row_breach(row: Row, after: Row | None, said: list[str]) -> str:
    """Replay the journal of one row against the table."""
    state = row.state
    for transition in said:
        allowed, reached = TABLE[transition]
        if state not in allowed:
            return f"{transition} from {state}"
        state = reached or state
    if after is None:
        return "" if said == [Transition.T9] else "it is gone without being retired"
    if after.state is not state or after.epoch != row.epoch + said.count(Transition.T1):
        return f"{row.state} at epoch {row.epoch} became {after.state} at epoch {after.epoch}, written as {said}"
    renewed = replace(row, lease_until_s=after.lease_until_s, granted_s=after.granted_s)
    return "" if said or renewed == after else "it changed, and no transition was written"


def _set_breach(before: Facts, after: Facts) -> str:
    """A change of the set itself leaves rows alone, or (a new generation) raises their epochs."""
    old = {row.id: row.epoch for row in before.rows} | dict(before.tombstones)
    new = {row.id: row.epoch for row in after.rows} | dict(after.tombstones)
    return next((f"item {item}: its epoch fell" for item, epoch in old.items() if new.get(item, -1) < epoch), "")


def counter(epoch: int) -> int:
    """Give the part of an epoch that grows with every grant."""
    return epoch % GENERATION
