"""From transitions to moves: what began why, how it ended, and how long items were between two owners."""

from __future__ import annotations

import msgspec

from poise.model.ownership import RESTART, RETIREMENT
from poise.move.handoff import Transition
from poise.serve.facade import Event

_OPEN_MAX = 1_000_000  # Moves that never end must not fill the memory; nobody has so many in flight.


class Begun(msgspec.Struct, frozen=True):
    """A move under way: since when, why, from whom, and since when nobody holds the item."""

    at_s: float
    reason: str
    source: str | None = None
    asked: bool = True
    free_s: float | None = None
    outcome: str = "done"


class Ended(msgspec.Struct, frozen=True):
    """What one transition ends: a move, a hand-over, a time without an owner; or nothing.

    A move is `forced` where no plan could have avoided it: its member went, or the item is no more.
    """

    reason: str = ""
    outcome: str = ""
    handoff_s: float | None = None
    unowned_s: float | None = None
    forced: bool = False


class Moves:
    """Follows every item that is between two owners; a first placement, and coming back to the same, is no move."""

    def __init__(self) -> None:
        """Know of no move yet; those under way at the start are counted from their next transition on."""
        self._begun: dict[tuple[str, str, str], Begun] = {}

    def take(self, event: Event) -> Ended:
        """Follow one transition, and say what it ends."""
        line, key = event.line, (event.kind, event.job, event.line.item)
        match line.transition:
            case Transition.T3:
                if len(self._begun) < _OPEN_MAX:
                    self._begun[key] = Begun(line.at_s, reason_of(line.reason), line.member)
            case Transition.T5 | Transition.T7:
                self._begun[key] = self._freed(event)
            case Transition.T6 | Transition.T9:
                begun = self._begun.pop(key, None)
                if begun is not None and begun.asked:
                    retired = line.transition == Transition.T9
                    return Ended(begun.reason, "retired" if retired else "cancelled", forced=retired)
            case Transition.T1:
                return _arrived(self._begun.pop(key, None), line.at_s, line.member)
        return Ended()

    def _freed(self, event: Event) -> Begun:
        """Note that nobody holds the item; one that nobody had asked for was lost, or let go of by a member that stops.

        The line of a release that nobody asked for says why its member had the item, not why it goes.
        """
        line = event.line
        expired = line.transition == Transition.T7
        reason = "gone" if expired else "restart" if line.reason == RESTART else "stop"
        before = self._begun.get((event.kind, event.job, line.item))
        if before is None:
            return Begun(line.at_s, reason, line.member, asked=False, free_s=line.at_s)
        outcome = "expired" if expired else before.outcome
        return msgspec.structs.replace(before, free_s=line.at_s, outcome=outcome, source=before.source or line.member)


def _arrived(begun: Begun | None, at_s: float, member: str | None) -> Ended:
    """End a move where the item was granted again."""
    if begun is None:
        return Ended()
    free_s = begun.free_s if begun.free_s is not None else at_s
    if member == begun.source:
        return Ended(unowned_s=at_s - free_s)
    handoff_s = at_s - begun.at_s if begun.asked else None
    return Ended(begun.reason, begun.outcome, handoff_s, at_s - free_s, forced=not begun.asked)


def reason_of(text: str) -> str:
    """Put the sentence of a reason into one of a few words: a label may not grow with names and numbers."""
    if text == RETIREMENT:
        return "retire"
    for sign, reason in (("draining", "drain"), ("restart", "restart"), ("gone", "gone"), ("leaving", "stop")):
        if sign in text:
            return reason
    return "balance"
