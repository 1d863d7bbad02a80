"""What the processes of the demo say to each other: JSON lines of these values."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

LINE_MAX = 1 << 26  # So long may a line be: a step names every item of a job, and a job may have very many.

StepName = Literal["kill-worker", "freeze-worker", "drain-collector", "change-weight", "restart-server"]
PartState = Literal["running", "down", "frozen"]


class Late(msgspec.Struct, frozen=True, tag=True):
    """A worker to its parent: the sink has refused a write of mine, since somebody else owns the item by now."""

    item: str
    epoch: int
    seen: int


class PartSeen(msgspec.Struct, frozen=True):
    """One process of the demo; `until` is when one that is down is started, and one that is frozen goes on."""

    name: str
    role: str
    state: PartState
    pid: int
    until: datetime | None = None


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A step that somebody took: whom it met, and what was so before it.

    `epochs` are those of the items concerned, `counts` the replicas of each cluster. `back_at` is when a server that
    was asked to restart answered again. `late` counts the writes that came too late, `settled_s` is how long it took
    until every item had its owner, `over` whether there is nothing more to see, `back` whether an earlier step was
    taken back, and `text` what was said of it last.
    """

    step: StepName
    subject: str
    at: datetime
    epochs: dict[str, int] = {}
    counts: dict[str, int] = {}
    weights: tuple[int, int] = (0, 0)
    back_at: datetime | None = None
    late: int = 0
    settled_s: float | None = None
    over: bool = False
    back: bool = False
    text: str = ""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What the parent knows, told to the server at every change: the parts, the steps taken, and the orders heard."""

    parts: tuple[PartSeen, ...] = ()
    taken: dict[str, Taken] = {}
    done: tuple[str, ...] = ()
    heard: int = 0


class Asked(msgspec.Struct, frozen=True):
    """What the parent asks of its server; `given` are further documents, as text."""

    db: str
    listen: str
    insecure: bool
    hosts: tuple[str, ...]
    sink: str
    ports: dict[str, int]
    given: str = ""


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """The server to the parent: I could begin; the first state that I hear lets me."""


class Answers(msgspec.Struct, frozen=True, tag=True):
    """The server to the parent: I answer."""


class Order(msgspec.Struct, frozen=True, tag=True):
    """The server to the parent: somebody takes this step; do your part of it."""

    number: int
    taken: Taken


class Settled(msgspec.Struct, frozen=True, tag=True):
    """The server to the parent: a step has come so far; `text` says it, and `news` whether to people, too."""

    step: StepName
    settled_s: float | None
    over: bool
    text: str
    news: bool


FromServer = Loaded | Answers | Order | Settled
