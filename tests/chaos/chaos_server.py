"""A PostgreSQL server that belongs to one run, since it is stopped in the middle of it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.postgres_server import Server


@contextmanager
def own_server() -> Iterator[Server]:
    """Start a server in a directory with a short name, and leave nothing of it."""
    folder = Path(tempfile.mkdtemp(prefix="poise-chaos-"))
    try:
        folder.chmod(0o755)
        server = Server(folder)
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
