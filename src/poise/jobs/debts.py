"""What members are owed across the sets of one store, so that the ceilings of many sets do not meet on the same ones.

Law: owed = share - quota of a plan, summed over the other sets; fresh sets leave all members within 1 of each other.
It is a function of what was planned last: a process that starts again knows it once it has planned each set once.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from fractions import Fraction

from poise.decide.partition_values import PartitionPlan
from poise.jobs.snapshots import plan_snapshot
from poise.move.executor import Snapshot


class Debts:
    """Shared by the coordinators of a process; plans are made one at a time, so that each knows the one before."""

    def __init__(self) -> None:
        """Owe nobody anything."""
        self._turn = threading.Lock()
        self._owed: dict[str, dict[str, Fraction]] = {}

    def plan(self, facts: Snapshot) -> PartitionPlan:
        """Plan a set with what the others owe, and note what it owes."""
        with self._turn:
            debt: defaultdict[str, Fraction] = defaultdict(Fraction)
            for name, owed in self._owed.items():
                for member, share in owed.items() if name != facts.job.name else ():
                    debt[member] += share
            plan = plan_snapshot(facts, debt)
            self._owed[facts.job.name] = {member: share for member, share in plan.owed.items() if share}
            return plan
