"""Fencing for sinks: whoever takes writes keeps the largest epoch it has seen, and refuses every smaller one.

Law: of one item, the epochs of accepted writes never fall, whatever a late writer believes about itself.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from poise.errors import Fenced, invalid

HEADER = "Poise-Epoch"
EPOCH_MAX = 2**63 - 1
# Runs one statement on the open transaction and gives its first row: lambda sql, args: db.execute(sql, args).fetchone()
Ask = Callable[[str, tuple[str | int, ...]], Sequence[object] | None]
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class SqlGuard:
    """A table of the sink's own database with the largest epoch of each item; create it with `schema`.

    Call `admit` in the transaction of the write itself, before it: then both are there, or neither. `placeholder` is
    how the driver writes a parameter: "?" for sqlite3, "%s" for psycopg.
    """

    def __init__(self, table: str = "poise_epochs", *, placeholder: Literal["?", "%s"] = "?") -> None:
        """Name the table; it belongs to the guard alone."""
        if not _TABLE.match(table):
            raise invalid("$.table", f"expected a plain name of letters, digits and _, got {table!r}")
        self.schema = f"CREATE TABLE IF NOT EXISTS {table} (item TEXT PRIMARY KEY, epoch BIGINT NOT NULL)"
        # One statement looks and writes, so that two writers cannot both pass.
        self._raise = (
            f"INSERT INTO {table} (item, epoch) VALUES ({placeholder}, {placeholder}) "
            f"ON CONFLICT (item) DO UPDATE SET epoch = excluded.epoch WHERE {table}.epoch <= excluded.epoch "
            "RETURNING epoch"
        )
        self._read = f"SELECT epoch FROM {table} WHERE item = {placeholder}"

    def admit(self, ask: Ask, item: str, epoch: int) -> None:
        """Let a write pass and remember its epoch, or raise `Fenced`."""
        check_epoch(epoch)
        if ask(self._raise, (item, epoch)) is None:
            row = ask(self._read, (item,))
            raise Fenced(item, epoch, int(str(row[0])) if row else 0)


class FileGuard:
    """A folder with the largest epoch of each item; for sinks that are files on one machine."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; it is made if it is not there."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def admit(self, item: str, epoch: int) -> Iterator[None]:
        """Run the block as the only writer of this item, or raise `Fenced`; no smaller epoch passes during it or after.

        The epoch is on disk before the block begins: a crash in the block refuses too much rather than too little.
        """
        check_epoch(epoch)
        file = os.open(self._folder / f"{item.encode().hex()}.epoch", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            seen = int(os.pread(file, 32, 0) or b"0")
            if epoch < seen:
                raise Fenced(item, epoch, seen)
            if epoch > seen:
                os.pwrite(file, b"%019d" % epoch, 0)
                os.fsync(file)
            yield
        finally:
            os.close(file)


def epoch_header(item: str, epoch: int) -> dict[str, str]:
    """Make the header that carries an item's epoch with a request."""
    check_epoch(epoch)
    return {HEADER: f"{epoch};{item.encode().hex()}"}


def read_header(headers: Mapping[str, str]) -> tuple[str, int]:
    """Read item and epoch from the headers of a request; a request without a sound one is not a fenced one."""
    value = next((text for name, text in headers.items() if name.lower() == HEADER.lower()), "")
    match = re.fullmatch(r"([0-9]{1,19});((?:[0-9a-f]{2})+)", value)
    if match is None:
        raise invalid(f"$.headers['{HEADER}']", f"expected an epoch and an item, got {value!r}")
    try:
        item = bytes.fromhex(match[2]).decode()
    except UnicodeDecodeError:
        raise invalid(f"$.headers['{HEADER}']", "the item is not UTF-8") from None
    return item, check_epoch(int(match[1]))


def admit_request(headers: Mapping[str, str], admit: Callable[[str, int], None]) -> int:
    """Judge a request by its header with the sink's own guard, and give the HTTP status: 200, 400, or 412 if fenced."""
    try:
        admit(*read_header(headers))
    except Fenced:
        return 412
    except ValueError:
        return 400
    return 200


def check_epoch(epoch: int) -> int:
    """Refuse what is no epoch."""
    if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch <= EPOCH_MAX:
        raise invalid("$.epoch", f"expected a whole number from 0 to 2^63 - 1, got {epoch!r}")
    return epoch
