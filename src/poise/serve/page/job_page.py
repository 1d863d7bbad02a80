"""The page of one job: as it is, or as a what-if would have it, with what can be done and what happened last."""

from __future__ import annotations

from urllib.parse import urlencode

import msgspec
from starlette.responses import RedirectResponse, Response

from poise.errors import Conflict, NotFound
from poise.jobs.sentences import in_short, lines_happened
from poise.model import KINDS, CapacitySplit, Document, ReplicaDivision, ShardRing, TargetPool
from poise.serve.facade import JobsApi, MemberView, Stoppable
from poise.serve.page.actions import Moved, apply_wish, read_seen
from poise.serve.page.chips import LOST, chips_of, mood_of
from poise.serve.page.guards_shown import guard_lines
from poise.serve.page.looking import picture, plan_lines
from poise.serve.page.newest import Lines
from poise.serve.page.pictures.ink import natural
from poise.serve.page.pictures.seen import Look
from poise.serve.page.previews import Preview, imagine_job, preview
from poise.serve.page.rendering import path_text
from poise.serve.page.sentences import Sentence, tell
from poise.serve.page.series_shown import series_shown
from poise.serve.page.visiting import Parts, Visit, answer
from poise.serve.page.what_if import Wish, is_plain, read_wish
from poise.serve.page.words import ABOUT, ITEMS, MEMBERS, PICTURES

_MEMBERS_MAX, _EVENTS_MAX = 60, 12
_FINE = ("ready", "active")
_DRAINING_MAX = 4  # Of so many members it is asked whether they may stop; of the others their load says it.


class MemberRow(msgspec.Struct, frozen=True):
    """A member in the table: what it is, whether it may stop, and what a button would lead to."""

    view: MemberView
    wrong: bool
    stop: str
    action: str


def job_names(visit: Visit) -> tuple[str, str]:
    """Name the job of a visit."""
    kind, name = visit.names["kind"], visit.names["name"]
    if kind not in KINDS:
        raise NotFound(f"there is no kind {kind[:60]!r}; the kinds are {', '.join(KINDS)}")
    return kind, name


def owns(kind: str) -> bool:
    """Tell whether the members of a kind own their items; replicas are only counted."""
    return kind not in ("ReplicaDivision", "CapacitySplit")


def job_path(kind: str, name: str) -> str:
    """Give the address of a job's page."""
    return f"/jobs/{path_text(kind)}/{path_text(name)}"


def show_job(parts: Parts, visit: Visit) -> Response:
    """Show a job; a form's own address is led to the one that can be sent to others."""
    kind, name = job_names(visit)
    wish = read_wish(visit.pairs)
    if not is_plain(visit.pairs):
        return RedirectResponse(_address(kind, name, wish), 303)
    return _page(parts, visit, kind, name, wish)


def _address(kind: str, name: str, wish: Wish) -> str:
    return f"{job_path(kind, name)}?{wish.query}" if wish.is_any else job_path(kind, name)


def act_on_job(parts: Parts, visit: Visit) -> Response:
    """Apply what a preview showed; whoever comes too late sees the plan as it is now."""
    kind, name = job_names(visit)
    wish = read_wish(visit.pairs)
    try:
        done = apply_wish(parts.site.api, kind, name, wish, read_seen(visit.form), visit.server, visit.now)
    except (Moved, Conflict) as error:
        told = str(error) if isinstance(error, Moved) else f"nothing was done: {error}; this is the plan now"
        return _page(parts, visit, kind, name, wish, moved=told)
    return RedirectResponse(f"{job_path(kind, name)}?{urlencode({'done': done.verb})}", 303)


def _page(parts: Parts, visit: Visit, kind: str, name: str, wish: Wish, moved: str = "") -> Response:
    api = parts.site.api
    seen = imagine_job(api, kind, name, wish, visit.now)
    shown = preview(seen, wish, visit.server) if wish.is_any else None
    if shown is not None and shown.refused:
        seen = imagine_job(api, kind, name, Wish(), visit.now)
    paused = None if shown is None or shown.refused else _imagined_pause(wish)
    facts = {**_facts(seen, visit, wish, shown), **_lists(parts, seen, paused), "moved": moved, "has_strip": True}
    impossible = shown is not None and shown.refused and not visit.live
    return answer(parts, visit, "job.html", facts, 409 if moved else 400 if impossible else 200)


def _facts(seen: Look, visit: Visit, wish: Wish, shown: Preview | None) -> dict[str, object]:
    kind, name = seen.kind, seen.name
    drawn = shown is not None and not shown.refused
    return {
        "seen": seen,
        "job": seen.summary,
        "job_path": job_path(kind, name),
        "here": _address(kind, name, wish),
        "live_path": _address(kind, name, wish) if drawn else job_path(kind, name),
        "chips": chips_of(seen),
        "mood": mood_of(seen.summary),
        "about": ABOUT[kind],
        "picture_title": PICTURES[kind],
        "nouns": (ITEMS[kind], MEMBERS[kind]),
        "picture": picture(seen),
        "plan": plan_lines(seen),
        "wish": wish,
        "preview": shown,
        "drawn": drawn,
        "acts": visit.acts,
        "server": visit.server,
        "form": _form(seen.stored.document, seen.members),
        "stream": urlencode({"kind": kind, "job": name}),
        "owns": owns(kind),
    }


def _imagined_pause(wish: Wish) -> bool | None:
    """Tell what a wish makes of the pause; None: nothing."""
    return True if wish.pause else False if wish.resume else None


def _lists(parts: Parts, seen: Look, paused: bool | None) -> dict[str, object]:
    api = parts.site.api
    rows = _member_rows(api, seen)
    events, unheard = _events(parts, seen)
    return {
        "rows": rows[:_MEMBERS_MAX],
        "rows_more": max(0, len(rows) - _MEMBERS_MAX),
        "shares": any(each.floor is not None or each.quota for each in seen.members),
        "weighs": not isinstance(seen.stored.document, CapacitySplit) or bool(seen.stored.document.spec.pools),
        "guards": guard_lines(seen, paused),
        "events": events,
        "unheard": unheard,
        "series": series_shown(api.series(seen.kind, seen.name)),
    }


def _events(parts: Parts, seen: Look) -> tuple[list[Sentence], bool]:
    """Tell the last events, and whether nothing at all was ever heard."""
    api, kind, name = parts.site.api, seen.kind, seen.name
    zero = parts.newest.zero(api)

    def told(lines: Lines, *, cut: bool = True) -> list[Sentence]:
        return tell(in_short(lines_happened(kind, name, lines, zero)), _EVENTS_MAX, cut=cut)

    last = parts.newest.lines(api, kind, name, lambda lines: len(told(lines)) == _EVENTS_MAX)
    return told(last.lines, cut=last.cut), last.newest is None


def _member_rows(api: JobsApi, seen: Look) -> list[MemberRow]:
    """List members, what is wrong first; pods-2 stands before pod-10."""
    asked = 0
    rows = []
    for each in sorted(seen.members, key=lambda view: (view.state in _FINE, natural(view.name))):
        verdict = None
        if each.draining and asked < _DRAINING_MAX:
            asked += 1
            verdict = api.stoppable(seen.kind, seen.name, each.name)
        rows.append(MemberRow(each, _is_wrong(each), _may_stop(each, verdict), _action(seen, each)))
    return rows


def _is_wrong(view: MemberView) -> bool:
    return bool(view.error) or (view.state not in (*_FINE, "draining") and bool(view.load))


def _may_stop(view: MemberView, verdict: Stoppable | None) -> str:
    """Say whether a member may stop; what drains is asked for its reasons and an estimate."""
    if view.state in LOST:
        return "it is not running" if not view.load else "it is not heard of"
    if verdict is None:
        return "yes" if not view.load and not view.reserved else "no, drain it first"
    if verdict.ok:
        return "yes, it holds nothing"
    about = f" (about {verdict.estimate_s:.0f} s)" if verdict.estimate_s else ""
    return f"not yet: {', '.join(verdict.reasons)}{about}"


def _action(seen: Look, view: MemberView) -> str:
    if not owns(seen.kind):
        return ""
    if view.draining:
        return "undrain"
    return "drain" if view.state in _FINE else ""


def _form(document: Document, members: list[MemberView]) -> dict[str, object]:
    """Say which fields a what-if of this kind has, and what they offer."""
    names = sorted((each.name for each in members), key=natural)
    workloads: list[str] = []
    weighs = not (isinstance(document, ShardRing) and (document.spec.policy == "ring" or document.spec.resources))
    if isinstance(document, TargetPool):
        weighs = document.spec.policy == "sticky"
    if isinstance(document, ReplicaDivision | CapacitySplit):
        workloads = sorted((each.name for each in document.spec.workloads), key=natural)
    if isinstance(document, ReplicaDivision):
        weighs = document.spec.strategy != "DynamicWeight"
    pools = not isinstance(document, CapacitySplit) or bool(document.spec.pools)
    return {"members": names if pools else [], "workloads": workloads, "weighs": weighs and pools, "changes": pools}
