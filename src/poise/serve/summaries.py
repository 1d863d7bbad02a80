"""A job in one line: its numbers, what is wrong with it, the worst first, and how it is in one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from poise.errors import InvalidSpec
from poise.jobs.entries import CapacityEntry, DivisionEntry, Planned
from poise.jobs.planning import plan_document
from poise.jobs.snapshots import braking
from poise.jobs.stored import Stored
from poise.model import CapacitySplit
from poise.model.ownership import MemberRow, Row
from poise.move.heartbeat import standing
from poise.serve.facade import JobSummary, MemberView
from poise.serve.looks import LATE_PART, Look
from poise.serve.parties import party_views
from poise.serve.shown import counted, counted_views

_NAMED_MAX = 3  # A sentence names so many; whoever wants all of them looks at the list.


def summary_of(look: Look) -> JobSummary:
    """Sum up a job that owns items."""
    facts, problems = look.facts, list(_problems(look))
    live = [look.loads[each.name] for each in look.members if standing(each, facts.now_s).takes]
    moving = len(look.releasing)
    return JobSummary(
        kind=look.kind,
        name=look.name,
        revision=look.revision,
        health=_health(look, problems, moving),
        paused=facts.job.paused,
        items=len(facts.rows),
        unowned=look.unowned,
        members=dict(Counter(look.state_of(member) for member in look.members)),
        moves_in_flight=moving,
        late=len(_late(look)),
        spread=max(live) - min(live) if live else 0,
        problems=problems,
    )


def _health(look: Look, problems: Sequence[str], moving: int) -> str:
    """Say what is wrong first, else what is going on; a brake comes first, since it waits for people."""
    if braked := _brake(look):
        return braked
    if problems:
        return problems[0]
    if look.facts.job.paused:
        return "paused"
    if late := _late(look):
        rest_s = late[0].lease_until_s + look.facts.job.terms.grace_s - look.facts.now_s
        who = f"{late[0].name} is" if len(late) == 1 else f"{counted(len(late), 'member')} are"
        return f"{who} late: nothing of {'it' if len(late) == 1 else 'them'} moves for {rest_s:.0f} s"
    return f"{counted(moving, 'move')} in flight" if moving else "as it should be"


def _late(look: Look) -> list[MemberRow]:
    """List the members that hold something and have missed their time to speak, the first to be missed first."""
    due_s = look.facts.now_s + (1 - LATE_PART) * look.facts.job.terms.lease_s
    late = [each for each in look.members if look.loads[each.name] and each.leaving is None and _is_heard(look, each)]
    return sorted((each for each in late if each.lease_until_s < due_s), key=lambda each: each.lease_until_s)


def _problems(look: Look) -> Iterator[str]:
    """Say what is wrong, the worst first."""
    if look.unowned:
        total = counted(len(look.facts.rows), "item")
        yield f"{look.unowned} of {total} {'has' if look.unowned == 1 else 'have'} no owner"
    yield from _absent(look)
    if braked := _brake(look):
        yield braked
    if look.source.error:
        yield f"the source of targets is not obeyed: {look.source.error}"
    yield from _failing_pods(look)
    yield from _late_moves(look)


def _absent(look: Look) -> Iterator[str]:
    """Name the members that are not heard of and still hold something."""
    holding = [member for member in look.members if look.loads[member.name] and not _is_heard(look, member)]
    told = [
        f"{member.name} is {look.state_of(member)} and still holds {counted(look.loads[member.name], 'item')}"
        for member in holding
    ]
    yield from _few(told, "other members are not heard of and still hold items")


def _is_heard(look: Look, member: MemberRow) -> bool:
    return look.facts.now_s < member.lease_until_s


def _brake(look: Look) -> str:
    vanished = braking(look.facts)
    if not vanished:
        return ""
    return f"the brake holds: {len(vanished)} instances vanished at once; resume lets their items move"


def _failing_pods(look: Look) -> Iterator[str]:
    shown = {member.name for member in look.members}
    told = [f"{pod}: {note.error}" for pod, note in sorted(look.pods.items()) if note.error and pod in shown]
    yield from _few(told, "other pods have errors")


def _late_moves(look: Look) -> Iterator[str]:
    """Tell of hand-overs that take longer than a release may."""
    facts = look.facts
    late = [row for row in look.releasing if facts.now_s - row.since_s > facts.job.terms.release_s]
    if not late:
        return
    worst = min(late, key=lambda row: (row.since_s, row.id))
    waited = f"{facts.now_s - worst.since_s:.0f} s"
    what = f"{counted(len(late), 'hand-over')} {'takes' if len(late) == 1 else 'take'} longer than"
    yield f"{what} {facts.job.terms.release_s:g} s: {_route(worst)} has waited for {waited}"


def _route(row: Row) -> str:
    return f"{row.id} ({row.owner} -> {row.target or 'nobody'})"


def _few(told: Sequence[str], others: str) -> Iterator[str]:
    """Tell the first ones, and count the others; one more is told as well, since its count takes the same room."""
    if len(told) <= _NAMED_MAX + 1:
        yield from told
    else:
        yield from told[:_NAMED_MAX]
        yield f"{len(told) - _NAMED_MAX} {others}"


class Counted(msgspec.Struct, frozen=True):
    """A job that only counts: in one line, and the clusters or pools that hold its replicas."""

    summary: JobSummary
    members: list[MemberView]


def count_job(stored: Stored, now: datetime, *, paused: bool) -> Counted:
    """Sum up a job that only counts, from one plan of it; one that cannot be planned says why."""
    document = stored.document
    planned: Planned | None = None
    try:
        planned = plan_document(document, now)
        problems = list(_counted_problems(stored, planned))
    except InvalidSpec as error:
        problems = [f"it cannot be planned: {error}"]
    members, pending = party_views(document, planned), _pending(stored, planned)
    loads = [member.load for member in members]
    summary = JobSummary(
        kind=document.kind,
        name=document.metadata.name,
        revision=stored.revision,
        health=problems[0] if problems else "paused" if paused else "changes pending" if pending else "as it should be",
        paused=paused,
        items=len(counted_views(document)),
        members={"ready": len(loads)} if loads else {},
        spread=max(loads) - min(loads) if loads else 0,
        problems=problems,
        replicas=sum(loads),
        unplaced=sum(count for _, count in _unplaced(planned)),
        pending=pending,
    )
    return Counted(summary, members)


def _pending(stored: Stored, planned: Planned | None) -> int:
    """Count the workloads that are to change."""
    if planned is None:
        return 0
    if isinstance(planned.entry, CapacityEntry):
        return sum(each.action != "none" for each in planned.entry.workloads.values())
    assert isinstance(planned.entry, DivisionEntry)
    known = {view.item: view.counts for view in counted_views(stored.document)}
    return sum(known.get(name) != dict(each.replicas) for name, each in planned.entry.divisions.items())


def _unplaced(planned: Planned | None) -> list[tuple[str, int]]:
    """Name the workloads for which there is not room enough."""
    if planned is None:
        return []
    entry = planned.entry
    if isinstance(entry, CapacityEntry):
        return [(name, each.unplaced) for name, each in entry.workloads.items() if isinstance(each.unplaced, int)]
    assert isinstance(entry, DivisionEntry)
    return [(name, each.unplaced) for name, each in entry.divisions.items() if each.unplaced]


def _counted_problems(stored: Stored, planned: Planned) -> Iterator[str]:
    yield from (f"the plan breaks a law, please report it: {fault}" for fault in planned.faults)
    lacking = [(name, count) for name, count in _unplaced(planned) if count]
    told = [f"there is no room for {counted(count, 'replica')} of {name}" for name, count in lacking]
    yield from _few(told, "other workloads have no room")
    if isinstance(stored.document, CapacitySplit):
        yield from _split_problems(stored.document)


def _split_problems(document: CapacitySplit) -> Iterable[str]:
    """Tell of pools that do not work, and of spot replicas that run elsewhere meanwhile."""
    down = sorted(name for name, seen in document.status.pools.items() if not seen.up)
    yield from _few([f"pool {name} does not work" for name in down], "other pools do not work")
    moved = [
        f"{counted(seen.fallback.substitutes, 'spot replica')} of {name} "
        f"{'runs' if seen.fallback.substitutes == 1 else 'run'} on on-demand until spot works again"
        for name, seen in sorted(document.status.workloads.items())
        if seen.fallback is not None and seen.fallback.substitutes
    ]
    yield from _few(moved, "other workloads run on on-demand instead of spot")
