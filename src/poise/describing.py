"""Types described before threads read them.

msgspec describes a type when it is first read as, and two threads that do so at once end the process without a word:
the second one reads what the first has not filled in yet. So whoever starts threads describes all types before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import msgspec

_described: set[type] = set()
_turn = threading.Lock()


def describe_types() -> int:
    """Describe all types of Poise that are loaded; say how many are new. It takes milliseconds, and once only."""
    with _turn:
        fresh = {each for each in _loaded() if each not in _described}
        for each in fresh:
            with suppress(TypeError, NameError):  # Not every value is ever read from a text.
                msgspec.json.Decoder(each)
        _described.update(fresh)
        return len(fresh)


def _loaded() -> Iterator[type]:
    """Find every Struct, and every named tuple that is Poise's own."""
    waiting = [msgspec.Struct]
    while waiting:
        below = waiting.pop().__subclasses__()
        yield from below
        waiting += below
    for each in tuple.__subclasses__():
        if hasattr(each, "_fields") and each.__module__.startswith("poise."):
            yield each
