"""One server: its share of the jobs and the API, from one store, until it is told to end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from poise import clock
from poise.jobs.servers import JobServer
from poise.jobs.stored import put_document
from poise.model import Document
from poise.serve.app import make_app
from poise.serve.jobs_api import StoreJobs
from poise.serve.running import serve
from poise.serve.settings import ServeSettings
from poise.stores.base import Store


async def run_server(
    store: Store,
    name: str,
    documents: Sequence[Document],
    settings: ServeSettings,
    sockets: list[socket.socket],
    ended: asyncio.Event,
    started: Callable[[], None],
) -> None:
    """Write the documents, join the servers of the store, and answer; at the end hand every job over before going."""
    for document in documents:
        await asyncio.to_thread(put_document, store, document, clock.now())
    async with JobServer(store, name) as jobs:
        app = make_app(StoreJobs(store, ready=lambda: jobs.ready), settings)
        started()
        await serve(app, settings, sockets, ended)
