"""What the signature picture is made of: members as lanes, items as cells, moves as arcs."""

from __future__ import annotations

import msgspec

HELD, OFFERED, ASKED, RELEASING = "held", "offered", "asked", "releasing"
LATE, LOST, UNOWNED = "late", "lost", "unowned"
RESERVED, PLANNED, IMAGINED = "reserved", "planned", "imagined"
NOBODY = ""  # The lane of what has no owner; no member has an empty name.

# What a cell of each state is called, in the order of the legend: what is wrong comes first.
STATES = {
    UNOWNED: "without an owner",
    LOST: "whose owner is gone",
    LATE: "whose owner is late",
    ASKED: "asked back",
    RELEASING: "being released",
    OFFERED: "offered, not confirmed yet",
    HELD: "held",
    RESERVED: "reserved for its next owner",
    PLANNED: "planned to come",
    IMAGINED: "would come",
}
GHOSTS = (RESERVED, PLANNED, IMAGINED)  # They show where an item goes to: the item itself has its cell elsewhere.


class Cell(msgspec.Struct, frozen=True, gc=False):
    """One item, or `count` of them in one cell that has room for `full`; `mark` says that it is to leave."""

    state: str
    title: str
    href: str = ""
    item: str = ""
    count: int = 1
    full: int = 1
    mark: str = ""


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One member: its state as a tone and in `words`, what it `held` and should as its `share`, and its cells."""

    name: str
    tone: str
    label: str = ""
    words: str = ""
    held: str = ""
    share: str = ""
    load: int = 0
    after: int | None = None
    floor: int | None = None
    ceiling: int | None = None
    href: str = ""
    cells: list[Cell] = []


class Tile(msgspec.Struct, frozen=True, kw_only=True):
    """A member, or several that hold as much, of whom there is nothing to say but their load."""

    title: str
    load: int
    tone: str = "ready"
    count: int = 1
    href: str = ""


class Arc(msgspec.Struct, frozen=True, kw_only=True):
    """One move from lane to lane, or `count` of them where they are too many to tell apart."""

    source: str
    target: str
    style: str  # flight | waits | next | imagined
    title: str
    item: str = ""
    count: int = 1


class Lanes(msgspec.Struct, frozen=True, kw_only=True):
    """The whole picture; `about` says it in words, `counts` by state, `each` how many items a full cell stands for."""

    about: str
    noun: str
    lanes: list[Lane]
    tiles: list[Tile] = []
    arcs: list[Arc] = []
    counts: dict[str, int] = {}
    moves: dict[str, int] = {}
    each: int = 1
    scale: int = 1
    notes: list[str] = []
    teach: list[str] = []
