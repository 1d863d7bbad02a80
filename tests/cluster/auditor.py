"""The auditor: reads what the shards noted, what was done to them and what the API showed; names every broken law.

It knows nothing of Poise. All times are of one clock, which counts suspend and which nobody can set.

1. Reconciles of one family by two processes never overlap, unless one of them was frozen for a whole lease.
   No process ever reconciles one object twice at once.
2. Once another process has begun to reconcile an object at a larger epoch, every write at a smaller one is refused.
3. No epoch of an object falls: not in the order of its versions, not in the eyes of an observer. No two instances
   reconcile an object at the same epoch.
4. No object is without a write of its owner for longer than its period + 2·D + 3 s, and what the writes of a takeover
   need on this machine. What is added, and only where it applies: as much again whenever whoever owns it then is lost
   once more; 3 s and a takeover for each further change of owner; the time without an API server (of one instance: for
   what it held) or without a leader, or under the brake, and 2·D after it, since Leases are then timed anew; the time
   in which the API server is slow to answer anybody.
5. Nothing is given to an instance whose lease is over.
6. In the end every object has the wanted owner, which runs; children are copies of their root; nothing is drained.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Protocol, TypeVar

from tests.cluster.audit_case import FOREVER_S, SLACK_S, Case, Gap, Patch, Reconcile, Sighting

WAKE_S = 1.0  # So long may a process that was frozen take until it notices what time it is.
SEEN_S = 2.0  # An observer and a sharder see the same thing not at the same instant.
LOSSES = ("kill", "freeze", "stop", "end")
STANDSTILLS = ("api", "leader", "brake")


def audit(case: Case) -> list[str]:
    """Name every broken law; nothing where all hold."""
    laws = (overlaps, late_accepted, falling_epochs, shared_epochs, unowned, given_to_the_gone, unsettled)
    return [finding for law in laws for finding in law(case)]


def overlaps(case: Case) -> Iterator[str]:
    """Law 1."""
    deaths = {each.process: each.until_s for each in case.processes}
    pauses = _pauses(case)

    def end_s(each: Reconcile) -> float:
        return min(deaths.get(each.process, FOREVER_S), FOREVER_S if each.end_s is None else each.end_s)

    def excused(each: Reconcile) -> bool:
        return any(each.start_s < until_s and end_s(each) > at_s for at_s, until_s in pauses[each.process])

    for family, group in _sorted_out(case.reconciles, lambda each: each.family).items():
        running: list[Reconcile] = []
        for each in sorted(group, key=lambda one: one.start_s):
            running = [other for other in running if end_s(other) > each.start_s]
            for other in running:
                if each.process == other.process:
                    if each.object == other.object:
                        yield f"twice: {each.object}: {_who(case, each)} began while {_who(case, other)} ran"
                elif not excused(each) and not excused(other):
                    yield f"overlap: family {family}: {_who(case, each)} began while {_who(case, other)} ran"
            running.append(each)


def late_accepted(case: Case) -> Iterator[str]:
    """Law 2."""
    for patch, taken in late_patches(case):
        if patch.outcome == "written":
            yield f"late: {patch.object}: {_writer(case, patch)} was accepted after {_who(case, taken)} had begun"


def late_patches(case: Case) -> Iterator[tuple[Patch, Reconcile]]:
    """Find the writes at an epoch that was over, as another process had begun at a larger one."""
    begun = _sorted_out(case.reconciles, lambda each: each.object)
    for patch in case.patches:
        for each in begun.get(patch.object, ()):
            if each.epoch > patch.epoch and each.process != patch.process and each.start_s < patch.sent_s:
                yield patch, each
                break


def taken_from_frozen(case: Case) -> set[tuple[str, int]]:
    """Find the objects that another process took while a reconcile of theirs was frozen: it wakes up to be refused."""
    found = set()
    for fault in (each for each in case.faults if each.kind == "freeze"):
        for group in _sorted_out(case.reconciles, lambda each: each.object).values():
            stuck = [each for each in group if each.process == fault.process and _runs_at(each, fault.at_s)]
            others = (each for each in group if fault.at_s < each.start_s < fault.until_s)
            if stuck and any(each.epoch > stuck[0].epoch for each in others):
                found.add((stuck[0].object, fault.process))
    return found


def _runs_at(each: Reconcile, at_s: float) -> bool:
    return each.start_s < at_s and (each.end_s is None or each.end_s > at_s)


def falling_epochs(case: Case) -> Iterator[str]:
    """Law 3, in the order of the versions and by the observer; the end is the last of both."""
    last = {final.object: final.epoch for final in case.finals}
    accepted = [patch for patch in case.patches if patch.outcome == "written"]
    for name, writes in _sorted_out(accepted, lambda each: each.object).items():
        ordered = sorted(writes, key=lambda each: each.version)
        for before, after in pairwise(ordered):
            if after.epoch < before.epoch:
                yield f"epochs: {name}: {_writer(case, after)} was accepted after {_writer(case, before)}"
        if name in last and (last[name] or 0) < ordered[-1].epoch:
            yield f"epochs: {name}: {last[name]} in the end, after {_writer(case, ordered[-1])}"
    for name, seen in _sorted_out(case.sightings, lambda each: each.object).items():
        numbers = [each.epoch for each in seen if each.epoch is not None]
        if any(after < before for before, after in pairwise(numbers)):
            yield f"epochs: {name}: an observer saw {numbers}"


def shared_epochs(case: Case) -> Iterator[str]:
    """Law 3: one epoch of one object belongs to one instance."""
    owners: dict[tuple[str, int], Reconcile] = {}
    for each in case.reconciles:
        first = owners.setdefault((each.object, each.epoch), each)
        if first.instance != each.instance:
            yield f"shared: {each.object}: {_who(case, each)} at the epoch of {_who(case, first)}"


def unowned(case: Case) -> Iterator[str]:
    """Law 4."""
    for gap in gaps(case):
        if gap.length_s > gap.bound_s:
            at_s = gap.from_s - case.from_s
            yield f"unowned: {gap.object}: {gap.length_s:.2f} of {gap.bound_s:.2f} s, from {at_s:.2f} s"


def gaps(case: Case, least_s: float = 1.0) -> list[Gap]:
    """Find the times without a write, of every object that should have some; late ones were refused."""
    terms = case.terms
    times: dict[str, list[float]] = {final.object: [case.from_s] for final in case.finals}
    roots = {final.object for final in case.finals if final.object == final.family}
    for patch in sorted(case.patches, key=lambda each: each.sent_s):
        if patch.outcome == "written" and patch.object in times and case.from_s <= patch.sent_s <= case.until_s:
            times[patch.object].append(patch.sent_s)
    seen = _sorted_out(case.sightings, lambda each: each.object)

    def usual_s(name: str) -> float:
        return terms.bound_s(terms.period_s if name in roots else terms.child_period_s)

    return [
        Gap(name, before_s, after_s, _bound_s(case, usual_s(name), seen.get(name, []), before_s, after_s))
        for name, instants in times.items()
        for before_s, after_s in pairwise([*instants, case.until_s])
        if after_s - before_s >= least_s
    ]


def _bound_s(case: Case, usual_s: float, seen: list[Sighting], from_s: float, until_s: float) -> float:
    """Give the bound of one gap, with what its faults add."""
    after_s = 2 * case.terms.lease_s
    struck = {"", *_holders(seen, from_s, until_s)}
    known = [
        (fault.at_s, fault.until_s + after_s)
        for fault in case.faults
        if fault.kind in STANDSTILLS and fault.instance in struck
    ]
    stands = _merged([*known, *case.stalls])
    still_s = sum(max(0.0, min(end_s, until_s) - max(begin_s, from_s)) for begin_s, end_s in stands)
    owners = {(each.shard, each.epoch) for each in seen if each.shard is not None and from_s <= each.at_s <= until_s}
    hops_s = max(0, len(owners) - 1) * (SLACK_S + case.terms.catch_up_s)
    return usual_s * max(1, _losses(case, seen, from_s, until_s)) + hops_s + still_s


def _holders(seen: list[Sighting], from_s: float, until_s: float) -> set[str]:
    """Find who held an object at any time within a gap."""
    ends = [each.at_s for each in seen[1:]] + [FOREVER_S]
    spans = zip(seen, ends, strict=False)
    return {each.shard or "" for each, end_s in spans if each.at_s <= until_s and end_s >= from_s}


def _losses(case: Case, seen: list[Sighting], from_s: float, until_s: float) -> int:
    """Count how often the owner was lost within a gap; one that was given an object may have been lost just before."""
    missed_s = case.terms.lease_s + SEEN_S
    ends = [each.at_s for each in seen[1:]] + [until_s]
    spans = [
        (each, max(each.at_s - missed_s, from_s), min(end_s, until_s)) for each, end_s in zip(seen, ends, strict=False)
    ]
    return len(
        {
            fault
            for each, begin_s, end_s in spans
            for fault in case.faults
            if fault.kind in LOSSES and fault.instance == each.shard and begin_s <= fault.at_s <= end_s
        }
    )


def given_to_the_gone(case: Case) -> Iterator[str]:
    """Law 5: what was reserved for an instance before it was lost may still be handed over to it."""
    for grant, before in _grants_after(case):
        if before is not None and before.drain == grant.shard:
            continue
        ends = [each for each in case.processes if each.instance == grant.shard and each.from_s <= grant.at_s]
        gone_s = max((each.until_s for each in ends), default=FOREVER_S)
        if ends and grant.at_s > gone_s + case.terms.lease_s + SEEN_S:
            late_s = grant.at_s - gone_s
            yield f"gone: {grant.object}: was given to {grant.shard}, {late_s:.2f} s after its last process ended"


def _grants_after(case: Case) -> Iterator[tuple[Sighting, Sighting | None]]:
    """Find the changes of owner, each with what was seen before it."""
    for seen in _sorted_out(case.sightings, lambda each: each.object).values():
        before: Sighting | None = None
        for each in seen:
            if each.shard is not None and (before is None or before.shard != each.shard):
                yield each, before
            before = each


def unsettled(case: Case) -> Iterator[str]:
    """Law 6."""
    roots = {final.object: final for final in case.finals}
    running = {each.instance for each in case.processes if each.until_s == FOREVER_S}
    for final in case.finals:
        root = roots.get(final.family)
        if root is None or (final.shard, final.epoch) != (root.shard, root.epoch):
            yield f"unsettled: {final.object}: {final.shard} at {final.epoch}, its root is {root}"
        if final.drain is not None:
            yield f"unsettled: {final.object}: still asked for, for {final.drain!r}"
        if final.shard not in running:
            yield f"unsettled: {final.object}: with {final.shard}, which does not run"
        if final.shard != case.wanted.get(final.family, final.shard):
            yield f"unsettled: {final.object}: with {final.shard}, wanted is {case.wanted[final.family]}"


class _Counted(Protocol):
    @property
    def object(self) -> str: ...


Entry = TypeVar("Entry", bound=_Counted)


def _sorted_out(entries: Iterable[Entry], key: Callable[[Entry], str]) -> dict[str, list[Entry]]:
    """Sort entries out; each group stays in its order."""
    groups: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        groups[key(entry)].append(entry)
    return groups


def _pauses(case: Case) -> dict[int, list[tuple[float, float]]]:
    """Find when each process was frozen for a whole lease; a shorter time excuses nobody."""
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for fault in case.faults:
        if fault.kind == "freeze" and fault.until_s - fault.at_s >= case.terms.lease_s:
            found[fault.process].append((fault.at_s, fault.until_s + WAKE_S))
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


def _who(case: Case, each: Reconcile) -> str:
    until = "" if each.end_s is None else f" to {each.end_s - case.from_s:.3f}"
    times = f"{each.start_s - case.from_s:.3f}{until} s"
    return f"{each.instance} (process {each.process}, epoch {each.epoch}, {times})"


def _writer(case: Case, patch: Patch) -> str:
    sent_s = patch.sent_s - case.from_s
    return f"a write of {patch.instance} (process {patch.process}, epoch {patch.epoch}, sent at {sent_s:.3f} s)"
