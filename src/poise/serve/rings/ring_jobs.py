"""The rings of an operator, as the page asks about jobs. Nothing can be changed here.

The operator's loop owns all that is known: it is asked for a snapshot, and everything else happens in the threads of
whoever looks. A snapshot is kept for a second, for all who look at that ring.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime
from functools import cached_property
from typing import NoReturn, TypeVar

import msgspec

from poise import clock
from poise.decide.explain import Explanation
from poise.errors import NotFound, Unavailable, invalid
from poise.jobs.entries import Planned, Told
from poise.jobs.series import Series
from poise.jobs.sharder.explaining import explain_object
from poise.jobs.sharder.foresight import plan_snapshot
from poise.jobs.sharder.rings import RingLook, Rings
from poise.jobs.sharder.snapshot import RingSnapshot
from poise.jobs.stored import Stored
from poise.jobs.what_if import WhatIf
from poise.model import Document
from poise.model.ownership import Line, Registered, Reply, SetTerms
from poise.model.shard_ring import Instance, ShardRingStatus
from poise.move.heartbeat import Stale, Superseded
from poise.serve.facade import HISTORY_MAX, Event, HttpSd, ItemView, JobSummary, MemberView, Stoppable
from poise.serve.kept import Kept
from poise.serve.problems import Refused
from poise.serve.rings.ring_journal import RingJournal
from poise.serve.rings.ring_views import KIND, key_views, may_stop, member_views, ring_name, ring_summary

Result = TypeVar("Result")
_ANSWER_S = 5.0
_KEPT = 8


class _Seen(msgspec.Struct, frozen=True, dict=True):
    """One ring at one instant, with what all who look at it are shown."""

    look: RingLook
    snapshot: RingSnapshot
    planned: Planned

    @cached_property
    def items(self) -> list[ItemView]:
        """Its keys."""
        return key_views(self.snapshot, self.planned)

    @cached_property
    def members(self) -> list[MemberView]:
        """Its instances."""
        return member_views(self.snapshot, self.items)


class RingJobs:
    """Answers from an operator's own state; a process that stands by has no ring, and says who leads."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        rings: Callable[[], Rings | None],
        journal: RingJournal,
        leads: Callable[[], str],
        now: Callable[[], datetime] = clock.now,
    ) -> None:
        """Ask this loop; `leads` says who leads where it is somebody else, and nothing otherwise."""
        self._loop, self._rings, self._journal, self._leads, self._now = loop, rings, journal, leads, now
        self._kept = Kept[_Seen](_KEPT)

    # What is asked of the loop.

    def _in_loop(self, work: Callable[[], Result]) -> Result:
        """Let the loop that owns the state answer; one that hangs is Unavailable."""
        answer: Future[Result] = Future()

        def run() -> None:
            try:
                answer.set_result(work())
            except Exception as error:
                answer.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        try:
            return answer.result(_ANSWER_S)
        except TimeoutError:
            raise Unavailable(f"the operator did not answer within {_ANSWER_S:g} s") from None

    def _looks(self) -> list[RingLook]:
        def read() -> list[RingLook]:
            rings = self._rings()
            return [] if rings is None else rings.looks()

        return self._in_loop(read)

    def _look(self, kind: str, name: str) -> RingLook:
        found = next((each for each in self._looks() if kind == KIND and ring_name(each) == name), None)
        if found is None:
            leader = self._leads()
            where = f"; this process stands by, and {leader} leads: ask there" if leader else ""
            raise NotFound(f"there is no {kind} {name!r}{where}")
        return found

    def _seen(self, kind: str, name: str) -> _Seen:
        """Look at a ring, at most once a second for all who ask."""
        return self._kept.get((kind, name), int(clock.boot_s()), lambda: self._fresh(kind, name))

    def _fresh(self, kind: str, name: str) -> _Seen:
        look = self._look(kind, name)

        def read() -> RingSnapshot | None:
            rings = self._rings()
            return None if rings is None else rings.snapshot(look.meta.key)

        snapshot = self._in_loop(read)
        if snapshot is None:
            why = look.refusal.message if look.refusal is not None else "its sharder has not begun yet"
            raise NotFound(f"the ring {name} is not run: {why}")
        return _Seen(look, snapshot, plan_snapshot(snapshot))

    # What is shown.

    def jobs(self) -> list[JobSummary]:
        """List every ring."""
        return [ring_summary(each) for each in self._looks()]

    def summary(self, kind: str, name: str) -> JobSummary:
        """Say of one ring what the list says."""
        return ring_summary(self._look(kind, name))

    def still(self, kind: str, name: str) -> RingJobs:
        """Keep one ring as it is at this instant."""
        return _StillRing(self, self._seen(kind, name))

    def get(self, kind: str, name: str) -> Stored:
        """Give the document of a ring, with what is known of it."""
        seen = self._seen(kind, name)
        instances = [Instance(each.name, each.state.value, each.tokens) for each in seen.snapshot.instances]
        held = {each.item: each.member for each in seen.items if each.member is not None}
        document = msgspec.structs.replace(seen.snapshot.ring, status=ShardRingStatus(instances, held))
        return Stored(document, seen.look.meta.generation)

    def plan(self, kind: str, name: str, what_if: WhatIf | None) -> Planned:
        """Plan a ring as it is, or as a what-if."""
        seen = self._seen(kind, name)
        return seen.planned if what_if is None else plan_snapshot(seen.snapshot, what_if)

    def items(self, kind: str, name: str, *, member: str | None, state: str | None) -> list[ItemView]:
        """List the keys of a ring."""
        found = self._seen(kind, name).items
        return [each for each in found if member in (None, each.member) and state in (None, each.state)]

    def item(self, kind: str, name: str, item: str) -> ItemView:
        """Read one key."""
        found = next((each for each in self.items(kind, name, member=None, state=None) if each.item == item), None)
        if found is None:
            raise NotFound(f"{kind} {name} has no object with the key {item!r}")
        return found

    def explain(self, kind: str, name: str, item: str, what_if: WhatIf | None = None) -> Explanation | Told:
        """Say why the objects of a key are where they are."""
        seen = self._seen(kind, name).snapshot
        roots = seen.by_key.get(item)
        if roots is None:
            raise invalid("$.item", f"{item!r} is no key of the ring {name}")
        return explain_object(seen, roots[0], what_if)

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
        """Tell what this process saw happen to a ring or to one key."""
        self._look(kind, name)
        return self._journal.lines(name, item, after, min(most, HISTORY_MAX), newest=newest)

    def members(self, kind: str, name: str) -> list[MemberView]:
        """List the instances of a ring."""
        return self._seen(kind, name).members

    def series(self, kind: str, name: str) -> Series:
        """Read what this process counted of a ring over time."""
        self._look(kind, name)
        return self._journal.series(name, self._now())

    def stoppable(self, kind: str, name: str, member: str) -> Stoppable:
        """Say whether an instance may stop now."""
        view = next((each for each in self.members(kind, name) if each.name == member), None)
        if view is None:
            raise NotFound(f"{kind} {name} has no instance {member!r}")
        return may_stop(self._seen(kind, name).snapshot, view)

    def events(self, after: str | None, most: int) -> list[Event]:
        """Read what happened after an id, or with None what is newest."""
        return self._journal.events(after, most)

    def wait(self, version: int, timeout_s: float) -> int:
        """Wait until something happens."""
        return self._journal.wait(version, timeout_s)

    def ready(self) -> bool:
        """Say that it can be asked."""
        return True

    # What a page of an operator does not do.

    def put(self, document: Document, *, if_match: int | None) -> Stored:
        """Refuse: documents live on Kubernetes."""
        _refuse(document, if_match)

    def try_put(self, document: Document) -> Planned:
        """Refuse: documents live on Kubernetes."""
        _refuse(document)

    def delete(self, kind: str, name: str, *, if_match: int | None) -> None:
        """Refuse: documents live on Kubernetes."""
        _refuse(kind, name, if_match)

    def drain(self, kind: str, name: str, member: str, draining: bool) -> MemberView:
        """Refuse: a drain is an annotation of the ring."""
        _refuse(kind, name, member, draining)

    def pause(self, kind: str, name: str, *, paused: bool, everything: bool) -> Stored:
        """Refuse: a pause is an annotation of the ring."""
        _refuse(kind, name, paused, everything)

    def terms(self, name: str) -> SetTerms:
        """Refuse: instances speak by Leases."""
        _refuse(name)

    def register(self, name: str, member: str, body: bytes) -> Registered:
        """Refuse: instances speak by Leases."""
        _refuse(name, member, body)

    def heartbeat(self, name: str, member: str, body: bytes) -> Reply | Superseded | Stale:
        """Refuse: instances speak by Leases."""
        _refuse(name, member, body)

    def pod_targets(self, pool: str, pod: str, *, speaks: bool) -> list[HttpSd]:
        """Refuse: there is no pool here."""
        _refuse(pool, pod, speaks)


def _refuse(*_asked: object) -> NoReturn:
    raise Refused(405, "nothing can be changed here: the rings live on Kubernetes, and poise or kubectl changes them")


class _StillRing(RingJobs):
    """One ring at one instant: every question gets an answer from the same look."""

    def __init__(self, jobs: RingJobs, seen: _Seen) -> None:
        """Answer from this."""
        super().__init__(jobs._loop, jobs._rings, jobs._journal, jobs._leads, jobs._now)
        self._still = seen

    def _seen(self, kind: str, name: str) -> _Seen:
        del kind, name
        return self._still

    def _look(self, kind: str, name: str) -> RingLook:
        del kind, name
        return self._still.look
