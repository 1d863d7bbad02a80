"""One look at a job that owns items: everything that is shown of it, read at one instant."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from functools import cached_property

import msgspec

from poise.jobs.live import lease_state, pod_state
from poise.jobs.pool.settings import PODS_NOTE, SOURCE_NOTE
from poise.jobs.pool.state import Notes, SourceState, read_notes
from poise.jobs.stored import revision_in, store_name
from poise.model.ownership import RELEASING, MemberRow, Row
from poise.move.executor import Snapshot, snapshot
from poise.stores.base import Transaction

OWNING = ("PartitionSet", "ShardRing", "TargetPool")
# Members are kept for ever, so that their incarnations only grow. Whoever looks for one that failed looks within a day;
# older ones are names of containers that will not come again, and would hide the others.
FORGOTTEN_S = 86_400.0
LATE_PART = 0.6  # Members speak three times in a lease: who was silent for so much of it has missed one, and is late.


class Look(msgspec.Struct, frozen=True, dict=True):
    """The facts of a job; `zero` is the wall clock at store time 0. Of a pool also what its engine has noted."""

    kind: str
    name: str
    revision: int
    facts: Snapshot
    zero: datetime
    pods: Notes = {}
    source: SourceState = SourceState()

    @cached_property
    def loads(self) -> Counter[str | None]:
        """Count what every member holds; what nobody holds counts for None."""
        return Counter(row.owner for row in self.facts.rows.values())

    @cached_property
    def reserved(self) -> Counter[str | None]:
        """Count what is on its way to every member."""
        return Counter(row.target for row in self.facts.rows.values())

    @cached_property
    def releasing(self) -> list[Row]:
        """List what its owner has been asked to let go of."""
        return [row for row in self.facts.rows.values() if row.state in RELEASING]

    @cached_property
    def unowned(self) -> int:
        """Count the items that nobody may work on."""
        return sum(is_unowned(row, self.facts) for row in self.facts.rows.values())

    @cached_property
    def members(self) -> list[MemberRow]:
        """List the members that are shown, by name: all but those long gone that hold nothing."""
        never = {pod: self._never_heard(pod) for pod in self.pods.keys() - self.facts.members.keys()}
        known = sorted({**never, **self.facts.members}.items())
        return [each for _, each in known if not self._is_forgotten(each)]

    def _never_heard(self, pod: str) -> MemberRow:
        """Show a pod that has not answered once, so that people see why: it is no member yet."""
        return MemberRow(name=pod, lease_until_s=self.facts.now_s)

    def _is_forgotten(self, member: MemberRow) -> bool:
        gone_s = self.facts.now_s - member.lease_until_s
        return gone_s > FORGOTTEN_S and not self.loads[member.name] and not self.reserved[member.name]

    def state_of(self, member: MemberRow) -> str:
        """Say the state of a member in the words of its kind."""
        if self.kind == "ShardRing":
            lease = lease_state(member, self.facts.job.terms, self.facts.now_s)
            return "draining" if lease == "ready" and member.draining else lease
        state = pod_state(member, self.facts.now_s)
        return "active" if self.kind == "PartitionSet" and state == "ready" else state

    def moment(self, at_s: float) -> datetime:
        """Tell store time as wall clock time."""
        return self.zero + timedelta(seconds=at_s)


def look_in(tx: Transaction, kind: str, name: str, now: datetime) -> Look:
    """Look at a job within a transaction on it; `NotFound` where there is none."""
    revision = revision_in(tx, kind, name)
    facts = snapshot(tx, store_name(kind, name))
    zero = now - timedelta(seconds=facts.now_s)
    if kind != "TargetPool":
        return Look(kind, name, revision, facts, zero)
    said = tx.note(SOURCE_NOTE)
    source = SourceState() if said is None else msgspec.json.decode(said, type=SourceState)
    return Look(kind, name, revision, facts, zero, read_notes(tx.note(PODS_NOTE)), source)


def is_unowned(row: Row, facts: Snapshot) -> bool:
    """Say whether nobody may work on an item: it has no owner, or one that is not heard of any more."""
    if row.owner is None:
        return True
    member = facts.members.get(row.owner)
    return member is None or facts.now_s >= member.lease_until_s or (row.owner_incarnation or 0) < member.incarnation
