"""What the five kinds share: the kinds of text and numbers with their limits, metadata, selectors and guards."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

API_VERSION = "poise.dev/v1alpha1"
GUARDS_MAX = 100  # Windows, and budgets, of one document.
ApiVersion = Literal["poise.dev/v1alpha1"]

# A line break, a control character or a sign that turns the writing direction would forge lines of a report.
_PRINTABLE = r"[^\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb]"
_NAMED = "letters and digits, with '-', '.' or '_' between them"

# The patterns end in \Z, since $ would also match before a last line break.
Name = Annotated[
    str, Meta(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\Z", description=_NAMED)
]
WorkloadName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=1024,
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?\Z",
        description="letters and digits, with '-', '.', '_' or '/' between them",
    ),
]
ItemName = Annotated[
    str, Meta(min_length=1, max_length=1024, pattern=rf"^{_PRINTABLE}+\Z", description="printable text on one line")
]
Line = Annotated[str, Meta(max_length=1024, pattern=rf"^{_PRINTABLE}*\Z", description="printable text on one line")]
Sentence = Annotated[
    str, Meta(max_length=16_384, pattern=rf"^{_PRINTABLE}*\Z", description="printable text on one line")
]
Url = Annotated[
    str,
    Meta(
        max_length=2048,
        pattern=r"^https?://[^\x00-\x20\x7f-\xa0\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]+\Z",
        description="an http:// or https:// address",
    ),
]
Percentage = Annotated[
    str, Meta(pattern=r"^(100|[1-9]?[0-9])%\Z", description="a percentage from 0% to 100%, such as 20%")
]

Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Capacity = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Weight = Annotated[int, Meta(ge=0, le=1_000_000)]
Percent = Annotated[int, Meta(ge=0, le=100)]
Part = Annotated[float, Meta(ge=0, le=1)]
Tokens = Annotated[int, Meta(ge=1, le=10_000)]
Port = Annotated[int, Meta(ge=1, le=65_535)]
Serial = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Seconds = Annotated[int, Meta(ge=0, le=31_622_400)]
SomeSeconds = Annotated[int, Meta(ge=1, le=31_622_400)]
Moment = Annotated[datetime, Meta(tz=True)]


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """The base of all that a document holds: it never changes, knows its fields, and is camelCase on the wire."""


class Metadata(Value, frozen=True):
    """Who a document is, and what people say about it."""

    name: Name
    namespace: Name | None = None
    labels: dict[ItemName, Line] = {}
    annotations: dict[ItemName, str] = {}


class LabelRule(Value, frozen=True):
    """One condition on a label."""

    key: ItemName
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[Line] = []


class LabelSelector(Value, frozen=True):
    """Which objects are meant, by their labels; an empty one means all."""

    match_labels: dict[ItemName, Line] = {}
    match_expressions: list[LabelRule] = []


class Window(Value, frozen=True):
    """When disruptive actions are allowed: from every start of a five-field cron, for a duration."""

    schedule: Line
    duration: Line
    timezone: Line = "UTC"


class Budget(Value, frozen=True):
    """At most so many actions, or such a part of the replicas, within the last so many seconds."""

    limit: Count | Percentage
    window_seconds: SomeSeconds
    scope: Literal["workload", "namespace", "cluster"] = "workload"


class Guards(Value, frozen=True):
    """What makes an action wait."""

    cooldown_seconds: Seconds = 0
    windows: Annotated[list[Window], Meta(max_length=GUARDS_MAX)] = []
    budgets: Annotated[list[Budget], Meta(max_length=GUARDS_MAX)] = []


class MoveGuards(Guards, frozen=True):
    """What makes a move of an item wait; a limit of None is no limit."""

    moves_in_flight_max: Count | None = None
    per_source_max: Count | None = None
    per_target_max: Count | None = None
