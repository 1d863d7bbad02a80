"""The history of a job as a small table: what the charts draw, for people who read rather than look."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from poise.jobs.series import Series

_ROWS_MAX = 8
NAMES = {
    "unowned": "No owner",
    "moves": "Moves so far",
    "loadMin": "Smallest load",
    "loadMean": "Mean load",
    "loadMax": "Largest load",
    "replicas": "Replicas",
    "error": "Largest error",
    "desired": "Desired replicas",
    "misplaced": "Replicas in the wrong pool",
    "spot": "Spot",
    "onDemand": "On-demand",
    "desiredSpot": "Desired spot",
    "desiredOnDemand": "Desired on-demand",
}
# A split owns nothing and moves nothing: it counts what others run.
_SPLIT = {"unowned": "Missing replicas", "moves": "Reports so far"}


class SeriesTable(msgspec.Struct, frozen=True):
    """The last points of a history: when, and what was counted from then on."""

    names: list[str]
    rows: list[tuple[datetime, list[str]]]


def series_shown(told: Series) -> SeriesTable:
    """Show the last points, the newest first."""
    names = list(told.series)
    places = range(len(told.at))[-_ROWS_MAX:]
    rows = [
        (datetime.fromtimestamp(told.at[place], UTC), [_number(told.series[name][place]) for name in names])
        for place in reversed(places)
    ]
    titles = NAMES if {"loadMin", "error"} & told.series.keys() else NAMES | _SPLIT
    return SeriesTable([titles.get(name, name) for name in names], rows)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,g}" if isinstance(value, float) else f"{value:,}"
