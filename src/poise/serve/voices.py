"""What members and pods say to a server: registrations, heartbeats, and pods that fetch their targets."""

from __future__ import annotations

import msgspec

from poise.errors import NotFound
from poise.hold.settings import BEATS_PER_LEASE
from poise.jobs.stored import SERVERS
from poise.model.ownership import Heartbeat, Hold, Registered, Reply, SetRow, SetTerms, Word
from poise.move.executor import register_member, take_heartbeat
from poise.move.heartbeat import Stale, Superseded
from poise.serve.facade import Registration, SaidHeartbeat
from poise.stores.base import Store, Transaction


def terms_of(store: Store, name: str) -> SetTerms:
    """Say what a set promises, to whoever thinks of becoming a member."""
    return store.view(name, lambda tx: _told(_set_in(tx, name)))


def _told(job: SetRow) -> SetTerms:
    terms = job.terms
    return SetTerms(
        lease_s=terms.lease_s,
        grace_s=terms.grace_s,
        period_s=terms.lease_s / BEATS_PER_LEASE,
        release_s=terms.release_s,
        restart_grace_s=terms.restart_grace_s,
        revoke=terms.revoke,
        margin_s=terms.margin_s,
        stop_s=terms.stop_s,
    )


def register(store: Store, name: str, member: str, body: bytes) -> Registered:
    """Give a process its incarnation."""
    said = msgspec.json.decode(body, type=Registration)

    def work(tx: Transaction) -> Registered:
        told = msgspec.structs.asdict(_told(_set_in(tx, name)))
        return Registered(incarnation=register_member(tx, name, member, said.process).incarnation, **told)

    return store.transact(name, work)


def heartbeat(store: Store, name: str, member: str, body: bytes) -> Reply | Superseded | Stale:
    """Take a heartbeat; one that does not say its process speaks for the one that registered."""
    said = msgspec.json.decode(body, type=SaidHeartbeat)

    def work(tx: Transaction) -> Reply | Superseded | Stale:
        _set_in(tx, name)
        known = tx.member(member)
        if known is None:
            raise NotFound(f"set {name} has no member {member!r}: register first")
        heard = Heartbeat(
            process=said.process or known.process,
            incarnation=said.incarnation,
            seq=said.seq,
            holds=tuple(Hold(hold.item, hold.epoch, Word(hold.state)) for hold in said.holds),
            weight=said.weight,
            leaving=said.leaving,
        )
        return take_heartbeat(tx, name, member, heard)

    return store.transact(name, work)


def _set_in(tx: Transaction, name: str) -> SetRow:
    """Read the set that a member speaks to: one that has members who speak."""
    job = tx.job()
    if job is None or job.kind not in ("PartitionSet", "ShardRing") or name == SERVERS:
        raise NotFound(f"there is no set {name!r}")
    return job
