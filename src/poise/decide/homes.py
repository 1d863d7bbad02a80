"""From wanted homes to the next writes: each item of a ring goes to the member that the item planner chose for it.

Law: an item whose owner may still act gets at most a request, and no item gets two steps. Who is late keeps what it
holds until its lease and the second waiting time are over.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from poise.decide.balance import rebalance
from poise.decide.partition_board import Flights
from poise.decide.partition_facts import Facts, is_barred, seconds
from poise.decide.partition_reasons import barring, loss, lost_until, notices
from poise.decide.partition_values import Partition, PartitionPlan, PartitionState, Step, StepKind, WaitingMove
from poise.decide.plan import Plan
from poise.decide.rendezvous import plan_hashed
from poise.decide.ring import plan_ring
from poise.model.ownership import RELEASING


class Homes(msgspec.Struct, frozen=True):
    """How homes are chosen: by consistent hashing (with tokens), bounded-load hashing, or exact-even (the others)."""

    policy: str
    tokens: dict[str, int] = {}
    capacity: dict[str, int] | None = None
    noun: str = "instance"


def plan_homes(facts: Facts, homes: Homes, *, braked: bool = False) -> PartitionPlan:
    """Plan the next writes of a ring or a pool.

    `braked` holds everything back that takes an item from a member; what is free is still given.
    """
    planning = _Homing(facts, _wanted(facts, homes), homes.noun, braked)
    for row in facts.rows:
        planning.visit(row)
    for row in facts.beyond:
        planning.give_up(row)
    return planning.result()


def _place(facts: Facts, row: Partition) -> str | None:
    """Name the member that an item counts on: whom it is meant for, else who holds it; None while nobody does."""
    aim = facts.aim(row)
    if aim is not None and row.state != PartitionState.ASSIGNED:
        return aim
    return aim if facts.is_lost(row) else row.owner


def _wanted(facts: Facts, homes: Homes) -> Plan:
    """Choose a home for every item that is not with a member that is late, nor kept for one that restarts."""
    current = {row.id: _place(facts, row) for row in facts.rows if not _frozen(facts, row)}
    draining = [name for name in {*current.values()} if name is not None and not facts.is_active(name)]
    members = [*facts.active, *sorted(draining)]
    capacity = (
        None if homes.capacity is None else {name: homes.capacity[name] for name in members if name in homes.capacity}
    )
    match homes.policy:
        case "ring":
            counts = {name: homes.tokens.get(name, 0) for name in members}
            return plan_ring(current, counts, current, draining=draining)
        case "hashed":
            return plan_hashed(current, members, current, capacity=capacity, draining=draining)
        case _:
            weights = {name: facts.policy.weights.get(name, facts.nodes[name].weight) for name in members}
            seed = facts.policy.seed
            return rebalance(
                current, members, current, capacity=capacity, weights=weights, draining=draining, seed=seed
            )


def _frozen(facts: Facts, row: Partition) -> bool:
    return (facts.is_lost(row) and facts.aim(row) is None) or (row.owner is None and facts.is_awaited(row))


class _Homing:
    """One plan in the making."""

    def __init__(self, facts: Facts, plan: Plan, noun: str, braked: bool) -> None:
        self.facts, self.plan, self.noun, self.braked = facts, plan, noun, braked
        self.flights = Flights(facts)
        self.loads = dict(plan.loads)
        self.steps: list[Step] = []
        self.waiting: list[WaitingMove] = []
        self.unowned: dict[str, str] = {}
        self.ends: dict[str, str | None] = {}
        self.why = {move.item: move.reason for move in plan.moves}

    def visit(self, row: Partition) -> None:
        """Decide the next step of one item."""
        home = self.plan.assignment.get(row.id)
        self.ends[row.id] = home
        if row.owner is None:
            self._give(row, home)
        elif self.facts.is_lost(row):
            self._free(row)
        elif row.state == PartitionState.ASSIGNED:
            self._move(row, home)
        else:
            self._mend(row, home)

    def _give(self, row: Partition, home: str | None) -> None:
        """T1: what is free goes home; one that its home never confirmed goes to who has least."""
        if self.facts.is_awaited(row):
            assert row.deadline_s is not None, "only an item with a deadline is awaited"
            left = seconds(row.deadline_s - self.facts.now_s)
            self.unowned[row.id] = f"waits {left} more for {row.target} to restart"
            return
        if home is not None and is_barred(row, home):
            able = [name for name in self.loads if self.facts.is_active(name) and not is_barred(row, name)]
            home = min(able, key=lambda name: (self.loads[name], name), default=None)
            self.ends[row.id] = home
        if home is None:
            self.unowned[row.id] = barring(row) or self._nowhere()
        else:
            self._step(StepKind.ASSIGN, row, home, f"nobody holds it; {self._because(row, home)}")

    def _nowhere(self) -> str:
        return f"no {self.noun} has room" if self.facts.active else f"there is no {self.noun} to hold it"

    def _free(self, row: Partition) -> None:
        """T7: take what was not renewed, after the lease and the second waiting time; under the brake nothing."""
        self.ends.setdefault(row.id, self.facts.aim(row))
        if not self.facts.is_due(row):
            self.unowned[row.id] = lost_until(self.facts, row)
        elif self.braked:
            self.unowned[row.id] = f"{loss(self.facts, row)}; the brake holds: too many have vanished at once"
        else:
            reason = f"{loss(self.facts, row)}, lease and second waiting time have ended"
            self._step(StepKind.UNASSIGN, row, self.facts.heir(row), reason)

    def _move(self, row: Partition, home: str | None) -> None:
        """T3: ask the owner for what belongs elsewhere, within the budgets."""
        owner = row.owner or ""
        if home == owner:
            return
        if home is None or is_barred(row, home):
            self.ends[row.id] = owner
            return
        reason = self._because(row, home)
        if self.braked:
            self._wait(row, home, f"too many {self.noun}s have vanished at once", "brake", reason)
        elif self.flights.is_full() or self.flights.is_source_full(owner) or self.flights.is_target_full(home):
            self._wait(row, home, self.flights.why_not(owner, home), "budget", reason)
        else:
            self.flights.start(owner, home)
            self._step(StepKind.RELEASE, row, home, reason)

    def _mend(self, row: Partition, home: str | None) -> None:
        """T6 and T6b: take a request back that leads to the wrong home, or name a home in the place of one gone."""
        owner, aim = row.owner or "", self.facts.aim(row)
        if home == aim and aim is not None:
            return
        takes_back = row.state == PartitionState.REQUESTED_RELEASE and self.facts.is_active(owner)
        if takes_back and (home == owner or aim is not None):
            self.flights.stop(owner, row.target)
            self.ends[row.id] = owner
            self._step(StepKind.CANCEL, row, None, f"{self._because(row, home)}; the request was not answered yet")
        elif aim is None and home != owner and home is not None:
            self._step(StepKind.RELEASE, row, home, f"{row.target or 'nobody'} was to have it; {home} takes it")
        elif aim is None and row.target is not None:
            self._step(StepKind.RELEASE, row, None, f"its target {row.target} is gone")

    def give_up(self, row: Partition) -> None:
        """T9: what the ring no longer lists is released for nobody, then written off."""
        reason = "the ring no longer lists it"
        if row.owner is None:
            self._step(StepKind.RETIRE, row, None, reason)
        elif self.facts.is_lost(row):
            self._free(row)
        elif row.state in RELEASING:
            if row.target is not None:
                self._step(StepKind.RELEASE, row, None, reason)
        elif self.flights.is_full() or self.flights.is_source_full(row.owner):
            self._wait(row, None, self.flights.why_not(row.owner, None), "budget", reason)
        else:
            self.flights.start(row.owner, None)
            self._step(StepKind.RELEASE, row, None, reason)

    def _because(self, row: Partition, home: str | None) -> str:
        return self.why.get(row.id) or f"{home} is its home"

    def _step(self, kind: StepKind, row: Partition, target: str | None, reason: str) -> None:
        self.steps.append(Step(kind, row.id, row.owner, target, reason))

    def _wait(self, row: Partition, home: str | None, reason: str, code: str, why: str) -> None:
        self.waiting.append(WaitingMove(row.id, row.owner or "", home, reason, code, why))

    def result(self) -> PartitionPlan:
        """Put the plan together; the proof is the item planner's."""
        owners = Counter(row.owner for row in [*self.facts.rows, *self.facts.beyond])
        listed = {row.id for row in self.facts.rows}
        return PartitionPlan(
            steps=self.steps,
            moves_waiting=self.waiting,
            quotas={},
            loads=self.loads,
            held={name: owners[name] for name in self.facts.nodes if not self.facts.is_gone(name)},
            assignment={item: end for item, end in self.ends.items() if item in listed},
            certificate=self.plan.certificate,
            unowned={item: reason for item, reason in self.unowned.items() if item in listed},
            notices=notices(self.facts),
            owed={},
        )
