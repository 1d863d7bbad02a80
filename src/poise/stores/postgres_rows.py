"""Talking to PostgreSQL: the transaction on its tables, and on which server and timeline a set was last written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

from poise.model.ownership import Line, Row, SetRow
from poise.move.heartbeat import next_generation
from poise.stores.base import Answer
from poise.stores.columns import to_json
from poise.stores.postgres_pool import Connection, Pool
from poise.stores.tables import SqlTransaction, Value

# The timeline is that of the write-ahead log as it is written now; the control file learns of it only later.
_SYSTEM_ID = "CAST((SELECT system_identifier FROM pg_control_system()) AS TEXT)"
_TIMELINE = "left(pg_walfile_name(pg_current_wal_lsn()), 8)"
_UNKNOWN = "'?'"
_WRITE_ORIGIN = (
    "INSERT INTO poise_origins (set_name, server) VALUES (?, ?)"
    " ON CONFLICT (set_name) DO UPDATE SET server = excluded.server"
)
# The rows go over as one JSON text, which costs a client far less than arrays do. They are named once more, so that the
# server finds each by its key instead of reading the whole set.
_RENEW_ROWS = b"""UPDATE poise_rows SET lease_until_s = new.lease_until_s, granted_s = new.granted_s
    FROM json_to_recordset(%s) AS new (
        id text, revision bigint, epoch bigint, owner text, lease_until_s float8, granted_s float8)
    WHERE poise_rows.set_name = %s AND poise_rows.id = ANY (%s) AND poise_rows.id = new.id
        AND poise_rows.revision = new.revision AND poise_rows.epoch = new.epoch
        AND coalesce(poise_rows.owner, '') = new.owner"""

_MANY = 500


class PostgresTransaction(SqlTransaction):
    """The facts of one set on a server."""

    def __init__(self, connection: Connection, pool: Pool, name: str, now_s: float, job: SetRow | None = None) -> None:
        super().__init__(name, now_s, job)
        self._connection, self._pool = connection, pool
        self.grew = False

    def ask(self, statement: str, values: Sequence[Value]) -> Sequence[Sequence[object]]:
        with self._connection.cursor() as cursor:
            return self._said(lambda: cursor.execute(in_postgres(statement), values).fetchall())

    def tell(self, statement: str, values: Sequence[Sequence[Value]]) -> int:
        if not values:
            return 0
        with self._connection.cursor() as cursor:
            if len(values) == 1:
                return self._said(lambda: cursor.execute(in_postgres(statement), values[0]).rowcount)
            self._said(lambda: cursor.executemany(in_postgres(statement), values))
            return cursor.rowcount

    def _said(self, talk: Callable[[], Answer]) -> Answer:
        """Talk to the server within the transaction; after an error nothing of it can be committed."""
        assert self._connection.info.transaction_status != TransactionStatus.IDLE, "this transaction is over"
        try:
            return talk()
        except (psycopg.Error, UnicodeEncodeError) as error:
            self._failed = self._pool.explain(error)
            raise self._failed from error

    def renew_rows(self, rows: Iterable[Row]) -> None:
        """Renew all rows by one statement: most of what a server does all day is this."""
        wanted = list(rows)
        renewals = [
            {
                "id": row.id,
                "revision": row.revision,
                "epoch": row.epoch,
                "owner": row.owner or "",
                "lease_until_s": row.lease_until_s,
                "granted_s": row.granted_s,
            }
            for row in wanted
        ]
        values = (to_json(renewals), self._name, [row.id for row in wanted])
        with self._connection.cursor() as cursor:
            written = self._said(lambda: cursor.execute(_RENEW_ROWS, values).rowcount) if wanted else 0
        self._require(written == len(wanted), f"{len(wanted) - written} of {len(wanted)} rows have changed")

    def write_rows(self, rows: Iterable[Row]) -> None:
        """Write rows, and note when there are so many new ones that the server should count them again."""
        wanted = list(rows)
        super().write_rows(wanted)
        self.grew |= sum(row.revision == 1 for row in wanted) >= _MANY

    def begin_on(self, server: str, before: str | None) -> None:
        """Start a new generation where the set was last written on another server: its last commits may be lost."""
        known = server if before is None else best_known(server, before)
        if known == before or (job := self.job()) is None:
            return
        self.tell(_WRITE_ORIGIN, [(self._name, known)])
        if before is None or not differ(server, before):
            return
        changed, rows = next_generation(job, self.rows(), job.generation, self.now_s)
        self.write_job(changed)
        self.write_rows(rows.values())
        reason = f"generation {changed.generation}: the server was {before} and is {server}"
        line = Line(set=job.name, item="", transition="set", member=None, epoch=0, at_s=self.now_s, reason=reason)
        self.write_lines([line])


def identity(connection: Connection) -> str:
    """Find out which of the server's names this user may read; an unknown one is written as a question mark."""
    known = []
    for name in (_SYSTEM_ID, _TIMELINE):
        try:
            connection.execute(f"SELECT {name}".encode())
            known.append(name)
        except (errors.InsufficientPrivilege, errors.FeatureNotSupported, errors.UndefinedFunction):
            known.append(_UNKNOWN)
    return " || '/' || ".join(known)


def differ(server: str, before: str) -> bool:
    """Say whether two identities contradict each other; what one of them does not know contradicts nothing."""
    pairs = zip(server.split("/"), before.split("/"), strict=True)
    return any(one != other and "?" not in (one, other) for one, other in pairs)


def best_known(server: str, before: str) -> str:
    """Join what two identities know."""
    pairs = zip(server.split("/"), before.split("/"), strict=True)
    return "/".join(other if one == "?" else one for one, other in pairs)


def in_postgres(statement: str) -> bytes:
    """Write a statement's values as psycopg does."""
    return statement.replace("?", "%s").encode()
