"""From what the facade answers to what the page draws and says: one look at a job."""

from __future__ import annotations

from datetime import datetime

from markupsafe import Markup

from poise.errors import InvalidSpec
from poise.jobs.entries import Planned
from poise.jobs.what_if import WhatIf
from poise.serve.facade import JobsApi
from poise.serve.page.pictures.lanes import draw_lanes
from poise.serve.page.pictures.of_items import lanes_of
from poise.serve.page.pictures.of_shares import shares_of
from poise.serve.page.pictures.of_split import splits_of
from poise.serve.page.pictures.plan_text import LoadChange, PlanLine, PlanText, plan_lines
from poise.serve.page.pictures.seen import Look
from poise.serve.page.pictures.shares import draw_shares
from poise.serve.page.pictures.split import draw_splits
from poise.serve.page.pictures.story import draw_story

__all__ = ["LoadChange", "Look", "PlanLine", "PlanText", "draw_story", "look", "picture", "plan_lines"]


def look(api: JobsApi, kind: str, name: str, what_if: WhatIf | None, now: datetime) -> Look:
    """Read a job once, for all that its page shows; a what-if that is impossible is told, not raised."""
    seen = api.still(kind, name)
    stored = seen.get(kind, name)
    planned, refused = _plan(seen, kind, name, what_if)
    return Look(
        kind=kind,
        name=name,
        stored=stored,
        summary=seen.summary(kind, name),
        items=seen.items(kind, name, member=None, state=None),
        members=seen.members(kind, name),
        planned=planned,
        refused=refused,
        what_if=what_if,
        now=now,
    )


def _plan(api: JobsApi, kind: str, name: str, what_if: WhatIf | None) -> tuple[Planned | None, str]:
    try:
        return api.plan(kind, name, what_if), ""
    except InvalidSpec as fault:
        return None, str(fault)


def picture(seen: Look) -> Markup:
    """Draw the signature picture of a kind."""
    match seen.kind:
        case "ReplicaDivision":
            return draw_shares(shares_of(seen))
        case "CapacitySplit":
            return draw_splits(splits_of(seen))
        case _:
            return draw_lanes(lanes_of(seen))
