"""One visit of the page: who looks, from where, with which names and parameters; and the answer in HTML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from http import HTTPStatus

import msgspec
from markupsafe import Markup
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from poise import clock
from poise.serve.asking import Who, path_names
from poise.serve.guard import WHO
from poise.serve.leading_back import LOGIN, login_path
from poise.serve.page.commands import KUBE
from poise.serve.page.newest import Newest
from poise.serve.page.rendering import render
from poise.serve.page.what_if import read_pairs
from poise.serve.problems import Refused, refusal_of
from poise.serve.routing import Body
from poise.serve.settings import is_loopback
from poise.serve.site import Site

Strip = Callable[[], Markup]
FORM = "application/x-www-form-urlencoded"
# The server's own policy would make a browser send `Origin: null` with a form, which the guard refuses.
_HEADERS = {"Referrer-Policy": "same-origin", "Vary": "HX-Request, Cookie"}
_WORDS = {
    400: "That cannot be asked",
    401: "Please log in",
    403: "That is not allowed",
    404: "There is nothing here",
    405: "That cannot be done here",
    409: "The world has moved",
    412: "Somebody else was first",
    500: "A fault of Poise itself",
    503: "Not now",
}


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """A visit that has passed every check of its form. `live`: only the part that changes is asked for."""

    path: str
    names: Mapping[str, str]
    pairs: list[tuple[str, str]]
    who: Who
    server: str
    live: bool
    now: datetime
    form: dict[str, str] = {}

    @property
    def acts(self) -> bool:
        """Tell whether this visitor may change something."""
        return self.who.role == "operator"

    def one(self, key: str) -> str:
        """Read a parameter that counts once; the last one wins."""
        return next((value.strip() for name, value in reversed(self.pairs) if name == key), "")


class Parts(msgspec.Struct, frozen=True):
    """What every page is made from: the site, the strip that a demo puts on top, and the newest events."""

    site: Site
    strip: Strip | None = None
    newest: Newest = msgspec.field(default_factory=Newest)


async def read_visit(site: Site, request: Request) -> Visit:
    """Read a visit; the body of a form only where there is one."""
    headers, scope = request.headers, request.scope
    who = scope[WHO]
    assert isinstance(who, Who), "the guard says who asks"
    form = await _read_form(site, request) if request.method == "POST" else {}
    return Visit(
        path=scope["path"],
        names=path_names(request.path_params),
        pairs=read_pairs(scope["query_string"]),
        who=who,
        server=KUBE if site.settings.on_kubernetes else f"{site.settings.scheme}://{headers.get('host', '')}",
        live=headers.get("hx-request") == "true",
        now=clock.now(),
        form=form,
    )


async def _read_form(site: Site, request: Request) -> dict[str, str]:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != FORM:
        raise Refused(415, f"expected Content-Type: {FORM}")
    body = Body(site)
    try:
        text = await body.read(request.receive, request.headers.get("content-length", "0"))
        return dict(read_pairs(text))
    finally:
        body.free()


def admit(visit: Visit, *, acting: bool) -> None:
    """Let in who may look, and who may act; whoever is unknown is led to the login."""
    if visit.who.role == "none":
        raise Refused(401, "log in with a token to see this")
    if visit.who.role == "member":
        raise Refused(403, f"{visit.who.name} is a member's token: it is good for heartbeats only")
    if acting and not visit.acts:
        raise Refused(403, f"{visit.who.name} is a {visit.who.role}, and may look but not change anything")


def answer(parts: Parts, visit: Visit, template: str, facts: Mapping[str, object], status: int = 200) -> Response:
    """Write a page, or with `live` only its part that changes; the demo's strip comes with every look."""
    said = {**common(parts, visit.who, visit.path, visit.now), **facts, "live": visit.live}
    said["strip"] = parts.strip() if parts.strip is not None and "has_strip" in facts else None
    return HTMLResponse(render(template, said), status, _HEADERS)


def common(parts: Parts, who: Who, path: str, now: datetime) -> dict[str, object]:
    """Give what every page says: who looks, and what time it is."""
    return {
        "who": who,
        "is_open": parts.site.settings.is_open,
        "is_kube": parts.site.settings.on_kubernetes,
        "is_local": is_loopback(parts.site.settings.host),
        "path_here": path,
        "now": now,
        "stream": "",
        "strip": None,
        "live": False,
        "has_strip": False,
    }


def error_page(parts: Parts, who: Who, headers: Headers, path: str, query: str, error: Exception) -> Response:
    """Say a refusal in the clothes of the page; who is unknown goes to the login, and from there back to the page."""
    refused = refusal_of(error)
    status = refused.status_code
    live = headers.get("hx-request") == "true"
    if status == 401 and who.role == "none" and not live:
        return RedirectResponse(login_path(path, query), 303, _HEADERS)
    kept = {name: value for name, value in (refused.headers or {}).items() if name.lower() in ("retry-after", "allow")}
    facts = {
        **common(parts, who, path, clock.now()),
        "status": status,
        "title": _WORDS.get(status, HTTPStatus(status).phrase),
        "detail": refused.detail,
        "faults": [(fault.path, fault.message) for fault in refused.faults],
        "live": live,
        "login_path": login_path(path, query),
    }
    return HTMLResponse(render("error.html", facts), status, {**_HEADERS, **kept})


def login_page(parts: Parts, who: Who, back: str, refused: str, status: int) -> Response:
    """Show the login, with what was wrong with the last try, and the way back in the address of its form."""
    facts = {**common(parts, who, LOGIN, clock.now()), "refused": refused, "login_path": login_path(back)}
    return HTMLResponse(render("login.html", facts), status, _HEADERS)
