"""Jobs, members and items of a server as people read them: what is wrong comes first, and nothing is cut in silence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import UNSET

from poise.cli.common import paint
from poise.cli.remote import Job
from poise.cli.render import columns, count, natural, printable, wrapped
from poise.serve.facade import ItemView, JobSummary, MemberView

_LINES_MAX = 6
_COUNTED = ("ReplicaDivision", "CapacitySplit")
_NOUNS = {
    "TargetPool": ("target", "pod"),
    "PartitionSet": ("partition", "node"),
    "ShardRing": ("object", "shard"),
    "ReplicaDivision": ("workload", "cluster"),
    "CapacitySplit": ("workload", "pool"),
}


def jobs_table(jobs: Sequence[JobSummary]) -> str:
    """Show every job in a line."""
    if not jobs:
        return "There is no job yet; write one with: poise apply FILE"
    head = ("KIND", "NAME", "ITEMS", "NO OWNER", "MOVING", "SPREAD", "MEMBERS", "HEALTH")
    return "\n".join(columns([head, *(_job_row(job) for job in jobs)], indent=""))


def _job_row(job: JobSummary) -> tuple[str, ...]:
    items = count(job.items, _NOUNS[job.kind][0])
    if job.kind in _COUNTED:
        return (job.kind, job.name, items, "", "", "", "", _health(job))
    members = ", ".join(f"{number} {state}" for state, number in sorted(job.members.items())) or "none"
    facts = (str(job.unowned), str(job.moves_in_flight), str(job.spread))
    return (job.kind, job.name, items, *facts, members, _health(job))


def _health(job: JobSummary) -> str:
    paused = "" if not job.paused or job.health == "paused" else "; paused"
    return paint(f"{job.health}{paused}", "yellow" if job.unowned else "green")


def job_view(job: JobSummary, members: Sequence[MemberView], items: Sequence[ItemView]) -> str:
    """Show one job: its health, its members, and what nobody holds; `items` are the unowned ones, or the counted."""
    head = f"{job.kind} {job.name}   revision {job.revision}   {_health(job)}"
    if job.kind in _COUNTED:
        return "\n".join([head, *_counts(items)])
    lines = [head, *_members(members)]
    return "\n".join([*lines, *_unowned(items)])


def members_view(job: Job, members: Sequence[MemberView]) -> str:
    """Show the members of a job."""
    noun = _NOUNS[job.kind][1]
    return "\n".join([f"{job.kind} {job.name}   {count(len(members), noun)}", *_members(members)])


def _members(members: Sequence[MemberView]) -> list[str]:
    if not members:
        return ["  no member has come yet"]
    head = ("member", "state", "load", "leaving", "coming", "weight", "capacity")
    rows = [
        (
            each.name,
            each.state if not each.draining or each.state == "draining" else f"{each.state}, draining",
            str(each.load),
            str(each.releasing),
            str(each.reserved),
            str(each.weight),
            "" if each.capacity is None else str(each.capacity),
        )
        for each in sorted(members, key=lambda each: natural(each.name))
    ]
    return columns([head, *rows], indent="  ")


def items_view(job: Job, members: Sequence[MemberView], items: Sequence[ItemView], *, everything: bool) -> str:
    """Show who holds what, one member after the other."""
    noun, party = _NOUNS[job.kind]
    members = [each for each in members if each.load or each.state != "gone"]
    head = f"{job.kind} {job.name}   {count(len(items), noun)} on {count(len(members), party)}"
    if job.kind in _COUNTED:
        return "\n".join([head, *_counts(items)])
    held: dict[str, list[str]] = {each.name: [] for each in members}
    for item in items:
        if item.member is not None:
            held.setdefault(item.member, []).append(_named(item))
    states = {each.name: each.state for each in members}
    order = sorted(held, key=natural)
    heads = columns([(name, states.get(name, "gone"), f"{len(held[name])}:") for name in order], indent="  ")
    lines = [head]
    for name, told in zip(order, heads, strict=True):
        lines += _cut(wrapped(told, held[name]), everything=everything)
    return "\n".join([*lines, *_unowned([item for item in items if item.member is None])])


def _named(item: ItemView) -> str:
    """Name an item, and where it is going."""
    return printable(item.item) + (f" -> {item.target}" if item.target not in (None, item.member) else "")


def _cut(lines: list[str], *, everything: bool) -> list[str]:
    if everything or len(lines) <= _LINES_MAX + 1:
        return lines
    return [*lines[:_LINES_MAX], f"    … {len(lines) - _LINES_MAX} more lines (all of them: --all, or -o json)"]


def _unowned(items: Iterable[ItemView]) -> list[str]:
    """Say what nobody holds, those of one reason together."""
    reasons: dict[str, list[str]] = {}
    for item in items:
        reasons.setdefault(item.reason or "not planned yet", []).append(printable(item.item))
    lines = []
    for reason, names in reasons.items():
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        lines.append(f"  {paint('!! no owner', 'yellow')}   {', '.join(names[:8])}{more}   {reason}")
    return lines


def _counts(items: Sequence[ItemView]) -> list[str]:
    """Show replicas that are only counted: one line a workload."""
    counts = {item.item: item.counts for item in items if item.counts is not UNSET}
    places = sorted({place for each in counts.values() for place in each}, key=natural)
    rows = [("", *places)] + [
        (printable(name), *(str(each.get(place, 0)) for place in places)) for name, each in counts.items()
    ]
    return columns(rows, indent="  ") if counts else ["  nothing has been counted yet"]
