"""The frame of every picture: a wide and a tall form, of which the style sheet shows one, and a legend in words."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from poise.serve.page.pictures.ink import inked, short

WIDE, TALL = 1000.0, 350.0  # How wide the two forms are, in units that are about a pixel each.


def svg(form: str, wide: float, high: float, about: str, body: str) -> str:
    """Make one form of a picture; `about` says it in words.

    The image that is read aloud is an empty one in front: a thing with links inside may not be an image, and hundreds
    of cells would be read one by one. Whoever reads by ear or by keyboard finds all of them in the list of items.
    """
    size = f'width="{short(wide)}" height="{short(max(1.0, high))}"'
    spoken = f'<g role="img" aria-label="{inked(about)}"><rect class="clear" {size}/></g>'
    view = f"0 0 {short(wide)} {short(max(1.0, high))}"
    return f'<svg class="{form}" viewBox="{view}">{spoken}<g aria-hidden="true">{body}</g></svg>'


def sign(body: str, wide: int) -> str:
    """Make a small sign for a legend; the words beside it say what it is."""
    return f'<svg class="sign" viewBox="0 0 {wide} 15" width="{wide}" height="15" aria-hidden="true">{body}</svg>'


def figure(kind: str, forms: str, caption: str, teach: Iterable[str]) -> Markup:
    """Put a picture together; where there is nothing to draw, a sentence and a command stand in its place."""
    sentence, command = [*teach, "", ""][:2]
    taught = f"<p>{inked(sentence)}</p>" + (f"<pre><code>{inked(command)}</code></pre>" if command else "")
    empty = f'<div class="empty">{taught}</div>' if sentence else ""
    told = f"<figcaption>{caption}</figcaption>" if caption else ""
    return Markup(f'<figure class="picture {kind}">{empty}{forms}{told}</figure>')
