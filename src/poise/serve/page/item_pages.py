"""The items of a job: a list that pages, and the page of one item with its explanation and its story."""

from __future__ import annotations

from urllib.parse import urlencode

import msgspec
from msgspec import UNSET
from starlette.responses import Response

from poise.decide.explain import Explanation
from poise.errors import InvalidSpec, NotFound, invalid
from poise.jobs.entries import Told
from poise.jobs.sentences import lines_happened
from poise.model.ownership import GENERATION, Line
from poise.serve.facade import ItemView, JobsApi
from poise.serve.page.commands import explain_command
from poise.serve.page.job_page import job_names, job_path, owns
from poise.serve.page.looking import draw_story
from poise.serve.page.pictures.ink import natural
from poise.serve.page.rendering import path_text
from poise.serve.page.sentences import tell
from poise.serve.page.visiting import Parts, Visit, answer
from poise.serve.page.words import ITEMS, MEMBERS

_PAGE, _STORY_MAX, _TOLD_MAX, _RANKS_MAX = 100, 500, 60, 50
STATES = {
    "Assigned": "held",
    "RequestedRelease": "asked back",
    "PendingRelease": "letting go",
    "Unassigned": "no owner",
    "divided": "divided",
    "reported": "counted",
}


class Pages(msgspec.Struct, frozen=True):
    """Where a part of a list stands in the whole."""

    number: int
    count: int
    total: int
    first: int
    before: str
    after: str


def show_items(parts: Parts, visit: Visit) -> Response:
    """List the items of a job, all or those of a member or in a state; what nobody holds comes first."""
    kind, name = job_names(visit)
    member, state = visit.one("member"), visit.one("state")
    api = parts.site.api
    found = api.items(kind, name, member=member or None, state=state or None)
    found = sorted(found, key=lambda each: each.member is not None or each.counts is not UNSET)
    pages = _pages(len(found), visit.one("page"), member, state)
    facts = {
        "kind": kind,
        "name": name,
        "owns": owns(kind),
        "job_path": job_path(kind, name),
        "items": found[pages.first : pages.first + _PAGE],
        "pages": pages,
        "member": member,
        "state": state,
        "members": sorted((each.name for each in api.members(kind, name)), key=natural)[:1000],
        "states": STATES,
        "nouns": (ITEMS[kind], MEMBERS[kind]),
        "stream": urlencode({"kind": kind, "job": name}),
        "live_path": _list_path(kind, name, visit),
    }
    return answer(parts, visit, "items.html", facts)


def _list_path(kind: str, name: str, visit: Visit) -> str:
    kept = [(key, visit.one(key)) for key in ("member", "state", "page") if visit.one(key)]
    return f"{job_path(kind, name)}/items" + (f"?{urlencode(kept)}" if kept else "")


def _pages(total: int, said: str, member: str, state: str) -> Pages:
    """Cut a page out of a list; a page beyond the end is the last one."""
    if said and not (said.isascii() and said.isdigit() and len(said) < 9):
        raise invalid("?page", f"expected a whole number, got {said[:20]!r}")
    count = max(1, -(-total // _PAGE))
    number = min(max(1, int(said or "1")), count)
    kept = [(key, value) for key, value in (("member", member), ("state", state)) if value]

    def address(page: int) -> str:
        return f"?{urlencode([*kept, ('page', page)])}" if 1 <= page <= count else ""

    return Pages(number, count, total, (number - 1) * _PAGE, address(number - 1), address(number + 1))


def show_item(parts: Parts, visit: Visit) -> Response:
    """Show one item: who holds it, why here, why not there, what would move it, and its story."""
    kind, name = job_names(visit)
    item, api = visit.names["item"], parts.site.api
    view, story = _found(api, kind, name, item)
    zero = parts.newest.zero(api)
    lines = list(reversed(story))
    facts = {
        "kind": kind,
        "name": name,
        "item": item,
        "view": view,
        "state_words": STATES,
        "epoch": _epoch(view),
        "job_path": job_path(kind, name),
        "told": _explained(api, kind, name, item) if view is not None else None,
        "ranks_max": _RANKS_MAX,
        "story": draw_story(lines, visit.now, zero),
        "events": tell(lines_happened(kind, name, lines, zero), _TOLD_MAX),
        "nouns": (ITEMS[kind], MEMBERS[kind]),
        "command": explain_command(f"{kind}/{name}", item, visit.server),
        "stream": urlencode({"kind": kind, "job": name}),
        "live_path": f"{job_path(kind, name)}/items/{path_text(item)}",
    }
    return answer(parts, visit, "item.html", facts)


def _found(api: JobsApi, kind: str, name: str, item: str) -> tuple[ItemView | None, list[Line]]:
    story = api.history(kind, name, item, most=_STORY_MAX, newest=True)
    try:
        return api.item(kind, name, item), story
    except NotFound:
        if not story:
            raise
        return None, story


def _epoch(view: ItemView | None) -> str:
    """Tell an epoch as people compare it: its generation only where commits were lost."""
    if view is None or not view.epoch:
        return ""
    generation, counter = divmod(view.epoch, GENERATION)
    return f"{counter} of generation {generation}" if generation else str(counter)


def _explained(api: JobsApi, kind: str, name: str, item: str) -> Explanation | Told:
    """Explain an item; where that cannot be done, the reason is the explanation."""
    try:
        return api.explain(kind, name, item)
    except InvalidSpec as error:
        return Told(item, [str(error)])
