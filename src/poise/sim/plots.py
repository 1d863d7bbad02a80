"""The plots of a run: which series is drawn how, on which axis, and what a caption says beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from html import escape
from itertools import accumulate
from math import floor, log10

from poise.sim.findings import number, title
from poise.sim.replay import Replay, Track
from poise.sim.svg import Label, Mark, band, buckets, dashes, log_scale, offset, plot, scale, steps
from poise.sim.ticks import Tick

MEMBERS_SHOWN_MAX = 24
_PANEL_PX, _CHART_PX = 150, 230
_BARS_MAX = 200
# Beyond this ratio of the largest to the smallest, the small ones would lie on the floor of a plain axis.
_STEEP = 20

Series = Mapping[str, Sequence[float]]


def name_tag(replay: Replay, policy: str) -> str:
    """Write a policy's name with its sign and colour."""
    return f'<span class="name {look(replay, policy)}">{escape(title(policy))}</span>'


def look(replay: Replay, policy: str) -> str:
    """Name the class that gives a policy its colour, sign and dashes."""
    return f"p{list(replay.tracks).index(policy) % 4}"


def _figure(caption: str, told: str, drawn: str) -> str:
    return f"<figure><figcaption>{caption}<span>{escape(told)}</span></figcaption>{drawn}</figure>"


def _every(track: Track) -> list[Tick]:
    return [track.start, *track.ticks]


def load_panels(replay: Replay) -> str:
    """Draw, for each policy, the smallest to the largest load and the mean; by weight, how far they are off."""
    lows = _series(replay, lambda tick: tick.low if replay.even else float(tick.under), min)
    highs = _series(replay, lambda tick: tick.high if replay.even else float(tick.over), max)
    axis = scale([*_flat(lows), *_flat(highs)], _PANEL_PX)
    middle = steps(_means(replay) if replay.even else [0.0], axis)
    panels = []
    for policy, track in replay.tracks.items():
        worst, error = max(tick.spread for tick in _every(track)), max(tick.error for tick in _every(track))
        told = (
            f"loads differ by {number(worst)} at most"
            if replay.even
            else f"at most {number(error)} from the exact share"
        )
        about = f"{title(policy)}: {told}, over {len(replay.happenings)} events"
        marks = [Mark(band(lows[policy], highs[policy], axis), f"area {look(replay, policy)}"), Mark(middle, "mean")]
        drawn = plot(axis, marks, range(len(replay.happenings) + 1), about)
        panels.append(_figure(name_tag(replay, policy), told, drawn))
    return "".join(panels)


def _series(
    replay: Replay, read: Callable[[Tick], float], take: Callable[[list[float]], float]
) -> dict[str, list[float]]:
    """Read one number of every tick, the start included, and take one of each bucket."""
    groups = buckets(len(replay.happenings) + 1)
    read_of = {policy: [read(tick) for tick in _every(track)] for policy, track in replay.tracks.items()}
    return {policy: [take([values[i] for i in group]) for group in groups] for policy, values in read_of.items()}


def _means(replay: Replay) -> list[float]:
    """Give the mean load, averaged over each bucket."""
    told = [replay.opening, *replay.happenings]
    values = [each.things / each.members if each.members else 0.0 for each in told]
    return [sum(values[i] for i in group) / len(group) for group in buckets(len(values))]


def _flat(series: Series) -> list[float]:
    return [value for values in series.values() for value in values]


def move_panels(replay: Replay) -> str:
    """Draw, for each policy, what it moved at each event, and the fewest possible from where it stood."""
    groups = buckets(len(replay.happenings), _BARS_MAX)
    made, least = _sums(replay, groups, lambda tick: tick.moves), _sums(replay, groups, lambda tick: tick.moves_min)
    values = [*_flat(made), *_flat(least)]
    axis = log_scale(values, _PANEL_PX) if max(values, default=0) > _STEEP else scale(values, _PANEL_PX)
    panels = []
    for policy, track in replay.tracks.items():
        moves, fewest = (sum(made[policy]), sum(least[policy]))
        exact = sum(tick.moves == tick.moves_min for tick in track.ticks)
        told = f"{number(int(moves))} moves, fewest {number(int(fewest))}; equal at {number(exact)} events"
        pairs = list(zip(made[policy], least[policy], strict=True))
        needed = [min(pair) for pair in pairs]
        marks = [
            Mark(band([0.0] * len(groups), needed, axis), f"solid {look(replay, policy)}"),
            Mark(band(needed, made[policy], axis), f"area {look(replay, policy)}"),
            Mark(dashes([few if few > many else None for many, few in pairs], axis), "least"),
        ]
        about = f"{title(policy)}: {told} of {len(replay.happenings)}"
        panels.append(
            _figure(name_tag(replay, policy), told, plot(axis, marks, range(1, len(replay.happenings) + 1), about))
        )
    return "".join(panels)


def _sums(replay: Replay, groups: list[range], read: Callable[[Tick], int]) -> dict[str, list[float]]:
    return {
        policy: [float(sum(read(track.ticks[i]) for i in group)) for group in groups]
        for policy, track in replay.tracks.items()
    }


def moves_per_place(replay: Replay) -> int:
    """Say how many events one place of the plots of moves stands for."""
    return max((len(group) for group in buckets(len(replay.happenings), _BARS_MAX)), default=1)


def sum_chart(replay: Replay) -> str:
    """Draw all moves so far, one line a policy."""
    sums = {policy: [0, *accumulate(tick.moves for tick in track.ticks)] for policy, track in replay.tracks.items()}
    groups = buckets(len(replay.happenings) + 1)
    lines = {policy: [float(values[group[-1]]) for group in groups] for policy, values in sums.items()}
    return _chart(replay, lines, "moves so far")


def error_chart(replay: Replay) -> str:
    """Draw the largest distance of a load from its exact share, one line a policy."""
    return _chart(replay, _series(replay, lambda tick: float(tick.error), max), "largest distance from the exact share")


def _chart(replay: Replay, lines: Series, what: str) -> str:
    ends = {policy: values[-1] for policy, values in lines.items()}
    tops = [max(values) for values in lines.values()]
    axis = scale(_flat(lines), _CHART_PX)
    if max(tops) > _STEEP * max(1, min(tops)):
        # The first steps of a sum pass through all powers of ten; the axis begins one below where the lowest line ends.
        lowest = min(ends.values())
        axis = log_scale(tops, _CHART_PX, low=10.0 ** (floor(log10(lowest)) - 1) if lowest >= 10 else 0)
    marks = [Mark(steps(values, axis), f"line {look(replay, policy)}") for policy, values in lines.items()]
    labels = [
        Label(value, f"{title(policy)} {_end(value)}", f"name {look(replay, policy)}") for policy, value in ends.items()
    ]
    told = f"{what}, {'on an axis of powers of ten' if axis.log else 'on a plain axis'}"
    about = f"{what}; in the end: " + ", ".join(f"{title(policy)} {_end(value)}" for policy, value in ends.items())
    return _figure("", told, plot(axis, marks, range(len(replay.happenings) + 1), about, labels))


def _end(value: float) -> str:
    return number(int(value)) if value == int(value) else f"{value:,.2f}"


def share_rows(replay: Replay) -> str:
    """Write a row a member: its exact share, and for each policy its load with a bar for the difference."""
    off = {
        member: {policy: track.loads.get(member, 0) - share for policy, track in replay.tracks.items()}
        for member, share in replay.exact.items()
    }
    largest = float(max((abs(value) for each in off.values() for value in each.values()), default=0))
    rows = []
    for member in _shown(off):
        cells = "".join(
            f'<td class="{look(replay, policy)}">{number(track.loads.get(member, 0))}'
            f"{offset(float(off[member][policy]), largest)}</td>"
            for policy, track in replay.tracks.items()
        )
        rows.append(f"<tr><th>{escape(member)}</th><td>{number(replay.exact[member])}</td>{cells}</tr>")
    return "".join(rows)


def _shown(off: Mapping[str, Mapping[str, Fraction]]) -> list[str]:
    """Choose the members that are shown: all, or those that are furthest off under some policy."""
    worst = sorted(off, key=lambda member: (-max((abs(value) for value in off[member].values()), default=0), member))
    return sorted(worst[:MEMBERS_SHOWN_MAX], key=_natural)


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort pod-2 before pod-10."""
    return [(len(part) if part.isdigit() else 0, part) for part in re.split(r"([0-9]+)", name)]
