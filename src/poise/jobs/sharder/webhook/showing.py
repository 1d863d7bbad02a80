"""What a server shows to prove who it is: certificates can be replaced while it serves, and are tried before that."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from poise.errors import invalid

_TURNS_MAX = 10  # A handshake needs fewer messages.


class Shown:
    """The TLS of a server. Every handshake uses the newest certificate; before there is one, it fails at once."""

    def __init__(self) -> None:
        """Begin with none."""
        self.context = _bare()
        self.context.sni_callback = self._choose
        self._newest: ssl.SSLContext | None = None

    def use(self, newest: ssl.SSLContext) -> None:
        """Show this certificate from the next handshake on."""
        self._newest = newest

    def _choose(self, handshake: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
        # Another certificate in the same context would leave one of another kind of key in place beside it.
        if self._newest is not None:
            handshake.context = self._newest


def _bare() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def load(certificate: str, key: str) -> ssl.SSLContext:
    """Make what shows a certificate; InvalidSpec where it has no key that fits."""
    context = _bare()
    with _file(certificate) as certificate_path, _file(key) as key_path:
        try:
            # A key with a password must not make the server ask for it on the terminal.
            context.load_cert_chain(certificate_path, key_path, password=lambda: "")
        except (ssl.SSLError, OSError, ValueError) as error:
            why = getattr(error, "reason", None) or str(error)
            raise invalid("", f"it is no certificate with its key: {why}") from None
    return context


def doubts(server: ssl.SSLContext, trusted: str, name: str) -> str:
    """Say why who trusts these authorities, and calls this name, would not believe this server; empty where they would.

    Only the names of the extension count: the API server does not look at the subject any more.
    """
    try:
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.hostname_checks_common_name = False
        client.load_verify_locations(cadata=trusted)
        _shake_hands(client, server, name)
    except (ssl.SSLError, ValueError) as error:
        return getattr(error, "verify_message", None) or getattr(error, "reason", None) or str(error)
    return ""


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """Let two sides meet within this process; the one that does not believe the other raises."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(back, there, server_hostname=name), server.wrap_bio(there, back, server_side=True)]
    for _ in range(_TURNS_MAX):
        for side in list(sides):
            try:
                side.do_handshake()
                sides.remove(side)
            except ssl.SSLWantReadError:
                pass
        if not sides:
            return
    raise ssl.SSLError("the handshake does not end")


@contextmanager
def _file(text: str) -> Iterator[str]:
    """Give a text as a file, since TLS reads nothing else; where it can be, one that is on no disk."""
    if not hasattr(os, "memfd_create") or not Path("/proc/self/fd").is_dir():
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            yield file.name
        return
    number = os.memfd_create("poise-webhook")
    try:
        os.write(number, text.encode())
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)
