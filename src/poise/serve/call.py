"""One row of the API: from it come the route, its checks and its place in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec
from msgspec import field

from poise.serve.asking import LIMIT, LIMIT_MAX, Answer, Ask
from poise.serve.site import Site

Role = Literal["open", "viewer", "operator", "member"]
Handle = Callable[[Site, Ask], Answer]


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of a query."""

    name: str
    does: str
    schema: dict[str, object] = field(default_factory=lambda: {"type": "string"})


class Listed(msgspec.Struct, frozen=True):
    """The answer of a list that pages."""

    of: type


class Shown(msgspec.Struct, frozen=True):
    """One answer: its meaning and its shape; a shape of None has no body."""

    does: str
    shape: object = None
    media: str = "application/json"
    headers: tuple[str, ...] = ()


class Members(msgspec.Struct, frozen=True):
    """What a member may do beside its own calls: whose set is meant is in the names of the path."""

    may: Callable[[str, Mapping[str, str]], bool]
    does: str


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """What can be asked: by which method, where, by whom, with what, and what is answered.

    `members` lets members in where their role alone would not. A `loop` call is answered by the event loop itself: it
    must neither wait nor take time.
    """

    method: str
    path: str
    does: str
    handle: Handle
    role: Role
    answers: dict[int, Shown]
    query: tuple[Parameter, ...] = ()
    body: object = None
    body_needed: bool = True
    body_media: tuple[str, ...] = ("application/json",)
    refusals: tuple[int, ...] = ()
    conditional: bool = False
    members: Members | None = None
    lane: Literal["asks", "beats", "loop"] = "asks"
    streams: bool = False


PAGES = (
    Parameter(
        "limit",
        "the most entries of one page",
        {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT},
    ),
    Parameter("continue", "what the page before said, to go on after it"),
)
NEWEST = Parameter("newest", "the newest first", {"type": "boolean", "default": False})
DRY_RUN = Parameter("dryRun", "answer with the plan, change nothing", {"type": "boolean", "default": False})
