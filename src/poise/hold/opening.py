"""From what a member was given to its link: a store, the address of one, or that of a server."""

from __future__ import annotations

import asyncio

from poise.hold.http_link import HttpLink
from poise.hold.http_words import is_server
from poise.hold.link import StoreLink
from poise.stores.base import Store


async def open_link(
    where: str | Store | HttpLink, job: str, member: str, process: str, *, token: str | None
) -> StoreLink | HttpLink:
    """Make the link of one process to its set; a store that is opened here for it is closed with the link."""
    if isinstance(where, HttpLink):
        return where
    if not isinstance(where, str):
        return StoreLink(where, job, member, process)
    if is_server(where):
        return HttpLink(where, job, member, process, token=token)
    from poise.stores.open import open_store

    store = await asyncio.to_thread(open_store, where)
    return StoreLink(store, job, member, process, closes=True)
