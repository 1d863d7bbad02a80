"""Sentences about what happened, as a page shows them: members in bold, items as links to their pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from markupsafe import Markup

from poise.jobs import sentences
from poise.jobs.sentences import Happened, Piece
from poise.serve.facade import Event
from poise.serve.page.rendering import named, path_text
from poise.serve.page.words import ITEMS


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """What the page says of one transition, or of many that happened together."""

    at: datetime | None
    kind: str
    job: str
    glyph: str
    mood: str
    text: Markup
    reason: str


def happened(events: Iterable[Event]) -> list[Happened]:
    """Take events as what happened."""
    return [Happened(each.kind, each.job, each.line, each.at, each.line.transition) for each in events]


def tell(found: Sequence[Happened], most: int, *, cut: bool = False) -> list[Sentence]:
    """Tell what happened, newest first: `found` comes oldest first; `cut` says that older lines were left out."""
    return [_shown(each) for each in sentences.tell(found, most, nouns=ITEMS, cut=cut)]


def _shown(told: sentences.Sentence) -> Sentence:
    return Sentence(
        at=told.at,
        kind=told.kind,
        job=told.job,
        glyph=told.glyph,
        mood=told.mood,
        text=Markup("").join(_piece(piece, told.kind, told.job) for piece in told.pieces),
        reason=told.reason,
    )


def _piece(piece: Piece, kind: str, job: str) -> Markup:
    """Write one piece; every text of the store is escaped."""
    if piece.what == "name":
        return Markup("<b>{}</b>").format(named(piece.text))
    if piece.what == "item" and kind:
        address = f"/jobs/{path_text(kind)}/{path_text(job)}/items/{path_text(piece.text)}"
        return Markup('<a href="{}">{}</a>').format(address, named(piece.text))
    return named(piece.text) if piece.what == "item" else Markup("{}").format(piece.text)
