"""Speaking for pods: what was proven of them becomes heartbeats, in one transaction that reads their rows again."""

from __future__ import annotations

import msgspec

from poise.jobs.pool.settings import PROCESS
from poise.jobs.pool.steps import (
    Memory,
    Rights,
    Sight,
    after_words,
    may_speak,
    words,
)
from poise.model.ownership import OWNED, RELEASING, Heartbeat, Hold, MemberRow, Word
from poise.move.executor import register_member, take_heartbeat
from poise.move.heartbeat import standing
from poise.stores.base import Transaction


class Said(msgspec.Struct, frozen=True):
    """What one look at a pod gives to say; `given_back` and `expelled` as steps.py judges them.

    `known` are the rights that nothing has changed since they were read; with nothing to say, only its life is renewed.
    """

    sight: Sight
    memory: Memory
    given_back: bool = False
    expelled: bool = False
    known: Rights | None = None


def read_rights(tx: Transaction, pod: str) -> Rights:
    """Read what a pod may collect, and what it must let go of."""
    member = tx.member(pod)
    if member is None:
        return Rights()
    now = standing(member, tx.now_s)
    rows = [row for row in tx.rows_for(pod, ()).values() if row.owner == pod and row.state in OWNED]
    kept = [row for row in rows if row.state not in RELEASING]
    return Rights(
        active=now.active,
        draining=now.draining,
        # What its source no longer lists is not sent any more; it leaves by the ordinary steps.
        own={row.id: row.epoch for row in kept if not row.retiring},
        leaving={row.id: row.epoch for row in rows if row.state in RELEASING or row.retiring},
        unconfirmed=frozenset(row.id for row in kept if not row.confirmed and not row.retiring),
    )


def speak_for(tx: Transaction, name: str, pod: str, said: Said) -> Rights:
    """Say what a look has proven, and answer what the pod may collect from now on.

    Order for safety: a pod that is new or was gone is registered and renewed only when it is free of what is not its
    own. One that says for too long that it is not healthy leaves once it is proven empty, and is not spoken for then.
    """
    expelled = said.expelled
    if said.known is not None and not expelled and (alive := _renew(tx, pod)) is not None:
        return msgspec.structs.replace(said.known, active=True, draining=alive.draining)
    rights = read_rights(tx, pod)
    if not may_speak(rights, said.sight) or (expelled and not rights.active):
        return rights
    if expelled and said.memory.answered == frozenset() and not said.sight.listed:
        holds = tuple(Hold(item, epoch, Word.RELEASED) for item, epoch in (rights.own | rights.leaving).items())
        _beat(tx, name, _known(tx, name, pod), holds, leaves=True)
        return msgspec.structs.replace(after_words(rights, holds), active=False)
    holds = words(rights, said.sight, said.memory, given_back=said.given_back)
    _beat(tx, name, _known(tx, name, pod), holds)
    return after_words(rights, holds)


def _renew(tx: Transaction, pod: str) -> MemberRow | None:
    """Lengthen the life of a pod that counts as alive, without reading its rows; None where it does not."""
    member, job = tx.member(pod), tx.job()
    if member is None or job is None or not standing(member, tx.now_s).active:
        return None
    tx.write_member(msgspec.structs.replace(member, seq=member.seq + 1, lease_until_s=tx.now_s + job.terms.lease_s))
    return member


def renew(tx: Transaction, name: str, pod: str) -> None:
    """Give a known pod a full time before it counts as gone: nobody could have looked at it for a while.

    One that is gone and owns nothing has nothing to lose, and may still collect what was taken from it: it must first
    be looked at.
    """
    member = tx.member(pod)
    if member is None or member.leaving is not None:
        return
    if standing(member, tx.now_s).active or any(row.owner == pod for row in tx.rows_for(pod, ()).values()):
        _beat(tx, name, member, ())


def _known(tx: Transaction, name: str, pod: str) -> MemberRow:
    return tx.member(pod) or register_member(tx, name, pod, PROCESS)


def _beat(tx: Transaction, name: str, member: MemberRow, holds: tuple[Hold, ...], *, leaves: bool = False) -> None:
    beat = Heartbeat(
        process=member.process,
        incarnation=member.incarnation,
        seq=member.seq + 1,
        holds=holds,
        leaving="stop" if leaves else None,
    )
    take_heartbeat(tx, name, member.name, beat)
