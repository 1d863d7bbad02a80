"""Doing what a preview showed; if the world has moved since, nothing is done."""

from __future__ import annotations

from datetime import datetime

import msgspec

from poise.errors import Conflict, InvalidSpec, invalid
from poise.serve.facade import JobsApi
from poise.serve.page.previews import Preview, imagine_job, preview
from poise.serve.page.what_if import Wish


class Moved(Conflict):
    """What was seen is no longer so; the page shows what is so now."""


class Seen(msgspec.Struct, frozen=True):
    """The marks of the preview that somebody looked at before they said yes."""

    revision: int
    digest: str


def read_seen(form: dict[str, str]) -> Seen:
    """Read the marks that the form of a preview carries."""
    revision, digest = form.get("revision", ""), form.get("digest", "")
    if not (revision.isascii() and revision.isdigit() and len(revision) < 19 and digest):
        raise invalid("$.revision", "expected the form of a preview: look at the plan first")
    return Seen(int(revision), digest)


def apply_wish(api: JobsApi, kind: str, name: str, wish: Wish, seen: Seen, server: str, now: datetime) -> Preview:
    """Do what was previewed, on the condition that the preview is still the same."""
    if not wish.is_any:
        raise invalid("?", "nothing is asked for: look at a plan first")
    shown = preview(imagine_job(api, kind, name, wish, now), wish, server)
    if (shown.revision, shown.digest) != (seen.revision, seen.digest):
        raise Moved("the world has moved since you looked: nothing was done; this is the plan now")
    if shown.refused:
        raise InvalidSpec(*invalid("", "; ".join(shown.refused)).faults)
    if shown.obstacles:
        raise invalid("", "; ".join(each.text for each in shown.obstacles))
    _do(api, kind, name, wish, shown)
    return shown


def _do(api: JobsApi, kind: str, name: str, wish: Wish, shown: Preview) -> None:
    """Write the document first: it is the only write that can lose a race, and nothing else is done if it does."""
    if shown.change.document is not None:
        api.put(shown.change.document, if_match=shown.revision)
    for member in shown.change.drain:
        api.drain(kind, name, member, True)
    for member in wish.undrain:
        api.drain(kind, name, member, False)
    if wish.pause or wish.resume:
        api.pause(kind, name, paused=bool(wish.pause), everything=wish.pause == "all")
