"""The planner's board: which row counts on whom, who has room, and what is in flight."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush

from poise.decide.partition_facts import Facts, is_barred
from poise.decide.partition_values import MoveBudgets, Partition, PartitionState
from poise.decide.shares import Shares, fair_shares
from poise.model.ownership import RELEASING, RETIREMENT

Rows = list[Partition]


class Standing:
    """Every row of the set stands in exactly one place, and counts on one node or on nobody.

    Firm on a node is what it holds, may take back, or has reserved from a live owner. What has no live owner and is
    meant for a node (coming, returning) counts there, too, but only up to the quota: another may have it at no cost.
    """

    def __init__(self, facts: Facts) -> None:
        """Sort the rows, each list in numeric order."""
        self.fresh: Rows = []  # Unassigned and free for anyone.
        self.awaited: Rows = []  # Unassigned, waiting for a node that restarts.
        self.lost: Rows = []  # The owner will not renew it.
        self.orphaned: Rows = []  # Being released for a node that is gone; it cannot go back.
        self.adrift: Rows = []  # Being released for nobody in particular.
        self.held: defaultdict[str, Rows] = defaultdict(list)
        self.reverting: defaultdict[str, Rows] = defaultdict(list)  # Asked for in vain; the owner has not answered.
        self.reserved: defaultdict[str, Rows] = defaultdict(list)  # Being released for this node.
        self.coming: defaultdict[str, Rows] = defaultdict(list)  # Unassigned and meant for this node.
        self.returning: defaultdict[str, Rows] = defaultdict(list)  # Lost (also listed there) and meant for this node.
        for row in facts.rows:
            self._sort(facts, row)

    def firm(self, node: str) -> int:
        """Count what a node can only get rid of by a release."""
        return len(self.held[node]) + len(self.reverting[node]) + len(self.reserved[node])

    def load(self, node: str) -> int:
        """Count all that is on a node or meant for it."""
        return self.firm(node) + len(self.coming[node]) + len(self.returning[node])

    def _sort(self, facts: Facts, row: Partition) -> None:
        lost = facts.is_lost(row)
        if row.owner is not None and not lost and row.state == PartitionState.ASSIGNED:
            self.held[row.owner].append(row)
            return
        aim = facts.aim(row)
        if row.owner is None:
            place = self.coming[aim] if aim else self.awaited if facts.is_awaited(row) else self.fresh
            place.append(row)
        elif lost:
            self.lost.append(row)
            if aim is not None:
                self.returning[aim].append(row)
        elif aim is not None:
            self.reserved[aim].append(row)
        else:
            self._sort_aimless(facts, row, row.owner)

    def _sort_aimless(self, facts: Facts, row: Partition, owner: str) -> None:
        """Sort a row that is being released for no active node: only one that is not acknowledged can go back.

        A request without a target is left alone, unless it was a retirement and the set has grown again.
        """
        superseded = row.target is not None or row.reason == RETIREMENT
        if superseded and row.state == PartitionState.REQUESTED_RELEASE and facts.is_active(owner):
            self.reverting[owner].append(row)
        else:
            (self.orphaned if facts.is_gone(row.target) else self.adrift).append(row)


def share_out(facts: Facts) -> Shares:
    """Share the count by weight over the active nodes; where all weights are 0 they are equal: somebody must hold."""
    given = facts.policy.weights
    weights = [given.get(name, facts.nodes[name].weight) for name in facts.active]
    if not any(weights):
        weights = [1] * len(weights)
    return fair_shares(len(facts.rows), weights, [0] * len(weights), [None] * len(weights))


def choose_quotas(facts: Facts, shares: Shares, standing: Standing, scores: Mapping[str, int]) -> dict[str, int]:
    """Choose floor or ceiling of each share.

    Ceilings go first to nodes that hold more than their floor now (firm before meant: only those save a release), then
    to those that are owed most, then by score(seed, node).
    """
    chosen, left = dict(zip(facts.active, shares.floors(), strict=True)), shares.remainders()
    eligible = sorted(
        (name for name, remainder in zip(facts.active, left, strict=True) if remainder),
        key=lambda name: (
            standing.firm(name) <= chosen[name],
            standing.load(name) <= chosen[name],
            -facts.policy.debt.get(name, 0),
            -scores[name],
            name,
        ),
    )
    for name in eligible[: sum(left) // shares.denominator]:
        chosen[name] += 1
    return chosen


class Flights:
    """The releases under way, for the cluster, each source and each target, against their budgets."""

    def __init__(self, facts: Facts) -> None:
        """Count the rows that live owners are letting go of; what is lost is recovery, and waits for no answer."""
        self.budgets: MoveBudgets = facts.policy.budgets
        self.total = 0
        self.sources: Counter[str] = Counter()
        self.targets: Counter[str] = Counter()
        for row in facts.rows:
            if row.state in RELEASING and not facts.is_lost(row):
                self.start(row.owner, row.target)
        for row in facts.beyond:
            if row.state in RELEASING and not facts.is_lost(row):
                self.start(row.owner, None)  # A retirement arrives nowhere.

    def start(self, source: str | None, target: str | None, step: int = 1) -> None:
        """Count one more under way."""
        self.total += step
        self.sources[source or ""] += step
        if target is not None:
            self.targets[target] += step

    def stop(self, source: str | None, target: str | None) -> None:
        """Count one less under way."""
        self.start(source, target, -1)

    def is_full(self) -> bool:
        """Say whether the cluster has no move left."""
        return self.budgets.moves_in_flight_max is not None and self.total >= self.budgets.moves_in_flight_max

    def is_source_full(self, node: str) -> bool:
        """Say whether a node lets go of as many as it may."""
        return self.budgets.per_source_max is not None and self.sources[node] >= self.budgets.per_source_max

    def is_target_full(self, node: str) -> bool:
        """Say whether as many are on their way to a node as may be."""
        return self.budgets.per_target_max is not None and self.targets[node] >= self.budgets.per_target_max

    def why_not(self, source: str, target: str | None) -> str:
        """Name the budget that holds a move back."""
        if self.is_full():
            return f"{self.total} of {self.budgets.moves_in_flight_max} moves in flight"
        if self.is_source_full(source) or target is None:
            return f"{self.sources[source]} of {self.budgets.per_source_max} moves from {source} in flight"
        return f"{self.targets[target]} of {self.budgets.per_target_max} moves to {target} in flight"


class Takers:
    """Finds, again and again, the node furthest below its quota (ties by score), and raises its load."""

    def __init__(
        self,
        loads: dict[str, int],
        quotas: Mapping[str, int],
        scores: Mapping[str, int],
        is_full: Callable[[str], bool] | None = None,
    ) -> None:
        """Stand over the loads; whoever is full by a budget stays so until the plan is done."""
        self._loads, self._quotas, self._scores, self._is_full = loads, quotas, scores, is_full
        self._heap = [self._entry(name) for name in quotas]
        heapify(self._heap)

    def take(self, row: Partition, source: str | None = None, *, beyond_quota: bool = False) -> str | None:
        """Find the taker of one row; neither its source nor a node that never confirmed it. None where there is none.

        A row that nobody holds may go beyond a quota: better there than nowhere.
        """
        passed = []
        found = None
        while self._heap and found is None:
            entry = heappop(self._heap)
            name = entry[2]
            if self._is_full is not None and self._is_full(name):
                continue
            if entry[0] >= 0 and not beyond_quota:
                passed.append(entry)
                break
            if name == source or is_barred(row, name):
                passed.append(entry)
                continue
            found = name
        for entry in passed:
            heappush(self._heap, entry)
        if found is not None:
            self._loads[found] += 1
            heappush(self._heap, self._entry(found))
        return found

    def _entry(self, name: str) -> tuple[int, int, str]:
        return self._loads[name] - self._quotas[name], -self._scores[name], name
