"""Pods that fetch their targets: `GET /v1/pools/{name}/pods/{pod}/targets`, in the form of Prometheus `http_sd`.

What proves that such a pod has let go? It was answered without the target, and has asked again since: who asks again
has taken the answer before. So the first asking after a request is "releasing", the next one is "released". A pod that
was gone is given nothing and not counted alive until it has asked twice, for the same reason.

A pool whose delivery has changed: a pod is given nothing before its former place is free, and one that fetched before
is answered nothing; once it has asked twice its collector is driven, and whoever still asks gets nothing for good.
"""

from __future__ import annotations

import msgspec

from poise.errors import NotFound
from poise.jobs.pool.settings import PODS_NOTE, PROCESS, endpoints_of, read_document
from poise.jobs.pool.sources import LastList
from poise.jobs.pool.speaking import read_rights, renew
from poise.jobs.pool.state import PodNote, read_notes
from poise.jobs.stored import DOCUMENT, TARGETS, store_name
from poise.model.ownership import Heartbeat, Hold, OwnerState, Word
from poise.model.target_pool import Target
from poise.move.executor import register_member, take_heartbeat
from poise.move.heartbeat import standing
from poise.stores.base import Transaction


class HttpSd(msgspec.Struct, frozen=True):
    """One group of `http_sd`: one target with its labels."""

    targets: list[str]
    labels: dict[str, str]


def answer_pull(tx: Transaction, pool: str, pod: str) -> list[HttpSd]:
    """Answer a pod that asks for its targets, and take its asking as the sign of life and the proof that it is."""
    name = store_name("TargetPool", pool)
    fetches, note = _check_pod(tx, pool, pod), read_notes(tx.note(PODS_NOTE)).get(pod, PodNote(kind="pull"))
    if note.kind == "pull" and fetches and not note.former:
        _speak(tx, name, pod)
    elif fetches or note.kind == "pull" or note.former or _has_fetched(tx, pod, note):
        return _leave(tx, name, pod, note)  # The document has changed, and who delivered before has not ended yet.
    rights = read_rights(tx, pod)
    return [_group(pool, target) for target in _targets(tx) if target.name in rights.own]


def _speak(tx: Transaction, name: str, pod: str) -> None:
    """Take an asking as the pod's word."""
    member = register_member(tx, name, pod, PROCESS)
    returned = f"pull {pod}"
    if standing(member, tx.now_s).active or tx.note(returned) is not None:
        if tx.note(returned) is not None:
            tx.write_note(returned, None)
        beat = Heartbeat(process=PROCESS, incarnation=member.incarnation, seq=member.seq + 1, holds=_holds(tx, pod))
        take_heartbeat(tx, name, pod, beat)
    else:
        tx.write_note(returned, "asked once since it was gone")


def _leave(tx: Transaction, name: str, pod: str, note: PodNote) -> list[HttpSd]:
    """Answer nothing, and note how often one that shall fetch no more has asked; it is alive while it asks."""
    if note.former.startswith("pull") and not has_asked_twice(tx, pod):
        tx.write_note(_left(pod), "asked twice" if tx.note(_left(pod)) == "asked once" else "asked once")
        renew(tx, name, pod)
    return []


def has_asked_twice(tx: Transaction, pod: str) -> bool:
    """Say whether a pod that shall fetch no more has taken the answer that names nothing."""
    return tx.note(_left(pod)) == "asked twice"


def _has_fetched(tx: Transaction, pod: str, note: PodNote) -> bool:
    """Say whether a pod that is driven now has fetched before: what it is given would be collected twice."""
    return note.kind != "pull" and tx.note(_left(pod)) is not None


def count_asking(tx: Transaction, pod: str, note: PodNote) -> None:
    """Begin to count anew where a pod shall fetch no more; forget it where it was driven before."""
    begun = "not asked yet" if note.former.startswith("pull") else None
    if tx.note(_left(pod)) != begun:
        tx.write_note(_left(pod), begun)


def _left(pod: str) -> str:
    return f"left {pod}"


def _check_pod(tx: Transaction, pool: str, pod: str) -> bool:
    """Refuse a stranger; say whether the pods of this pool fetch."""
    text = tx.note(DOCUMENT)
    if text is None:
        raise NotFound(f"there is no TargetPool {pool!r}")
    document = read_document(text).pool
    if pod not in [each.name for each in endpoints_of(document)] and tx.member(pod) is None:
        raise NotFound(f"TargetPool {pool} has no pod {pod!r}")
    return document.spec.delivery is None or document.spec.delivery.kind == "pull"


def _holds(tx: Transaction, pod: str) -> tuple[Hold, ...]:
    """Say what this asking proves: what it was given it has, what it was refused once it is about to leave."""
    said = []
    for row in tx.rows_for(pod, ()).values():
        if row.owner != pod:
            continue
        if row.state is OwnerState.ASSIGNED and not row.confirmed and not row.retiring:
            said.append(Hold(row.id, row.epoch, Word.HELD))
        elif row.state is OwnerState.REQUESTED_RELEASE:
            said.append(Hold(row.id, row.epoch, Word.RELEASING))
        elif row.state is OwnerState.PENDING_RELEASE:
            said.append(Hold(row.id, row.epoch, Word.RELEASED))
    return tuple(said)


def _targets(tx: Transaction) -> list[Target]:
    text = tx.note(TARGETS)
    return msgspec.json.decode(text, type=LastList).targets if text is not None else []


def _group(pool: str, target: Target) -> HttpSd:
    """Labels that begin with `__meta_` are dropped after relabelling: names of targets collide with nothing."""
    meta = {"__meta_poise_pool": pool, "__meta_poise_target": target.name}
    return HttpSd([target.address or target.name], {**target.labels, **meta})
