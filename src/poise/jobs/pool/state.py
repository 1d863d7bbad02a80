"""What people may see of a pool at work, and what the store keeps of its pods between two lives of an engine."""

from __future__ import annotations

from typing import Literal

import msgspec

from poise.jobs.pool.steps import Content, Memory

PodCondition = Literal["ready", "draining", "gone"]


class PodState(msgspec.Struct, frozen=True, rename="camel"):
    """One pod as it was last seen; `since` is when its state or its error last changed."""

    name: str
    state: PodCondition
    since: str
    error: str = ""
    targets: int = 0


class PodNote(msgspec.Struct, frozen=True, rename="camel"):
    """What the store keeps of a pod: where it is, whether it leaves the pool, and the digest of what it was sent.

    `former` is an address that must be freed before the new one gets anything. No digest is kept of documents with
    credentials: those are delivered once more after a restart.
    """

    url: str = ""
    kind: str = ""
    departing: bool = False
    former: str = ""
    digest: str = ""
    state: PodCondition = "gone"
    error: str = ""
    since: str = ""
    targets: int = 0

    @property
    def memory(self) -> Memory:
        """Begin where the last engine ended: unchanged pods are not written to."""
        return Memory(delivered=Content(self.digest, {})) if self.digest else Memory()


class SourceState(msgspec.Struct, frozen=True, rename="camel"):
    """The source of targets: how many are in force, and why the last reading was not obeyed."""

    targets: int = 0
    error: str = ""


class PoolState(msgspec.Struct, frozen=True, rename="camel"):
    """A pool as its engine knows it; every target that nobody collects is named with its reason."""

    pods: list[PodState]
    unassigned: dict[str, str]
    source: SourceState
    said: str = ""
    error: str = ""


Notes = dict[str, PodNote]


def read_notes(text: str | None) -> Notes:
    """Read what is kept of all pods."""
    return msgspec.json.decode(text, type=Notes) if text else {}


def write_notes(notes: Notes) -> str:
    """Write what is kept of all pods; the same facts give the same text."""
    return msgspec.json.encode(notes, order="sorted").decode()


def follow_document(notes: Notes, wanted: dict[str, tuple[str, str]]) -> Notes:
    """Bring notes in line with the pods of a document, given as name -> (kind of delivery, address).

    Who is no longer wanted departs; who returns stays; whose address or kind has changed is freed at the old one first.
    """
    kept = {name: msgspec.structs.replace(note, departing=True) for name, note in notes.items() if name not in wanted}
    for name, (kind, url) in wanted.items():
        note = notes.get(name, PodNote(url=url, kind=kind))
        if (note.url, note.kind) != (url, kind):
            # A place that was never delivered to, because an earlier one is not free yet, need not be freed.
            former = note.former or f"{note.kind} {note.url}"
            note = PodNote(url=url, kind=kind, former=former, state=note.state)
        kept[name] = msgspec.structs.replace(note, departing=False)
    return kept
