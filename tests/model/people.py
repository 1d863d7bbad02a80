"""The processes of the explored world: the real state machine of a member, a clock that may be late, and pauses."""

from __future__ import annotations

from math import inf
from typing import Literal

import msgspec
from tests.model.facts import MARK, NOW, OLDEST, replace

from poise.hold import holding as hold
from poise.hold.holding import Holding, Phase, Piece, Start
from poise.model.ownership import Heartbeat, Reply

LEAVINGS: tuple[Literal["stop", "restart"], ...] = ("stop", "restart")
BUSY = (Phase.ACTING, Phase.FINISHING, Phase.STOPPING)
CLOCK_ERROR_S = 1.0  # A process may notice the end of its time this late. Time to stop: until the next tick.
MARGIN_S = 1.0
RELEASE_S = 1.0  # How long work of a member that leaves has to end.


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """One process: `excused` are items that it may act on too long only because it was paused and did not know."""

    name: str
    state: Literal["unborn", "registering", "live", "gone"] = "unborn"
    holding: Holding | None = None
    paused: bool = False
    excused: tuple[str, ...] = ()
    leaving: Literal["stop", "restart"] | None = None

    def knows(self) -> Holding:
        """Give what a live process holds."""
        assert self.holding is not None
        return self.holding

    def acts_on(self) -> tuple[str, ...]:
        """List the items that count as worked on; STOPPING may still work."""
        if self.holding is None or self.paused:
            return ()
        pieces = self.holding.pieces.items()
        return tuple(item for item, piece in pieces if piece.phase in BUSY and item not in self.excused)


def born(name: str, process: str, incarnation: int, *, revoke: bool = True) -> Person:
    """Make a process that has heard of its registration, and of the policy of its set."""
    new = Holding(process=process, incarnation=incarnation, margin_s=MARGIN_S, revoke=revoke)
    return _keep(Person(name=name, state="live"), replace(new, seq=MARK, used_seq=OLDEST))


def speak(person: Person) -> tuple[Person, Heartbeat]:
    """Send a heartbeat; its number becomes the mark."""
    after, said = hold.speak(person.knows(), leaving=person.leaving)
    return _keep(person, replace(after, seq=after.seq - 1, used_seq=after.used_seq - 1)), replace(said, seq=0)


def hear(person: Person, reply: Reply, sent_at_s: float) -> Person:
    """Use a reply, with a clock that may be late; one that leaves starts nothing."""
    heard, orders = hold.hear(person.knows(), reply, sent_at_s, NOW - CLOCK_ERROR_S)
    for order in orders:
        if isinstance(order, Start) and person.leaving:
            heard = hold.stopped(heard, order.item, order.epoch)
    return _keep(person, heard)


def leave(person: Person, why: Literal["stop", "restart"]) -> Person:
    """Begin to leave: all work is to end."""
    after, _ = hold.leave(person.knows(), NOW + RELEASE_S)
    return _keep(replace(person, leaving=why), after)


def watch(person: Person, late_s: float = 0.0) -> Person:
    """Look at the clock, which may be late."""
    after, _ = hold.watch(person.knows(), NOW - late_s)
    return _keep(person, after)


def stop(person: Person, item: str) -> Person:
    """Let the work on an item end."""
    known = person.knows()
    return _keep(person, hold.stopped(known, item, known.pieces[item].epoch))


def superseded(person: Person) -> Person:
    """Hear that a newer process of this name has registered."""
    after, _ = hold.end(person.knows())
    return _keep(person, after)


def resume(person: Person) -> Person:
    """Wake up and look at the clock: what ran out meanwhile is excused until it has stopped, nothing else is."""
    pieces = person.knows().pieces
    late = [item for item, piece in pieces.items() if piece.phase in BUSY and piece.until_s <= NOW]
    return watch(replace(person, paused=False, excused=tuple(late)))


def tick(person: Person) -> Person:
    """Let a tick pass: what was being stopped has stopped, and what has run out is stopped."""
    if person.holding is None:
        return person
    pieces = {
        item: replace(piece, until_s=piece.until_s - 1, finish_by_s=piece.finish_by_s - 1)
        for item, piece in person.holding.pieces.items()
    }
    older = _keep(person, replace(person.holding, pieces=pieces))
    if person.paused:
        return older
    for item, piece in pieces.items():
        if piece.phase is Phase.STOPPING:
            older = stop(older, item)
    return watch(older, CLOCK_ERROR_S)


def _keep(person: Person, holding: Holding) -> Person:
    """Take the normal form of what a process knows."""
    pieces = {item: _normal_piece(piece) for item, piece in sorted(holding.pieces.items())}
    let_go = dict(sorted(holding.let_go.items()))
    used = max(OLDEST, holding.used_seq)
    known = replace(holding, pieces=pieces, let_go=let_go, used_seq=used)
    excused = tuple(item for item in person.excused if item in pieces and pieces[item].phase in BUSY)
    return replace(person, holding=known, excused=excused)


def _normal_piece(piece: Piece) -> Piece:
    timed, over_s = piece.phase in (Phase.ACTING, Phase.FINISHING), NOW - CLOCK_ERROR_S
    return replace(
        piece,
        until_s=max(piece.until_s, over_s) if timed else 0.0,
        finish_by_s=max(piece.finish_by_s, over_s) if piece.phase is Phase.FINISHING else inf,
    )
