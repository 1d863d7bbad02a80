"""Opening a SQLite file: is it ours, does its schema fit, is this its machine, and has the machine restarted since?

Every process that has the file open holds a shared lock beside it. What concerns all of them (a new boot, or a move to
another machine) is done under the exclusive lock: nobody else is there.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from itertools import chain, repeat
from pathlib import Path

import msgspec

from poise.errors import Unavailable, invalid
from poise.model.ownership import Line
from poise.move.heartbeat import after_reboot
from poise.stores.boot import Machine
from poise.stores.migrations import Migration
from poise.stores.sqlite_rows import SqliteTransaction, ask, explain

APPLICATION_ID = 0x706F6973  # "pois", in the header of the file.
BUSY_S = 5.0  # How long a lock of another process is waited for before the store is called unavailable.
_LOCK_POLL_S = 0.05
_TURN_POLLS_S = (0.001, 0.001, 0.002, 0.002, 0.004, 0.004, 0.006, 0.01, 0.01, 0.02)  # The last one again and again.
# Small and frequent: whoever commits when the log is full writes all of it back, while the others wait.
_LOG_PAGES = 1_000


class OpenFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is ours: the shared lock beside it, its identity on the disk, and what is added to the boot clock."""

    path: Path
    lock: int
    inode: tuple[int, int]
    offset_s: float
    schema: int


def connect(path: Path, busy_s: float) -> sqlite3.Connection:
    """Open one connection with the settings that the promises rest on."""
    try:
        connection = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise explain(error, path) from error
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        return connection
    except sqlite3.Error as error:
        connection.close()
        raise explain(error, path) from error


def begin(connection: sqlite3.Connection, busy_s: float) -> None:
    """Take the one right to write. SQLite's own pauses grow to 100 ms, which is more than a heartbeat should take."""
    until_s = time.monotonic() + busy_s
    for pause_s in chain(_TURN_POLLS_S, repeat(_TURN_POLLS_S[-1])):
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until_s:
                raise
        time.sleep(pause_s)


def open_file(
    path: Path, machine: Machine, migrations: tuple[Migration, ...], *, busy_s: float = BUSY_S, adopt: bool = False
) -> OpenFile:
    """Make or check the file, and begin its times again where the machine has restarted."""
    if path.is_dir() or not path.parent.is_dir():
        raise invalid("$.db", f"{path} is a directory" if path.is_dir() else f"there is no directory {path.parent}")
    connection = connect(path, busy_s)
    lock = -1
    try:
        _refuse_foreign(connection, path, migrations)
        lock = _open_lock(path)
        if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise invalid("$.db", f"{path}: this file system cannot share memory between processes (WAL)")
        _migrate(connection, machine, migrations)
        _claim(connection, lock, machine, path, busy_s, adopt)
        offset_s = float(_meta(connection)["offset_s"])
        found = path.stat()
        return OpenFile(
            path=path, lock=lock, inode=(found.st_dev, found.st_ino), offset_s=offset_s, schema=len(migrations)
        )
    except BaseException as error:
        if lock >= 0:
            os.close(lock)
        raise explain(error, path) if isinstance(error, sqlite3.Error | OSError) else error from error.__cause__
    finally:
        connection.close()


def _refuse_foreign(connection: sqlite3.Connection, path: Path, migrations: tuple[Migration, ...]) -> None:
    """Look before anything is written: another program's file is left as it is, and a newer one too."""
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    owner = connection.execute("PRAGMA application_id").fetchone()[0]
    if tables and owner != APPLICATION_ID:
        raise invalid("$.db", f"{path} is a database of another program")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(migrations):
        raise invalid(
            "$.db", f"{path} has schema {version} of a newer Poise, this one knows {len(migrations)}: upgrade Poise"
        )


def _open_lock(path: Path) -> int:
    return os.open(f"{path}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _migrate(connection: sqlite3.Connection, machine: Machine, migrations: tuple[Migration, ...]) -> None:
    """Bring the schema up to date in one transaction; its version is written in the same one."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        for migration in migrations[version:]:
            for statement in migration:
                connection.execute(statement)
        if version == 0:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            _remember(connection, machine, 0.0)
        if version < len(migrations):
            connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _claim(connection: sqlite3.Connection, lock: int, machine: Machine, path: Path, busy_s: float, adopt: bool) -> None:
    """Hold the shared lock on a file of this boot; a file of an earlier boot is first begun again, alone.

    One boot id is one running kernel, so one machine and one clock, whatever ids its containers have.
    """
    until_s = time.monotonic() + busy_s
    while True:
        _take_lock(lock, fcntl.LOCK_SH, until_s, path)
        found = _meta(connection)
        if found["boot_id"] == machine.boot_id:
            return
        if not adopt and machine.machine_id and found["machine_id"] not in ("", machine.machine_id):
            raise invalid(
                "$.db",
                f"{path} belongs to another machine, and its leases to that machine's clock: "
                "use PostgreSQL to share a store between machines, or adopt the file once the other is done with it",
            )
        fcntl.flock(lock, fcntl.LOCK_UN)
        # Somebody else may be first and keep the file open from then on: it is looked at again after every attempt.
        if _is_locked(lock, fcntl.LOCK_EX, until_s, path):
            _begin_again(connection, machine, path)


def _take_lock(lock: int, kind: int, until_s: float, path: Path) -> None:
    while not _is_locked(lock, kind, until_s, path):
        pass


def _is_locked(lock: int, kind: int, until_s: float, path: Path) -> bool:
    """Try once to take a lock, and rest a little where it is not to be had."""
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        if time.monotonic() >= until_s:
            raise Unavailable(f"{path} is in use by processes of another machine or boot") from None
        time.sleep(_LOCK_POLL_S)
        return False


def _meta(connection: sqlite3.Connection) -> dict[str, str]:
    return {str(key): str(value) for key, value in connection.execute("SELECT key, value FROM poise_meta")}


def _remember(connection: sqlite3.Connection, machine: Machine, offset_s: float) -> None:
    facts = {"machine_id": machine.machine_id, "boot_id": machine.boot_id, "offset_s": repr(offset_s)}
    connection.executemany(
        "INSERT INTO poise_meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        facts.items(),
    )


def _begin_again(connection: sqlite3.Connection, machine: Machine, path: Path) -> None:
    """Start every time of every set again at full length, in one transaction: the clock has begun anew.

    What is added to the clock keeps store time from falling below what the journal and the rows have seen.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _meta(connection)["boot_id"] != machine.boot_id:
            seen = "SELECT max(at_s) FROM poise_journal UNION ALL SELECT max(since_s) FROM poise_rows"
            latest_s = max((float(each) for (each,) in connection.execute(seen) if each is not None), default=0.0)
            offset_s = max(0.0, latest_s - machine.clock())
            _remember(connection, machine, offset_s)
            for (name,) in connection.execute("SELECT set_name FROM poise_sets").fetchall():
                _begin_set_again(SqliteTransaction(connection, path, str(name), machine.clock() + offset_s))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _begin_set_again(tx: SqliteTransaction) -> None:
    job = tx.job()
    assert job is not None
    lease_s = max(job.terms.lease_s, job.granted_max_s)
    tx.write_clock_again(after_reboot(job, row, tx.now_s) for row in tx.rows().values())
    for member in tx.members().values():
        tx.write_member(msgspec.structs.replace(member, lease_until_s=tx.now_s + lease_s))
    if (leader := tx.leader()).holder:
        tx.write_leader(msgspec.structs.replace(leader, lease_until_s=tx.now_s + lease_s))
    if job.quarantine_until_s > 0.0:
        # Whether it was over cannot be known any more.
        until_s = tx.now_s + lease_s + job.terms.grace_s
        tx.write_job(msgspec.structs.replace(job, quarantine_until_s=until_s, revision=job.revision + 1))
    reason = "the machine has restarted: every lease starts again"
    tx.write_lines([Line(set=job.name, item="", transition="set", member=None, epoch=0, at_s=tx.now_s, reason=reason)])
    tx.finish()


def still_there(file: OpenFile, connection: sqlite3.Connection) -> None:
    """Refuse to go on with a file that was removed, replaced or upgraded: others would see another one."""
    try:
        found = file.path.stat()
    except OSError as error:
        raise explain(error, file.path) from error
    if (found.st_dev, found.st_ino) != file.inode:
        raise Unavailable(f"{file.path} was replaced by another file: open it again")
    if ask(connection, file.path, "PRAGMA user_version", ())[0][0] != file.schema:
        raise Unavailable(f"{file.path} was upgraded by a newer Poise: restart this process with it")
