"""Open mappings: what goes to a collector as it is. Any JSON value, except a credential that is written out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import isfinite

from poise.documents.faults import Faults, at_key
from poise.documents.yaml_values import DEPTH_MAX

_WHOLE_MIN, _WHOLE_MAX = -(2**63), 2**64 - 1
_SECRET_ENDINGS = ("password", "passwd", "passphrase", "secret", "token", "apikey", "privatekey", "credentials")
_ENDING_MAX = 32  # Only the end of a key counts, so the cache below stays small.
_REFERENCES = ({"env"}, {"file"}, {"secret"})
_NO_SECRETS = "expected a reference, {env: NAME} or {file: PATH}: a credential is never stored"


def check_open(value: Mapping[str, object], path: str, faults: Faults) -> None:
    """Note numbers that JSON cannot hold, nesting without end, and credentials that are no references."""
    waiting: list[tuple[object, tuple[str | int, ...]]] = [(value, ())]
    while waiting:
        held, keys = waiting.pop()
        if len(keys) > DEPTH_MAX:
            faults.rule(_rendered(path, keys), f"nested more than {DEPTH_MAX} levels deep")
        elif isinstance(held, dict):
            for key, entry in held.items():
                if _is_secret(key[-_ENDING_MAX:]):
                    if not _is_reference(entry):
                        faults.rule(_rendered(path, (*keys, key)), _NO_SECRETS)
                elif not isinstance(entry, str | bool | None):
                    waiting.append((entry, (*keys, key)))
        elif isinstance(held, list):
            waiting.extend((entry, (*keys, place)) for place, entry in enumerate(held))
        elif isinstance(held, int | float):
            _check_number(held, path, keys, faults)


def _rendered(path: str, keys: tuple[str | int, ...]) -> str:
    """Write a path out, which only a fault needs."""
    for key in keys:
        path = f"{path}[{key}]" if isinstance(key, int) else at_key(path, key)
    return path


@lru_cache(maxsize=1024)
def _is_secret(ending: str) -> bool:
    return ending.lower().replace("-", "").replace("_", "").endswith(_SECRET_ENDINGS)


def _is_reference(value: object) -> bool:
    """Tell whether a value names where a credential is kept; the value itself is never shown."""
    if not isinstance(value, dict):
        return value is None
    return set(value) in _REFERENCES and all(isinstance(entry, str | dict) and entry for entry in value.values())


def _check_number(value: float, path: str, keys: tuple[str | int, ...], faults: Faults) -> None:
    if isinstance(value, float) and not isfinite(value):
        faults.rule(_rendered(path, keys), f"expected a finite number, got {value}")
    if isinstance(value, int) and not _WHOLE_MIN <= value <= _WHOLE_MAX:
        faults.rule(_rendered(path, keys), "expected a whole number of at most 64 bits")
