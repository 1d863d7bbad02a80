"""Connections to PostgreSQL: a bounded number of them, every wait with a limit, and what its errors mean.

Limits hold on both sides: the server ends a statement, a wait for a lock and a forgotten transaction by itself; the
client gives a server up that says nothing, since the network may keep the line open for hours.
"""

from __future__ import annotations

import os
import threading

import psycopg
from psycopg import errors
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from poise.errors import Conflict, PoiseError, Unavailable, invalid

CONNECT_S = 5  # To reach the server and to be let in.
STATEMENT_S = 5  # For one statement, the wait for the set's lock included.
FORGOTTEN_S = 3  # After which the server ends a transaction whose process says nothing: it is stopped, or gone.
ANSWER_S = 8.0  # For the server to answer a statement; longer than what it takes to end one by itself.
TURN_S = 5.0  # For a connection to become free.
CONNECTIONS_MAX = 4
SERVER_MIN = 140000

# Whoever set synchronous_commit to less than `on` meant other programs: here a commit that was told is never lost.
_SETTINGS = f"""
    SELECT set_config('statement_timeout', '{STATEMENT_S}s', false),
        set_config('lock_timeout', '{STATEMENT_S}s', false),
        set_config('idle_in_transaction_session_timeout', '{FORGOTTEN_S}s', false),
        set_config('default_transaction_isolation', 'read committed', false),
        set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'
            ELSE current_setting('synchronous_commit') END, false)"""


class Connection(psycopg.Connection[tuple[object, ...]]):
    """A connection on which no wait for an answer lasts longer than ANSWER_S."""

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Wait for the server, but not for ever."""
        return super().wait(gen, interval, ANSWER_S if timeout is None else timeout)


class Pool:
    """A few connections that threads take in turns; a lost one takes the idle ones with it."""

    def __init__(self, url: str, connections_max: int = CONNECTIONS_MAX) -> None:
        """Check the address; nothing is connected yet."""
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error as error:
            raise invalid("$.db", f"this is no address of a PostgreSQL server: {_one_line(error)}") from error
        if not str(given.get("port", "")).replace(",", "").isdigit() and "port" in given:
            raise invalid("$.db", f"this is no address of a PostgreSQL server: port {given['port']!r}")
        self.name = f"PostgreSQL at {given.get('host') or 'the local socket'}, database {given.get('dbname') or '?'}"
        defaults: dict[str, str | int | None] = {
            "connect_timeout": CONNECT_S,
            "application_name": "poise",
            "keepalives_idle": CONNECT_S,
            "keepalives_interval": 1,
            "keepalives_count": 3,
            "tcp_user_timeout": int(ANSWER_S * 1000),
        }
        self._address = make_conninfo(url, **{key: value for key, value in defaults.items() if key not in given})
        self._turns = threading.BoundedSemaphore(connections_max)
        self._idle: list[Connection] = []
        self._closed = False
        self._process = os.getpid()

    def connect(self) -> Connection:
        """Open one more connection with its limits."""
        try:
            connection = Connection.connect(self._address, autocommit=True)
        except psycopg.Error as error:
            raise self.explain(error) from error
        try:
            if connection.info.server_version < SERVER_MIN:
                version = connection.info.parameter_status("server_version")
                raise invalid("$.db", f"{self.name} has version {version}; 14 or newer is needed")
            connection.execute(_SETTINGS)
        except BaseException as error:
            connection.close()
            raise self.explain(error) if isinstance(error, psycopg.Error) else error from error
        return connection

    def take(self) -> tuple[Connection, bool]:
        """Wait for a turn and take a connection; say whether it lay idle, so that it may be dead unnoticed."""
        if self._process != os.getpid():
            raise Unavailable(f"{self.name} was opened before a fork: open it again in this process")
        if not self._turns.acquire(timeout=TURN_S):
            raise Unavailable(f"{self.name}: no connection became free within {TURN_S:g} s")
        try:
            if self._closed:
                raise Unavailable(f"{self.name} is closed")
            try:
                return self._idle.pop(), True
            except IndexError:
                return self.connect(), False
        except BaseException:
            self._turns.release()
            raise

    def give_back(self, connection: Connection) -> None:
        """Keep a healthy connection for the next turn, and close any other with all that lie idle."""
        if connection.closed or connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            connection.close()
            self.drop_idle()
        elif self._closed:
            connection.close()
        else:
            self._idle.append(connection)
        self._turns.release()

    def drop_idle(self) -> None:
        """Close what lies idle: what ended one connection has most likely ended them all."""
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def close(self) -> None:
        """Close what lies idle, and the others when they are given back."""
        self._closed = True
        self.drop_idle()

    def explain(self, error: BaseException) -> PoiseError:
        """Say in one line what an error means; whatever is Poise's own is left as it is."""
        if isinstance(error, PoiseError):
            return error
        told = _one_line(error)
        match error:
            case errors.SerializationFailure() | errors.DeadlockDetected():
                return Conflict(f"{self.name}: {told}")
            case errors.InsufficientPrivilege() | errors.InvalidSchemaName():
                return invalid("$.db", f"{self.name}: {told}")
            case psycopg.DataError() | UnicodeEncodeError():
                return invalid("$", f"this cannot be stored: {told}")
            case errors.LockNotAvailable() | errors.QueryCanceled():
                return Unavailable(f"{self.name} had no time for this within {STATEMENT_S} s")
            case errors.ReadOnlySqlTransaction() | errors.ObjectNotInPrerequisiteState():
                return Unavailable(f"{self.name} takes no writes: it is a standby, or set to read only")
            case _:
                return Unavailable(f"{self.name}: {told}")


def _one_line(error: BaseException) -> str:
    """Make one line of what the server or the library says; never the address, which may hold a password."""
    told = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return " ".join((told or str(error)).split()) or type(error).__name__
