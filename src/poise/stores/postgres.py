"""A store in PostgreSQL, for any number of machines.

Order for safety: the set's lock first, then the server's clock and identity, then the work, then one notice and the
commit. A set that was last written on another server or timeline may have lost commits: it starts a new generation.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import psycopg
from psycopg.pq import TransactionStatus

from poise.errors import PoiseError, Unavailable, invalid
from poise.model.ownership import Line
from poise.stores.base import Answer, Transaction
from poise.stores.batches import Batches, Piece, fail
from poise.stores.migrations import MIGRATIONS, Migration
from poise.stores.postgres_pool import CONNECTIONS_MAX, TURN_S, Connection, Pool
from poise.stores.postgres_rows import PostgresTransaction, identity, in_postgres
from poise.stores.tables import (
    READ_EVENTS,
    READ_SETS,
    READ_VERSION,
    events_of,
    job_of,
    journal_statement,
    lines_of,
    number_of,
)
from poise.stores.waking import Bell

_CHANNEL = "poise"
_MIGRATION_KEY = 0x706F697365  # "poise": one process at a time looks after the schema.
_LISTEN_S = 0.5  # How often the listener looks whether the store was closed.
_AGAIN_S = 1.0  # How long the listener rests before it connects again.

_FACTS = """SELECT CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION), {server},
    (SELECT server FROM poise_origins WHERE set_name = asked.set_name),
    (SELECT value FROM poise_meta WHERE key = 'schema'), poise_sets.body
    FROM (SELECT CAST(%s AS TEXT) AS set_name) AS asked LEFT JOIN poise_sets USING (set_name)"""


class Facts(NamedTuple):
    """What a transaction reads once it has the set's lock."""

    now_s: float
    server: str
    before: str | None
    schema: str
    body: str | None


class PostgresStore:
    """Keeps everything on one server."""

    def __init__(
        self, url: str, *, connections_max: int = CONNECTIONS_MAX, migrations: tuple[Migration, ...] = MIGRATIONS
    ) -> None:
        """Connect, and make or upgrade the tables."""
        self._pool = Pool(url, connections_max)
        self._schema = str(len(migrations))
        self._batches = Batches(self._carry_out, threads=connections_max, start_s=TURN_S, where=self._pool.name)
        self._bell = Bell()
        self._listener: threading.Thread | None = None
        self._starting = threading.Lock()
        try:
            self._use(lambda connection: _migrate(connection, migrations, self._pool.name))
            self._facts = _FACTS.format(server=self._use(identity)).encode()
        except BaseException:
            self._pool.close()
            raise

    def transact(self, name: str, work: Callable[[Transaction], Answer]) -> Answer:
        """Run work on one set under its lock, which the server gives back at the end, whatever happens."""
        return self._batches.do(name, name, work)

    def view(self, name: str, work: Callable[[Transaction], Answer]) -> Answer:
        """Run work beside the set's lock, on what the server held when the first statement read it."""
        connection, facts = self._ready(lambda connection: _view(connection, name, self._facts))
        try:
            self._check_schema(facts)
            job = None if facts.body is None else job_of(facts.body)
            return work(PostgresTransaction(connection, self._pool, name, facts.now_s, job))
        finally:
            _roll_back(connection)
            self._pool.give_back(connection)

    def sets(self) -> list[str]:
        """Name all sets that have not ended."""
        return [str(name) for (name,) in self._read(READ_SETS, ())]

    def journal(self, name: str, item: str | None = None, after: int = 0, most: int = 1000) -> list[Line]:
        """Read lines of the journal in their order."""
        values = (name, after, most) if item is None else (name, after, item, most)
        return lines_of(name, self._read(journal_statement(item), values))

    def events(self, after: tuple[int, int], most: int = 1000) -> list[Line]:
        """Read lines of all sets in the order of their commits."""
        version, number = after
        return events_of(self._read(READ_EVENTS, (version, version, number, most)))

    def version(self) -> int:
        """Count the commits of all processes that changed more than leases."""
        return number_of(self._read(READ_VERSION, ()))

    def wait(self, version: int, timeout_s: float) -> int:
        """Wait for a commit of any process."""
        with self._starting:
            if self._listener is None and not self._bell.closed:
                self._listener = threading.Thread(target=self._listen, name="listen to PostgreSQL", daemon=True)
                self._listener.start()
        return self._bell.wait_for_change(version, self.version, timeout_s)

    def close(self) -> None:
        """Let go of every connection."""
        self._batches.close()
        self._bell.close()
        if self._listener is not None:
            self._listener.join()
        self._pool.close()

    def _carry_out(self, pieces: list[Piece]) -> None:
        """Commit works on one set together. An error of a work undoes it alone, one of the server undoes them all."""
        try:
            connection, facts = self._ready(lambda connection: _begin(connection, pieces[0].name, self._facts))
        except BaseException as error:
            return fail(pieces, self._pool.explain(error))
        try:
            self._write(connection, facts, pieces)
        except BaseException as error:
            fail(pieces, self._pool.explain(error))
        finally:
            _roll_back(connection)
            self._pool.give_back(connection)
        return None

    def _write(self, connection: Connection, facts: Facts, pieces: list[Piece]) -> None:
        """Run the works under the set's lock, with savepoints where there are several, and tell after the commit."""
        self._check_schema(facts)
        job = None if facts.body is None else job_of(facts.body)
        start = PostgresTransaction(connection, self._pool, pieces[0].name, facts.now_s, job)
        start.begin_on(facts.server, facts.before)
        start.finish()
        changed, grew, finished, last = start.changed, False, [], start
        for piece in pieces:
            tx = PostgresTransaction(connection, self._pool, piece.name, facts.now_s, last.known_job)
            if _run(connection, tx, piece, alone=len(pieces) == 1):
                finished.append(piece)
                changed |= tx.changed
                grew |= tx.grew
                last = tx
        if finished:
            connection.execute(f"NOTIFY {_CHANNEL}; COMMIT".encode() if changed else b"COMMIT")
        for piece in finished:
            piece.done.set_result(None)
        if grew:
            # Until the server has counted the rows it reads the whole set to find one.
            connection.execute("ANALYZE poise_rows")

    def _check_schema(self, facts: Facts) -> None:
        if facts.schema != self._schema:
            raise Unavailable(f"{self._pool.name} was upgraded by a newer Poise: restart this process with it")

    def _read(self, statement: str, values: tuple[str | int, ...]) -> list[tuple[object, ...]]:
        return self._use(lambda connection: connection.execute(in_postgres(statement), values).fetchall())

    def _use(self, use: Callable[[Connection], Answer]) -> Answer:
        """Use a connection for something that may be done twice."""
        connection, answer = self._ready(use)
        self._pool.give_back(connection)
        return answer

    def _ready(self, use: Callable[[Connection], Answer]) -> tuple[Connection, Answer]:
        """Take a connection that proves itself by its first use: one that died while it lay idle is replaced."""
        connection, idle = self._pool.take()
        try:
            try:
                return connection, use(connection)
            except psycopg.OperationalError:
                if not idle or not connection.closed:
                    raise
                self._pool.drop_idle()
                connection = self._pool.connect()
                return connection, use(connection)
        except BaseException as error:
            _roll_back(connection)
            self._pool.give_back(connection)
            raise self._pool.explain(error) from error

    def _listen(self) -> None:
        """Hear of commits for as long as the store is open; after a loss whoever waits looks for himself."""
        while not self._bell.closed:
            try:
                with self._pool.connect() as connection:
                    connection.execute(f"LISTEN {_CHANNEL}")
                    self._bell.ring()
                    while not self._bell.closed:
                        for _ in connection.notifies(timeout=_LISTEN_S, stop_after=1):
                            self._bell.ring()
            except (psycopg.Error, PoiseError):
                self._bell.ring()
                self._bell.rest(_AGAIN_S)


def _begin(connection: Connection, name: str, facts: bytes) -> Facts:
    """Take the set's lock, and only then read the time and the rest."""
    connection.execute(f"BEGIN; SELECT pg_advisory_xact_lock({_key(name)})".encode())
    return msgspec.convert(connection.execute(facts, (name,)).fetchall()[0], Facts)


def _view(connection: Connection, name: str, facts: bytes) -> Facts:
    """Begin to read, without any lock: every statement sees what the first one saw."""
    connection.execute(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    return msgspec.convert(connection.execute(facts, (name,)).fetchall()[0], Facts)


def _run(connection: Connection, tx: PostgresTransaction, piece: Piece, *, alone: bool) -> bool:
    """Run one work; where it fails, undo it and say no."""
    if not alone:
        connection.execute("SAVEPOINT piece")
    try:
        piece.run(tx)
        tx.finish()
    except BaseException as error:
        piece.done.set_exception(error)
        if not alone:
            connection.execute("ROLLBACK TO piece")
        return False
    return True


def _roll_back(connection: Connection) -> None:
    """End a transaction that was not committed; where even that fails the server ends it with the connection."""
    try:
        if not connection.closed and connection.info.transaction_status != TransactionStatus.IDLE:
            connection.execute("ROLLBACK")
    except psycopg.Error:
        connection.close()


def _key(name: str) -> int:
    """Make the lock's number of a set's name; two sets that share one only wait for each other."""
    digest = hashlib.blake2b(name.encode(), digest_size=8, person=b"poise set").digest()
    return int.from_bytes(digest, signed=True)


def _migrate(connection: Connection, migrations: tuple[Migration, ...], where: str) -> None:
    """Bring the schema up to date in one transaction; whatever is running ends first, since it has read the version."""
    connection.execute(f"BEGIN; SELECT pg_advisory_xact_lock({_MIGRATION_KEY})")
    found = connection.execute("SELECT to_regclass('poise_meta') IS NOT NULL").fetchall()[0][0]
    version = 0
    if found:
        (read,) = connection.execute("SELECT value FROM poise_meta WHERE key = 'schema'").fetchall()[0]
        version = int(str(read))
    if version > len(migrations):
        raise invalid(
            "$.db", f"{where} has schema {version} of a newer Poise, this one knows {len(migrations)}: upgrade Poise"
        )
    if version < len(migrations):
        if found:
            connection.execute("LOCK TABLE poise_meta IN ACCESS EXCLUSIVE MODE")
        for migration in migrations[version:]:
            for statement in migration:
                connection.execute(statement)
        # Room on every page lets a renewal stay beside its row, without a new entry in any index.
        connection.execute("ALTER TABLE poise_rows SET (fillfactor = 50)")
        connection.execute("ALTER TABLE poise_members SET (fillfactor = 50)")
        connection.execute(
            "INSERT INTO poise_meta (key, value) VALUES ('schema', %s)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (str(len(migrations)),),
        )
    connection.execute("COMMIT")
