"""The head of a job in a few words, what is wrong first."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from poise.serve.facade import JobSummary
from poise.serve.page.pictures.seen import Look
from poise.serve.page.rendering import counted
from poise.serve.page.words import ITEMS, MEMBERS

LOST = ("gone", "dead", "orphaned", "expired", "uncertain")  # The states of members that are not heard of.


class Chip(msgspec.Struct, frozen=True):
    """A few words, and how they are meant: `bad`, `wait`, `good`, or plain facts."""

    text: str
    mood: str = ""


def chips_of(seen: Look) -> list[Chip]:
    """Say what a job is and how it is."""
    job = seen.summary
    chips = [Chip(counted(job.items, ITEMS[job.kind])), _present(job)]
    if job.replicas is not UNSET:
        chips.append(Chip(counted(job.replicas, "replica")))
    if job.moves_in_flight and job.problems:
        chips.append(Chip(f"{counted(job.moves_in_flight, 'move')} in flight", "wait"))
    if job.paused and job.health != "paused":
        chips.append(Chip("paused", "wait"))
    return chips


def _present(job: JobSummary) -> Chip:
    """Count the members; where some are lost, say how many are here."""
    everybody = counted(sum(job.members.values()), MEMBERS[job.kind])
    lost = sum(job.members.get(state, 0) for state in LOST)
    return Chip(f"{sum(job.members.values()) - lost:,} of {everybody}", "wait") if lost else Chip(everybody)


def mood_of(job: JobSummary) -> str:
    """Judge a job: `bad` where people should look, `wait` where something is held back or going on, else `good`."""
    if job.unowned or job.problems:
        return "bad"
    pending = 0 if job.pending is UNSET else job.pending
    return "wait" if job.paused or job.moves_in_flight or job.late or pending else "good"


MOOD_WORDS = {"bad": "look here", "wait": "under way", "good": "all well"}
MOOD_GLYPHS = {"bad": "!", "wait": "…", "good": "✓"}


def rank_of(job: JobSummary) -> tuple[int, int, int, str, str]:
    """Put what is wrong first, and what has no owner first of all."""
    order = {"bad": 0, "wait": 1, "good": 2}
    return (0 if job.unowned else 1, order[mood_of(job)], -job.unowned, job.name, job.kind)
