"""An auditor of what collectors logged: it knows nothing of Poise, only who collected what and when.

Laws: (1) at no time do two pods collect a target, but where one of them had been silent for too long and was not freed
yet; (2) no target that is wanted goes uncollected for longer than the bound.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from math import inf
from pathlib import Path
from typing import NamedTuple


class Event(NamedTuple):
    """One line: begin, start, stop and killed are of pods; wanted and unwanted are of the test."""

    at: float
    pod: str
    event: str
    name: str


class Span(NamedTuple):
    """One pod collects one target, from start to end."""

    start: float
    end: float
    pod: str


class Silence(NamedTuple):
    """When a pod may be doubled: it was silent past the time after which it counts as gone, and is not freed yet."""

    pod: str
    start: float
    end: float


def read_log(path: Path) -> list[Event]:
    """Read all lines in the order of their times."""
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return sorted((Event(line["at"], line["pod"], line["event"], line["name"]) for line in lines), key=_when)


def _when(event: Event) -> float:
    return event.at


def spans(events: Iterable[Event]) -> dict[str, list[Span]]:
    """Put starts and stops together; a pod that ends or begins anew has stopped everything."""
    found: dict[str, list[Span]] = defaultdict(list)
    open_since: dict[tuple[str, str], float] = {}

    def close(pod: str, name: str, at: float) -> None:
        if (since := open_since.pop((pod, name), None)) is not None:
            found[name].append(Span(since, at, pod))

    for event in events:
        if event.event == "start":
            open_since.setdefault((event.pod, event.name), event.at)
        elif event.event == "stop":
            close(event.pod, event.name, event.at)
        elif event.event in ("begin", "killed"):
            for pod, name in [key for key in open_since if key[0] == event.pod]:
                close(pod, name, event.at)
    for pod, name in list(open_since):
        close(pod, name, inf)
    return found


def doubles(collected: dict[str, list[Span]], silences: Iterable[Silence] = ()) -> list[str]:
    """Find every target that two pods collected at once, outside of what silence excuses."""
    excused = list(silences)
    told = []
    for name, found in sorted(collected.items()):
        ordered = sorted(found)
        for place, one in enumerate(ordered):
            for other in ordered[place + 1 :]:
                if other.start >= one.end:
                    break
                start, end = other.start, min(one.end, other.end)
                pods = {one.pod, other.pod}
                if len(pods) > 1 and not any(
                    each.pod in pods and each.start <= start and end <= each.end for each in excused
                ):
                    told.append(f"{name} on {one.pod} and {other.pod} for {end - start:.3f} s from {start:.3f}")
    return told


def gaps(events: Iterable[Event], collected: dict[str, list[Span]], until: float) -> list[tuple[float, str]]:
    """Measure how long each wanted target was collected by nobody, longest first."""
    wanted: dict[str, float] = {}
    found = []
    for event in events:
        if event.event == "wanted":
            wanted.setdefault(event.name, event.at)
        elif event.event == "unwanted" and event.name in wanted:
            found += _gaps_of(event.name, collected.get(event.name, []), wanted.pop(event.name), event.at)
    for name, since in wanted.items():
        found += _gaps_of(name, collected.get(name, []), since, until)
    return sorted(found, reverse=True)


def _gaps_of(name: str, found: list[Span], start: float, end: float) -> list[tuple[float, str]]:
    reached, gaps = start, []
    for span in sorted(found):
        if span.start > reached:
            gaps.append((min(span.start, end) - reached, f"{name} from {reached:.3f}"))
        reached = max(reached, span.end)
        if reached >= end:
            break
    if reached < end:
        gaps.append((end - reached, f"{name} from {reached:.3f}"))
    return gaps


def audit(events: list[Event], silences: Iterable[Silence], until: float, bound_s: float) -> list[str]:
    """Judge a whole run: every broken law as a sentence."""
    collected = spans(events)
    late = [
        f"{told} uncollected for {gap_s:.3f} s" for gap_s, told in gaps(events, collected, until) if gap_s > bound_s
    ]
    return doubles(collected, silences) + late
