"""The addresses of the demo: each step is one POST, answered with the page on which it can be seen."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from poise.demo.guide import Guide
from poise.demo.steps import BY_NAME
from poise.serve.asking import Who
from poise.serve.guard import WHO
from poise.serve.problems import Refused
from poise.serve.site import Site

_log = logging.getLogger("poise.demo")


def demo_routes(guide: Guide) -> list[BaseRoute]:
    """Make the routes of the demo; the guard has looked at Host and Origin before they are reached."""
    return [Route("/demo/{step}", _taker(guide), methods=["POST"])]


def _taker(guide: Guide) -> Callable[[Request], Awaitable[Response]]:
    async def take(request: Request) -> Response:
        """Take one step, and lead to where it can be seen; whoever only reads may not."""
        who = request.scope[WHO]
        assert isinstance(who, Who), "the guard says who asks"
        if who.role != "operator":
            raise Refused(401 if who.role == "none" else 403, "only an operator may take the steps of the demo")
        step = BY_NAME.get(request.path_params["step"])
        if step is None:
            raise Refused(404, f"the steps are {', '.join(BY_NAME)}")
        site = request.app.state.site
        assert isinstance(site, Site), "the application of a server has its site"
        text = await guide.take(site.lanes["asks"], step.name, back=request.query_params.get("back") == "1")
        _log.info("demo.step step=%s told=%s", step.name, text)
        return Response(f"{text}\n", 303, {"Location": step.page}, "text/plain")

    return take
