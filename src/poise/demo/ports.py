"""Ports of this machine: free ones for the collectors, who has the one that was wanted, and how a server is reached."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from poise.serve.settings import LISTEN, ServeSettings

_REACHED = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # An address that means every one is reached by the local one.
_LISTENS = "0A"  # The state of a listening socket in /proc/net/tcp.


def choose_ports(names: Iterable[str], before: Mapping[str, int]) -> dict[str, int]:
    """Give every name a free port, the one that it had before where that is still free."""
    held: list[socket.socket] = []
    ports: dict[str, int] = {}
    try:
        for name in names:
            bound = _bind(before.get(name, 0)) or _bind(0)
            assert bound is not None, "the system has no free port"
            held.append(bound)  # Held until all are chosen, so that no two are the same.
            ports[name] = bound.getsockname()[1]
    finally:
        for each in held:
            each.close()
    return ports


def _bind(port: int) -> socket.socket | None:
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind(("127.0.0.1", port))
    except OSError:
        opened.close()
        return None
    return opened


def written(host: str, port: int) -> str:
    """Write an address with its port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_of(settings: ServeSettings, port: int | None = None) -> str:
    """Say how a server is reached from this machine; `port` is the one that it got where it asked for any."""
    host = _REACHED.get(settings.host, settings.host)
    return f"http://{written(host, settings.port if port is None else port)}"


def unusual(address: str) -> str:
    """Give an address that a command must be told; the usual one need not be said."""
    return "" if address == f"http://{LISTEN}" else address


def listener_of(port: int) -> str:
    """Say which process listens on a port, such as "process 4711, python3"; empty where the system does not tell."""
    with suppress(OSError):
        inodes = {f"socket:[{inode}]" for inode in _inodes(port)}
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if any(str(each.readlink()) in inodes for each in (path / "fd").iterdir()):
                    return f"process {path.name}, {(path / 'comm').read_text().strip()}"
    return ""


def _inodes(port: int) -> Iterable[str]:
    """List the sockets that listen on a port, by the numbers under which processes hold them."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                    yield words[9]
