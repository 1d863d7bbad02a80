"""The page of an operator: for looking only, and not where probes ask, since it names objects."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

import msgspec
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route

from poise import clock
from poise.describing import describe_types
from poise.errors import PoiseError
from poise.jobs.sharder.rings import Rings
from poise.jobs.sharder.snapshot import RingSnapshot
from poise.serve.beside import serve_beside
from poise.serve.calls import CALLS
from poise.serve.connections import Connection
from poise.serve.guard import Guard
from poise.serve.leading_back import LOGIN
from poise.serve.metrics import Metrics
from poise.serve.page.routes import page_or_problem, page_routes
from poise.serve.rings.ring_jobs import RingJobs
from poise.serve.rings.ring_journal import RingJournal
from poise.serve.rings.ring_views import ring_name
from poise.serve.routing import routes_of
from poise.serve.settings import ServeSettings
from poise.serve.site import Site

_LOOK_S = 1.0
_IDLE_S = 30
_log = logging.getLogger("poise.page")
_STREAMS_MAX = 50  # Every page that is looked at keeps a connection; whoever loads one must find another.


class _PageConnection(Connection):
    """A connection of somebody who looks: the loop has more to do than to show things."""

    request_s = 10.0
    connections_max = 100


class RingPage:
    """What an operator shows to people; `serve` ends what this begins."""

    def __init__(self, rings: Callable[[], Rings | None], leads: Callable[[], str], settings: ServeSettings) -> None:
        """Prepare, in the loop that owns the rings. `leads` names who leads where it is another process."""
        describe_types()  # Requests are answered by threads.
        self._rings, self._leads = rings, leads
        self._journal = RingJournal(clock.now())
        self._revisions: dict[str, int] = {}
        jobs = RingJobs(asyncio.get_running_loop(), rings, self._journal, leads)
        settings = msgspec.structs.replace(
            settings, on_kubernetes=True, request_s=9.0, streams_max=_STREAMS_MAX, ping_s=8.0
        )
        self._site = Site(jobs, settings, Metrics(jobs))
        self._page = _page_app(self._site, self._strip)
        self._site.hub.start()

    async def serve(self, sockets: list[socket.socket], ended: asyncio.Event) -> None:
        """Serve until `ended` is set, then end the threads, too."""
        noting = asyncio.create_task(self._note_on())
        try:
            await serve_beside(self._page, sockets, ended, http=_PageConnection, idle_s=_IDLE_S)
        finally:
            noting.cancel()
            await asyncio.gather(noting, return_exceptions=True)
            self._site.hub.close()
            self._site.close()

    async def _note_on(self) -> None:
        """Note what happens to the rings, until cancelled; a ring of which nothing changed costs nothing."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self._note()
            except Exception:
                _log.exception("page.unnoted")  # What is shown is not worth ending what works.

    async def _note(self) -> None:
        rings, now = self._rings(), clock.now()
        looks = [] if rings is None else rings.looks()
        self._journal.forget(ring_name(each) for each in looks)
        self._revisions = {name: number for name, number in self._revisions.items() if name in map(ring_name, looks)}
        for look in looks:
            if rings is None or look.report is None:
                continue
            name, holders = ring_name(look), None
            if self._revisions.get(name) != look.revision:
                snapshot = rings.snapshot(look.meta.key)
                holders = None if snapshot is None else await asyncio.to_thread(_holders, snapshot)
                self._revisions[name] = look.revision
            self._journal.take(name, look.report, holders, now)

    def _strip(self) -> Markup:
        leader = self._leads()
        if leader:
            told = "This process stands by and knows no ring: <b>{}</b> leads. Its own page shows them."
            return Markup(f'<p class="notice wait" id="standby">{told}</p>').format(leader)
        told = "This is the operator's own view, for looking only: rings are changed with poise --kube or kubectl."
        return Markup('<p class="quiet-text" id="read-only">{}</p>').format(told)


def _holders(snapshot: RingSnapshot) -> dict[str, tuple[str | None, int]]:
    """Say who has which key, by the labels; of several objects of one key the last one speaks."""
    return {root.key: (root.marks.shard, root.marks.epoch or 0) for root in snapshot.roots}


def _page_app(site: Site, strip: Callable[[], Markup]) -> Starlette:
    """Make the page without what changes anything, and of the API what it reads itself."""
    pages = [
        each
        for each in page_routes(site, strip)
        if isinstance(each, Route) and each.path != LOGIN and "POST" not in (each.methods or ())
    ]
    reads = [each for each in CALLS if each.method == "GET" and each.path.startswith(("/v1/jobs", "/v1/events"))]
    on_error = page_or_problem(site)
    app = Starlette(
        routes=[*pages, *routes_of(site, reads)],
        middleware=[Middleware(Guard, site=site)],
        exception_handlers={HTTPException: on_error, PoiseError: on_error},
    )
    app.router.redirect_slashes = False
    return app
