"""What an operator saw happen to its rings since it began: kept in memory, a bounded number of lines and points.

Kubernetes keeps no story of labels, and an operator writes none; what is told here ends with its process.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from poise.errors import invalid
from poise.jobs.history import Number
from poise.jobs.series import Series
from poise.jobs.sharder.happenings import happenings
from poise.jobs.sharder.report import RingReport
from poise.jobs.sharder.status import ready_instances
from poise.model.ownership import Line
from poise.move.handoff import Transition
from poise.serve.facade import ORIGIN, Event
from poise.serve.rings.ring_views import KIND

_EVENTS_MAX, _POINTS_MAX = 10_000, 720
Holders = Mapping[str, tuple[str | None, int]]  # By key: who has it, and at which epoch.
Told = tuple[str, str, str | None, int, str]
_NOBODY = (None, 0)
Point = tuple[int, int, int, int, float, int]
_NAMES = ("unowned", "moves", "loadMin", "loadMean", "loadMax")


class RingJournal:
    """The last events of all rings. One loop writes, threads read."""

    def __init__(self, zero: datetime) -> None:
        """Begin; times are counted from `zero`."""
        self._zero = zero
        self._events: deque[Event] = deque(maxlen=_EVENTS_MAX)
        self._last = 0
        self._known: dict[str, tuple[RingReport, Holders]] = {}
        self._moves: Counter[str] = Counter()
        self._points: dict[str, deque[Point]] = {}
        self._news = threading.Condition()

    def take(self, job: str, report: RingReport, holders: Holders | None, now: datetime) -> None:
        """Note what differs from the last look, where None are the same holders; a first look is no news."""
        known = self._known.get(job)
        if holders is None:
            holders = {} if known is None else known[1]
        self._known[job] = (report, holders)
        if known is not None and report.synced and known[0].synced:
            before, had = known
            self._add(job, [("set", "", None, 0, each.told) for each in happenings(before, report)], now)
            if had is not holders and had != holders:
                self._add(job, _moved(had, holders), now)
                self._moves[job] += sum(
                    who is not None and had.get(key, _NOBODY)[0] not in (None, who) for key, (who, _) in holders.items()
                )
        if report.synced:
            self._count(job, report, holders, now)

    def forget(self, jobs: Iterable[str]) -> None:
        """Forget all rings but these: what is seen of others later is a first look."""
        kept = set(jobs)
        for job in [job for job in self._known if job not in kept]:
            del self._known[job]
            self._points.pop(job, None)

    def _add(self, job: str, told: Iterable[Told], now: datetime) -> None:
        at_s = (now - self._zero).total_seconds()
        with self._news:
            for transition, item, member, epoch, reason in told:
                self._last += 1
                line = Line(
                    set=job,
                    item=item,
                    transition=transition,
                    member=member,
                    epoch=epoch,
                    at_s=at_s,
                    reason=reason,
                    number=self._last,
                    version=self._last,
                )
                self._events.append(Event(id=str(self._last), kind=KIND, job=job, line=line, at=now))
            self._news.notify_all()

    def _count(self, job: str, report: RingReport, holders: Holders, now: datetime) -> None:
        held = Counter(who for who, _ in holders.values())
        loads = [held[each.name] for each in ready_instances(report)]
        mean = round(sum(loads) / len(loads), 2) if loads else 0.0
        counted = (report.unassigned, self._moves[job], min(loads, default=0), mean, max(loads, default=0))
        points = self._points.setdefault(job, deque(maxlen=_POINTS_MAX))
        if not points or points[-1][1:] != counted:
            points.append((int(now.timestamp()), *counted))

    def series(self, job: str, now: datetime) -> Series:
        """Give what was counted of a ring over time."""
        points = list(self._points.get(job, ()))
        columns: dict[str, list[Number | None]] = {
            name: [point[place + 1] for point in points] for place, name in enumerate(_NAMES)
        }
        return Series(at=[point[0] for point in points], series=columns if points else {}, now=int(now.timestamp()))

    def events(self, after: str | None, most: int) -> list[Event]:
        """Give events after an id, or with None the newest ones."""
        with self._news:
            found = list(self._events)
        if after is None:
            return found[-most:]
        if not (after.isascii() and after.isdigit() and len(after) < 19):
            raise invalid("Last-Event-ID", "expected the id of an event")
        return [each for each in found if each.line.number > int(after)][:most]

    def lines(self, job: str, item: str | None, after: int | None, most: int, *, newest: bool) -> list[Line]:
        """Tell the story of a ring or of one key, oldest or newest first."""
        found = [each.line for each in self.events(ORIGIN, _EVENTS_MAX) if each.job == job]
        if item is not None:
            found = _story([line for line in found if line.item == item])
        if newest:
            return [line for line in reversed(found) if after is None or line.number < after][:most]
        return [line for line in found if after is None or line.number > after][:most]

    def wait(self, version: int, timeout_s: float) -> int:
        """Wait until something happened since a version."""
        with self._news:
            self._news.wait_for(lambda: self._last > version, timeout_s)
            return self._last

    def moment(self, at_s: float) -> datetime:
        """Tell a time of a line as wall clock time."""
        return self._zero + timedelta(seconds=at_s)


def _moved(before: Holders, after: Holders) -> Iterable[Told]:
    """Tell which keys have another holder: given, let go of, moved, or no longer there."""
    for key in sorted(before.keys() | after.keys()):
        (had, _), (has, epoch) = before.get(key, _NOBODY), after.get(key, _NOBODY)
        if key not in after:
            yield Transition.T9, key, None, 0, ""
        elif had != has:
            if had is not None:
                yield Transition.T5, key, had, 0, ""
            if has is not None:
                yield Transition.T1, key, has, epoch, ""


def _story(lines: list[Line]) -> list[Line]:
    """Tell the story of one key: what is handed over in one write was never without an owner."""
    told: list[Line] = []
    for line in lines:
        last = told[-1] if told else None
        handed = last is not None and (last.transition, last.at_s) == (Transition.T5, line.at_s)
        if line.transition == Transition.T1 and last is not None and handed:
            told[-1] = msgspec.structs.replace(line, reason=f"handed over by {last.member}")
        else:
            told.append(line)
        if line.transition == Transition.T1:
            told.append(msgspec.structs.replace(line, transition=Transition.T2))
    return told
