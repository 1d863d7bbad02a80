"""The two-phase partition planner: facts in, the next writes out.

Law: a quota is the floor or the ceiling of count·weight / sum of weights, and a node lets go of exactly
max(0, Assigned + reserved - quota). So nothing leaves a node that is at its quota, and with equal weights the loads end
within 1 of each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from poise.decide.balance import fewest_releases
from poise.decide.partition_board import Flights, Rows, Standing, Takers, choose_quotas, share_out
from poise.decide.partition_facts import Facts, read_facts
from poise.decide.partition_reasons import barring, loss, notices, unowned
from poise.decide.partition_values import (
    Node,
    NodeState,
    Partition,
    PartitionPlan,
    PartitionPolicy,
    PartitionState,
    Step,
    StepKind,
    WaitingMove,
)
from poise.decide.plan import Certificate, spread
from poise.decide.scores import score
from poise.model.ownership import RELEASING


def plan_partitions(
    partitions: Iterable[Partition], nodes: Iterable[Node], *, now_s: float, policy: PartitionPolicy
) -> PartitionPlan:
    """Plan the next writes of a set.

    Order: free what is lost, recall what need not move, give what is free, mend what is under way, then ask for
    releases within the budgets: draining nodes first, then retirements, then balance. Recovery never waits for
    balancing, and no row gets two steps.
    """
    planning = _Planning(read_facts(partitions, nodes, now_s, policy))
    planning.free_lost()
    planning.recall()
    planning.give_meant()
    planning.give_fresh()
    planning.mend_orphaned()
    planning.mend_reverting()
    planning.empty_draining()
    planning.retire()
    planning.balance()
    planning.foresee()
    return planning.result()


class _Planning:
    """One plan in the making: every phase adds its steps and moves the projected loads."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.standing = standing = Standing(facts)
        self.flights = Flights(facts)
        self.draining = [name for name, node in facts.nodes.items() if node.state == NodeState.DRAINING]
        self.scores = {name: score(facts.policy.seed, name) for name in [*facts.active, *self.draining]}
        self.shares = share_out(facts)
        self.quotas = choose_quotas(facts, self.shares, standing, self.scores)
        self.loads = {name: standing.firm(name) for name in self.scores}
        self.surplus = {name: max(0, self.loads[name] - quota) for name, quota in self.quotas.items()}
        self.going = {name: self._first_to_go(name) for name in self.scores}
        self.back: dict[str, Rows] = {}  # Cancelled now; if their node has too much they may have to go later.
        self.moved = 0  # Rows of live nodes that this plan sends elsewhere, now or later.
        self.steps: list[Step] = []
        self.waiting: list[WaitingMove] = []
        self.ends: dict[str, str | None] = {}

    def _first_to_go(self, name: str) -> Rows:
        """Order what a node lets go of: what it has not confirmed, then the highest numbers."""
        if name in self.quotas and not self.surplus[name]:
            return []
        return sorted(self.standing.held[name], key=lambda row: (bool(row.confirmed), -int(row.id)))

    def free_lost(self) -> None:
        """T7: take rows from owners that did not renew them, once lease and grace have ended."""
        for row in self.standing.lost + [row for row in self.facts.beyond if self.facts.is_lost(row)]:
            if self.facts.is_due(row):
                reason = f"{loss(self.facts, row)}, lease and grace have ended"
                self._step(StepKind.UNASSIGN, row, self.facts.heir(row), reason)

    def recall(self) -> None:
        """T6: a request that is not acknowledged is superseded if its target has too much and its owner has room."""
        for name in [name for name, surplus in self.surplus.items() if surplus]:
            kept = []
            for row in reversed(self.standing.reserved[name]):
                owner = row.owner or ""
                asked = row.state == PartitionState.REQUESTED_RELEASE
                if asked and self.surplus[name] and self.loads[owner] < self.quotas.get(owner, 0):
                    self._recall(row, owner, name)
                else:
                    kept.append(row)
            self.standing.reserved[name] = kept[::-1]

    def _recall(self, row: Partition, owner: str, target: str) -> None:
        self.surplus[target] -= 1
        self.loads[target] -= 1
        self.loads[owner] += 1
        self._cancel(row, owner, f"{target} has more than its share by now, and {owner} less")

    def give_meant(self) -> None:
        """T1: a free row whose target is active goes there, unless that node is full without it."""
        for name, quota in self.quotas.items():
            for row in self.standing.returning[name]:
                self._settle(row, name, quota)
            for row in self.standing.coming[name]:
                if self._settle(row, name, quota):
                    self._step(StepKind.ASSIGN, row, name, f"reserved for {name}")

    def _settle(self, row: Partition, name: str, quota: int) -> bool:
        """Count a row on the node that it is meant for, if there is room."""
        if self.loads[name] >= quota:
            return False
        self.loads[name] += 1
        self.ends[row.id] = name
        return True

    def give_fresh(self) -> None:
        """T1: every other free row, in numeric order, goes to the node furthest below its quota."""
        takers = Takers(self.loads, self.quotas, self.scores)
        turned_away = [row for rows in self.standing.coming.values() for row in rows if row.id not in self.ends]
        for row in sorted(self.standing.fresh + turned_away, key=lambda row: int(row.id)):
            target = takers.take(row, beyond_quota=True)
            if target is not None:
                held = self.loads[target] - 1
                reason = f"nobody holds it; {target} is furthest below its share ({held} of {self.quotas[target]})"
                self._step(StepKind.ASSIGN, row, target, reason)
            self.ends[row.id] = target

    def mend_orphaned(self) -> None:
        """T6b: what is being released for a node that is gone gets another target, or none."""
        self.takers = Takers(self.loads, self.quotas, self.scores, self.flights.is_target_full)
        for row in self.standing.orphaned:
            target = self.takers.take(row, row.owner)
            if target is not None:
                self.flights.targets[target] += 1
                self.ends[row.id] = target
            self._step(StepKind.RELEASE, row, target, f"its target {row.target} is gone")

    def mend_reverting(self) -> None:
        """T6: whoever was asked in vain keeps its row.

        But while a node has too much, a release whose target drains goes on (it is given to another once it is free),
        and one whose target is gone gets another target (T6b) if the node has nothing else to let go of.
        """
        for name in self.facts.active:
            rows = self.standing.reverting[name][::-1]
            for row in [row for row in rows if not self.facts.is_gone(row.target)]:
                if self.surplus[name]:
                    self._leave(name)
                else:
                    self._cancel(row, name, self._in_vain(row))
            excess = self.surplus[name] - len(self.going[name])
            for row in [row for row in rows if self.facts.is_gone(row.target)]:
                if excess > 0 and self._send_elsewhere(row, name):
                    excess -= 1
                else:
                    self._cancel(row, name, self._in_vain(row))
                    self.back.setdefault(name, []).append(row)

    def _send_elsewhere(self, row: Partition, name: str) -> bool:
        target = self.takers.take(row, name)
        if target is None:
            return False
        self.flights.targets[target] += 1
        self.ends[row.id] = target
        self._step(StepKind.RELEASE, row, target, f"its target {row.target} is gone; {self._over(name)}")
        self._leave(name)
        return True

    def _in_vain(self, row: Partition) -> str:
        if row.target is None:
            return f"the set has grown to {self.facts.policy.count} again"
        return f"its target {row.target} is {self.facts.state_of(row.target)}"

    def _cancel(self, row: Partition, name: str, cause: str) -> None:
        self.flights.stop(name, row.target)
        self.ends[row.id] = name
        self._step(StepKind.CANCEL, row, None, f"{cause}; {name} keeps it")

    def empty_draining(self) -> None:
        """T3: draining nodes let go of everything."""
        self._release({name: len(self.going[name]) for name in self.draining})

    def retire(self) -> None:
        """T9: rows beyond the count are released for nobody, then written off."""
        reason = f"the set shrank to {self.facts.policy.count}"
        for row in self.facts.beyond:
            if row.owner is None:
                self._step(StepKind.RETIRE, row, None, reason)
            elif self.facts.is_lost(row):
                continue
            elif row.state in RELEASING:
                if row.target is not None:
                    self._step(StepKind.RELEASE, row, None, reason)
            elif self.flights.is_full() or self.flights.is_source_full(row.owner):
                self._wait(row, row.owner, None, self.flights.why_not(row.owner, None), "budget")
            else:
                self.flights.start(row.owner, None)
                self._step(StepKind.RELEASE, row, None, reason)

    def balance(self) -> None:
        """T3: nodes over their quota let go of their surplus, the fullest first."""
        self._release(self.surplus)

    def _release(self, counts: dict[str, int]) -> None:
        """Ask for releases until nothing is left to ask for, or no pair of source and target has a budget left.

        So the next plan, made before anybody answers, finds nothing to add.
        """
        heap = [(-count, -self.scores[name], name) for name, count in counts.items() if count]
        heapify(heap)
        while heap and not self.flights.is_full():
            left, rank, name = heappop(heap)
            if not self.flights.is_source_full(name) and self._let_go(name) and left + 1:
                heappush(heap, (left + 1, rank, name))

    def _let_go(self, name: str) -> bool:
        """Release the first row that somebody may take."""
        reason = self._over(name) if name in self.quotas else f"{name} is draining"
        for position, row in enumerate(self.going[name]):
            target = self.takers.take(row, name)
            if target is not None:
                del self.going[name][position]
                self.flights.start(name, target)
                self.ends[row.id] = target
                self._step(StepKind.RELEASE, row, target, reason)
                self._leave(name)
                return True
            if not row.offers:
                return False  # Nobody has room, so no other row finds a taker either.
        return False

    def _over(self, name: str) -> str:
        return f"{name} over its share ({self.standing.firm(name)} of {self.quotas[name]})"

    def _leave(self, name: str) -> None:
        self.moved += 1
        self.loads[name] -= 1
        if name in self.surplus:
            self.surplus[name] -= 1

    def foresee(self) -> None:
        """List the moves that wait, and say where every row ends under the present facts."""
        ahead = dict(self.loads)
        takers = Takers(ahead, self.quotas, self.scores)
        for name in self.draining:
            for row in self.going[name]:
                self._wait_for_taker(takers, row, name)
        for name, surplus in self.surplus.items():
            waiting = [*self.going[name], *self.back.get(name, []), *reversed(self.standing.reserved[name])]
            for row in waiting[:surplus]:
                self._wait_for_taker(takers, row, name)
        self._fill_ends()
        for row in self.facts.rows:
            if row.id not in self.ends:
                self.ends[row.id] = takers.take(row, beyond_quota=True)

    def _wait_for_taker(self, takers: Takers, row: Partition, name: str) -> None:
        target = takers.take(row, name)
        self.ends[row.id] = target
        self.moved += 1
        if not self.quotas:
            self._wait(row, name, target, "no active node", "no-active-node")
        elif row.owner != name:
            self._wait(row, name, target, f"{name} is over its share, and does not have it yet", "arrival")
        elif target is None:
            self._wait(row, name, target, f"{barring(row)}; no other node has room", "refused")
        else:
            self._wait(row, name, target, self.flights.why_not(name, target), "budget")

    def _fill_ends(self) -> None:
        """Rows that nothing was decided for end where they count."""
        for counted in (self.standing.reserved, self.standing.held):
            for name, rows in counted.items():
                for row in rows:
                    self.ends.setdefault(row.id, name)

    def _step(self, kind: StepKind, row: Partition, target: str | None, reason: str) -> None:
        self.steps.append(Step(kind, row.id, row.owner, target, reason))

    def _wait(self, row: Partition, source: str, target: str | None, reason: str, code: str) -> None:
        why = self._over(source) if source in self.quotas else f"{source} is draining"
        if int(row.id) >= self.facts.policy.count:
            why = f"the set shrank to {self.facts.policy.count}"
        self.waiting.append(WaitingMove(row.id, source, target, reason, code, why))

    def result(self) -> PartitionPlan:
        """Put the plan together, with its proof."""
        facts = self.facts
        owners = Counter(row.owner for row in facts.rows)
        gone = sum(count for owner, count in owners.items() if facts.is_gone(owner))
        drained = sum(len(self.standing.held[name]) for name in self.draining)
        needed = fewest_releases([self.standing.firm(name) for name in facts.active], self.shares)
        ends = Counter(self.ends.values())
        shares = zip(facts.active, self.shares.fractions(), strict=True)
        return PartitionPlan(
            steps=self.steps,
            moves_waiting=self.waiting,
            quotas=self.quotas,
            loads=dict(sorted(self.loads.items())),
            held=_held(facts),
            assignment={row.id: self.ends[row.id] for row in facts.rows},
            certificate=Certificate(
                moves=self.moved + gone,
                moves_min=needed + drained + gone,
                spread=spread(ends[name] for name in facts.active),
            ),
            unowned=unowned(facts, self.standing, self.ends),
            notices=notices(facts),
            owed={name: share - self.quotas[name] for name, share in shares},
        )


def _held(facts: Facts) -> dict[str, int]:
    owners = Counter(row.owner for row in [*facts.rows, *facts.beyond])
    return {name: owners[name] for name, node in facts.nodes.items() if node.state != NodeState.GONE}
