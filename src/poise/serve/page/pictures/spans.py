"""The story of an item as spans of time: who had it, in which phase, from when to when, and why it began."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import log1p

import msgspec

from poise.model.ownership import GENERATION, Line
from poise.move.handoff import Transition
from poise.serve.page.pictures.ink import said, span
from poise.serve.page.rendering import moment_text

OFFERED, HELD, ASKED, RELEASING, FREE, TOLD, OVER = "offered", "held", "asked", "releasing", "unowned", "told", "over"
WORDS = {
    OFFERED: "offered",
    HELD: "held",
    ASKED: "asked back",
    RELEASING: "being released",
    FREE: "without an owner",
    TOLD: "",
    OVER: "given up",
}
_PHASES = {
    Transition.T1: OFFERED,
    Transition.T2: HELD,
    Transition.T3: ASKED,
    Transition.T4: RELEASING,
    Transition.T5: FREE,
    Transition.T6: HELD,
    Transition.T7: FREE,
    Transition.T9: OVER,
}
_OWNERLESS = (FREE, OVER)


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of an item's life; `end` is None while it lasts. What is only counted is told, and has no owner."""

    owner: str
    phase: str
    start: datetime
    end: datetime | None = None
    epoch: int = 0
    reason: str = ""

    def lasted_s(self, now: datetime) -> float:
        """Say how long it lasted, or has lasted by now."""
        return max(0.0, ((self.end or now) - self.start).total_seconds())

    def weight(self, now: datetime) -> float:
        """Say how wide it is drawn: days beside seconds would leave the seconds no room."""
        return 1.0 + log1p(self.lasted_s(now))

    def told(self, now: datetime) -> str:
        """Say it in one line."""
        start = moment_text(self.start, now)
        until = f"{start} to {moment_text(self.end, now)}" if self.end else f"since {start}"
        who = [said(self.owner)] if self.owner else []
        epoch = [f"epoch {epoch_text(self.epoch)}"] if self.owner and self.epoch else []
        what = [WORDS[self.phase]] if WORDS[self.phase] else []
        why = f". {said(self.reason)}" if self.reason else ""
        return f"{', '.join([*who, *epoch, *what, until])} UTC, {span(self.lasted_s(now))}{why}"


def epoch_text(epoch: int) -> str:
    """Read an epoch as people compare it: its generation is said only where commits were lost."""
    generation, counter = divmod(epoch, GENERATION)
    return f"{counter} of generation {generation}" if generation else str(counter)


def spans_of(lines: Sequence[Line], zero: datetime | None) -> list[Span]:
    """Read the lines of a journal, oldest first, as spans that follow each other without a gap."""
    start = zero or datetime(1970, 1, 1, tzinfo=UTC)
    spans: list[Span] = []
    for line in lines:
        at = start + timedelta(seconds=line.at_s)
        if line.transition in (Transition.T6B, Transition.RENEW):
            continue
        phase = next((phase for transition, phase in _PHASES.items() if transition == line.transition), TOLD)
        owner = "" if phase in _OWNERLESS else line.member or ""
        if spans:
            spans[-1] = msgspec.structs.replace(spans[-1], end=max(at, spans[-1].start))
        spans.append(Span(owner=owner, phase=phase, start=at, epoch=line.epoch, reason=line.reason))
    return spans
