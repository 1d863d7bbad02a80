"""Why an action waits: a code for programs, a reason for people, and the time at which it would be allowed."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec


class Code(StrEnum):
    """What makes an action wait; the first five are the guards, in the order in which they are asked."""

    PAUSE = "pause"
    WINDOW = "window"
    COOLDOWN = "cooldown"
    BURST_HOLD = "burst-hold"
    BUDGET = "budget"
    MINIMUM = "minimum"
    NOT_READY = "not-ready"
    DISRUPTION_BUDGET = "disruption-budget"
    BACKOFF = "back-off"


class Refusal(msgspec.Struct, frozen=True):
    """An action must wait: until a time (UTC, whole seconds), or until facts change where `until` is None."""

    code: Code
    until: datetime | None
    reason: str

    def __str__(self) -> str:
        """Read as one line: `waits until 2026-11-15T02:00:00Z (window): the next window opens then`."""
        until = f" until {self.until:%Y-%m-%dT%H:%M:%SZ}" if self.until else ""
        return f"waits{until} ({self.code}): {self.reason}"
