"""What the HTTP layer asks and nothing else: one facade of all jobs, and the views that it answers with.

Every method is synchronous and runs in a thread. It raises `InvalidSpec` (400), `NotFound` (404), `Conflict` (409, or
412 where the request was conditional) or `Unavailable` (503); whatever else it raises is a fault of Poise (500).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import UNSET, Meta, UnsetType

from poise.decide.explain import Explanation
from poise.jobs.entries import Planned, Told
from poise.jobs.series import Series
from poise.jobs.stored import Stored
from poise.jobs.what_if import WhatIf
from poise.model import Document
from poise.model.common import ItemName, Serial, Weight
from poise.model.ownership import Line, Registered, Reply, SetTerms
from poise.move.heartbeat import Stale, Superseded

ABSENT = 0  # The revision of a job that is not there: a write that is conditional on it only creates.
ORIGIN = "0"  # The id before the first event of all.
HISTORY_MAX = 10_000  # So many lines of a story are told at once, at most.


class View(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The base of what the API shows: camelCase outside, snake_case inside."""


class JobSummary(View, frozen=True):
    """One job in a line: what people look at first, and what the gauges of the metrics say.

    `members` counts them by state. `spread` is the largest load minus the smallest. `problems` says what is wrong, the
    worst first. The last three are said of kinds that only count: all replicas, those for which there is no room, and
    the workloads that are to change. Members that are long gone and hold nothing are not counted.
    """

    kind: str
    name: str
    revision: int
    health: str
    paused: bool = False
    items: int = 0
    unowned: int = 0
    members: dict[str, int] = {}
    moves_in_flight: int = 0
    late: Annotated[int, Meta(description="members that hold something and are not heard of in time")] = 0
    spread: int = 0
    problems: list[str] = []
    replicas: int | UnsetType = UNSET
    unplaced: int | UnsetType = UNSET
    pending: int | UnsetType = UNSET


# There are thousands of these, and none can lead back to itself: the collector of cycles need not look at them.
class ItemView(View, frozen=True, gc=False):
    """Who holds an item, since when, at which epoch; `counts` is said of replicas, which are only counted."""

    item: str
    state: str
    member: str | None = None
    target: str | None = None
    epoch: int = 0
    since: datetime | None = None
    deadline: datetime | None = None
    confirmed: bool = False
    reason: str = ""
    counts: dict[str, int] | UnsetType = UNSET


class MemberView(View, frozen=True):
    """A member's load and the state of its lease; `releasing` is what is still to leave it, `reserved` what comes.

    `floor` and `ceiling` are those of its exact share; null where hashing decides. `since` is when its state began, if
    that is known; `error` is what went wrong with a pod last.
    """

    name: str
    state: str
    load: int = 0
    releasing: int = 0
    reserved: int = 0
    weight: int = 1
    capacity: int | None = None
    incarnation: int | None = None
    draining: bool = False
    leaving: str | None = None
    lease_s: Annotated[float, Meta(description="seconds until its lease ends; below 0: over")] | None = None
    floor: int | None = None
    ceiling: int | None = None
    quota: Annotated[str, Meta(description="the exact share of a cluster over all workloads, such as 7/2")] | None = (
        None
    )
    since: datetime | None = None
    error: str = ""


class Stoppable(View, frozen=True):
    """May a member stop now; if not, every reason, and how long it may take."""

    ok: bool
    reasons: list[str] = []
    estimate_s: float | None = None


class HttpSd(msgspec.Struct, frozen=True):
    """Targets in the form that Prometheus reads."""

    targets: list[str]
    labels: dict[str, str] = {}


class Event(View, frozen=True):
    """One transition of one job; the ids of events are opaque, and grow in the order of commits."""

    id: str
    kind: str
    job: str
    line: Line
    at: datetime | None = None


class Registration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a process says when it registers: a random text of its own."""

    process: Annotated[str, Meta(min_length=1, max_length=128)]


class SaidHold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One sentence of a heartbeat, as it comes over the wire."""

    item: ItemName
    epoch: Serial
    state: Literal["held", "releasing", "released"]


class SaidHeartbeat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A heartbeat as it comes over the wire; without a `process` the incarnation alone says who speaks."""

    incarnation: Serial
    seq: Serial
    process: Annotated[str, Meta(max_length=128)] = ""
    weight: Weight = 1
    holds: Annotated[list[SaidHold], Meta(max_length=100_000)] = []
    leaving: Literal["stop", "restart"] | None = None


class Pause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a pause goes: with `all` also the recovery of unowned items stops."""

    all: bool = False


class JobsApi(Protocol):
    """All jobs, as people and programs ask about them."""

    def jobs(self) -> list[JobSummary]:
        """List every job."""

    def summary(self, kind: str, name: str) -> JobSummary:
        """Say of one job what the list says."""

    def still(self, kind: str, name: str) -> JobsApi:
        """Keep one job as it is at this instant, to ask several things about it."""

    def get(self, kind: str, name: str) -> Stored:
        """Read one document with its live status."""

    def put(self, document: Document, *, if_match: int | None) -> Stored:
        """Create or change a job; `Conflict` where the revision is not `if_match` (ABSENT: where it exists)."""

    def try_put(self, document: Document) -> Planned:
        """Plan what a `put` would lead to; nothing is changed."""

    def delete(self, kind: str, name: str, *, if_match: int | None) -> None:
        """Give a job up."""

    def plan(self, kind: str, name: str, what_if: WhatIf | None) -> Planned:
        """Plan a job as it is, or as a what-if; nothing is changed."""

    def items(self, kind: str, name: str, *, member: str | None, state: str | None) -> list[ItemView]:
        """List the items of a job, all or those of one member or in one state."""

    def item(self, kind: str, name: str, item: str) -> ItemView:
        """Read one item."""

    def explain(self, kind: str, name: str, item: str, what_if: WhatIf | None = None) -> Explanation | Told:
        """Say why an item is where it is."""

    def history(
        self,
        kind: str,
        name: str,
        item: str | None = None,
        *,
        after: int | None = None,
        most: int = HISTORY_MAX,
        newest: bool = False,
    ) -> list[Line]:
        """Tell the story of an item or of a whole job, oldest or newest first, from after the line of a number on."""

    def members(self, kind: str, name: str) -> list[MemberView]:
        """List the members of a job."""

    def series(self, kind: str, name: str) -> Series:
        """Read what was counted of a job over time."""

    def drain(self, kind: str, name: str, member: str, draining: bool) -> MemberView:
        """Take a member out of service, or back into it."""

    def stoppable(self, kind: str, name: str, member: str) -> Stoppable:
        """Say whether a member may stop now."""

    def pause(self, kind: str, name: str, *, paused: bool, everything: bool) -> Stored:
        """Hold the moves of a job back, or let them go on."""

    def terms(self, name: str) -> SetTerms:
        """Say what a set promises its members."""

    def register(self, name: str, member: str, body: bytes) -> Registered:
        """Give a process its incarnation; the body is a `Registration`."""

    def heartbeat(self, name: str, member: str, body: bytes) -> Reply | Superseded | Stale:
        """Take a heartbeat; the body is a `SaidHeartbeat`."""

    def pod_targets(self, pool: str, pod: str, *, speaks: bool) -> list[HttpSd]:
        """List the targets of one pod of a pool; where pods fetch, the pod itself `speaks`: it lives, and lets go."""

    def events(self, after: str | None, most: int) -> list[Event]:
        """Read events in the order of commits: those after an id, or with None the newest ones."""

    def wait(self, version: int, timeout_s: float) -> int:
        """Wait until something was committed since the version, or for the timeout; answer the version now."""

    def ready(self) -> bool:
        """Say whether the store answers and the first cycle is done."""
