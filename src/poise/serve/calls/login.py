"""The page's way in: a token becomes a cookie that scripts cannot read and other sites cannot send."""

from __future__ import annotations

from typing import Annotated, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta

from poise.errors import invalid
from poise.serve.asking import Answer, Ask
from poise.serve.bodies import Nothing, read_json
from poise.serve.call import Call, Parameter, Shown
from poise.serve.door import COOKIE
from poise.serve.leading_back import HOME, own_path
from poise.serve.site import Site

Shape = TypeVar("Shape")
FORM = "application/x-www-form-urlencoded"


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the page sends; a form of the same field is taken too, so that it works without scripts."""

    token: Annotated[str, Meta(min_length=1, max_length=1024)]


def log_in(site: Site, ask: Ask) -> Answer:
    """Make a session."""
    value = site.door.log_in(_said(ask, Login).token.strip())
    return _answer(ask, value, int(site.settings.session_s), own_path(ask.query.get("back", HOME)))


def log_out(site: Site, ask: Ask) -> Answer:
    """End a session."""
    _said(ask, Nothing)
    site.door.log_out(ask.headers.get("cookie", ""))
    return _answer(ask, "", 0, HOME)


def _said(ask: Ask, shape: type[Shape]) -> Shape:
    """Read a body of JSON, or a form of the same fields."""
    if not _is_form(ask):
        return read_json(ask.body or b"{}", shape)
    try:
        fields = parse_qsl(ask.body.decode(), keep_blank_values=True, strict_parsing=bool(ask.body), max_num_fields=10)
    except ValueError:
        raise invalid("$", "expected a form") from None
    return read_json(msgspec.json.encode(dict(fields)), shape)


def _answer(ask: Ask, value: str, age_s: int, back: str) -> Answer:
    """Set the cookie; a browser that sent a form is led to the page that it came for."""
    secure = "; Secure" if ask.secure else ""
    cookie = f"{COOKIE}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}"
    if _is_form(ask):
        return Answer(status=303, value=b"", headers={"Set-Cookie": cookie, "Location": back}, media="text/plain")
    return Answer(status=204, headers={"Set-Cookie": cookie})


def _is_form(ask: Ask) -> bool:
    return ask.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM


_ANSWERS = {
    204: Shown("done", headers=("Set-Cookie",)),
    303: Shown("done, by a form: go to the page", headers=("Set-Cookie", "Location")),
}
CALLS = (
    Call(
        method="POST",
        path="/login",
        does="Log in with a token: the answer sets a cookie",
        handle=log_in,
        role="open",
        query=(Parameter("back", "the path of this server that a form leads to; anything else leads to the overview"),),
        body=Login,
        body_media=("application/json", FORM),
        answers=_ANSWERS,
        refusals=(401,),
        lane="loop",
    ),
    Call(
        method="POST",
        path="/logout",
        does="End the session of the cookie",
        handle=log_out,
        role="open",
        body=Nothing,
        body_needed=False,
        body_media=("application/json", FORM),
        answers=_ANSWERS,
        lane="loop",
    ),
)
