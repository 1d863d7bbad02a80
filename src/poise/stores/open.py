"""From an address to a store."""

from __future__ import annotations

from pathlib import Path

from poise.clock import boot_s
from poise.describing import describe_types
from poise.errors import invalid
from poise.stores.base import Store
from poise.stores.memory import MemoryStore
from poise.stores.sqlite import SqliteStore

_FORMS = "expected sqlite:///FILE, a file's path, postgresql://HOST/DATABASE, or memory:"


def open_store(url: str, *, adopt: bool = False, make: bool = True) -> Store:
    """Open the store that an address names. `adopt` takes over a SQLite file that another machine is done with.

    Without `make` a file that is not there is refused: who only reads must not leave an empty store behind.

    As elsewhere, `sqlite:///poise.db` is relative to the working directory, and `sqlite:////var/poise.db` is not.
    """
    describe_types()  # Stores start threads.
    if url == "memory:":
        return MemoryStore(boot_s)
    if url.startswith(("postgresql://", "postgres://")):
        return _open_postgres(url)
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        return _open_file(Path(url.removeprefix("sqlite:///")), adopt, make)
    if not url or "://" in url or url.startswith("sqlite:") or "\0" in url:
        kind = url.partition("://")[0] if "://" in url else url
        raise invalid("$.db", f"{_FORMS}, got {kind!r}")
    return _open_file(Path(url), adopt, make)


def _open_file(path: Path, adopt: bool, make: bool) -> Store:
    if not make and not path.exists():
        raise invalid("$.db", f"{path}: there is no such file")
    return SqliteStore(path, adopt=adopt)


def _open_postgres(url: str) -> Store:
    try:
        from poise.stores.postgres import PostgresStore
    except ImportError as error:
        raise invalid("$.db", "PostgreSQL needs one more package: pip install 'poise[postgres]'") from error
    return PostgresStore(url)
