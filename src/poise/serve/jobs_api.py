"""All jobs of one store, as people and programs ask about them: the facade that HTTP, page and tests call."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from poise import clock
from poise.decide.explain import Explanation
from poise.errors import NotFound, Unavailable, invalid
from poise.jobs.entries import Planned, Told
from poise.jobs.planning import explain_document, plan_document
from poise.jobs.pool.pull import answer_pull
from poise.jobs.pool.settings import PODS_NOTE, SOURCE_NOTE
from poise.jobs.series import Series, read_series
from poise.jobs.snapshots import braking, plan_snapshot
from poise.jobs.stored import (
    DOCUMENT,
    STATUS,
    TARGETS,
    Stored,
    delete_document,
    known_targets,
    listed,
    put_document,
    read_in,
    revision_in,
    store_name,
)
from poise.jobs.what_if import WhatIf
from poise.model import CapacitySplit, Document, TargetPool
from poise.model.ownership import RELEASING, Line, Registered, Reply, Row, SetTerms
from poise.move.executor import Snapshot, drain_member, pause_set, release_brake
from poise.move.heartbeat import Stale, Superseded, standing
from poise.serve import voices
from poise.serve.facade import HISTORY_MAX, Event, HttpSd, ItemView, JobSummary, MemberView, Stoppable
from poise.serve.kept import Kept
from poise.serve.looks import OWNING, Look, is_unowned, look_in
from poise.serve.parties import judge_stop, member_views
from poise.serve.shown import counted_views, hold_back, item_view, sd_group
from poise.serve.stories import EventReader, read_story
from poise.serve.summaries import Counted, count_job, summary_of
from poise.stores.base import Store, Transaction
from poise.stores.memory import MemoryStore

_COUNTS_KEPT, _LISTS_KEPT, _STILLS_KEPT = 1_000, 2, 4
_NOTES = (DOCUMENT, STATUS, TARGETS, PODS_NOTE, SOURCE_NOTE)  # All that is shown of a job beside its rows.
_MOMENT_S = 1.0  # So old what is shown of a job may be: only time that passes changes it without a commit.


class StoreJobs:
    """Answers from the store alone: every server of it says the same."""

    def __init__(
        self,
        store: Store,
        *,
        now: Callable[[], datetime] = clock.now,
        ready: Callable[[], bool],
        on_servers: Callable[[Line], None] | None = None,
    ) -> None:
        """Ask this store; `ready` says whether the first cycle of this server is done.

        `on_servers` hears, as events are read, which server has which job.
        """
        self._store, self._now, self._ready = store, now, ready
        self._events = EventReader(store, now, on_servers)
        self._counts, self._lists = Kept[Counted](_COUNTS_KEPT), Kept[list[ItemView]](_LISTS_KEPT)
        self._stills = Kept[StoreJobs](_STILLS_KEPT)

    def jobs(self) -> list[JobSummary]:
        """Look at every job in turn; one that was deleted meanwhile is left out."""
        summaries = []
        for kind, name in listed(self._store):
            try:
                summaries.append(self.summary(kind, name))
            except NotFound:
                continue
        return summaries

    def summary(self, kind: str, name: str) -> JobSummary:
        """Say of one job what the list says."""
        if kind in OWNING:
            return summary_of(self._look(kind, name))
        return self._counted(kind, name).summary

    def _counted(self, kind: str, name: str) -> Counted:
        """Look at a job that only counts; a division is planned again only where it has changed: time changes none."""
        where = store_name(kind, name)

        def read(tx: Transaction) -> tuple[str | None, str | None, bool]:
            job = tx.job()
            return tx.note(DOCUMENT), tx.note(STATUS), job is not None and job.paused

        mark = self._store.view(where, read)
        if kind != "ReplicaDivision":
            return count_job(self.get(kind, name), self._now(), paused=mark[2])
        return self._counts.get(
            (kind, name), mark, lambda: count_job(self.get(kind, name), self._now(), paused=mark[2])
        )

    def _revision(self, kind: str, name: str) -> int:
        return self._store.view(store_name(kind, name), lambda tx: revision_in(tx, kind, name))

    def still(self, kind: str, name: str) -> StoreJobs:
        """Read a job once, for many questions about one instant; what is only counted is read quickly enough."""
        if kind not in OWNING:
            return self
        return self._stills.get((kind, name), self._moment(kind, name), lambda: self._still(kind, name))

    def _still(self, kind: str, name: str) -> StoreJobs:
        where, now = store_name(kind, name), self._now()
        kept = self._store.view(where, lambda tx: MemoryStore.still(where, tx, _NOTES))
        return _StillJobs(kept, now=lambda: now, ready=self._ready)

    def _moment(self, kind: str, name: str) -> tuple[int, float]:
        """Mark the moment that answers are kept for: until something is committed, and never for long."""

        def read(tx: Transaction) -> float:
            revision_in(tx, kind, name)
            return tx.now_s // _MOMENT_S

        version = self._store.version()
        return version, self._store.view(store_name(kind, name), read)

    def get(self, kind: str, name: str) -> Stored:
        """Read one document with its live status."""
        return self._store.view(store_name(kind, name), lambda tx: self._stored(tx, kind, name))

    def _stored(self, tx: Transaction, kind: str, name: str) -> Stored:
        return read_in(tx, kind, name, self._now())

    def put(self, document: Document, *, if_match: int | None) -> Stored:
        """Create or change a job."""
        return put_document(self._store, document, self._now(), if_match=if_match)

    def try_put(self, document: Document) -> Planned:
        """Plan the document as people wrote it on what is known of the job; a new job starts from nothing."""
        try:
            known, draining = self._planable(document.kind, document.metadata.name)
        except NotFound:
            # Only the counts of a CapacitySplit are people's to say.
            status = document.status if isinstance(document, CapacitySplit) else type(document.status)()
            return plan_document(msgspec.structs.replace(document, status=status), self._now())
        asked = document
        if isinstance(document, TargetPool) and isinstance(known, TargetPool) and document.spec.targets.listed is None:
            spec = msgspec.structs.replace(document.spec, targets=known.spec.targets)
            asked = msgspec.structs.replace(document, spec=spec)
        return plan_document(msgspec.structs.replace(asked, status=known.status), self._now(), draining=draining)

    def delete(self, kind: str, name: str, *, if_match: int | None) -> None:
        """Give a job up."""
        delete_document(self._store, kind, name, if_match=if_match)

    def plan(self, kind: str, name: str, what_if: WhatIf | None) -> Planned:
        """Plan a job as it is, or as a what-if; what a pause holds back says so."""
        document, draining = self._planable(kind, name)
        planned = plan_document(document, self._now(), what_if, draining=draining)
        job = self._store.view(store_name(kind, name), lambda tx: tx.job())
        if job is None or not job.paused:
            return planned
        facts = self._facts(kind, name)
        return hold_back(planned, {each.name for each in facts.members.values() if standing(each, facts.now_s).active})

    def explain(self, kind: str, name: str, item: str, what_if: WhatIf | None = None) -> Explanation | Told:
        """Say why an item is where it is."""
        self.item(kind, name, item)
        document, draining = self._planable(kind, name)
        return explain_document(document, item, self._now(), what_if, draining=draining)

    def _planable(self, kind: str, name: str) -> tuple[Document, list[str]]:
        """Give the document that can be planned, a pool with the targets that were last listed; and who drains."""

        def read(tx: Transaction) -> tuple[Document, list[str]]:
            document = self._stored(tx, kind, name).document
            draining = sorted(each.name for each in tx.members().values() if each.draining)
            return known_targets(tx, document) if isinstance(document, TargetPool) else document, draining

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
        """List all items; whoever reads them page by page asks for the same list again and again."""
        if kind not in OWNING:
            return counted_views(self.get(kind, name).document)
        return self._lists.get((kind, name), self._moment(kind, name), lambda: self._listed(kind, name))

    def _listed(self, kind: str, name: str) -> list[ItemView]:
        facts = self._facts(kind, name)
        lacking = any(is_unowned(row, facts) for row in facts.rows.values())
        reasons = plan_snapshot(facts).unowned if lacking else {}
        zero = self._now() - timedelta(seconds=facts.now_s)
        rows = sorted(facts.rows.values(), key=lambda row: (int(row.id) if row.id.isdecimal() else 0, row.id))
        return [item_view(row, zero, reasons.get(row.id)) for row in rows]

    def item(self, kind: str, name: str, item: str) -> ItemView:
        """Read one item; only why it has no owner needs a look at all the others."""
        if kind in OWNING:
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

    def history(
        self,
        kind: str,
        name: str,
        item: str | None = None,
        *,
        after: int | None = None,
        most: int = HISTORY_MAX,
        newest: bool = False,
    ) -> list[Line]:
        """Tell the story of a job or of one item, also of one that is no longer there."""
        self._revision(kind, name)
        return read_story(self._store, store_name(kind, name), item, after, min(most, HISTORY_MAX), newest=newest)

    def members(self, kind: str, name: str) -> list[MemberView]:
        """List the members of a job; those that are long gone and hold nothing are left out."""
        if kind in OWNING:
            return member_views(self._look(kind, name))
        return self._counted(kind, name).members

    def series(self, kind: str, name: str) -> Series:
        """Read the history of a job: what was counted of it over time."""
        return read_series(self._store, kind, name, self._now())

    def drain(self, kind: str, name: str, member: str, draining: bool) -> MemberView:
        """Take a member out of service, or back into it."""
        if kind not in OWNING:
            raise invalid("$.member", f"a {kind} has no members to drain: change its document")
        self._one_member(kind, name, member)
        where = store_name(kind, name)
        self._store.transact(where, lambda tx: drain_member(tx, where, member, draining))
        return self._one_member(kind, name, member)

    def _one_member(self, kind: str, name: str, member: str) -> MemberView:
        if kind in OWNING:
            views = member_views(self._look(kind, name), everybody=True)
        else:
            views = self._counted(kind, name).members
        found = next((each for each in views if each.name == member), None)
        if found is None:
            raise NotFound(f"{kind} {name} has no member {member!r}")
        return found

    def stoppable(self, kind: str, name: str, member: str) -> Stoppable:
        """Say whether a member may stop now without anybody missing it."""
        view = self._one_member(kind, name, member)
        return judge_stop(view, self._facts(kind, name) if kind in OWNING else None)

    def pause(self, kind: str, name: str, *, paused: bool, everything: bool) -> Stored:
        """Hold the moves of a job back, or let them go on, also past a brake that holds; kept in the store."""
        self.get(kind, name)
        where = store_name(kind, name)
        self._store.transact(where, lambda tx: pause_set(tx, where, paused, everything=everything))
        if not paused and braking(self._facts(kind, name)):
            self._store.transact(where, lambda tx: release_brake(tx, where))  # Whoever says "go on" has looked.
        return self.get(kind, name)

    def terms(self, name: str) -> SetTerms:
        """Say what a set promises its members."""
        return voices.terms_of(self._store, name)

    def register(self, name: str, member: str, body: bytes) -> Registered:
        """Give a process its incarnation."""
        return voices.register(self._store, name, member, body)

    def heartbeat(self, name: str, member: str, body: bytes) -> Reply | Superseded | Stale:
        """Take a heartbeat."""
        return voices.heartbeat(self._store, name, member, body)

    def pod_targets(self, pool: str, pod: str, *, speaks: bool) -> list[HttpSd]:
        """List what one pod may collect now, for whoever asks for it in the style of Prometheus.

        Where pods fetch their targets, asking is also the pod's sign of life, if it is the pod that `speaks`.
        """
        if speaks:
            answer = self._store.transact(store_name("TargetPool", pool), lambda tx: answer_pull(tx, pool, pod))
            return [HttpSd(each.targets, each.labels) for each in answer]
        document, _ = self._planable("TargetPool", pool)
        assert isinstance(document, TargetPool)
        facts = self._facts("TargetPool", pool)
        if pod not in {*facts.members, *(each.name for each in document.spec.pods.endpoints or [])}:
            raise NotFound(f"TargetPool {pool} has no pod {pod!r}")
        mine = {row.id for row in facts.rows.values() if row.owner == pod and row.state not in RELEASING}
        return [sd_group(pool, each) for each in document.spec.targets.listed or [] if each.name in mine]

    def events(self, after: str | None, most: int) -> list[Event]:
        """Read events after an id, or with None the newest ones."""
        return self._events.read(after, most)

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

    def _look(self, kind: str, name: str) -> Look:
        """Read all facts of a job beside its transactions: no question holds up a heartbeat."""
        return self._store.view(store_name(kind, name), lambda tx: look_in(tx, kind, name, self._now()))

    def _facts(self, kind: str, name: str) -> Snapshot:
        return self._look(kind, name).facts


class _StillJobs(StoreJobs):
    """One job at one instant, for all who look at it: its document and its plan are made once."""

    def __init__(self, store: Store, *, now: Callable[[], datetime], ready: Callable[[], bool]) -> None:
        """Ask what does not change any more."""
        super().__init__(store, now=now, ready=ready)
        self._documents, self._plans = Kept[Stored](1), Kept[Planned](1)

    def _stored(self, tx: Transaction, kind: str, name: str) -> Stored:
        return self._documents.get((kind, name), None, lambda: super(_StillJobs, self)._stored(tx, kind, name))

    def plan(self, kind: str, name: str, what_if: WhatIf | None) -> Planned:
        """Plan the job as it is once; every what-if anew."""
        if what_if is not None:
            return super().plan(kind, name, what_if)
        return self._plans.get((kind, name), None, lambda: super(_StillJobs, self).plan(kind, name, None))
