"""From an address to a store."""

from __future__ import annotations

from pathlib import Path

from poise.errors import invalid
from poise.stores.base import Store
from poise.stores.boot import boot_clock_s
from poise.stores.memory import MemoryStore
from poise.stores.sqlite import SqliteStore

_FORMS = "expected sqlite:///FILE, a file's path, postgresql://HOST/DATABASE, or memory:"


def open_store(url: str, *, adopt: bool = False) -> Store:
    """Open the store that an address names. `adopt` takes over a SQLite file that another machine is done with.

    As elsewhere, `sqlite:///poise.db` is relative to the working directory, and `sqlite:////var/poise.db` is not.
    """
    if url == "memory:":
        return MemoryStore(boot_clock_s)
    if url.startswith(("postgresql://", "postgres://")):
        return _open_postgres(url)
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        return SqliteStore(Path(url.removeprefix("sqlite:///")), adopt=adopt)
    if not url or "://" in url or url.startswith("sqlite:") or "\0" in url:
        kind = url.partition("://")[0] if "://" in url else url
        raise invalid("$.db", f"{_FORMS}, got {kind!r}")
    return SqliteStore(Path(url), adopt=adopt)


def _open_postgres(url: str) -> Store:
    try:
        from poise.stores.postgres import PostgresStore
    except ImportError as error:
        raise invalid("$.db", "PostgreSQL needs one more package: pip install 'poise[postgres]'") from error
    return PostgresStore(url)
