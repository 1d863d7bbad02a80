"""The auditor: reads the sink's log and what was done to whom, and names every broken law. It knows nothing of Poise.

1. Epochs of accepted writes never fall.
2. Between two workers that were not paused no writes of one item interleave.
3. A paused worker's late writes are refused, every one.
4. No item is without accepted writes for longer than lease + grace + 2 s; what a paused worker writes late does not
   count. What is added, and only where it applies: a whole bound for a grant to a worker that was lost before it could
   act; the time without a leader or without a store after lease + grace, for until then there is nothing to decide.
5. After the faults every item has one writer, and the loads are floor or ceiling.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from tests.chaos.chaos_sink import Entry

SLACK_S = 2.0
ELECTION_S = 1.5  # A leader is missed when its lease is over, and the next look of another one is a third of it away.
RECONNECT_S = 2.0  # After a store is back, its users find out after a pause of their own.
LOSSES = ("kill", "coordinator", "stop", "freeze all", "freeze worker")
FREEZES = ("freeze all", "freeze worker")


class Fault(NamedTuple):
    """What was done, to whom and when; `pids` are the children that were frozen too, `led`: it hit who plans."""

    at_s: float
    kind: str
    member: str = ""
    until_s: float = 0.0
    pids: frozenset[int] = frozenset()
    led: bool = False


class Grant(NamedTuple):
    """An item was given to a member, as the store's journal tells."""

    item: str
    member: str
    at_s: float


class Terms(NamedTuple):
    """What was promised."""

    lease_s: float
    grace_s: float

    @property
    def bound_s(self) -> float:
        """Give how long after a crash an item may be without writes."""
        return self.lease_s + self.grace_s + SLACK_S


class Case(NamedTuple):
    """Everything to judge, between two instants; after `settled_s` there were no faults and nothing was in motion."""

    entries: list[Entry]
    items: tuple[str, ...]
    terms: Terms
    from_s: float
    settled_s: float
    until_s: float
    workers: tuple[str, ...]  # The names of those that are there at the end.
    faults: tuple[Fault, ...] = ()
    grants: tuple[Grant, ...] = ()
    stalls: tuple[tuple[float, float], ...] = ()  # When the store did not answer a neutral observer.

    @property
    def writes(self) -> list[Entry]:
        """Leave out what is only noted."""
        return [entry for entry in self.entries if entry.kind == "write"]


class Gap(NamedTuple):
    """An item without accepted writes, and how long that may last here."""

    item: str
    from_s: float
    until_s: float
    bound_s: float

    @property
    def length_s(self) -> float:
        """Give how long it lasted."""
        return self.until_s - self.from_s


def audit(case: Case) -> list[str]:
    """Name every broken law; nothing where all hold."""
    laws = (falling_epochs, interleaved_writes, accepted_late_writes, long_gaps, uneven_loads)
    return [finding for law in laws for finding in law(case)]


def falling_epochs(case: Case) -> list[str]:
    """Law 1."""
    found = []
    for item, writes in by_item(case.writes).items():
        accepted = [write for write in writes if write.accepted]
        found += [
            f"epochs: item {item}: {_act(case, after)} was accepted after {_act(case, before)}"
            for before, after in pairwise(accepted)
            if after.epoch < before.epoch
        ]
    return found


def interleaved_writes(case: Case) -> list[str]:
    """Law 2, in the order of the sink and by the writers' own clock; a refused write is one too."""
    found = []
    for item, awake in by_item(_awake(case)).items():
        for order, key in (("log", lambda write: write.number), ("clock", lambda write: write.child_s)):
            found += [
                f"interleaved ({order}): item {item}: {_act(case, after)} came after {_act(case, first)}"
                for first, after in _returns(sorted(awake, key=key))
            ]
    return found


def _returns(writes: list[Entry]) -> list[tuple[Entry, Entry]]:
    """Find writers that come back after another one has begun, and the write that should have ended them."""
    ended: dict[int, Entry] = {}
    found = []
    for before, after in pairwise(writes):
        if after.pid == before.pid:
            continue
        ended[before.pid] = after
        if after.pid in ended:
            found.append((ended[after.pid], after))
    return found


def accepted_late_writes(case: Case) -> list[str]:
    """Law 3: once another one has written, whoever was paused before that is refused for good."""
    return [
        f"late: item {write.item}: {_act(case, write)} was accepted though it had been paused and another one wrote"
        for write in late_writes(case)
        if write.accepted
    ]


def late_writes(case: Case) -> list[Entry]:
    """Find the writes of paused workers for items that another one has written in the meantime."""
    frozen = _frozen(case.faults)
    taken: dict[str, list[Entry]] = defaultdict(list)
    found = []
    for write in case.writes:
        at_s = frozen.get(write.pid)
        if at_s is not None and write.sink_s >= at_s:
            found += [write] * any(other.sink_s >= at_s for other in taken[write.item] if other.pid != write.pid)
        elif write.accepted:
            taken[write.item].append(write)
    return found


def taken_from_paused(case: Case) -> set[tuple[str, int]]:
    """Find the items that another one has written while their writer was frozen: it wakes up to be refused."""
    found = set()
    for fault in case.faults:
        for item, writes in by_item(case.writes).items():
            last = next((write for write in reversed(writes) if write.sink_s < fault.at_s and write.accepted), None)
            others = (write for write in writes if fault.at_s < write.sink_s < fault.until_s and write.accepted)
            if last is not None and last.pid in fault.pids and any(write.pid != last.pid for write in others):
                found.add((item, last.pid))
    return found


def long_gaps(case: Case) -> list[str]:
    """Law 4."""
    return [
        f"unowned: item {gap.item}: {gap.length_s:.2f} of {gap.bound_s:.2f} s, from {gap.from_s - case.from_s:.2f} s"
        for gap in gaps(case)
        if gap.length_s > gap.bound_s
    ]


def gaps(case: Case, least_s: float = 1.0) -> list[Gap]:
    """Find the times without accepted writes, of every item that should have some."""
    seen = {item: [case.from_s] for item in case.items}
    for write in _awake(case):
        if write.accepted and case.from_s <= write.sink_s <= case.until_s:
            seen[write.item].append(write.sink_s)
    return [
        Gap(item, before_s, after_s, bound_s(case, item, before_s, after_s))
        for item, times in seen.items()
        for before_s, after_s in pairwise([*times, case.until_s])
        if after_s - before_s >= least_s
    ]


def bound_s(case: Case, item: str, from_s: float, until_s: float) -> float:
    """Give the bound of one gap, with what its faults add."""
    terms = case.terms
    given = [grant for grant in case.grants if grant.item == item and from_s <= grant.at_s <= until_s]
    # The last one is the one that ended the gap, or should have.
    most_s = terms.bound_s * (1 + sum(_is_lost(case, grant, until_s) for grant in given[:-1]))
    due_s = from_s + terms.lease_s + terms.grace_s
    return most_s + sum(
        max(0.0, min(end_s, until_s) - max(begin_s, due_s)) for begin_s, end_s in _merged(_standstills(case))
    )


def _is_lost(case: Case, grant: Grant, until_s: float) -> bool:
    """Say whether a member was lost after it was given an item, or before that and not yet missed."""
    since_s = grant.at_s - case.terms.lease_s
    return any(
        fault.kind in LOSSES and fault.member == grant.member and since_s <= fault.at_s <= until_s
        for fault in case.faults
    )


def _standstills(case: Case) -> list[tuple[float, float]]:
    """Find when nothing could be decided: nobody led, or there was no store. A stall without a fault excuses nobody."""
    found = []
    for fault in case.faults:
        if fault.led or fault.kind == "coordinator":
            missed_s = fault.at_s + case.terms.lease_s
            back_s = fault.until_s if fault.kind == "coordinator" else missed_s
            found.append((fault.at_s, max(missed_s, back_s) + ELECTION_S))
        if fault.kind == "store":
            found.append((fault.at_s, fault.until_s + RECONNECT_S))
        if fault.kind in FREEZES:
            # A process that is frozen in mid-transaction keeps everybody out of a file.
            found += [
                (max(begin_s, fault.at_s), min(end_s, fault.until_s) + RECONNECT_S)
                for begin_s, end_s in case.stalls
                if begin_s < fault.until_s and end_s > fault.at_s
            ]
    return found


def _merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Join spans that overlap, so that no time is counted twice."""
    joined: list[tuple[float, float]] = []
    for begin_s, end_s in sorted(spans):
        if joined and begin_s <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end_s))
        else:
            joined.append((begin_s, end_s))
    return joined


def uneven_loads(case: Case) -> list[str]:
    """Law 5."""
    holders: dict[str, set[str]] = {item: set() for item in case.items}
    for write in case.writes:
        if write.accepted and case.settled_s <= write.sink_s <= case.until_s:
            holders[write.item].add(write.member)
    found = [
        f"loads: item {item}: written by {sorted(names) or 'nobody'} in the end"
        for item, names in holders.items()
        if len(names) != 1 or not names <= set(case.workers)
    ]
    loads = Counter(dict.fromkeys(case.workers, 0))
    loads.update(name for names in holders.values() for name in names)
    if loads and max(loads.values()) - min(loads.values()) > 1:
        found.append(f"loads: {dict(sorted(loads.items()))}, expected floor or ceiling")
    return found


def by_item(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Sort entries out; each item's stay in their order."""
    sorted_out: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        sorted_out[entry.item].append(entry)
    return sorted_out


def _awake(case: Case) -> list[Entry]:
    """Leave out what was written by a process after it had been frozen."""
    frozen = _frozen(case.faults)
    return [write for write in case.writes if write.sink_s < frozen.get(write.pid, float("inf"))]


def _frozen(faults: Iterable[Fault]) -> dict[int, float]:
    """Find when each child was first frozen."""
    found: dict[int, float] = {}
    for fault in faults:
        for pid in fault.pids:
            found.setdefault(pid, fault.at_s)
    return found


def _act(case: Case, write: Entry) -> str:
    """Name a write: who, at which epoch, and when, counted from the beginning of the case."""
    return f"{write.holder} (process {write.pid}, epoch {write.epoch}, at {write.child_s - case.from_s:.3f} s)"
