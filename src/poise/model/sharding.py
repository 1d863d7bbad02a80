"""Objects of Kubernetes as a ring sees them: the four labels, Leases, and the writes that sharder and shard decide on.

A version is a resourceVersion: decisions compare it for equality only, and `is_older` tells what a watch that lags
shows. Every write of a label names the version that it was decided on, so that it is refused when anybody else wrote in
between.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Literal

import msgspec

RING_LABEL = "poise.dev/ring"
TOKENS_LABEL = "poise.dev/tokens"
RELEASED_ANNOTATION = "poise.dev/released"
LEFT_ANNOTATION = "poise.dev/left"  # What its instance said as it left, while a sharder has the Lease.
LABEL_MAX = 63  # So long may the names of rings and instances be: they stand in labels.
EPOCH_DIGITS_MAX = 18
NOBODY = ""  # The drain value that means: let go, nobody comes next.


def is_older(version: str, known: str) -> bool:
    """Say whether a version came before another one of the same object; where they are no plain numbers nobody can."""
    return version.isdecimal() and known.isdecimal() and int(version) < int(known)


class Marks(msgspec.Struct, frozen=True):
    """The labels of one ring on one object; None is a label that is not there, or whose number is nonsense."""

    shard: str | None = None
    epoch: int | None = None
    drain: str | None = None
    drain_until: int | None = None

    @property
    def next_epoch(self) -> int:
        """The epoch of the next owner."""
        return (self.epoch or 0) + 1


class SeenObject(msgspec.Struct, frozen=True):
    """One object as a watch shows it; `parent` is its controller owner, where that is of the ring's resources.

    `selected`: the ring still wants it. It does not when the ring is being removed, or its namespace is not selected.
    """

    uid: str
    key: str
    version: str
    marks: Marks = Marks()
    parent: str | None = None
    selected: bool = True


class Write(msgspec.Struct, frozen=True):
    """One patch of the labels of a ring: what they are afterwards, and on which version this was decided."""

    uid: str
    version: str
    marks: Marks


StepKind = Literal["assign", "drain", "redirect", "keep", "mend", "take", "force", "repair", "hand over", "fence"]


class Step(msgspec.Struct, frozen=True):
    """Writes in their order: a group begins only when every write of the one before it has succeeded.

    `needs` names the instance whose Lease the sharder must hold at the moment it sends each of them.
    """

    kind: StepKind
    groups: tuple[tuple[Write, ...], ...]
    needs: str | None = None
    target: str | None = None

    @property
    def writes(self) -> tuple[Write, ...]:
        """All writes, first ones first."""
        return tuple(write for group in self.groups for write in group)


class Standing(StrEnum):
    """What the sharder may do with the objects of an instance.

    READY: give it objects, ask it for some. LATE: nothing. LOST: acquire its Lease. HELD: move its objects away.
    """

    READY = "ready"
    LATE = "late"
    LOST = "lost"
    HELD = "held"


class LeaseFact(msgspec.Struct, frozen=True):
    """One Lease as the API server shows it; an empty holder has released it.

    `released` is the reason that the instance itself gave ("stop", "restart"); a sharder that empties the holder gives
    none, and keeps on in `left` what the instance said: so nobody believes that it vanished.
    """

    name: str
    uid: str
    version: str
    holder: str
    duration_s: float
    released: str = ""
    tokens: int | None = None
    left: str = ""


class LeaseWrite(msgspec.Struct, frozen=True):
    """One write of a Lease over the version that was seen; no version: create it.

    hold: be its holder for `duration_s`. empty: end the own hold. delete: with uid and version as preconditions.
    """

    kind: Literal["hold", "empty", "delete"]
    name: str
    version: str | None
    uid: str | None = None
    holder: str = ""
    duration_s: float = 0.0
    released: str = ""
    left: str = ""


@lru_cache(maxsize=256)
def label_names(ring: str) -> tuple[str, str, str, str]:
    """Name the labels of a ring: shard, epoch, drain, drain-until."""
    return (
        f"shard.poise.dev/{ring}",
        f"epoch.poise.dev/{ring}",
        f"drain.poise.dev/{ring}",
        f"drain-until.poise.dev/{ring}",
    )


def read_marks(labels: Mapping[str, str], ring: str) -> Marks:
    """Read the labels of one ring; whatever somebody else wrote there, this gives an answer."""
    shard, epoch, drain, until = label_names(ring)
    return Marks(labels.get(shard) or None, _number(labels.get(epoch)), labels.get(drain), _number(labels.get(until)))


def _number(text: str | None) -> int | None:
    """Read a whole number that a machine wrote: plain digits, no sign, not longer than any real one."""
    plain = text is not None and text.isascii() and text.isdigit() and len(text) <= EPOCH_DIGITS_MAX
    return int(text) if text is not None and plain else None


def label_patch(labels: Mapping[str, str], ring: str, marks: Marks) -> dict[str, str | None]:
    """Give what changes: label -> value, None to remove it. Other rings' labels, and all others, stay as they are."""
    values = (marks.shard, marks.epoch, marks.drain, marks.drain_until)
    wanted = {
        name: None if value is None else str(value) for name, value in zip(label_names(ring), values, strict=True)
    }
    return {name: value for name, value in wanted.items() if labels.get(name) != value}


def holder_identity(name: str, process: str) -> str:
    """Name one process of an instance, or of a sharder: no two processes ever share a holder."""
    return f"{name}_{process}"


def is_process_of(holder: str, name: str) -> bool:
    """Say whether a holder is a process of this instance."""
    return holder.startswith(f"{name}_") and "_" not in holder.removeprefix(f"{name}_")
