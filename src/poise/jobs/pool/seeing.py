"""From what is known of pods to what people see of them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from poise import clock
from poise.jobs.pool.facts import Seen
from poise.jobs.pool.pod import Pod
from poise.jobs.pool.state import PodNote

FORGET_S = 3600.0  # How long a pod that left the document without a word is looked for, to take its targets back.


def observed(name: str, note: PodNote, pod: Pod | None, seen: Seen) -> PodNote:
    """Bring a note up to date; its time is that of the last change of state or error."""
    state, error = seen.states[name], pod.error if pod is not None else ""
    since = note.since if note.since and (state, error) == (note.state, note.error) else clock.now().isoformat()
    note = msgspec.structs.replace(note, state=state, error=error, since=since)
    if pod is None:
        return msgspec.structs.replace(note, targets=seen.holding.get(name, 0))
    former = note.former if pod.former is not None else ""
    targets = len(pod.sight.configured) if pod.sight is not None else note.targets
    return msgspec.structs.replace(note, former=former, digest=pod.digest, targets=targets)


def has_left(name: str, note: PodNote, pod: Pod | None, seen: Seen) -> bool:
    """Say whether a departing pod is done with: it owns nothing and was seen empty, or was silent for too long."""
    if not note.departing or seen.holding[name]:
        return False
    if pod is None:
        return True
    if pod.sight is not None:
        return not pod.sight.listed
    silent_s = (clock.now() - datetime.fromisoformat(note.since)).total_seconds()
    return note.state == "gone" and silent_s > FORGET_S
