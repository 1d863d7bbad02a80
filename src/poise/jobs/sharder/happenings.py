"""What happened to the instances of a ring between two reports, in a few sentences for Events. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Literal

import msgspec

from poise.jobs.sharder.report import InstanceSeen, RingReport
from poise.jobs.sharder.status import brake_message, clipped, names
from poise.observe.leases import Health

ALONE_MAX = 5  # So many instances have an Event of their own; more of them at once share one.
_WRITES_MAX, _WRITE_EVERY_S = 25.0, 10.0
_REMEMBERED_MAX, _REMEMBERED_S = 1_000, 3_000.0
_TOLD_MAX = 1_000  # The API server takes no longer message.


class Happening(msgspec.Struct, frozen=True):
    """One thing that happened; `about` is the instance, or empty where it is the ring or several of them."""

    reason: str
    about: str
    told: str
    type: Literal["Normal", "Warning"] = "Normal"


def happenings(before: RingReport | None, after: RingReport) -> list[Happening]:
    """Compare two reports. What a sharder finds when it starts did not happen now, and is not told."""
    if before is None or not before.synced or not after.synced:
        return []
    known = {each.name: each for each in before.instances}
    found = [each for now in after.instances for each in _of_instance(known.get(now.name), now)]
    found += [each for now in after.instances for each in _of_drain(known.get(now.name), now)]
    return gathered(found) + _of_brake(before, after) + _of_pause(before, after)


def _of_instance(before: InstanceSeen | None, now: InstanceSeen) -> Iterable[Happening]:
    was = None if before is None else before.state
    if was is now.state:
        return
    note = f" ({now.note})" if now.note else ""
    if now.state is Health.READY:
        again = "" if was is None else " again"
        yield Happening("InstanceReady", now.name, f"{now.name} is ready{again}{note}")
    elif now.state is Health.EXPIRED and was is not None:
        why = "its Lease has run out, has vanished, or was released for a restart"
        yield Happening(
            "InstanceExpired", now.name, f"{now.name} is expired{note}: {why}; nothing moves yet", "Warning"
        )
    elif now.state is Health.DEAD and was is Health.READY:
        yield Happening("InstanceReleased", now.name, f"{now.name} has released its Lease{note}: its objects move")
    elif now.state is Health.DEAD and was is not None and was is not Health.ORPHANED:
        yield Happening("InstanceDead", now.name, f"{now.name} is dead{note}: its objects move", "Warning")


def _of_drain(before: InstanceSeen | None, now: InstanceSeen) -> Iterable[Happening]:
    was = before is not None and before.drained
    held = before is None or not was or bool(before.objects)
    if now.drained and not was and now.objects:
        yield Happening(
            "InstanceDraining", now.name, f"{now.name} is being drained: its objects move, it gets no others"
        )
    elif now.drained and held and not now.objects:
        yield Happening("InstanceDrained", now.name, f"{now.name} is drained and has no object: it may be stopped")
    elif was and not now.drained:
        yield Happening("InstanceUndrained", now.name, f"{now.name} is no longer drained: it takes its share again")


def _of_pause(before: RingReport, after: RingReport) -> list[Happening]:
    if after.paused == before.paused:
        return []
    if not after.paused:
        return [Happening("Resumed", "", "moves go on")]
    recovery = ", and recovery too" if after.paused == "all" else ""
    return [Happening("Paused", "", f"moves are paused{recovery}")]


def _of_brake(before: RingReport, after: RingReport) -> list[Happening]:
    if after.vanished and not before.vanished:
        return [Happening("BrakeEngaged", "", brake_message(after.vanished), "Warning")]
    if before.vanished and not after.vanished:
        return [Happening("BrakeOpened", "", "the brake is open: objects move again")]
    return []


def gathered(found: list[Happening]) -> list[Happening]:
    """Tell many of one kind as one, by their number and the first names."""
    told: list[Happening] = []
    for reason in dict.fromkeys(each.reason for each in found):
        alike = [each for each in found if each.reason == reason]
        if len(alike) <= ALONE_MAX:
            told += alike
        else:
            listed = names(each.about for each in alike)
            told.append(Happening(reason, "", f"{len(alike)} instances: {listed}", alike[0].type))
    return told


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One Event as it is to be written: how often this happened, and when first and last, by the wall clock."""

    happening: Happening
    count: int
    first: str
    last: str


class Ledger:
    """Counts what happens to one ring, so that a repetition raises a number and makes no new Event.

    Law: at most 25 writes at once, and one more every 10 s; what may not be written is counted all the same.
    """

    def __init__(self, now_s: float) -> None:
        """Begin with nothing known."""
        self._known: OrderedDict[tuple[str, str], tuple[Entry, float]] = OrderedDict()
        self._left, self._filled_s = _WRITES_MAX, now_s
        self.withheld = 0

    def enter(self, happening: Happening, now_s: float, at: str) -> Entry | None:
        """Count one; gives what is to be written, None where too much was written lately."""
        key = (happening.reason, happening.about)
        known = self._known.pop(key, None)
        fresh = known is not None and now_s - known[1] < _REMEMBERED_S
        old = known[0] if known is not None and fresh else None
        told = msgspec.structs.replace(happening, told=clipped(happening.told)[:_TOLD_MAX])
        entry = Entry(
            happening=told, count=1 if old is None else old.count + 1, first=old.first if old else at, last=at
        )
        self._known[key] = (entry, now_s)
        while len(self._known) > _REMEMBERED_MAX:
            self._known.popitem(last=False)
        return entry if self._may_write(now_s) else None

    def _may_write(self, now_s: float) -> bool:
        self._left = min(_WRITES_MAX, self._left + (now_s - self._filled_s) / _WRITE_EVERY_S)
        self._filled_s = now_s
        if self._left < 1.0:
            self.withheld += 1
            return False
        self._left -= 1.0
        return True
