"""All that was seen of one act, as one value: what was asked for, what was written, and what the check did. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from poise.conformance.requests import Asked, Intent
from poise.model.sharding import Marks

Ending = Literal["", "cut off", "asked to leave"]


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an object or a Lease as a watch showed it. `parent` is the uid of what controls it."""

    plural: str
    name: str
    uid: str
    number: int
    seen_s: float
    marks: Marks = Marks()
    parent: str = ""
    holder: str = ""
    own: bool = False


class Life(msgspec.Struct, frozen=True):
    """One process: until when its Lease was its own matter, and what the check did to it then."""

    process: str
    until_s: float | None = None
    ending: Ending = ""


class Gain(msgspec.Struct, frozen=True):
    """A Secret that was given to the instance, when that was sent, and at which epoch."""

    root: str
    at_s: float
    epoch: int


class Drain(msgspec.Struct, frozen=True):
    """A Secret that was asked for; `children` were copies of it then. Redirected: its first target was replaced."""

    root: str
    at_s: float
    target: str
    children: tuple[str, ...] = ()
    redirected: bool = False


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """One act. Requests are in the order in which they came, versions in the order in which they were written."""

    instance: str
    ring: str
    namespace: str
    lease_s: float
    began_s: float = 0.0
    names: tuple[str, ...] = ()
    asked: tuple[Asked, ...] = ()
    versions: tuple[Version, ...] = ()
    lives: tuple[Life, ...] = ()
    gains: tuple[Gain, ...] = ()
    inherited: tuple[Gain, ...] = ()
    drains: tuple[Drain, ...] = ()
    strays: tuple[str, ...] = ()

    def of(self, process: str) -> list[Asked]:
        """Give what one process asked for."""
        return [asked for asked in self.asked if asked.process == process]

    def leases(self, process: str) -> list[Asked]:
        """Give the writes by which a process took or kept its Lease."""
        return [asked for asked in self.of(process) if asked.holder]

    def acquired(self) -> Iterator[tuple[str, Asked, float]]:
        """Give each process that took its Lease, by which write, and when it could know."""
        for process in dict.fromkeys(asked.process for asked in self.asked):
            for taken in self.leases(process)[:1]:
                assert taken.answered_s is not None, "what succeeded was answered"
                yield process, taken, taken.answered_s

    def reconciles(self, root: str) -> list[Asked]:
        """Give the writes of reconciles of one Secret."""
        return [asked for asked in self.asked if asked.intent is Intent.ACT and root in asked.roots]

    def hand_overs(self, root: str, plural: str = "") -> list[Asked]:
        """Give the writes that hand one Secret over: of itself, of its children, or both."""
        return [
            asked
            for asked in self.asked
            if asked.intent is Intent.HAND_OVER
            and root in asked.roots
            and (not plural or (asked.place is not None and asked.place.plural == plural))
        ]

    def history(self, plural: str, name: str) -> list[Version]:
        """Give the versions of one object."""
        return [each for each in self.versions if (each.plural, each.name) == (plural, name)]

    def when(self, at_s: float) -> str:
        """Say when something was, counted from the beginning of the act."""
        return f"at {at_s - self.began_s:.2f} s"
