"""One server: its share of the jobs and the API, from one store, until it is told to end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import partial

from poise import clock
from poise.decide.partition_values import StepKind
from poise.jobs.coordinator import Cycle
from poise.jobs.servers import JobServer
from poise.jobs.stored import put_document
from poise.model import Document
from poise.serve.app import make_app
from poise.serve.jobs_api import StoreJobs
from poise.serve.metrics import Metrics
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
    running: list[JobServer] = []
    api = StoreJobs(store, ready=lambda: bool(running) and running[0].ready)
    metrics = Metrics(api)
    async with JobServer(store, name, partial(_count, metrics)) as jobs:
        running.append(jobs)
        app = make_app(api, settings, metrics=metrics)
        started()
        await serve(app, settings, sockets, ended)


def _count(metrics: Metrics, name: str, cycle: Cycle | None, seconds: float) -> None:
    """Count one cycle, and of the moves that it began those that its certificate needs."""
    if cycle is None or cycle.plan is None or not cycle.written:
        metrics.on_cycle("", name, seconds, failed=cycle is None)
        return
    begun = sum(step.kind in (StepKind.RELEASE, StepKind.UNASSIGN) for step in cycle.plan.steps)
    job, needed = name.removeprefix(f"{cycle.kind}/"), cycle.plan.certificate.moves_min
    metrics.on_cycle(cycle.kind, job, seconds, moves_min=min(begun, needed))
