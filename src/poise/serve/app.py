"""The application: every row of the API and the page, all behind the guard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from poise.describing import describe_types
from poise.errors import PoiseError
from poise.serve.calls import CALLS
from poise.serve.facade import JobsApi
from poise.serve.guard import Guard
from poise.serve.metrics import Metrics
from poise.serve.openapi import describe
from poise.serve.page.routes import page_or_problem, page_routes
from poise.serve.page.visiting import Strip
from poise.serve.routing import routes_of
from poise.serve.settings import ServeSettings
from poise.serve.site import Site


def make_app(
    api: JobsApi,
    settings: ServeSettings,
    *,
    metrics: Metrics | None = None,
    pages: Sequence[BaseRoute] = (),
    strip: Strip | None = None,
) -> Starlette:
    """Make the application of one server. `pages` are further routes, which the guard protects alike.

    Whoever runs job loops gives the metrics that they count in; `app.state.site` has all the parts. `strip` is drawn
    on top of the page.
    """
    describe_types()  # Requests are answered by threads.
    site = Site(api, settings, metrics or Metrics(api))
    # Made when somebody asks: it takes longer than the rest of the start.
    site.description = cache(lambda: msgspec.json.encode(describe(CALLS)))

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        site.hub.start()
        try:
            yield
        finally:
            site.hub.close()
            site.close()

    on_error = page_or_problem(site)
    app = Starlette(
        # The page comes before the API: it shows the login at the address at which the API takes it.
        routes=[*pages, *page_routes(site, strip), *routes_of(site, CALLS)],
        middleware=[Middleware(Guard, site=site)],
        exception_handlers={HTTPException: on_error, PoiseError: on_error},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.site = site
    return app
