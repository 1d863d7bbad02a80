"""From one look at a ReplicaDivision to its picture: totals against exact shares, and what moves of which workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from urllib.parse import quote

from msgspec import UNSET

from poise.jobs.entries import DividedEntry, DivisionEntry
from poise.serve.page.pictures.ink import counted, natural, said
from poise.serve.page.pictures.lane_values import Cell
from poise.serve.page.pictures.plan_text import LATER, listed, sentence
from poise.serve.page.pictures.seen import Look
from poise.serve.page.pictures.share_values import Mover, Share, Shares, mixed

KEPT, MOVES, NEW, UNPLACED = "held", "releasing", "offered", "unowned"
FATES = {
    UNPLACED: "with replicas that fit nowhere",
    MOVES: "of which replicas move",
    NEW: "to be divided first",
    KEPT: "kept as they are",
}
_MOVERS_MAX, _SINGLE_MAX, _CELLS_MAX, _BYTES_MAX, _MARKUP = 8, 400, 200, 90_000, 150
_SHARES_MAX = 40


def shares_of(seen: Look) -> Shares:
    """Draw a division from one look at it."""
    entry = seen.planned.entry if seen.planned is not None else None
    divisions = entry.divisions if isinstance(entry, DivisionEntry) else {}
    before = {each.item: each.counts for each in seen.items if each.counts is not UNSET}
    fates = {name: _fate(each, before.get(name)) for name, each in divisions.items()}
    fates |= dict.fromkeys(before.keys() - fates.keys(), KEPT)
    shares = _shares(seen, entry if isinstance(entry, DivisionEntry) else None, before)
    counts = Counter(fates.values())
    base = f"/jobs/{quote(seen.kind, safe='')}/{quote(seen.name, safe='')}/items"
    cells, each_cell = _cells(fates, before, divisions, base)
    movers = [_mover(name, before.get(name, {}), divisions[name], base) for name in divisions if fates[name] != KEPT]
    imagined, teach = seen.what_if is not None and seen.planned is not None, _teach(seen, bool(shares), bool(fates))
    return Shares(
        about=_about(seen, shares, counts),
        shares=_worst_first(shares),
        cells=cells,
        counts=dict(counts),
        each=each_cell,
        movers=movers[:_MOVERS_MAX],
        more=f"… {len(movers) - _MOVERS_MAX:,} more" if len(movers) > _MOVERS_MAX else "",
        errors=[] if teach else _errors(shares, _later(seen), imagined=imagined),
        imagined=imagined,
        teach=teach,
    )


def _fate(each: DividedEntry, before: Mapping[str, int] | None) -> str:
    """Say what becomes of a workload, what is wrong first."""
    if each.unplaced:
        return UNPLACED
    if before is None:
        return NEW
    return KEPT if _present(before) == _present(each.replicas) else MOVES


def _present(counts: Mapping[str, int]) -> dict[str, int]:
    return {place: count for place, count in counts.items() if count}


def _shares(seen: Look, entry: DivisionEntry | None, before: Mapping[str, Mapping[str, int]]) -> list[Share]:
    """Put every cluster against its share; one that a what-if takes out has none."""
    now: Counter[str] = Counter()
    for counts in before.values():
        now.update(counts)
    quotas = {each.name: each.quota or "0" for each in seen.members}
    exact = {name: total.exact for name, total in entry.totals.items()} if entry is not None else quotas
    after = {name: total.replicas for name, total in entry.totals.items()} if entry is not None else dict(now)
    weights = {each.name: each.weight for each in seen.members}
    if seen.what_if is not None:
        weights |= seen.what_if.weights
    names = sorted({*exact, *weights, *_present(now)}, key=natural)
    return [
        Share(
            name=name,
            now=now[name],
            after=after.get(name, 0),
            exact=exact.get(name, "0"),
            words=_words(name, weights, seen),
            tone="imagined" if _is_imagined(name, seen) else "ready",
        )
        for name in names
    ]


def _is_imagined(name: str, seen: Look) -> bool:
    asked = seen.what_if
    return asked is not None and name in {*asked.add, *asked.remove, *asked.drain, *asked.weights}


def _words(name: str, weights: Mapping[str, int], seen: Look) -> str:
    asked = seen.what_if
    if asked is not None and name in {*asked.remove, *asked.drain}:
        return "what if: taken out"
    if asked is not None and name in asked.add:
        return "what if: joins"
    if asked is not None and name in asked.weights:
        return f"what if: weight {asked.weights[name]:,}"
    return f"weight {weights[name]:,}" if name in weights else "no longer listed"


def _worst_first(shares: list[Share]) -> list[Share]:
    """Show every cluster in the order of names, or of very many those that are furthest from their share."""
    if len(shares) <= _SHARES_MAX:
        return shares
    return sorted(shares, key=lambda each: (each.tone == "ready", -abs(each.error)))[:_SHARES_MAX]


def _later(seen: Look) -> list[str]:
    """Say what the cycles after the plan will do: an error that is left by it is not left for good."""
    notes = seen.planned.notes if seen.planned is not None else []
    return [sentence(note) for note in notes if note.startswith(LATER)]


def _errors(shares: list[Share], later: list[str], *, imagined: bool) -> list[str]:
    """Say the fleet's error: the sum of |actual − exact|, and the worst; and what the plan makes of it."""
    now, then = ({each.name: each.error for each in shares}, {each.name: each.error_after for each in shares})
    if imagined:
        first = "; so it is after the first cycle" if later else ""
        told = [f"If it were so, the fleet's error would be {_error(then)}{first}."]
    else:
        told = [f"The fleet's error now: {_error(now)}."]
        told += [f"By the plan: {_error(then)}."] if now != then else []
    told += later
    if len(shares) > _SHARES_MAX:
        left = counted(len(shares) - _SHARES_MAX, "more cluster")
        told.append(f"{left} not drawn: each of them is nearer to its share than those above.")
    return told


def _error(errors: Mapping[str, Fraction]) -> str:
    whole, worst = sum(map(abs, errors.values()), Fraction(0)), max(errors, key=lambda name: abs(errors[name]))
    if not whole:
        return "none, every cluster has exactly its share"
    return f"{mixed(whole)} in all, at worst {mixed(abs(errors[worst]))} on {said(worst)}"


def _cells(
    fates: Mapping[str, str],
    before: Mapping[str, Mapping[str, int]],
    divisions: Mapping[str, DividedEntry],
    base: str,
) -> tuple[list[Cell], int]:
    """Make a cell of every workload while they are few, then of several; what is not kept stays visible."""
    size = sum(_MARKUP + len(base) + 4 * len(name) for name in fates) * 2
    order = sorted(fates, key=lambda name: (list(FATES).index(fates[name]), natural(name)))
    if len(fates) <= _SINGLE_MAX and size <= _BYTES_MAX:
        return [_cell(name, fates[name], before, divisions, base) for name in order], 1
    each = 10 ** len(str(len(fates) // _CELLS_MAX))
    cells = []
    for fate, number in sorted(Counter(fates.values()).items(), key=lambda one: list(FATES).index(one[0])):
        full, rest = divmod(number, each)
        title = f"{counted(number, 'workload')} {FATES[fate]}; a full cell is {each:,}"
        cells += [Cell(fate, title, base, count=each, full=each)] * full
        cells += [Cell(fate, title, base, count=rest, full=each)] if rest else []
    return cells, each


def _cell(
    name: str, fate: str, before: Mapping[str, Mapping[str, int]], divisions: Mapping[str, DividedEntry], base: str
) -> Cell:
    now = listed(_present(before.get(name, {}))) or "nothing yet"
    then = f" → {listed(_present(divisions[name].replicas))}" if fate != KEPT else ""
    return Cell(fate, f"{said(name)}: {said(now + then)}", f"{base}/{quote(name, safe='')}", name)


def _mover(name: str, before: Mapping[str, int], each: DividedEntry, base: str) -> Mover:
    changes = {
        place: (before.get(place, 0), each.replicas.get(place, 0))
        for place in sorted({*before, *each.replicas}, key=natural)
        if before.get(place, 0) != each.replicas.get(place, 0)
    }
    text = ", ".join(f"{said(place)} {earlier} → {later}" for place, (earlier, later) in changes.items())
    unplaced = f"{each.unplaced} fit nowhere" if each.unplaced else ""
    told = "; ".join(part for part in (text, unplaced) if part)
    return Mover(name=name, href=f"{base}/{quote(name, safe='')}", text=told)


def _about(seen: Look, shares: list[Share], counts: Mapping[str, int]) -> str:
    """Say the picture in words."""
    fates = [f"{counts[fate]:,} {words}" for fate, words in FATES.items() if counts.get(fate)]
    clusters = [f"{said(each.name)} has {each.now:,} of {mixed(Fraction(each.exact))}" for each in shares[:12]]
    more = [f"and {len(shares) - 12:,} more clusters"] if len(shares) > 12 else []
    workloads = counted(sum(counts.values()), "workload")
    return (
        f"{said(seen.name)}: {workloads} on {counted(len(shares), 'cluster')}; {'; '.join([*fates, *clusters, *more])}."
    )


def _teach(seen: Look, clustered: bool, loaded: bool) -> list[str]:
    if clustered and loaded:
        return []
    what = "cluster" if not clustered else "workload"
    sentence = f"There is no {what} yet, so there is nothing to divide. Name some under spec.{what}s, and apply it:"
    return [sentence, f"poise apply {said(seen.name)}.yaml"]
