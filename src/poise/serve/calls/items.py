"""Items: who holds them, why, and what became of them; and a pod's targets as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Mapping

from poise.decide.explain import Explanation
from poise.jobs.entries import Told
from poise.jobs.stored import store_name
from poise.jobs.what_if import WhatIf
from poise.model.ownership import Line
from poise.serve.asking import Answer, Ask, paged, story_page
from poise.serve.bodies import read_json
from poise.serve.call import NEWEST, PAGES, Call, Listed, Members, Parameter, Shown
from poise.serve.calls.jobs import job_of
from poise.serve.facade import HttpSd, ItemView
from poise.serve.site import Site

_ITEMS = "/v1/jobs/{kind}/{name}/items"
_ITEM = f"{_ITEMS}/{{item}}"


def list_items(site: Site, ask: Ask) -> Answer:
    """List items, all or some."""
    kind, name = job_of(ask)
    found = site.api.items(kind, name, member=ask.query.get("member"), state=ask.query.get("state"))
    return Answer(value=paged(ask, found, lambda item: item.item))


def get_item(site: Site, ask: Ask) -> Answer:
    """Read one item."""
    return Answer(value=site.api.item(*job_of(ask), ask.names["item"]))


def explain_item(site: Site, ask: Ask) -> Answer:
    """Say why an item is where it is."""
    return Answer(value=site.api.explain(*job_of(ask), ask.names["item"]))


def imagine_item(site: Site, ask: Ask) -> Answer:
    """Say why an item would be where it would be."""
    job = job_of(ask)
    return Answer(value=site.api.explain(*job, ask.names["item"], read_json(ask.body, WhatIf)))


def item_history(site: Site, ask: Ask) -> Answer:
    """Tell the story of an item."""
    return _story(site, ask, ask.names["item"])


def job_history(site: Site, ask: Ask) -> Answer:
    """Tell the story of a job."""
    return _story(site, ask, None)


def _story(site: Site, ask: Ask, item: str | None) -> Answer:
    job = job_of(ask)

    def read(after: int | None, most: int, newest: bool) -> list[Line]:
        return site.api.history(*job, item, after=after, most=most, newest=newest)

    return Answer(value=story_page(ask, read))


def pod_targets(site: Site, ask: Ask) -> Answer:
    """List a pod's targets; whoever may only look is not the pod, and no sign of its life; nor is any browser."""
    speaks = ask.who.role in ("operator", "member") and not _is_browser(ask)
    return Answer(value=site.api.pod_targets(ask.names["name"], ask.names["pod"], speaks=speaks))


def _is_browser(ask: Ask) -> bool:
    """Say whether a browser asks. What it is made to get by another site would count as the pod's own word."""
    said = ask.headers
    return "sec-fetch-site" in said or said.get("user-agent", "").startswith("Mozilla/")


def _is_its_pool(its: str, names: Mapping[str, str]) -> bool:
    return its == store_name("TargetPool", names["name"])


CALLS = (
    Call(
        method="GET",
        path=_ITEMS,
        does="List items: who holds them, since when, at which epoch",
        handle=list_items,
        role="viewer",
        query=(Parameter("member", "only what this member holds"), Parameter("state", "only this state"), *PAGES),
        answers={200: Shown("a page of items", Listed(ItemView))},
        refusals=(404,),
    ),
    Call(
        method="GET",
        path=_ITEM,
        does="Who holds this item, since when, at which epoch",
        handle=get_item,
        role="viewer",
        answers={200: Shown("the item", ItemView)},
        refusals=(404,),
    ),
    Call(
        method="GET",
        path=f"{_ITEM}/explain",
        does="Why is it here, why not there, what would move it",
        handle=explain_item,
        role="viewer",
        answers={200: Shown("the explanation", Explanation | Told)},
        refusals=(404, 409),
    ),
    Call(
        method="POST",
        path=f"{_ITEM}/explain",
        does="Why would it be where a what-if takes it; nothing is changed",
        handle=imagine_item,
        role="viewer",
        body=WhatIf,
        answers={200: Shown("the explanation", Explanation | Told)},
        refusals=(404, 409),
    ),
    Call(
        method="GET",
        path="/v1/jobs/{kind}/{name}/history",
        does="The story of this job: every transition of every item",
        handle=job_history,
        role="viewer",
        query=(NEWEST, *PAGES),
        answers={200: Shown("a page of its journal", Listed(Line))},
        refusals=(404,),
    ),
    Call(
        method="GET",
        path=f"{_ITEM}/history",
        does="The story of this item",
        handle=item_history,
        role="viewer",
        query=(NEWEST, *PAGES),
        answers={200: Shown("a page of its journal", Listed(Line))},
        refusals=(404,),
    ),
    Call(
        method="GET",
        path="/v1/pools/{name}/pods/{pod}/targets",
        does="A pod's targets in the form of Prometheus http_sd; where pods fetch, asking is the pod's sign of life",
        handle=pod_targets,
        role="viewer",
        members=Members(_is_its_pool, "a token of `member:TargetPool/NAME` is its pods'"),
        answers={200: Shown("its targets", list[HttpSd])},
        refusals=(404,),
    ),
)
