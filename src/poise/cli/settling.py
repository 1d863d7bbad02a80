"""How far a job is from its plan: what moves, what is still to come, and what only a guard holds back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from poise import clock
from poise.cli.progress import Seen
from poise.cli.remote import Job, Server
from poise.errors import InvalidSpec
from poise.jobs.entries import ItemsEntry, Planned, PlannedMove
from poise.serve.facade import JobSummary

_SOON_S = 60  # A guard that lets go within this time is waited for.


def settling(server: Server, job: Job) -> Callable[[], Seen]:
    """Give a look at one job; what counts as all is the most that was ever seen to do."""
    most = 0

    def look() -> Seen:
        nonlocal most
        planned, summary = _planned(server, job), server.summary(job)
        if planned is None:
            return Seen(f"{job}: its targets have not been read yet", is_end=False)
        if not isinstance(planned.entry, ItemsEntry):
            return _counted(job, pending=planned.pending)
        left = _left(server, job, planned.entry, summary)
        most = max(most, left)
        if left:
            told = f"{_moves(summary.moves_in_flight)} in flight, {left - summary.moves_in_flight} to come"
            return Seen(f"{job}: {told}, {summary.unowned} without an owner", False, most - left, most)
        return Seen(_held_back(job, planned.entry, summary) or _done(planned.entry, summary), is_end=True)

    return look


def _planned(server: Server, job: Job) -> Planned | None:
    """Plan a job; None while only its source of targets is missing."""
    try:
        return server.plan(job)
    except InvalidSpec as error:
        if is_unread(error):
            return None
        raise


def is_unread(error: InvalidSpec) -> bool:
    """Say whether a plan is refused only since nobody has read the pool's source of targets yet."""
    return all(fault.path.startswith("$.spec.targets.") for fault in error.faults)


def _counted(job: Job, *, pending: bool) -> Seen:
    """Look at a job of counts: a division is written down at once, a split is made by whoever runs the replicas."""
    if job.kind == "CapacitySplit":
        told = "the next action is for whoever runs the replicas" if pending else "nothing to do"
        return Seen(f"written; {told}", is_end=True)
    return Seen(f"{job}: being divided" if pending else "done; every workload is divided", not pending)


def _left(server: Server, job: Job, entry: ItemsEntry, summary: JobSummary) -> int:
    """Count what is under way or about to be; at the end, what is given but not yet confirmed by its member."""
    if summary.paused:
        return summary.moves_in_flight  # What has begun is finished; nothing else begins.
    left = summary.moves_in_flight + sum(not _is_held(move) for move in entry.moves)
    if left or entry.moves:
        return left
    return sum(item.member is not None and not item.confirmed for item in server.items(job))


def _is_held(move: PlannedMove) -> bool:
    """Say whether a guard holds a move back for so long that nobody should wait for it here."""
    if move.waits is None:
        return False
    until = move.waits.until
    if until is None and move.waits.code == "budget" and not move.waits.reason.startswith("0 of 0 "):
        return False  # It waits for moves in flight, which end by themselves.
    return until is None or until > clock.now() + timedelta(seconds=_SOON_S)


def _held_back(job: Job, entry: ItemsEntry, summary: JobSummary) -> str:
    """Say what the moves that are left wait for; empty where there are none."""
    if summary.paused and entry.moves:
        return f"paused; {_moves(len(entry.moves))} held back until: poise resume {job.name}"
    held = [move.waits for move in entry.moves if move.waits is not None]
    if not held:
        return ""
    until = min((each.until for each in held if each.until), default=None)
    when = f", until {until:%Y-%m-%d %H:%M:%SZ}" if until else ""
    return f"{_moves(len(held))} held back: {held[0].reason}{when}; the server makes them by itself"


def _done(entry: ItemsEntry, summary: JobSummary) -> str:
    if not summary.unowned:
        return f"done; {summary.items} held, spread {entry.certificate.spread}"
    reasons = list(dict.fromkeys(each.reason for each in entry.unassigned))
    why = f": {', '.join(reasons[:3])}" if reasons else ""
    has = "has" if summary.unowned == 1 else "have"
    return f"done, but {summary.unowned} of {summary.items} {has} no owner{why}"


def _moves(number: int) -> str:
    return "1 move" if number == 1 else f"{number} moves"
