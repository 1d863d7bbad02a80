"""From one look at a job of items to its lanes: who is drawn, how its load stands to its share, what its words are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import ceil, floor
from urllib.parse import quote

import msgspec

from poise.decide.shares import fair_shares
from poise.jobs.entries import ItemsEntry
from poise.model import PartitionSet, ShardRing
from poise.serve.facade import MemberView
from poise.serve.page.pictures.courses import FLIGHT, IMAGINED, NEXT, WAITS, Course, arcs_of, courses_of
from poise.serve.page.pictures.gathering import Gathered, gather
from poise.serve.page.pictures.ink import counted, natural, said
from poise.serve.page.pictures.lane_values import GHOSTS, NOBODY, STATES, UNOWNED, Lane, Lanes, Tile
from poise.serve.page.pictures.seen import Look
from poise.serve.page.pictures.standing import (
    DRAINING,
    GONE,
    LATE,
    READY,
    Standing,
    is_shown,
    lease_of,
    standing_of,
)

_LANES_MAX, _NOTABLE_MAX, _TILES_MAX, _ONE_ROW = 60, 24, 150, 8
_NOUNS = {"PartitionSet": ("partition", "worker"), "ShardRing": ("object", "instance"), "TargetPool": ("target", "pod")}
_BY_HASH = ("ring", "hashed")
_WORST = {GONE: 0, LATE: 1, DRAINING: 2}


class _Members(msgspec.Struct, frozen=True):
    """Everybody who is shown: how they stand, and what they hold now and by the plan."""

    views: dict[str, MemberView]
    standings: dict[str, Standing]
    loads: Mapping[str | None, int]
    after: Mapping[str | None, int]


def lanes_of(seen: Look) -> Lanes:
    """Draw a job of items from one look at it."""
    noun, who = _NOUNS[seen.kind]
    known, courses = _members(seen), courses_of(seen)
    drawn, others = _chosen(known, courses)
    unowned = any(each.member is None for each in seen.items) or any(each.source == NOBODY for each in courses)
    names = [NOBODY, *drawn] if unowned else drawn
    base = f"/jobs/{quote(seen.kind, safe='')}/{quote(seen.name, safe='')}/items"
    tones = {name: standing.tone for name, standing in known.standings.items()}
    gathered = gather(seen.items, courses, tones, names, base, seen.now)
    arcs, left_out = arcs_of(courses, set(names))
    moves = Counter(each.style for each in courses)
    return Lanes(
        about=_about(seen, gathered, moves, _present(tones, who), noun),
        noun=noun,
        lanes=[_lane(name, known, gathered, seen, base) for name in names],
        tiles=_tiles(others, known, base),
        arcs=arcs,
        counts=gathered.counts,
        moves=dict(moves),
        each=gathered.each,
        scale=max([1, *(_most(known, name) for name in known.views)]),
        notes=_notes(left_out, others, who),
        teach=_teach(seen, bool(known.views), noun, who),
    )


def _members(seen: Look) -> _Members:
    loads = Counter(each.member for each in seen.items)
    views = {each.name: each for each in seen.members if is_shown(each)}
    added = seen.what_if.add if seen.what_if is not None and seen.planned is not None else []
    views |= {name: MemberView(name=name, state="imagined") for name in added if name not in views}
    # An owner of whom nothing is known is gone, and shown as long as it owns anything.
    views |= {name: MemberView(name=name, state="gone") for name in loads if name is not None and name not in views}
    views = {name: views[name] for name in sorted(views, key=natural)}
    lease_s = lease_of(seen.stored.document)
    standings = {name: standing_of(view, loads[name], lease_s, seen.now, seen.what_if) for name, view in views.items()}
    entry = seen.planned.entry if seen.planned is not None and seen.what_if is not None else None
    if not isinstance(entry, ItemsEntry):
        return _Members(views, standings, loads, loads)
    return _Members(_with_shares(views, seen, entry), standings, loads, Counter(entry.assignment.values()))


def _with_shares(views: Mapping[str, MemberView], seen: Look, entry: ItemsEntry) -> dict[str, MemberView]:
    """Give everybody the share that a what-if would leave them: those who share are those whose load is planned."""
    assert seen.planned is not None
    assert seen.planned.view is not None, "a plan of items says how to show it"
    if seen.planned.view.policy in _BY_HASH:
        return {name: msgspec.structs.replace(view, floor=None, ceiling=None) for name, view in views.items()}
    takers = [name for name in entry.loads if name in views]
    weights = _weights(takers, views, seen)
    kept = 0 if seen.kind == "PartitionSet" else sum(who not in entry.loads for who in entry.assignment.values() if who)
    shares = fair_shares(
        len(entry.assignment) - kept, weights, [0] * len(takers), [views[name].capacity for name in takers]
    )
    bounds = {name: (floor(share), ceil(share)) for name, share in zip(takers, shares.fractions(), strict=True)}
    return {
        name: msgspec.structs.replace(view, floor=bounds.get(name, (0, 0))[0], ceiling=bounds.get(name, (0, 0))[1])
        for name, view in views.items()
    }


def _weights(takers: list[str], views: Mapping[str, MemberView], seen: Look) -> list[int]:
    """Read the weights of a what-if; all of weight 0 is no wish at all: all are equal."""
    document, asked = seen.stored.document, seen.what_if.weights if seen.what_if is not None else {}
    listed = document.spec.weights if isinstance(document, PartitionSet) else {}
    weights = [asked.get(name, listed.get(name, views[name].weight)) for name in takers]
    return weights if any(weights) else [1] * len(weights)


def _chosen(known: _Members, courses: list[Course]) -> tuple[list[str], list[str]]:
    """Give everybody a lane, or where they are many those of whom there is something to say.

    Those come first where lanes fill more than a row, so that arcs stay short; otherwise names alone decide.
    """
    names = list(known.views)
    if len(names) <= _ONE_ROW:
        return names, []
    busy = {each.source for each in courses} | {each.target for each in courses}
    notable = [name for name in names if known.standings[name].tone != READY or name in busy or _is_off(known, name)]
    first = set(notable)
    if len(names) <= _LANES_MAX:
        return notable + [name for name in names if name not in first], []
    worst = set(sorted(notable, key=lambda name: _WORST.get(known.standings[name].tone, 3))[:_NOTABLE_MAX])
    return [name for name in notable if name in worst], [name for name in names if name not in worst]


def _is_off(known: _Members, name: str) -> bool:
    view, load = known.views[name], known.after[name]
    return view.floor is not None and view.ceiling is not None and not view.floor <= load <= view.ceiling


def _most(known: _Members, name: str) -> int:
    return max(known.loads[name], known.after[name], known.views[name].ceiling or 0)


def _lane(name: str, known: _Members, gathered: Gathered, seen: Look, base: str) -> Lane:
    if name == NOBODY:
        return _no_owner(seen, known, gathered, base)
    view, standing, load = known.views[name], known.standings[name], known.loads[name]
    imagining = seen.what_if is not None and seen.planned is not None
    return Lane(
        name=name,
        tone=standing.tone,
        words=standing.words,
        held=_held(load, known.after[name] if imagining else load),
        share=_share(view),
        load=load,
        after=known.after[name] if imagining and known.after[name] != load else None,
        floor=view.floor,
        ceiling=view.ceiling,
        href=f"{base}?member={quote(name, safe='')}",
        cells=gathered.cells[name],
    )


def _held(load: int, after: int) -> str:
    """Say what a member holds: `13 held`, or `13 → 11 held` by a what-if."""
    return f"{load:,} held" if load == after else f"{load:,} → {after:,} held"


def _share(view: MemberView) -> str:
    """Say what a member should hold: `share 10 or 11`; nothing of one that takes nothing."""
    if view.floor is None or view.ceiling is None:
        return f"room for {view.capacity:,}" if view.capacity is not None else ""
    if view.floor == view.ceiling:
        return f"share {view.floor:,}" if view.floor else ""
    return f"share {view.floor:,} or {view.ceiling:,}"


def _no_owner(seen: Look, known: _Members, gathered: Gathered, base: str) -> Lane:
    """Make the lane of what nobody holds: it is never silently so, and comes first."""
    reasons = Counter(each.reason or "not planned yet" for each in seen.items if each.member is None)
    number = known.loads[None]
    words = said(reasons.most_common(1)[0][0]) if reasons else ""
    return Lane(
        name=NOBODY,
        tone=UNOWNED,
        label="No owner",
        words=words,
        held=counted(number, _NOUNS[seen.kind][0]),
        load=number,
        href=f"{base}?state=Unassigned",
        cells=gathered.cells[NOBODY],
    )


def _tiles(names: list[str], known: _Members, base: str) -> list[Tile]:
    """Show the others by their load alone; very many that hold as much share a tile."""
    if len(names) <= _TILES_MAX:
        return [_tile(name, known, base) for name in names]
    groups = Counter((known.loads[name], known.standings[name].tone) for name in names)
    return [
        Tile(title=f"{counted(count, 'member')} hold {load:,} each", load=load, tone=tone, count=count)
        for (load, tone), count in sorted(groups.items())
    ]


def _tile(name: str, known: _Members, base: str) -> Tile:
    standing, load = known.standings[name], known.loads[name]
    words = [_held(load, known.after[name]), _share(known.views[name]), standing.words]
    return Tile(
        title=f"{said(name)}: {', '.join(filter(None, words))}",
        load=load,
        tone=standing.tone,
        href=f"{base}?member={quote(name, safe='')}",
    )


def _present(tones: Mapping[str, str], who: str) -> str:
    """Count the members, and those who are there where some are not: `5 of 6 workers`."""
    gone = sum(tone == GONE for tone in tones.values())
    told = counted(len(tones), who)
    return f"{len(tones) - gone:,} of {told}" if gone else told


def _about(seen: Look, gathered: Gathered, moves: Mapping[str, int], members: str, noun: str) -> str:
    """Say the picture in one sentence for those who do not see it."""
    states = [
        f"{gathered.counts[state]:,} {STATES[state]}"
        for state in STATES
        if state not in GHOSTS and gathered.counts.get(state)
    ]
    words = {FLIGHT: "in flight", NEXT: "about to start", WAITS: "waiting", IMAGINED: "imagined by the what-if"}
    told = [f"{counted(moves[style], 'move')} {text}" for style, text in words.items() if moves.get(style)]
    parts = [f"{counted(len(seen.items), noun)} on {members}", *states, *told]
    return f"{said(seen.name)}: {'; '.join(parts)}."


def _notes(left_out: int, others: list[str], who: str) -> list[str]:
    notes = [f"{counted(left_out, 'move')} not drawn: the plan lists them."] if left_out > 0 else []
    if others:
        notes.append(f"{counted(len(others), 'more ' + who)} as small boxes: their load is all there is to say.")
    return notes


def _teach(seen: Look, peopled: bool, noun: str, who: str) -> list[str]:
    """Where there is nothing to draw, say what is missing and the command that brings it: a sentence, a command."""
    name = said(seen.name)
    if isinstance(seen.stored.document, ShardRing) and seen.stored.document.spec.resources:
        return _teach_cluster(seen, peopled, name)
    if not peopled:
        command = f"poise worker {name} -- COMMAND" if seen.kind != "TargetPool" else f"poise apply {name}.yaml"
        how = "Start one" if seen.kind != "TargetPool" else "Name pods under spec.pods of its document, and apply it"
        return [f"No {who} has come yet, so nobody holds anything. {how}:", command]
    if not seen.items:
        return [
            f"There is no {noun} yet, so there is nothing to hold. Name some in its document, and apply it:",
            f"poise apply {name}.yaml",
        ]
    return []


def _teach_cluster(seen: Look, peopled: bool, name: str) -> list[str]:
    """Say what is missing to a ring of a cluster, and where to look."""
    if not peopled:
        told = "No instance has come yet, so nobody holds anything. Start one, and see its Lease:"
        return [told, "kubectl get leases"]
    if not seen.items:
        return ["No object of its resources is there yet. What the operator sees:", f"poise get --kube {name}"]
    return []
