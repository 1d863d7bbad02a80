"""Reading a journal to its end, a page at a time."""

from __future__ import annotations

from collections.abc import Iterator

from poise.model.ownership import Line
from poise.stores.base import Store

PAGE = 1000


def read_journal(store: Store, name: str, item: str | None = None) -> Iterator[Line]:
    """Read every line of a set, or of one of its items."""
    after = 0
    while page := store.journal(name, item, after, PAGE):
        yield from page
        after = page[-1].number
