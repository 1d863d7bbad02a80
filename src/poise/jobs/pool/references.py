"""Credentials by reference: `{env: NAME}` and `{file: PATH}`, looked up at delivery and kept nowhere."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from poise.errors import PoiseError

_KEY = secrets.token_bytes(32)  # A digest of credentials must mean nothing outside of this process.
_BYTES_MAX = 65_536


class Unresolved(PoiseError):
    """A credential is not where its reference says. Put it there; delivery goes on by itself."""


def as_reference(value: object) -> tuple[str, str] | None:
    """Tell whether a value only names where a credential is kept, and where."""
    if isinstance(value, dict) and len(value) == 1:
        ((kind, place),) = value.items()
        if kind in ("env", "file") and isinstance(place, str) and place:
            return kind, place
        if kind == "secret" and place:
            return kind, str(place)
    return None


def references(value: object) -> Iterator[tuple[str, str]]:
    """Find every reference inside a value."""
    found = as_reference(value)
    if found is not None:
        yield found
    elif isinstance(value, dict):
        for entry in value.values():
            yield from references(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from references(entry)


def resolve(value: object) -> object:
    """Put credentials in the place of their references; what comes out is for the wire only."""
    found = as_reference(value)
    if found is not None:
        return look_up(*found)
    if isinstance(value, dict):
        return {key: resolve(entry) for key, entry in value.items()}
    return [resolve(entry) for entry in value] if isinstance(value, list) else value


def look_up(kind: str, place: str) -> str:
    """Read one credential; an error names the place, never the content."""
    if kind == "env":
        found = os.environ.get(place)
        if found is None:
            raise Unresolved(f"credential: the environment variable {place} is not set")
        return found
    if kind == "file":
        try:
            with Path(place).open("rb") as file:
                return file.read(_BYTES_MAX).decode().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise Unresolved(f"credential: the file {place} cannot be read: {reason}") from None
    raise Unresolved("credential: a Secret is known on Kubernetes only: give {env: NAME} or {file: PATH}")


def seal(found: frozenset[tuple[str, str]]) -> str:
    """Digest what references lead to now, with a key of this process: another digest means a changed credential."""
    digest = blake2b(key=_KEY, digest_size=16)
    for kind, place in sorted(found):
        digest.update(f"{kind}\0{place}\0{look_up(kind, place)}\0".encode())
    return digest.hexdigest()
