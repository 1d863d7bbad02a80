"""A run as one page: self-contained, without scripts, and readable without colours."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from poise.sim.findings import columns, finding, notes, title
from poise.sim.plots import (
    MEMBERS_SHOWN_MAX,
    error_chart,
    load_panels,
    move_panels,
    moves_per_place,
    name_tag,
    share_rows,
    sum_chart,
)
from poise.sim.replay import Happening, Replay
from poise.sim.summary import Summary, summarise

EVENTS_SHOWN_MAX = 500

# Nothing may be fetched and nothing may run: the page says so itself, and the browser holds it to that.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def report(replay: Replay) -> str:
    """Write the page."""
    summary = summarise(replay)
    heading = escape(f"{replay.kind} {replay.name}")
    style = files("poise.sim").joinpath("report.css").read_text(encoding="utf-8")
    sections = [
        _results(replay, summary),
        _loads(replay),
        *([_moves(replay)] if replay.happenings else []),
        # The areas of the loads of items say this already; totals of a fleet drift, and that is best seen as lines.
        *([_errors(replay)] if replay.moves_max is not None else []),
        _shares(replay),
        *([_events(replay)] if replay.happenings else []),
        _meanings(replay),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{heading}: a simulation</title>\n<style>\n{style}</style></head>\n<body><main>\n"
        f"<header><h1>{heading}</h1><p>{escape(setting(replay))}</p>"
        f'<p class="finding">{escape(finding(summary))}</p></header>\n'
        + "\n".join(sections)
        + "\n<footer>Made by poise simulate. The page needs no network and runs no script.</footer>\n"
        "</main></body></html>\n"
    )


def setting(replay: Replay) -> str:
    """Say what was played: how many events of which origin, and how the world grew or shrank."""
    first, last = replay.opening, (replay.happenings or [replay.opening])[-1]
    count = len(replay.happenings)
    origin = "from a script" if replay.seed is None else f"drawn with seed {replay.seed}"
    plural = "" if count == 1 else "s"
    members, things = _grown(first.members, last.members), _grown(first.things, last.things)
    return (
        f"{count:,} event{plural} {origin}, the same for every policy: "
        f"{members} {_members(replay)}, {things} {_things(replay)}"
    )


def _grown(first: int, last: int) -> str:
    return f"{first:,}" if first == last else f"{first:,} → {last:,}"


def _things(replay: Replay) -> str:
    return "items" if replay.moves_max is None else "replicas"


def _members(replay: Replay) -> str:
    return "members" if replay.moves_max is None else "clusters"


def _share(replay: Replay) -> str:
    if replay.moves_max is None:
        return "load is the floor or the ceiling of its exact share"
    return "workload has on each cluster the floor or the ceiling of its quota there"


def _section(heading: str, told: str, body: str) -> str:
    return f'<section class="card"><h2>{escape(heading)}</h2><p>{escape(told)}</p>{body}</section>'


def _results(replay: Replay, summary: Summary) -> str:
    shown = columns(summary)
    head = "".join(f"<th>{escape(column.heading)}</th>" for column in shown)
    rows = "".join(
        f"<tr><th>{name_tag(replay, name)}</th>{''.join(f'<td>{escape(c.text(each))}</td>' for c in shown)}</tr>"
        for name, each in summary.policies.items()
    )
    said = "".join(f"<li>{escape(note)}</li>" for note in notes(summary))
    return (
        '<section class="card"><h2>Results</h2><div class="wide"><table>'
        f"<thead><tr><th>policy</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        f"{f'<ul>{said}</ul>' if said else ''}</section>"
    )


def _loads(replay: Replay) -> str:
    if replay.even:
        told = f"Area: from the smallest to the largest number of {_things(replay)}. Line: the mean. Across: events."
    else:
        told = "Area: from the smallest to the largest load minus exact share. Line: the exact share. Across: events."
    return _section("Load over time", told, f'<div class="panels">{load_panels(replay)}</div>')


def _moves(replay: Replay) -> str:
    each = moves_per_place(replay)
    places = "each event" if each == 1 else f"each {each} events"
    told = (
        f"{_things(replay).capitalize()} moved at {places}. Solid: up to the fewest possible. Light: beyond it."
        " Strokes above: the fewest, where a policy moved less and stayed uneven. Across: events."
    )
    body = f'<div class="panels">{move_panels(replay)}</div><div class="panels one">{sum_chart(replay)}</div>'
    return _section("Moves against the minimum", told, body)


def _errors(replay: Replay) -> str:
    told = "How far the load furthest from its exact share was off, after each event. Below 1 nothing can be more even."
    return _section("Error over time", told, f'<div class="panels one">{error_chart(replay)}</div>')


def _shares(replay: Replay) -> str:
    members = len(replay.exact)
    told = "After the last event. Bars: above the exact share to the right, below it to the left."
    if members > MEMBERS_SHOWN_MAX:
        told += f" Shown: the {MEMBERS_SHOWN_MAX} of {members:,} {_members(replay)} that are furthest off."
    head = "".join(f"<th>{name_tag(replay, policy)}</th>" for policy in replay.tracks)
    table = (
        f'<div class="wide"><table class="shares"><thead><tr><th>{_members(replay)[:-1]}</th><th>exact share</th>{head}'
        f"</tr></thead><tbody>{share_rows(replay)}</tbody></table></div>"
    )
    return _section("Totals against exact shares", told, table)


def _events(replay: Replay) -> str:
    """List the events, as many as a page can bear, with what each policy moved and the fewest possible."""
    head = "".join(f"<th>{escape(title(policy))}</th>" for policy in replay.tracks)
    rows = "".join(_event(replay, place, each) for place, each in enumerate(replay.happenings[:EVENTS_SHOWN_MAX]))
    more = len(replay.happenings) - EVENTS_SHOWN_MAX
    cut = f" The first {EVENTS_SHOWN_MAX} are listed, {more:,} more are not." if more > 0 else ""
    return (
        f'<section class="card"><details><summary>Every event</summary><p>Moves made / fewest possible.{cut}</p>'
        f'<div class="wide"><table class="events"><thead><tr><th>event</th><th class="left">what happened</th>'
        f"<th>{_members(replay)}</th><th>{_things(replay)}</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        "</details></section>"
    )


def _event(replay: Replay, place: int, each: Happening) -> str:
    note = f"<small>{escape(each.note)}</small>" if each.note else ""
    ticks = [track.ticks[place] for track in replay.tracks.values()]
    cells = "".join(f"<td>{tick.moves:,} / {tick.moves_min:,}</td>" for tick in ticks)
    return (
        f'<tr><td>{place + 1:,}</td><td class="left">{escape(each.said)}{note}</td>'
        f"<td>{each.members:,}</td><td>{each.things:,}</td>{cells}</tr>"
    )


_POLICIES = {
    "sticky": "Every load is the floor or the ceiling of its share, with the fewest moves for that.",
    "hashed": "Each item at its best member with room, by names alone; bounds only the largest load, without weights.",
    "ring": "Consistent hashing with virtual nodes; a weight multiplies the tokens, and no capacity bounds a load.",
    "modulo": "Member number hash(name) mod n, without weights and capacities; for comparison.",
    "fleet": "What fits is kept; a residual goes to the clusters that are owed most over all workloads.",
    "exact": "Each workload by itself; a residual is drawn with chances equal to the fractions.",
    "weighted": "Each workload by itself; a residual is drawn by weight.",
    "name-order": "Each workload by itself; a residual goes to the first names, for comparison.",
}


def _meanings(replay: Replay) -> str:
    terms = {
        "moves": f"{_things(replay)} that had a {_members(replay)[:-1]} and have another one, or none, after the event",
        "fewest": f"the fewest moves after which every {_share(replay)}, from that policy's own last state",
        "innocent": "moves whose source neither left nor was drained in the event, and whose target did not join in it",
        "spread": "the largest load minus the smallest",
        "error": "the largest distance of a load from its exact share",
    }
    listed = {title(policy): _POLICIES[policy] for policy in replay.tracks} | terms
    rows = "".join(f"<dt>{escape(term)}</dt><dd>{escape(told)}</dd>" for term, told in listed.items())
    return f'<section class="card"><h2>What the words mean</h2><dl>{rows}</dl></section>'
