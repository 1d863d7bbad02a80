"""From one look at a CapacitySplit to its picture: sides against what is wanted, the next action, and why it waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import quote

from msgspec import UNSET

from poise.jobs.entries import CapacityEntry, Counts, SplitEntry, Waits
from poise.serve.page.pictures.ink import counted, natural, said, span
from poise.serve.page.pictures.plan_text import listed, sides
from poise.serve.page.pictures.seen import Look
from poise.serve.page.pictures.split_values import ACTS, SETTLED, WAITS, Side, SplitRow, Splits
from poise.serve.page.rendering import moment_text

_ROWS_MAX = 30
_SETTLED = "as it should be"
TONES = {WAITS: "wait", ACTS: "act next", SETTLED: "as they should be"}


def splits_of(seen: Look) -> Splits:
    """Draw a split from one look at it."""
    entry = seen.planned.entry if seen.planned is not None else None
    workloads = entry.workloads if isinstance(entry, CapacityEntry) else _as_counted(seen)
    base = f"/jobs/{quote(seen.kind, safe='')}/{quote(seen.name, safe='')}/items"
    rows = [_row(name, workloads[name], seen, base) for name in sorted(workloads, key=natural)]
    shown = _shown(rows)
    counts = Counter(row.tone for row in rows)
    return Splits(
        about=_about(seen, rows, counts),
        rows=shown,
        places=list(dict.fromkeys(side.name for row in rows for side in row.sides)),
        counts=dict(counts),
        notes=_notes(rows, shown),
        teach=_teach(seen) if not rows else [],
    )


def _as_counted(seen: Look) -> dict[str, SplitEntry]:
    """Where there is no plan, show what was counted, as it is."""
    found = {}
    for each in seen.items:
        if each.counts is not UNSET:
            counts = Counts(pools=each.counts)
            found[each.item] = SplitEntry(counts, counts, "none", 0, None, "there is no plan")
    return found


def _row(name: str, each: SplitEntry, seen: Look, base: str) -> SplitRow:
    now, wanted = sides(each.current), sides(each.desired)
    places = list(dict.fromkeys([*wanted, *now]))
    tone = SETTLED if each.action == "none" else WAITS if each.waits is not None else ACTS
    return SplitRow(
        name=name,
        href=f"{base}/{quote(name, safe='')}",
        tone=tone,
        sides=[Side(place, now.get(place, 0), wanted.get(place, 0)) for place in places],
        words=_words(name, now, wanted, seen),
        next=_next(each),
        why=said(_waits(each.waits, seen.now) if each.waits is not None else _reason(each)),
        title=f"{said(name)}: {listed(now)}; wanted {listed(wanted)}. {_next(each)}. {said(each.reason)}",
    )


def _words(name: str, now: Mapping[str, int], wanted: Mapping[str, int], seen: Look) -> str:
    """Say how many replicas run, and how many should where that differs."""
    runs, should = sum(now.values()), sum(wanted.values())
    told = counted(should, "replica") if runs == should else f"{runs:,} → {counted(should, 'replica')}"
    return f"what if: {told}" if seen.what_if is not None and name in seen.what_if.replicas else told


def _next(each: SplitEntry) -> str:
    if each.action == "none":
        return _SETTLED
    steps = f", {counted(each.steps, 'step')} to go" if each.steps > 1 else ""
    return f"next: {_spoken(each.action)}{steps}"


def _spoken(action: str) -> str:
    """Read `migrate-to-on-demand` as `migrate to on-demand`: sides and pools keep their names."""
    for verb in ("scale-up-", "scale-down-", "migrate-to-"):
        if action.startswith(verb):
            return f"{verb.replace('-', ' ')}{said(action.removeprefix(verb))}"
    return action


def _reason(each: SplitEntry) -> str:
    """Say why; what the action says already is not said twice."""
    return each.reason.removeprefix(f"{_SETTLED}: ").removeprefix(_SETTLED)


def _waits(waits: Waits, now: datetime) -> str:
    """Say until when, then why: `waits until 02:00:00 UTC, in 6 h: outside of its windows`."""
    return f"waits{opens(waits.until, now)}: {waits.reason}"


def opens(until: datetime | None, now: datetime) -> str:
    """Say when a guard opens; nothing where no time would open it."""
    if until is None:
        return ""
    left_s = max(0.0, (until - now).total_seconds())
    return f" until {moment_text(until, now)} UTC, in {span(left_s)}"


def _shown(rows: list[SplitRow]) -> list[SplitRow]:
    """Show all, or where they are many those first of which there is something to say."""
    if len(rows) <= _ROWS_MAX:
        return rows
    return sorted(rows, key=lambda row: row.tone == SETTLED)[:_ROWS_MAX]


def _notes(rows: list[SplitRow], shown: list[SplitRow]) -> list[str]:
    left = Counter(row.tone for row in rows)
    left.subtract(row.tone for row in shown)
    told = [f"{left[tone]:,} {words}" for tone, words in TONES.items() if left[tone] > 0]
    return [f"{counted(sum(left.values()), 'more workload')} not drawn: {', '.join(told)}."] if told else []


def _about(seen: Look, rows: list[SplitRow], counts: Mapping[str, int]) -> str:
    told = [f"{counts[tone]:,} {words}" for tone, words in TONES.items() if counts.get(tone)]
    each = [row.title for row in rows[:6] if row.tone != SETTLED]
    return f"{said(seen.name)}: {counted(len(rows), 'workload')}; {'; '.join([*told, *each])}."


def _teach(seen: Look) -> list[str]:
    sentence = "There is no workload yet, so there is nothing to split. Name some under spec.workloads, and apply it:"
    return [sentence, f"poise apply {said(seen.name)}.yaml"]
