"""The one port of Poise: where the facts live, and what a store promises in words. `tests/contract` holds them to it.

1. **One transaction at a time for a set.** `transact` runs its work alone among all that touch the same set, in this
   process and in all others. What it read is still true when it commits.
2. **All or nothing.** If the work raises, or the process dies, nothing of it is there. Once `transact` returns, all of
   it survives a crash of the process and of the machine.
3. **Compare-and-set.** A row is written only over the revision that it was made from; else `Conflict`, and nothing of
   the transaction is written. A renewal keeps the revision and is written over the same epoch and owner only.
4. **Store time.** `now_s` grows with real time, also while the machine is suspended, and no setting of a wall clock
   changes it. It is read after the transaction has the set for itself.
5. **Nothing is forgotten.** Members are never deleted. A row leaves only as a tombstone, which keeps its epoch.
6. **The journal is part of the transaction**: a transition is there if and only if its line is. Lines carry the version
   of their commit, and whoever has read all lines up to a version has missed none.
7. **`Unavailable`** is raised where the store cannot be asked or does not answer in time. Whether the work was written
   is then unknown: observe again.
8. **Waking.** `wait` returns when something other than a renewal was committed since the given version, by any
   process, or after a timeout.
9. **Viewing.** `view` reads one set as it was at one instant. It waits for no transaction and holds none up. What it
   read may have changed since: whoever writes because of it compares and sets. Nothing can be written in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from poise.model.ownership import LeaderRow, Line, MemberRow, Row, SetRow

__all__ = ["Answer", "Line", "Store", "Transaction"]

Answer = TypeVar("Answer")


class Transaction(Protocol):
    """The facts of one set, as one transaction sees and changes them."""

    @property
    def now_s(self) -> float:
        """Store time."""

    def job(self) -> SetRow | None:
        """Read the set."""

    def leader(self) -> LeaderRow:
        """Read who may plan this set."""

    def members(self) -> dict[str, MemberRow]:
        """Read all members."""

    def member(self, name: str) -> MemberRow | None:
        """Read one member."""

    def rows(self) -> dict[str, Row]:
        """Read all rows."""

    def rows_for(self, owner: str, names: Iterable[str]) -> dict[str, Row]:
        """Read the rows that a member owns, and the named ones."""

    def tombstones(self) -> dict[str, int]:
        """Read the epochs of items that are no longer there."""

    def last_line(self) -> int:
        """Give the number of the last line of this set's journal; 0 where there is none."""

    def write_job(self, job: SetRow) -> None:
        """Write the set over the revision before it."""

    def write_leader(self, leader: LeaderRow) -> None:
        """Write who may plan."""

    def write_member(self, member: MemberRow) -> None:
        """Write a member."""

    def write_rows(self, rows: Iterable[Row]) -> None:
        """Write rows, each over the revision before it, new ones over nothing; `Conflict` where one has changed."""

    def renew_rows(self, rows: Iterable[Row]) -> None:
        """Write only the leases of rows whose epoch, owner and revision are as given."""

    def bury_rows(self, rows: Iterable[Row]) -> None:
        """Put tombstones in the place of rows, over the revision given."""

    def write_lines(self, lines: Iterable[Line]) -> None:
        """Append to the journal."""

    def note(self, key: str) -> str | None:
        """Read a text that belongs to this set, such as its document."""

    def write_note(self, key: str, text: str | None) -> None:
        """Write a text that belongs to this set; None takes it away."""


class Store(Protocol):
    """A place for sets."""

    def transact(self, name: str, work: Callable[[Transaction], Answer]) -> Answer:
        """Run work on one set, alone, and commit it; on `Conflict` or any other error nothing is written."""

    def view(self, name: str, work: Callable[[Transaction], Answer]) -> Answer:
        """Run work that only reads on one set, as it was at one instant, beside all transactions."""

    def sets(self) -> list[str]:
        """Name all sets that have not ended."""

    def journal(self, name: str, item: str | None = None, after: int = 0, most: int = 1000) -> list[Line]:
        """Read lines of the journal in their order."""

    def events(self, after: tuple[int, int], most: int = 1000) -> list[Line]:
        """Read lines of all sets in the order of their commits, after one with this version and number."""

    def version(self) -> int:
        """Give a number that grows with every commit that changed more than leases."""

    def wait(self, version: int, timeout_s: float) -> int:
        """Wait until the version differs from the one given, or for the timeout; answer the version now."""

    def close(self) -> None:
        """Let go of everything."""
