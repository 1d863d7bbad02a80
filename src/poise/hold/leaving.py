"""How a member leaves: a pure step of what it holds."""

from __future__ import annotations

import msgspec

from poise.hold.holding import Finish, Holding, Order, Phase


def leave(holding: Holding) -> tuple[Holding, list[Order]]:
    """Begin to let go of everything; what is finishing goes on being renewed, so that it can end its work in peace."""
    orders: list[Order] = []
    pieces = dict(holding.pieces)
    for item, piece in sorted(holding.pieces.items()):
        if piece.phase is Phase.ACTING:
            pieces[item] = msgspec.structs.replace(piece, phase=Phase.FINISHING)
            orders.append(Finish(item, piece.epoch))
    return msgspec.structs.replace(holding, pieces=pieces), orders


def busy(holding: Holding) -> bool:
    """Say whether any work is still going on."""
    return any(piece.phase is not Phase.STOPPED for piece in holding.pieces.values())
