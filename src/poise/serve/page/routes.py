"""The addresses of the page: who may look, who may act, and every refusal in the same clothes."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable
from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from poise.errors import PoiseError
from poise.serve.asking import Who
from poise.serve.guard import WHO, shown_path
from poise.serve.leading_back import HOME, LOGIN, own_path
from poise.serve.page.static_files import serve_static
from poise.serve.page.visiting import FORM, Parts, Strip, Visit, admit, error_page, login_page, read_visit
from poise.serve.problems import problem_response, refusal_of
from poise.serve.site import Site

Show = Callable[[Parts, Visit], Response]
_JOB = "/jobs/{kind}/{name}"
_API = ("/v1/", "/static/", "/openapi.json", "/metrics", "/livez", "/readyz", "/version", "/logout")
_log = logging.getLogger("poise.requests")


def page_routes(site: Site, strip: Strip | None = None) -> list[BaseRoute]:
    """Make the routes of the page; `strip` is drawn on top of the overview and of every job."""
    from_parts = partial(_endpoint, Parts(site, strip))
    return [
        Route("/", from_parts(_overview)),
        Route("/events", from_parts(_events)),
        Route(LOGIN, from_parts(_login, open_to_all=True)),
        Route(_JOB, from_parts(_job)),
        Route(_JOB, from_parts(_act, acting=True), methods=["POST"]),
        Route(f"{_JOB}/items", from_parts(_items)),
        Route(f"{_JOB}/items/{{item}}", from_parts(_item)),
        Route("/static/{path:path}", serve_static),
    ]


# What draws is imported by the first visit: a server must answer heartbeats before it can draw.


def _overview(parts: Parts, visit: Visit) -> Response:
    from poise.serve.page.overview import show_overview

    return show_overview(parts, visit)


def _events(parts: Parts, visit: Visit) -> Response:
    from poise.serve.page.overview import show_events

    return show_events(parts, visit)


def _job(parts: Parts, visit: Visit) -> Response:
    from poise.serve.page.job_page import show_job

    return show_job(parts, visit)


def _act(parts: Parts, visit: Visit) -> Response:
    from poise.serve.page.job_page import act_on_job

    done = act_on_job(parts, visit)
    _log.info("page.acted who=%s path=%s status=%d", visit.who.name, visit.path[:200], done.status_code)
    return done


def _items(parts: Parts, visit: Visit) -> Response:
    from poise.serve.page.item_pages import show_items

    return show_items(parts, visit)


def _item(parts: Parts, visit: Visit) -> Response:
    from poise.serve.page.item_pages import show_item

    return show_item(parts, visit)


def _login(parts: Parts, visit: Visit) -> Response:
    back = own_path(visit.one("back"))
    return RedirectResponse(back, 303) if visit.who.role != "none" else login_page(parts, visit.who, back, "", 200)


def _endpoint(
    parts: Parts, show: Show, *, acting: bool = False, open_to_all: bool = False
) -> Callable[[Request], Awaitable[Response]]:
    """Make the endpoint of a page: it is written in a thread, and whatever goes wrong becomes a page too."""

    async def visited(request: Request) -> Response:
        try:
            visit = await read_visit(parts.site, request)
            if not open_to_all:
                admit(visit, acting=acting)
            return await parts.site.lanes["asks"].run(partial(show, parts, visit))
        except Exception as error:
            if not isinstance(error, HTTPException | PoiseError):
                trace = "".join(traceback.format_exception(error))
                _log.error("page.fault method=%s path=%s\n%s", request.method, shown_path(request.scope), trace)
            return page_of_error(parts, request, error)

    return visited


def page_of_error(parts: Parts, request: Request, error: Exception) -> Response:
    """Write the page of a refusal."""
    who = request.scope[WHO]
    assert isinstance(who, Who), "the guard says who asks"
    scope = request.scope
    return error_page(parts, who, request.headers, scope["path"], scope["query_string"].decode("latin-1"), error)


def page_or_problem(site: Site) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Make the answer to refusals outside of pages: people get a page, programs a problem."""
    parts = Parts(site)

    async def on_error(request: Request, error: Exception) -> Response:
        if request.scope["path"] == LOGIN and _sent_form(request):
            refused, back = refusal_of(error), request.query_params.get("back", HOME)
            return login_page(parts, request.scope[WHO], back, refused.detail, refused.status_code)
        if _is_for_people(request):
            return page_of_error(parts, request, error)
        return problem_response(error)

    return on_error


def _sent_form(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM


def _is_for_people(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "") and not request.scope["path"].startswith(_API)
