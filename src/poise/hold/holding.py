"""What one member holds: a pure state machine of replies, its own clock, and work that starts and stops.

Rules: act on an item only until sent_at + lease_s - margin of the heartbeat whose reply named it; a reply that does not
name it ends it; on loss stop first, then say so; having said "released", never start that item at that epoch again.
Work that was asked to end does end: a request that is taken back later does not make it hang for ever.
"""

from __future__ import annotations

from enum import StrEnum
from math import inf
from typing import Literal, NamedTuple

import msgspec

from poise.model.ownership import Heartbeat, Hold, Reply, Word


class Phase(StrEnum):
    """What the member does with an item at one epoch."""

    ACTING = "acting"
    FINISHING = "finishing"  # Asked to release: takes no new work.
    STOPPING = "stopping"  # Lost, or out of time: work is being ended.
    STOPPED = "stopped"  # Work has ended; said until the reply no longer names it.


class Piece(msgspec.Struct, frozen=True):
    """One item at one epoch, and until when (by the member's own clock) it may be acted on.

    `finish_by_s` is the deadline that came with the first request to let go; as in the store, it is set once.
    """

    epoch: int
    phase: Phase
    until_s: float
    finish_by_s: float = inf


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a member process knows: who it is, what it said last, and its pieces."""

    process: str
    incarnation: int
    margin_s: float
    revoke: bool = True  # The set's policy. Under `wait` work that hangs is only reported.
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
    base_s = sent_at_s - holding.margin_s
    named = {grant.item: _Told(grant.epoch, base_s + grant.lease_s) for grant in reply.granted}
    for each in reply.release:
        named[each.item] = _Told(each.epoch, base_s + each.lease_s, sent_at_s + each.deadline_s)
    let_go = dict(holding.let_go)
    for item, piece in holding.pieces.items():
        if piece.phase is Phase.STOPPED:
            let_go[item] = max(piece.epoch, let_go.get(item, 0))
    heard = msgspec.structs.replace(holding, used_seq=reply.seq, let_go=let_go)
    judged = {item: _judged(heard, item, named.get(item), now_s) for item in sorted({*named, *holding.pieces})}
    pieces = {item: piece for item, (piece, _) in judged.items() if piece is not None}
    return msgspec.structs.replace(heard, pieces=pieces), [order for _, order in judged.values() if order is not None]


class _Told(NamedTuple):
    """What a reply says of one item, by the member's own clock; without `finish_by_s` it may be kept."""

    epoch: int
    until_s: float
    finish_by_s: float | None = None


def _judged(holding: Holding, item: str, told: _Told | None, now_s: float) -> tuple[Piece | None, Order | None]:
    """Give what becomes of one item."""
    known = holding.pieces.get(item)
    if told is None:
        assert known is not None
        piece, order = _unnamed(item, known)
    elif told.epoch <= holding.let_go.get(item, 0) and (known is None or known.phase is Phase.STOPPED):
        return Piece(told.epoch, Phase.STOPPED, 0.0), None  # Said once, it is said again, never begun again.
    else:
        late = holding.revoke and known is not None and now_s >= known.finish_by_s
        piece, order = _named(item, known, told, late)
    if piece is not None and isinstance(order, Start) and now_s >= piece.until_s:
        return None, None
    if piece is not None and isinstance(order, Stop):
        # Nobody may act on it from now on, however long its lease still is: whoever guards the work is told so.
        piece = _until(piece, now_s)
    return piece, order


def _unnamed(item: str, known: Piece) -> tuple[Piece | None, Order | None]:
    """Let go of what a reply does not name: stop first; what has stopped already need not be said again."""
    if known.phase is Phase.STOPPED:
        return None, None
    if known.phase is Phase.STOPPING:
        return known, None
    return _stopping(item, known)


def _named(item: str, known: Piece | None, told: _Told, late: bool) -> tuple[Piece | None, Order | None]:
    """Start, go on, or let go, as the reply says of this epoch."""
    if known is None:
        if told.finish_by_s is not None:
            return Piece(told.epoch, Phase.STOPPED, told.until_s), None
        return Piece(told.epoch, Phase.ACTING, told.until_s), Start(item, told.epoch)
    if known.epoch != told.epoch:
        # The store knows of another grant. What runs belongs to an old epoch: it must end before the new one begins.
        if known.phase is Phase.STOPPED:
            return _named(item, None, told, False)
        return (known, None) if known.phase is Phase.STOPPING else _stopping(item, known)
    if known.phase in (Phase.STOPPING, Phase.STOPPED):
        return known, None
    timed = msgspec.structs.replace(known, until_s=told.until_s)
    if known.phase is Phase.ACTING and told.finish_by_s is not None:
        return _finishing(item, timed, told.finish_by_s)
    if known.phase is Phase.FINISHING and told.finish_by_s is None and late:
        # The request was taken back, so the store goes on renewing, and nobody but this member knows that the work was
        # asked to end. What hangs past its deadline is stopped, said to be released, and given at the next epoch. While
        # a request stands this is the store's to judge: `revoke` lets the lease run out, `wait` only reports.
        return _stopping(item, timed)
    return timed, None


def _finishing(item: str, piece: Piece, finish_by_s: float) -> tuple[Piece, Order]:
    return msgspec.structs.replace(piece, phase=Phase.FINISHING, finish_by_s=finish_by_s), Finish(item, piece.epoch)


def _stopping(item: str, piece: Piece) -> tuple[Piece, Order]:
    return msgspec.structs.replace(piece, phase=Phase.STOPPING), Stop(item, piece.epoch)


def _until(piece: Piece, now_s: float) -> Piece:
    return msgspec.structs.replace(piece, until_s=min(piece.until_s, now_s))


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


def end(holding: Holding, now_s: float = inf) -> tuple[Holding, list[Order]]:
    """Stop everything: a newer process of this name has registered, or the member leaves at once."""
    orders: list[Order] = []
    pieces = dict(holding.pieces)
    for item, piece in sorted(holding.pieces.items()):
        if piece.phase in (Phase.ACTING, Phase.FINISHING):
            pieces[item], order = _stopping(item, _until(piece, now_s))
            orders.append(order)
    return msgspec.structs.replace(holding, pieces=pieces, ended=True), orders


def next_fence_s(holding: Holding) -> float | None:
    """Give the first instant at which something must be stopped if nothing is heard."""
    ends = [piece.until_s for piece in holding.pieces.values() if piece.phase in (Phase.ACTING, Phase.FINISHING)]
    return min(ends, default=None)


def leave(holding: Holding, finish_by_s: float) -> tuple[Holding, list[Order]]:
    """Begin to let go of everything; what is finishing goes on being renewed, so that it can end its work in peace."""
    orders: list[Order] = []
    pieces = dict(holding.pieces)
    for item, piece in sorted(holding.pieces.items()):
        if piece.phase is Phase.ACTING:
            pieces[item], order = _finishing(item, piece, finish_by_s)
            orders.append(order)
    return msgspec.structs.replace(holding, pieces=pieces), orders


def busy(holding: Holding) -> bool:
    """Say whether any work is still going on."""
    return any(piece.phase is not Phase.STOPPED for piece in holding.pieces.values())


def overdue(holding: Holding, now_s: float) -> frozenset[tuple[str, int]]:
    """Name what should have ended its work by now, and has not: items and their epochs."""
    return frozenset(
        (item, piece.epoch)
        for item, piece in holding.pieces.items()
        if piece.phase is Phase.FINISHING and now_s >= piece.finish_by_s
    )
