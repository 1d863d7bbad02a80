"""What an engine reads and writes of its pool in the store, each piece one transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from poise.jobs.pool.pull import count_asking
from poise.jobs.pool.settings import PODS_NOTE, SOURCE_NOTE, PoolDocument, endpoints_of, read_document
from poise.jobs.pool.sources import LISTED, LastList
from poise.jobs.pool.speaking import Said, renew, speak_for
from poise.jobs.pool.state import Notes, PodCondition, SourceState, follow_document, read_notes, write_notes
from poise.jobs.pool.steps import Rights
from poise.jobs.stored import DOCUMENT, TARGETS
from poise.move.executor import drain_member, put_set
from poise.move.heartbeat import standing
from poise.stores.base import Transaction


class Start(msgspec.Struct, frozen=True):
    """What an engine begins with."""

    last: LastList | None
    notes: Notes
    line: int


class Seen(msgspec.Struct, frozen=True):
    """The pods as the store judges them: their state, and how many targets some of them hold."""

    states: dict[str, PodCondition]
    holding: dict[str, int]


def begin(tx: Transaction) -> Start:
    """Read what an earlier engine has left."""
    text = tx.note(TARGETS)
    last = None if text is None else msgspec.json.decode(text, type=LastList)
    return Start(last, read_notes(tx.note(PODS_NOTE)), tx.last_line())


def read_note(tx: Transaction) -> str | None:
    """Read the document as it stands in the store."""
    return tx.note(DOCUMENT)


class Adopted(msgspec.Struct, frozen=True):
    """A document that is followed from now on, with the targets and the pods that it leads to."""

    document: PoolDocument | None
    last: LastList | None
    notes: Notes


def adopt(tx: Transaction, name: str, text: str | None, last: LastList | None) -> Adopted:
    """Follow a document: its list, who joins and who departs. Without a document everything is taken back."""
    document = None if text is None else read_document(text)
    after = None if document is None else _first_list(document, last)
    if after != last:
        tx.write_note(TARGETS, None if after is None else msgspec.json.encode(after).decode())
    _list_items(tx, [] if document is None else None if after is None else [each.name for each in after.targets])
    before = read_notes(tx.note(PODS_NOTE))
    notes = follow_document(before, {} if document is None else _wanted(document))
    _drain(tx, name, before, notes)
    for pod, note in notes.items():
        if note.former and (pod not in before or before[pod].former != note.former):
            count_asking(tx, pod, note)
    if notes != before:
        tx.write_note(PODS_NOTE, write_notes(notes))
    return Adopted(document, after, notes)


def _first_list(document: PoolDocument, last: LastList | None) -> LastList | None:
    """Take the list of the document itself at once; any other source is read by and by."""
    listed = document.pool.spec.targets.listed
    return last if listed is None else LastList(listed, LISTED)


def _list_items(tx: Transaction, names: list[str] | None) -> None:
    """Make the set hold exactly these targets; None leaves them as they are."""
    job = tx.job()
    if job is not None and names is not None:
        put_set(tx, job, names)


def _wanted(document: PoolDocument) -> dict[str, tuple[str, str]]:
    """List the pods of a document with the kind of delivery and the address of each."""
    delivery = document.pool.spec.delivery
    kind = delivery.kind if delivery is not None else "pull"
    return {each.name: (kind, each.url or "") for each in endpoints_of(document.pool)}


def _drain(tx: Transaction, name: str, before: Notes, after: Notes) -> None:
    """Take out of service who departs, and back into it who returns; whom people drain stays drained."""
    for pod, note in after.items():
        member = tx.member(pod)
        joins = not note.departing and (pod not in before or before[pod].departing)
        if member is not None and ((note.departing and not member.draining) or (joins and member.draining)):
            drain_member(tx, name, pod, note.departing)


def obey(tx: Transaction, last: LastList, before: LastList | None) -> None:
    """Put a list of targets in force; only what differs from the one before is written."""
    if before is None or last.targets != before.targets:
        _list_items(tx, [target.name for target in last.targets])
    tx.write_note(TARGETS, msgspec.json.encode(last).decode())


def speak(tx: Transaction, name: str, pod: str, said: Said, *, departing: bool) -> Rights:
    """Speak for a pod; one that departs is out of service from its first word on."""
    rights = speak_for(tx, name, pod, said)
    member = tx.member(pod)
    if departing and member is not None and not member.draining:
        drain_member(tx, name, pod, True)
    return rights


def renew_all(tx: Transaction, name: str, pods: Iterable[str]) -> None:
    """Give pods a full time each: nobody has spoken for them for a while, and that was not their fault."""
    for pod in pods:
        renew(tx, name, pod)


def see(tx: Transaction, pods: Iterable[str], counted: Collection[str]) -> Seen:
    """Judge the named pods; what some of them hold is counted too, which takes longer."""
    states: dict[str, PodCondition] = {}
    for pod in pods:
        member = tx.member(pod)
        now = standing(member, tx.now_s) if member is not None else None
        states[pod] = "gone" if now is None or not now.active else "draining" if now.draining else "ready"
    holding = {pod: sum(row.owner == pod for row in tx.rows_for(pod, ()).values()) for pod in counted}
    return Seen(states, holding)


def keep(tx: Transaction, notes: Notes, source: SourceState) -> None:
    """Keep what was observed of the pods and of the source, for whoever asks another server."""
    tx.write_note(PODS_NOTE, write_notes(notes))
    tx.write_note(SOURCE_NOTE, msgspec.json.encode(source).decode())
