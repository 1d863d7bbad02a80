"""What one member holds: a pure state machine of replies, its own clock, and work that starts and stops.

Rules: act on an item only until sent_at + lease_s - margin of the heartbeat whose reply named it; a reply that does not
name it ends it; on loss stop first, then say so; having said "released", never start that item at that epoch again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from poise.model.ownership import Heartbeat, Hold, Reply, Word


class Phase(StrEnum):
    """What the member does with an item at one epoch."""

    ACTING = "acting"
    FINISHING = "finishing"  # Asked to release: takes no new work.
    STOPPING = "stopping"  # Lost, or out of time: work is being ended.
    STOPPED = "stopped"  # Work has ended; said until the reply no longer names it.


class Piece(msgspec.Struct, frozen=True):
    """One item at one epoch, and until when (by the member's own clock) it may be acted on."""

    epoch: int
    phase: Phase
    until_s: float


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a member process knows: who it is, what it said last, and its pieces."""

    process: str
    incarnation: int
    margin_s: float
    seq: int = 0
    used_seq: int = 0
    pieces: dict[str, Piece] = {}
    let_go: dict[str, int] = {}  # The largest epoch of each item at which this process said that it has stopped.
    ended: bool = False


_WORDS = {Phase.ACTING: Word.HELD, Phase.FINISHING: Word.RELEASING, Phase.STOPPED: Word.RELEASED}


class Start(msgspec.Struct, frozen=True):
    """Begin to act on an item."""

    item: str
    epoch: int


class Finish(msgspec.Struct, frozen=True):
    """Take no new work on an item, end what is running."""

    item: str
    epoch: int


class Stop(msgspec.Struct, frozen=True):
    """End all work on an item at once."""

    item: str
    epoch: int


Order = Start | Finish | Stop


def speak(
    holding: Holding, *, weight: int = 1, leaving: Literal["stop", "restart"] | None = None
) -> tuple[Holding, Heartbeat]:
    """Make the next heartbeat: a new number for every attempt, and one sentence for every piece that can be spoken of.

    Of a piece that is being stopped nothing is said: "held" would renew it, and "released" is not yet true.
    """
    spoken = msgspec.structs.replace(holding, seq=holding.seq + 1)
    holds = tuple(
        Hold(item, piece.epoch, _WORDS[piece.phase])
        for item, piece in sorted(holding.pieces.items())
        if piece.phase in _WORDS
    )
    said = Heartbeat(
        process=holding.process,
        incarnation=holding.incarnation,
        seq=spoken.seq,
        holds=holds,
        weight=weight,
        leaving=leaving,
    )
    return spoken, said


def hear(holding: Holding, reply: Reply, sent_at_s: float, now_s: float) -> tuple[Holding, list[Order]]:
    """Take the reply to the heartbeat that was sent at this time; one older than the newest used is ignored.

    A reply may come so late that what it grants has ended: then nothing is begun.
    """
    if holding.ended or reply.incarnation != holding.incarnation or reply.seq <= holding.used_seq:
        return holding, []
    named = {grant.item: (grant.epoch, grant.lease_s, False) for grant in reply.granted}
    named |= {release.item: (release.epoch, release.lease_s, True) for release in reply.release}
    pieces: dict[str, Piece] = {}
    let_go = dict(holding.let_go)
    orders: list[Order] = []
    for item in sorted({*named, *holding.pieces}):
        known, told = holding.pieces.get(item), named.get(item)
        if known is not None and known.phase is Phase.STOPPED:
            let_go[item] = max(known.epoch, let_go.get(item, 0))
        if told is None:
            piece, order = _unnamed(item, known)
        elif told[0] <= let_go.get(item, 0):
            piece, order = Piece(told[0], Phase.STOPPED, 0.0), None  # Said once, it is said again, never begun again.
        else:
            piece, order = _named(item, known, told, sent_at_s - holding.margin_s)
            if isinstance(order, Start) and piece is not None and now_s >= piece.until_s:
                piece, order = None, None
        if piece is not None:
            pieces[item] = piece
        if order is not None:
            orders.append(order)
    return msgspec.structs.replace(holding, used_seq=reply.seq, pieces=pieces, let_go=let_go), orders


def _unnamed(item: str, known: Piece | None) -> tuple[Piece | None, Order | None]:
    """Let go of what a reply does not name: stop first; what has stopped already need not be said again."""
    assert known is not None
    if known.phase is Phase.STOPPED:
        return None, None
    if known.phase is Phase.STOPPING:
        return known, None
    return _stopping(item, known)


def _named(
    item: str, known: Piece | None, told: tuple[int, float, bool], base_s: float
) -> tuple[Piece | None, Order | None]:
    """Start, go on, or let go, as the reply says of this epoch."""
    epoch, lease_s, asked = told
    until_s = base_s + lease_s
    if known is None:
        if asked:
            return Piece(epoch, Phase.STOPPED, until_s), None
        return Piece(epoch, Phase.ACTING, until_s), Start(item, epoch)
    if known.epoch != epoch:
        # The store knows of another grant. What runs belongs to an old epoch: it must end before the new one begins.
        if known.phase is Phase.STOPPED:
            return _named(item, None, told, base_s)
        return (known, None) if known.phase is Phase.STOPPING else _stopping(item, known)
    if known.phase in (Phase.STOPPING, Phase.STOPPED):
        return known, None
    timed = msgspec.structs.replace(known, until_s=until_s)
    if asked and known.phase is Phase.ACTING:
        return msgspec.structs.replace(timed, phase=Phase.FINISHING), Finish(item, epoch)
    return timed, None


def _stopping(item: str, piece: Piece) -> tuple[Piece, Order]:
    return msgspec.structs.replace(piece, phase=Phase.STOPPING), Stop(item, piece.epoch)


def watch(holding: Holding, now_s: float) -> tuple[Holding, list[Order]]:
    """Fence itself: whatever may no longer be acted on is stopped, whether or not anybody answers."""
    orders: list[Order] = []
    pieces = dict(holding.pieces)
    for item, piece in sorted(holding.pieces.items()):
        if piece.phase in (Phase.ACTING, Phase.FINISHING) and now_s >= piece.until_s:
            pieces[item], order = _stopping(item, piece)
            orders.append(order)
    return msgspec.structs.replace(holding, pieces=pieces), orders


def stopped(holding: Holding, item: str, epoch: int) -> Holding:
    """Note that work on an item has ended, so that it can be said."""
    piece = holding.pieces.get(item)
    if piece is None or piece.epoch != epoch:
        return holding
    done = msgspec.structs.replace(piece, phase=Phase.STOPPED)
    return msgspec.structs.replace(holding, pieces={**holding.pieces, item: done})


def end(holding: Holding) -> tuple[Holding, list[Order]]:
    """Stop everything: a newer process of this name has registered, or the member leaves at once."""
    orders: list[Order] = []
    pieces = dict(holding.pieces)
    for item, piece in sorted(holding.pieces.items()):
        if piece.phase in (Phase.ACTING, Phase.FINISHING):
            pieces[item], order = _stopping(item, piece)
            orders.append(order)
    return msgspec.structs.replace(holding, pieces=pieces, ended=True), orders


def next_fence_s(holding: Holding) -> float | None:
    """Give the first instant at which something must be stopped if nothing is heard."""
    ends = [piece.until_s for piece in holding.pieces.values() if piece.phase in (Phase.ACTING, Phase.FINISHING)]
    return min(ends, default=None)
