"""One server: its share of the jobs and the API, from one store, until it is told to end."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from starlette.routing import BaseRoute

from poise import clock
from poise.decide.partition_values import PartitionPlan, StepKind
from poise.jobs.coordinator import Cycle
from poise.jobs.series import Sampler
from poise.jobs.servers import JobServer
from poise.jobs.stored import put_document
from poise.model import Document
from poise.serve.app import make_app
from poise.serve.facade import JobsApi
from poise.serve.jobs_api import StoreJobs
from poise.serve.metrics import Metrics
from poise.serve.page.visiting import Strip
from poise.serve.running import serve
from poise.serve.settings import ServeSettings
from poise.serve.whereabouts import Whereabouts
from poise.stores.base import Store

_COLLECT_AFTER = 50_000  # So many new values that could be part of a cycle, before the collector looks; 700 is usual.


class Extras(NamedTuple):
    """What a server shows beside its page: further routes, and a strip on top."""

    pages: Sequence[BaseRoute] = ()
    strip: Strip | None = None


async def run_server(
    store: Store,
    name: str,
    documents: Sequence[Document],
    settings: ServeSettings,
    sockets: list[socket.socket],
    ended: asyncio.Event,
    started: Callable[[], None],
    extras: Callable[[JobsApi], Extras] = lambda _api: Extras(),
    pods: ssl.SSLContext | None = None,
) -> None:
    """Write the documents, join the servers of the store, and answer; at the end hand every job over before going.

    `pods` is the TLS towards the pods of pools, where it is not the system's.
    """
    for document in documents:
        await asyncio.to_thread(put_document, store, document, clock.now())
    running: list[JobServer] = []
    whereabouts = await asyncio.to_thread(Whereabouts, store, name)
    api = StoreJobs(store, ready=lambda: bool(running) and running[0].ready, on_servers=whereabouts.take)
    metrics = Metrics(api, whereabouts.counts)
    async with JobServer(store, name, partial(_count, metrics), pods) as jobs, Sampler(store, lambda: jobs.jobs):
        running.append(jobs)
        more = extras(api)
        app = make_app(api, settings, metrics=metrics, pages=more.pages, strip=more.strip)
        started()
        await serve(app, settings, sockets, ended)


def spare_the_collector() -> None:
    """Let the collector of cycles look more seldom in a process that only serves, and never at what was there before.

    A look at a large job makes tens of thousands of values of which none is part of a cycle; with the usual number the
    collector walks over everything again and again meanwhile.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 10, 10)


def _count(metrics: Metrics, name: str, cycle: Cycle | None, seconds: float) -> None:
    """Count one cycle, and of the moves that it began those that its certificate needs."""
    if cycle is None or cycle.plan is None or not cycle.written:
        metrics.on_cycle("", name, seconds, failed=cycle is None)
        return
    job, needed = name.removeprefix(f"{cycle.kind}/"), cycle.plan.certificate.moves_min
    metrics.on_cycle(cycle.kind, job, seconds, moves_min=min(begun_by(cycle.plan, cycle.written), needed))


def begun_by(plan: PartitionPlan, written: int) -> int:
    """Count the moves that a plan has begun: releases of what stays in the set, and only those that were written.

    Guards hold back nothing but releases, so what was written beyond the other steps are releases. What is lost, or
    retired, nobody could have avoided: that is counted when it has ended.
    """
    releases = [step for step in plan.steps if step.kind is StepKind.RELEASE]
    wanted = sum(step.partition in plan.assignment for step in releases)
    return min(wanted, max(0, written - (len(plan.steps) - len(releases))))
