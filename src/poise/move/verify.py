"""Replaying a journal against the laws: a pure reader that knows the table of transitions and nothing of the stores."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from poise.model.ownership import GENERATION, Line
from poise.move.handoff import Transition


class Broken(msgspec.Struct, frozen=True):
    """The first line of a journal that breaks a law, and which."""

    line: Line
    law: str

    def __str__(self) -> str:
        """Read as one line."""
        where = f"{self.line.set}/{self.line.item}" if self.line.item else self.line.set
        return f"line {self.line.number}, {where}, {self.line.transition} at epoch {self.line.epoch}: {self.law}"


class _Item(msgspec.Struct, frozen=True):
    """What a journal has told of one item so far."""

    owner: str | None = None
    epoch: int = 0
    asked: bool = False
    acknowledged: bool = False


class _Set(msgspec.Struct):
    """What a journal has told of one set so far."""

    number: int = 0
    term: int = 0
    at_s: float = 0.0
    least: int = 0  # Where the epochs of its generation begin.
    items: dict[str, _Item] = msgspec.field(default_factory=dict)


def verify(lines: Iterable[Line]) -> Broken | None:
    """Find the first broken law; None where the whole journal is sound."""
    sets: dict[str, _Set] = {}
    for line in lines:
        known = sets.setdefault(line.set, _Set())
        law = _order(known, line) or _judge(known.items.get(line.item, _Item()), line, known.least)
        if law:
            return Broken(line, law)
        known.number = line.number
        known.term, known.at_s = max(known.term, line.term), line.at_s
        _follow(known, line)
    return None


def _order(known: _Set, line: Line) -> str:
    if line.number <= known.number:
        return f"lines must grow, and line {known.number} came before"
    if known.number and line.number != known.number + 1:
        return f"lines {known.number + 1} to {line.number - 1} are missing"
    if line.term and line.term < known.term:
        return f"a leader of term {line.term} wrote after term {known.term} had begun"
    return ""


def _judge(item: _Item, line: Line, least: int) -> str:
    """Judge one transition by what is known of its item."""
    if not line.item:
        return ""
    try:
        transition = Transition(line.transition)
    except ValueError:
        if line.member is None and not line.epoch:
            return ""  # Replicas are counted, and owned by nobody: what became of a division is no hand-over.
        return f"there is no transition {line.transition!r}"
    if transition is Transition.T1:
        if item.owner is not None:
            return f"never two owners: {item.owner} still has it"
        if line.epoch // GENERATION == item.epoch // GENERATION and line.epoch != item.epoch + 1 and item.epoch:
            return f"a grant raises the epoch by one, and it was {item.epoch}"
        least = max(least, item.epoch)
        return "" if line.epoch > least else f"epochs only grow, and it was {least}"
    if line.epoch != item.epoch and item.epoch:
        return f"only a grant changes the epoch, and it was {item.epoch}"
    return _judge_owned(item, line, transition)


def _judge_owned(item: _Item, line: Line, transition: Transition) -> str:
    if transition is Transition.T9:
        return f"a row is buried only when nobody has it, and {item.owner} does" if item.owner is not None else ""
    if item.owner is None:
        return "nobody has it"
    if transition in (Transition.T2, Transition.T4, Transition.T5) and line.member != item.owner:
        return f"{line.member} speaks for {item.owner}"
    if transition is Transition.T3 and item.asked:
        return "its release was asked for already"
    if transition in (Transition.T4, Transition.T6, Transition.T6B) and not item.asked:
        return "nobody had asked for its release"
    if transition is Transition.T6 and item.acknowledged:
        return "its owner had acknowledged the release"
    return ""


def _follow(known: _Set, line: Line) -> None:
    """Take a sound line into account; a line of the set that starts a generation frees everything."""
    if not line.item:
        if line.reason.startswith("generation "):
            known.least = int(line.reason.removeprefix("generation ").partition(":")[0]) * GENERATION
            known.items = {name: _Item(epoch=0) for name in known.items}
        return
    item = known.items.get(line.item, _Item())
    match line.transition:
        case Transition.T1:
            item = _Item(owner=line.member, epoch=line.epoch)
        case Transition.T3:
            item = msgspec.structs.replace(item, asked=True)
        case Transition.T4:
            item = msgspec.structs.replace(item, acknowledged=True)
        case Transition.T6:
            item = msgspec.structs.replace(item, asked=False)
        case Transition.T5 | Transition.T7:
            item = _Item(epoch=line.epoch)
        case _:
            pass
    known.items[line.item] = item
