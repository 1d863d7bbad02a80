"""Which server ran a job when, by the order of commits: so that of several servers exactly one counts a move.

Every server reads the same lines, those of the ring of servers among them. A move is counted by the server that had the
job when the move ended. What ended after a server was killed, and before it was missed, is counted by the next one.
"""

from __future__ import annotations

import threading
from bisect import bisect_right, insort

from poise.hold.settings import BEATS_PER_LEASE
from poise.jobs.servers import TERMS
from poise.jobs.stored import SERVERS
from poise.model.ownership import Line
from poise.move.handoff import Transition
from poise.stores.base import Store

# A server is missed so long after its last sign of life, and may have lived until the next one was due: what ended in
# between it may have counted, and nothing is counted twice.
MISSED_S = TERMS.lease_s + TERMS.grace_s - TERMS.lease_s / BEATS_PER_LEASE
_KEPT = 16  # So many changes of a job's server are remembered; all of them happened within moments.
_Place = tuple[int, int]
_Change = tuple[_Place, str, str, float]  # Where in the order of commits, what happened, to which server, when.


class Whereabouts:
    """The servers of jobs, from the lines that were read. Everything may be called from any thread."""

    def __init__(self, store: Store, server: str) -> None:
        """Answer for this server; who has which job now is read at once, what comes later is told."""
        self._server = server
        self._turn = threading.Lock()
        self._changes: dict[str, list[_Change]] = {}
        rows = store.view(SERVERS, lambda tx: tx.rows())
        self._first = {job: row.owner for job, row in rows.items()}

    def take(self, line: Line) -> None:
        """Note one line of the ring of servers, in whatever order they are read."""
        if line.transition not in (Transition.T1, Transition.T7):
            return
        change = ((line.version, line.number), line.transition, line.member or "", line.at_s)
        with self._turn:
            known = self._changes.setdefault(line.item, [])
            if change not in known:
                insort(known, change)
            del known[:-_KEPT]

    def counts(self, line: Line) -> bool:
        """Say whether this server counts what a line of a job ends; a job that no server ever had is everybody's."""
        with self._turn:
            known = list(self._changes.get(line.set, ()))
        at = bisect_right(known, (line.version, line.number), key=lambda change: change[0])
        before = [change for change in known[:at] if change[1] == Transition.T1]
        owner = before[-1][2] if before else self._first.get(line.set)
        # The line of a loss names the server that was missed.
        if known[at:] and known[at][1] == Transition.T7 and line.at_s > known[at][3] - MISSED_S:
            owner = next((change[2] for change in known[at:] if change[1] == Transition.T1), "")
        return owner in (None, self._server)
