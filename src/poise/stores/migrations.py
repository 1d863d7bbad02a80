"""The tables of the SQL stores, by version. One text serves SQLite and PostgreSQL; a version is never edited later.

Version n of a database is what the first n migrations made. A migration runs in one transaction with its new version.
"""

from __future__ import annotations

Migration = tuple[str, ...]

_FIRST: Migration = (
    """CREATE TABLE poise_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)""",
    # The set itself is a JSON text.
    """CREATE TABLE poise_sets (
        set_name TEXT PRIMARY KEY, body TEXT NOT NULL, ended BOOLEAN NOT NULL, revision BIGINT NOT NULL)""",
    """CREATE TABLE poise_leaders (
        set_name TEXT PRIMARY KEY, term BIGINT NOT NULL, holder TEXT NOT NULL,
        lease_until_s DOUBLE PRECISION NOT NULL)""",
    """CREATE TABLE poise_members (
        set_name TEXT NOT NULL, name TEXT NOT NULL, incarnation BIGINT NOT NULL, process TEXT NOT NULL,
        lease_until_s DOUBLE PRECISION NOT NULL, weight BIGINT NOT NULL, seq BIGINT NOT NULL, leaving TEXT,
        draining BOOLEAN NOT NULL, PRIMARY KEY (set_name, name))""",
    """CREATE TABLE poise_rows (
        set_name TEXT NOT NULL, id TEXT NOT NULL, state TEXT NOT NULL, confirmed BOOLEAN NOT NULL, owner TEXT,
        owner_incarnation BIGINT, target TEXT, epoch BIGINT NOT NULL, lease_until_s DOUBLE PRECISION NOT NULL,
        granted_s DOUBLE PRECISION NOT NULL, deadline_s DOUBLE PRECISION, offers TEXT NOT NULL,
        since_s DOUBLE PRECISION NOT NULL, reason TEXT NOT NULL, plan BIGINT NOT NULL,
        retiring BOOLEAN NOT NULL, revision BIGINT NOT NULL, PRIMARY KEY (set_name, id))""",
    # The owner comes first: else a planner that knows no counts takes this index to find a single row.
    """CREATE INDEX poise_rows_by_owner ON poise_rows (owner, set_name)""",
    """CREATE TABLE poise_tombstones (
        set_name TEXT NOT NULL, id TEXT NOT NULL, epoch BIGINT NOT NULL, PRIMARY KEY (set_name, id))""",
    """CREATE TABLE poise_journal (
        set_name TEXT NOT NULL, number BIGINT NOT NULL, item TEXT NOT NULL, transition TEXT NOT NULL, member TEXT,
        epoch BIGINT NOT NULL, at_s DOUBLE PRECISION NOT NULL, reason TEXT NOT NULL, term BIGINT NOT NULL,
        version BIGINT NOT NULL, PRIMARY KEY (set_name, number))""",
    """CREATE INDEX poise_journal_by_item ON poise_journal (set_name, item, number)""",
    """CREATE INDEX poise_journal_by_version ON poise_journal (version, number)""",
    # One row counts the commits that changed more than leases. Its lock puts them in order: who has read the lines of
    # one version never misses those of an earlier one that commits later.
    """CREATE TABLE poise_version (one BIGINT PRIMARY KEY, value BIGINT NOT NULL)""",
    """INSERT INTO poise_version (one, value) VALUES (1, 0)""",
    """CREATE TABLE poise_notes (
        set_name TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (set_name, key))""",
    # The server (its system id and timeline) that each set was last written on; SQLite leaves it empty.
    """CREATE TABLE poise_origins (set_name TEXT PRIMARY KEY, server TEXT NOT NULL)""",
)

MIGRATIONS: tuple[Migration, ...] = (_FIRST,)
