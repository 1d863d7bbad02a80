"""All jobs of one store, as people and programs ask about them: the facade that HTTP, page and tests call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from poise import clock
from poise.decide.explain import Explanation
from poise.errors import NotFound, Unavailable, invalid
from poise.hold.settings import BEATS_PER_LEASE
from poise.jobs.entries import Planned, Told
from poise.jobs.live import lease_state, pod_state
from poise.jobs.planning import explain_document, plan_document
from poise.jobs.pool.pull import answer_pull
from poise.jobs.snapshots import braking, plan_snapshot
from poise.jobs.stored import (
    SERVERS,
    Stored,
    delete_document,
    known_targets,
    listed,
    put_document,
    read_document,
    read_in,
    revision_in,
    store_name,
)
from poise.jobs.what_if import WhatIf
from poise.model import CapacitySplit, Document, TargetPool
from poise.model.ownership import RELEASING, Heartbeat, Hold, Line, MemberRow, Reply, Row, Word
from poise.move.executor import (
    Snapshot,
    drain_member,
    pause_set,
    register_member,
    release_brake,
    snapshot,
    take_heartbeat,
)
from poise.move.heartbeat import Stale, Superseded, standing
from poise.serve.facade import (
    ORIGIN,
    Event,
    HttpSd,
    ItemView,
    JobSummary,
    MemberView,
    Registered,
    Registration,
    SaidHeartbeat,
    Stoppable,
)
from poise.serve.shown import (
    counted_views,
    estimate_s,
    health_of,
    hold_back,
    is_unowned,
    item_view,
    party_views,
    sd_group,
)
from poise.stores.base import Store, Transaction

_OWNING = ("PartitionSet", "ShardRing", "TargetPool")


class StoreJobs:
    """Answers from the store alone: every server of it says the same."""

    def __init__(self, store: Store, *, now: Callable[[], datetime] = clock.now, ready: Callable[[], bool]) -> None:
        """Ask this store; `ready` says whether the first cycle of this server is done."""
        self._store, self._now, self._ready = store, now, ready
        self._kinds: dict[str, str] = {}  # A set never changes its kind.
        self._zero: datetime | None = None  # The wall clock at store time 0: an event has one time.

    def jobs(self) -> list[JobSummary]:
        """Look at every job in turn; one that was deleted meanwhile is left out."""
        summaries = []
        for kind, name in listed(self._store):
            try:
                summaries.append(self._summary(kind, name))
            except NotFound:
                continue
        return summaries

    def _summary(self, kind: str, name: str) -> JobSummary:
        if kind not in _OWNING:
            return self._counted_summary(kind, name)
        facts = self._facts(kind, name)
        states = Counter(self._state(kind, member, facts) for member in facts.members.values())
        loads = Counter(row.owner for row in facts.rows.values())
        live = [loads[each.name] for each in facts.members.values() if standing(each, facts.now_s).takes]
        unowned = sum(is_unowned(row, facts) for row in facts.rows.values())
        moving = sum(row.state in RELEASING for row in facts.rows.values())
        return JobSummary(
            kind=kind,
            name=name,
            revision=self._revision(kind, name),
            health=health_of(facts, unowned, moving),
            paused=facts.job.paused,
            items=len(facts.rows),
            unowned=unowned,
            members=dict(states),
            moves_in_flight=moving,
            spread=max(live) - min(live) if live else 0,
        )

    def _counted_summary(self, kind: str, name: str) -> JobSummary:
        stored, paused = self.get(kind, name), self._facts(kind, name).job.paused
        planned = plan_document(stored.document, self._now())
        return JobSummary(
            kind=kind,
            name=name,
            revision=stored.revision,
            health="paused" if paused else "changes pending" if planned.pending else "as it should be",
            paused=paused,
            items=len(counted_views(stored.document)),
        )

    def _revision(self, kind: str, name: str) -> int:
        return self._store.view(store_name(kind, name), lambda tx: revision_in(tx, kind, name))

    def get(self, kind: str, name: str) -> Stored:
        """Read one document with its live status."""
        return read_document(self._store, kind, name, self._now())

    def put(self, document: Document, *, if_match: int | None) -> Stored:
        """Create or change a job."""
        return put_document(self._store, document, self._now(), if_match=if_match)

    def try_put(self, document: Document) -> Planned:
        """Plan the document as people wrote it on what is known of the job; a new job starts from nothing."""
        try:
            known = self._planable(document.kind, document.metadata.name)
        except NotFound:
            # Only the counts of a CapacitySplit are people's to say.
            status = document.status if isinstance(document, CapacitySplit) else type(document.status)()
            return plan_document(msgspec.structs.replace(document, status=status), self._now())
        asked = document
        if isinstance(document, TargetPool) and isinstance(known, TargetPool) and document.spec.targets.listed is None:
            spec = msgspec.structs.replace(document.spec, targets=known.spec.targets)
            asked = msgspec.structs.replace(document, spec=spec)
        return plan_document(msgspec.structs.replace(asked, status=known.status), self._now())

    def delete(self, kind: str, name: str, *, if_match: int | None) -> None:
        """Give a job up."""
        delete_document(self._store, kind, name, if_match=if_match)

    def plan(self, kind: str, name: str, what_if: WhatIf | None) -> Planned:
        """Plan a job as it is, or as a what-if; what a pause holds back says so."""
        planned = plan_document(self._planable(kind, name), self._now(), what_if)
        facts = self._facts(kind, name)
        if not facts.job.paused:
            return planned
        return hold_back(planned, {each.name for each in facts.members.values() if standing(each, facts.now_s).active})

    def explain(self, kind: str, name: str, item: str, what_if: WhatIf | None = None) -> Explanation | Told:
        """Say why an item is where it is."""
        self.item(kind, name, item)
        return explain_document(self._planable(kind, name), item, self._now(), what_if)

    def _planable(self, kind: str, name: str) -> Document:
        """Give the document that can be planned: a pool with the targets that its source last listed."""

        def read(tx: Transaction) -> Document:
            document = read_in(tx, kind, name, self._now()).document
            return known_targets(tx, document) if isinstance(document, TargetPool) else document

        return self._store.view(store_name(kind, name), read)

    def items(self, kind: str, name: str, *, member: str | None, state: str | None) -> list[ItemView]:
        """List the items of a job in the order of their names, numbers as numbers."""
        found = self._items(kind, name)
        return [
            each
            for each in found
            if (member is None or member == each.member) and (state is None or state == each.state)
        ]

    def _items(self, kind: str, name: str) -> list[ItemView]:
        if kind not in _OWNING:
            return counted_views(self.get(kind, name).document)
        facts = self._facts(kind, name)
        lacking = any(is_unowned(row, facts) for row in facts.rows.values())
        reasons = plan_snapshot(facts).unowned if lacking else {}
        zero = self._now() - timedelta(seconds=facts.now_s)
        rows = sorted(facts.rows.values(), key=lambda row: (int(row.id) if row.id.isdecimal() else 0, row.id))
        return [item_view(row, zero, reasons.get(row.id)) for row in rows]

    def item(self, kind: str, name: str, item: str) -> ItemView:
        """Read one item; only why it has no owner needs a look at all the others."""
        if kind in _OWNING:
            row, zero = self._store.view(store_name(kind, name), lambda tx: self._row(tx, kind, name, item))
            if row is not None and row.owner is not None:
                return item_view(row, zero, None)
        found = next((each for each in self._items(kind, name) if each.item == item), None)
        if found is None:
            raise NotFound(f"{kind} {name} has no item {item!r}")
        return found

    def _row(self, tx: Transaction, kind: str, name: str, item: str) -> tuple[Row | None, datetime]:
        revision_in(tx, kind, name)
        return tx.rows_for("", [item]).get(item), self._now() - timedelta(seconds=tx.now_s)

    def history(self, kind: str, name: str, item: str) -> list[Line]:
        """Tell the story of an item, also of one that is no longer there."""
        self._revision(kind, name)
        return self._store.journal(store_name(kind, name), item, most=10_000)

    def members(self, kind: str, name: str) -> list[MemberView]:
        """List the members of a job."""
        if kind not in _OWNING:
            return party_views(self.get(kind, name).document)
        facts = self._facts(kind, name)
        rows = facts.rows.values()
        loads, reserved = Counter(row.owner for row in rows), Counter(row.target for row in rows)
        releasing = Counter(row.owner for row in rows if row.state in RELEASING)
        return [
            self._member(kind, facts.members[each], facts, loads[each], releasing[each], reserved[each])
            for each in sorted(facts.members)
        ]

    def _member(
        self, kind: str, member: MemberRow, facts: Snapshot, load: int, releasing: int, reserved: int
    ) -> MemberView:
        return MemberView(
            name=member.name,
            state=self._state(kind, member, facts),
            load=load,
            releasing=releasing,
            reserved=reserved,
            weight=facts.job.weights.get(member.name, member.weight),
            capacity=facts.job.capacity.get(member.name),
            incarnation=member.incarnation,
            draining=member.draining,
            leaving=member.leaving,
            lease_s=member.lease_until_s - facts.now_s,
        )

    def _state(self, kind: str, member: MemberRow, facts: Snapshot) -> str:
        if kind == "ShardRing":
            lease = lease_state(member, facts.job.terms, facts.now_s)
            return "draining" if lease == "ready" and member.draining else lease
        state = pod_state(member, facts.now_s)
        return "active" if kind == "PartitionSet" and state == "ready" else state

    def drain(self, kind: str, name: str, member: str, draining: bool) -> MemberView:
        """Take a member out of service, or back into it."""
        if kind not in _OWNING:
            raise invalid("$.member", f"a {kind} has no members to drain: change its document")
        self._one_member(kind, name, member)
        where = store_name(kind, name)
        self._store.transact(where, lambda tx: drain_member(tx, where, member, draining))
        return self._one_member(kind, name, member)

    def _one_member(self, kind: str, name: str, member: str) -> MemberView:
        found = next((each for each in self.members(kind, name) if each.name == member), None)
        if found is None:
            raise NotFound(f"{kind} {name} has no member {member!r}")
        return found

    def stoppable(self, kind: str, name: str, member: str) -> Stoppable:
        """Say whether a member may stop now without anybody missing it."""
        view = self._one_member(kind, name, member)
        if kind not in _OWNING:
            return Stoppable(ok=not view.load, reasons=[f"it holds {view.load} replicas"] if view.load else [])
        facts = self._facts(kind, name)
        others = [each for each in facts.members.values() if each.name != member and standing(each, facts.now_s).takes]
        reasons = []
        if view.load:
            reasons.append(f"it holds {view.load} item{'' if view.load == 1 else 's'}")
        if view.load and not view.draining:
            reasons.append("it is not draining: nothing leaves it")
        if view.load and facts.job.paused:
            reasons.append("the job is paused: nothing moves")
        if view.load and not others:
            reasons.append("no other member can take its items")
        if view.reserved:
            reasons.append(f"{view.reserved} more are on their way to it")
        return Stoppable(ok=not reasons, reasons=reasons, estimate_s=estimate_s(view, facts) if others else None)

    def pause(self, kind: str, name: str, *, paused: bool, everything: bool) -> Stored:
        """Hold the moves of a job back, or let them go on, also past a brake that holds; kept in the store."""
        self.get(kind, name)
        where = store_name(kind, name)
        self._store.transact(where, lambda tx: pause_set(tx, where, paused, everything=everything))
        if not paused and braking(self._facts(kind, name)):
            self._store.transact(where, lambda tx: release_brake(tx, where))  # Whoever says "go on" has looked.
        return self.get(kind, name)

    def register(self, name: str, member: str, body: bytes) -> Registered:
        """Give a process its incarnation."""
        said = msgspec.json.decode(body, type=Registration)

        def work(tx: Transaction) -> Registered:
            _require_set(tx, name)
            row = register_member(tx, name, member, said.process)
            job = tx.job()
            assert job is not None
            terms = job.terms
            return Registered(
                incarnation=row.incarnation,
                lease_s=terms.lease_s,
                grace_s=terms.grace_s,
                period_s=terms.lease_s / BEATS_PER_LEASE,
                release_s=terms.release_s,
                restart_grace_s=terms.restart_grace_s,
                revoke=terms.revoke,
                margin_s=terms.margin_s,
                stop_s=terms.stop_s,
            )

        return self._store.transact(name, work)

    def heartbeat(self, name: str, member: str, body: bytes) -> Reply | Superseded | Stale:
        """Take a heartbeat; one that does not say its process speaks for the one that registered."""
        said = msgspec.json.decode(body, type=SaidHeartbeat)

        def work(tx: Transaction) -> Reply | Superseded | Stale:
            _require_set(tx, name)
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

        return self._store.transact(name, work)

    def pod_targets(self, pool: str, pod: str) -> list[HttpSd]:
        """List what one pod may collect now, for whoever asks for it in the style of Prometheus.

        Where pods fetch their targets, asking is also the pod's sign of life.
        """
        document = self._planable("TargetPool", pool)
        assert isinstance(document, TargetPool)
        if document.spec.delivery is not None and document.spec.delivery.kind == "pull":
            answer = self._store.transact(store_name("TargetPool", pool), lambda tx: answer_pull(tx, pool, pod))
            return [HttpSd(each.targets, each.labels) for each in answer]
        facts = self._facts("TargetPool", pool)
        if pod not in facts.members:
            raise NotFound(f"TargetPool {pool} has no pod {pod!r}")
        mine = {row.id for row in facts.rows.values() if row.owner == pod and row.state not in RELEASING}
        return [sd_group(pool, each) for each in document.spec.targets.listed or [] if each.name in mine]

    def events(self, after: str | None, most: int) -> list[Event]:
        """Read events after an id, or with None the newest ones."""
        if after is None:
            version = self._store.version()
            return self.events(f"{max(0, version - most)}.0", most)
        cursor = _cursor(after)
        while lines := self._store.events(cursor, most):
            shown = [line for line in lines if line.set != SERVERS]
            if shown:
                if self._zero is None:
                    now_s = self._store.view(shown[0].set, lambda tx: tx.now_s)
                    self._zero = self._now() - timedelta(seconds=now_s)
                zero = self._zero
                return [self._event(line, zero) for line in shown]
            cursor = (lines[-1].version, lines[-1].number)
        return []

    def _event(self, line: Line, zero: datetime) -> Event:
        kind = self._kinds.get(line.set)
        if kind is None:
            job = self._store.view(line.set, lambda tx: tx.job())
            kind = self._kinds[line.set] = "" if job is None else job.kind
        name, at = line.set.removeprefix(f"{kind}/"), zero + timedelta(seconds=line.at_s)
        return Event(id=f"{line.version}.{line.number}", kind=kind, job=name, line=line, at=at)

    def wait(self, version: int, timeout_s: float) -> int:
        """Wait for a commit."""
        return self._store.wait(version, timeout_s)

    def ready(self) -> bool:
        """Say whether the store answers and the first cycle is done."""
        try:
            self._store.version()
        except Unavailable:
            return False
        return self._ready()

    def _facts(self, kind: str, name: str) -> Snapshot:
        """Read all facts of a job beside its transactions: no question holds up a heartbeat."""

        def read(tx: Transaction) -> Snapshot:
            revision_in(tx, kind, name)
            return snapshot(tx, store_name(kind, name))

        return self._store.view(store_name(kind, name), read)


def _require_set(tx: Transaction, name: str) -> None:
    job = tx.job()
    if job is None or job.kind not in ("PartitionSet", "ShardRing") or name == SERVERS:
        raise NotFound(f"there is no set {name!r}")


def _cursor(after: str) -> tuple[int, int]:
    """Read an id of an event."""
    if after == ORIGIN:
        return (0, 0)
    version, dot, number = after.partition(".")
    if not (dot and version.isdecimal() and number.isdecimal() and len(after) < 40):
        raise invalid("Last-Event-ID", f"expected an id of an event, got {after[:40]!r}")
    return (int(version), int(number))
