"""Windows of time in which disruption is allowed: a five-field cron, a duration and a time zone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from fractions import Fraction
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from poise.errors import Fault, InvalidSpec, invalid
from poise.inputs import as_struct
from poise.instants import SPAN_MAX_S, date_time, quoted
from poise.model.common import Window

_SCHEDULE_CHARACTERS_MAX = 1000
_UNIT_S = {"h": 3600, "m": 60, "s": 1}
# No clock of any zone was set back by more since 1970.
_CLOCK_CHANGE = timedelta(hours=8)
# Windows that follow each other without a gap are joined up to this many; after that the end is not worth the search.
_JOINED_MAX = 100


class WindowText(msgspec.Struct, frozen=True):
    """A window as annotations say it, where each part may be missing."""

    schedule: str | None = None
    duration: str | None = None
    timezone: str = "UTC"


class WindowState(msgspec.Struct, frozen=True):
    """Whether a window is open, and which one; if so until when, if not from when.

    Without windows it is always open and `window` is None. `opens_at` is None where none ever opens, `closes_at` where
    no end is in sight.
    """

    open: bool
    window: Window | None = None
    opens_at: datetime | None = None
    closes_at: datetime | None = None


class _Plain(msgspec.Struct, frozen=True):
    """A window that was read: what its text means."""

    window: Window
    duration: timedelta
    zone: tzinfo


def in_window(
    windows: Iterable[Window | Mapping[str, object]], at: datetime | float, *, path: str = "$.windows"
) -> WindowState:
    """Judge an instant: open on [start, start + duration) of any window, and always where there is none."""
    moment = date_time("$.at", at)
    listed = [as_struct(f"{path}[{place}]", window, Window) for place, window in enumerate(windows)]
    read = [_read(f"{path}[{position}]", window) for position, window in enumerate(listed)]
    if not read:
        return WindowState(open=True)
    ends = [(end, plain) for plain in read if (end := _end(plain, moment)) is not None]
    if ends:
        last, plain = max(ends, key=lambda each: each[0])
        return WindowState(open=True, window=plain.window, closes_at=_joined_end(read, last))
    starts = [(start, plain) for plain in read if (start := _next_start(plain, moment)) is not None]
    if not starts:
        return WindowState(open=False)
    first, plain = min(starts, key=lambda each: each[0])
    return WindowState(open=False, window=plain.window, opens_at=first)


def parse_window(
    schedule: str | None, duration: str | None, timezone: str = "UTC", *, path: str = "$"
) -> Window | None:
    """Read a window; None where neither part is set. A half-set or unreadable one is InvalidSpec with every fault."""
    if schedule is None and duration is None:
        return None
    if schedule is None:
        raise invalid(f"{path}.schedule", "missing: a duration without a schedule is half a window")
    if duration is None:
        raise invalid(f"{path}.duration", "missing: a schedule without a duration is half a window")
    return _read(path, Window(schedule, duration, timezone)).window


def choose_windows(workload: WindowText, namespace: WindowText, configured: Sequence[Window]) -> list[Window]:
    """Choose whose windows count: the workload's, else its namespace's, else the configured ones.

    A level that sets anything is chosen; if what it says cannot be read that is an error, never a fall-through.
    """
    for path, said in (("$.workload", workload), ("$.namespace", namespace)):
        window = parse_window(said.schedule, said.duration, said.timezone, path=path)
        if window is not None:
            return [window]
    for position, window in enumerate(configured):
        check_window(window, path=f"$.windows[{position}]")
    return list(configured)


def check_window(window: Window, *, path: str = "$") -> None:
    """Raise InvalidSpec with every fault of a window."""
    _read(path, window)


def parse_duration(text: str, *, path: str = "$.duration") -> int:
    """Read `2h30m`, `90m` or `1.5h` as seconds: whole, more than 0 and at most 366 days."""
    number = r"[0-9]{1,9}(?:\.[0-9]{1,9})?"
    if not isinstance(text, str) or not re.fullmatch(rf"(?:{number}[hms]){{1,20}}", text):
        raise invalid(path, f"expected a duration such as '2h30m', got {quoted(text)}")
    length = sum(Fraction(part[:-1]) * _UNIT_S[part[-1]] for part in re.findall(rf"{number}[hms]", text))
    if length.denominator != 1 or not 0 < length <= SPAN_MAX_S:
        raise invalid(path, f"expected whole seconds, more than 0 and at most 366 days, got {quoted(text)}")
    return int(length)


def _read(path: str, window: Window) -> _Plain:
    """Check all parts before giving up, so that every fault is told at once."""
    if not isinstance(window, Window):
        raise invalid(path, f"expected a window, got {type(window).__name__}")
    faults: list[Fault] = []
    zone: tzinfo = UTC
    length_s = 0
    try:
        _check_schedule(f"{path}.schedule", window.schedule)
    except InvalidSpec as error:
        faults += error.faults
    try:
        length_s = parse_duration(window.duration, path=f"{path}.duration")
    except InvalidSpec as error:
        faults += error.faults
    try:
        zone = _zone(f"{path}.timezone", window.timezone)
    except InvalidSpec as error:
        faults += error.faults
    if faults:
        raise InvalidSpec(*faults)
    return _Plain(window, timedelta(seconds=length_s), zone)


def _check_schedule(path: str, schedule: str) -> None:
    if not isinstance(schedule, str) or len(schedule) > _SCHEDULE_CHARACTERS_MAX:
        raise invalid(path, f"expected a cron schedule such as '0 2 * * *', got {quoted(schedule)}")
    fields = len(schedule.split())
    if fields != 5:
        raise invalid(path, f"expected 5 fields (minute hour day month weekday), got {fields} in {quoted(schedule)}")
    try:
        CronSim(schedule, datetime(2000, 1, 1, tzinfo=UTC))
    except (CronSimError, ValueError) as error:
        # A number of thousands of digits is a ValueError of Python, whose text would help nobody.
        why = str(error).lower() if isinstance(error, CronSimError) else "bad number"
        raise invalid(path, f"expected a cron schedule that can fire, got {quoted(schedule)}: {why}") from None


def _zone(path: str, name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        # The machine's own setting is no name: the same document must mean the same everywhere.
        if not isinstance(name, str) or name == "localtime":
            raise ValueError
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise invalid(path, f"expected a time zone such as 'Europe/Paris', got {quoted(name)}") from None


def _end(plain: _Plain, moment: datetime) -> datetime | None:
    """Give the end of the window that covers an instant. The last start decides: an earlier one ends earlier."""
    start = _last_start(plain, moment)
    if start is None or moment >= start + plain.duration:
        return None
    return start + plain.duration


def _joined_end(read: Sequence[_Plain], end: datetime) -> datetime | None:
    """Follow windows that overlap or touch to the end of the last."""
    for _ in range(_JOINED_MAX):
        later = max((more for plain in read if (more := _end(plain, end)) is not None), default=None)
        if later is None:
            return end
        end = later
    return None


def _last_start(plain: _Plain, moment: datetime) -> datetime | None:
    """Find the last start that is not after an instant; None where there was none in 50 years.

    In an hour that happens twice the clock on the wall has not yet passed a start that is already past. So where a
    clock change is near, the search begins later by as much.
    """
    before, after = (_offset(plain.zone, moment + way * _CLOCK_CHANGE) for way in (-1, 1))
    # Searching backwards from a fraction of a second includes the second itself.
    backwards = _starts(plain, (moment + abs(after - before)).replace(microsecond=1), reverse=True)
    return next((start for start in backwards if start <= moment), None)


def _offset(zone: tzinfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta(0)


def _next_start(plain: _Plain, moment: datetime) -> datetime | None:
    """Find the first start after an instant; None where there is none in 50 years."""
    return next((start for start in _starts(plain, moment, reverse=False) if start > moment), None)


def _starts(plain: _Plain, origin: datetime, *, reverse: bool) -> Iterator[datetime]:
    local = CronSim(plain.window.schedule, origin.astimezone(plain.zone), reverse=reverse)
    return (start.astimezone(UTC) for start in local)
