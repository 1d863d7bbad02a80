"""What people ask of a ring beside its document: who is to be emptied, and whether moves wait. Pure.

Both are annotations of the ring. A Lease cannot carry them: any write of it makes its holder's next renewal fail. They
change only whom the planner wants, so whatever they say, every hand-over stays safe.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

PAUSED_ANNOTATION = "poise.dev/paused"
DRAINED_ANNOTATION = "poise.dev/drained"
Paused = Literal["", "moves", "all"]
_SPLIT = re.compile(r"[,\s]+")
_NOT_PAUSED = ("", "false", "no")


class Orders(msgspec.Struct, frozen=True):
    """Instances that are to hold nothing though they run; and how far a pause goes.

    `moves`: nothing moves that an instance holds and answers for; what is lost or new still finds an owner. `all`: not
    even that. A ring that is being removed lets go of its objects all the same.
    """

    paused: Paused = ""
    drained: frozenset[str] = frozenset()


NO_ORDERS = Orders()


def read_orders(annotations: Mapping[str, str]) -> Orders:
    """Read the annotations of a ring, whoever wrote them: any text but a plain no pauses the moves."""
    said = annotations.get(PAUSED_ANNOTATION, "").strip().lower()
    paused: Paused = "" if said in _NOT_PAUSED else "all" if said == "all" else "moves"
    return Orders(paused, frozenset(part for part in _SPLIT.split(annotations.get(DRAINED_ANNOTATION, "")) if part))


def pause_change(paused: Paused) -> dict[str, str | None]:
    """Give the change of annotations that pauses a ring or lets it go on; None removes one."""
    return {PAUSED_ANNOTATION: paused or None}


def drain_change(drained: Iterable[str]) -> dict[str, str | None]:
    """Give the change of annotations after which exactly these are drained; None removes one."""
    return {DRAINED_ANNOTATION: ",".join(sorted(drained)) or None}
