"""Works through the families that have something to write: each decided on at the last moment, never twice at once."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice

from poise import clock
from poise.errors import Conflict, Forbidden, InvalidSpec, NotFound, NotHeld, PoiseError, Unavailable
from poise.jobs.sharder.instances import Instances
from poise.jobs.sharder.report import RingCounts
from poise.jobs.sharder.session import Session
from poise.jobs.sharder.view import Known, View
from poise.jobs.sharder.writing import WRITES_MAX, Writer
from poise.kube import Client, WorkQueue
from poise.kube.pacing import Pace, asked_wait_s
from poise.kube.work import Workers
from poise.model.sharding import NOBODY, Step

_log = logging.getLogger("poise.sharder")
_PACE = Pace(0.1, 5.0)
_REFUSED_S = 5.0
_REFUSED_EACH_S = 0.1  # Of many families that are refused, so seldom one is tried again.
_AGAIN_S = 0.5
_TOLD_MAX = 5
_TROUBLE_S = 10.0  # So long it is told that writes were not answered, after the last of them.
_MEND_S = 0.2  # The root and the children of a hand-over come by different watches, in any order.
Subject = tuple[str, ...]


class Refusals:
    """Which families are refused, and why: each reason once, and no look at one family costs more with others."""

    def __init__(self) -> None:
        """Begin with none."""
        self._subjects: dict[str, Subject] = {}
        self._counts: Counter[Subject] = Counter()
        self._told: dict[Subject, str] = {}

    def __len__(self) -> int:
        """Count the families."""
        return len(self._subjects)

    @property
    def told(self) -> tuple[str, ...]:
        """Give the first reasons, in sentences for people."""
        return tuple(islice(self._told.values(), _TOLD_MAX))

    def put(self, root: str, error: PoiseError) -> bool:
        """Note why a family was refused; gives whether nobody was refused for that before."""
        subject = _subject(error)
        if self._subjects.get(root) == subject:
            return False
        self.drop(root)
        self._subjects[root] = subject
        self._counts[subject] += 1
        self._told.setdefault(subject, str(error))
        return self._counts[subject] == 1

    def drop(self, root: str) -> None:
        """Note that a family is not refused any more."""
        subject = self._subjects.pop(root, None)
        if subject is None:
            return
        self._counts[subject] -= 1
        if not self._counts[subject]:
            del self._counts[subject], self._told[subject]


class FamilyWorker:
    """Writes what is decided on families, many at a time. When the API server does not answer, all wait together."""

    def __init__(
        self,
        client: Client,
        instances: Instances,
        counts: RingCounts,
        session: Callable[[], Session],
        *,
        may_act: Callable[[], bool],
        now_s: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        """Prepare; `session` gives what is seen of the objects now."""
        self.queue: WorkQueue[str] = WorkQueue(_PACE)
        self._session, self._counts, self._now_s, self._wake = session, counts, now_s, wake
        self._writer = Writer(client, instances, counts, may_act=may_act, now_s=now_s, told=self._told)
        self._workers = Workers(self.queue, self._work, at_once=WRITES_MAX, tell=self._failed)
        self._refusals = Refusals()
        self._failures, self._calm_at_s = 0, float("-inf")
        self._trouble = ""

    @property
    def faults(self) -> tuple[str, ...]:
        """Say why families cannot be written; the rights that are missing, each once."""
        told = self._refusals.told
        fresh = self._trouble and self._now_s() < self._calm_at_s + _TROUBLE_S
        return (*told, self._trouble) if fresh else told

    def decide(self, root: str) -> tuple[Step, ...]:
        """Decide on one family by what is seen now."""
        deciding = self._session().deciding
        until = int(clock.now().timestamp()) + deciding.spec.drain_timeout_seconds
        return deciding.decide(root, self._now_s(), until)

    def ask(self, root: str, steps: Sequence[Step], loop_s: float) -> None:
        """Have a family written soon; at once, unless only children would be written that may just have been."""
        view = self._session().view
        if all(step.writes[-1].uid != root and _is_marked(view, step) for step in steps):
            self.queue.add_at(root, loop_s + _MEND_S)
        else:
            self.queue.add(root)

    @property
    def idle(self) -> bool:
        """Say whether nothing is being written, and nothing waits for that."""
        return not len(self.queue) and not self._workers.running

    async def run(self) -> None:
        """Work until cancelled."""
        await self._workers.run()

    def _told(self, view: View, seen: Known) -> None:
        """Take an answer; what an earlier session asked for is none for the next: it may read keys in another way."""
        self._failures, self._trouble = 0, ""
        if self._session().view is view:
            self._session().told(seen)

    async def _work(self, root: str) -> float | None:
        """Decide and write; a refusal that only people can mend is told, and tried again later."""
        await self._calm()
        session = self._session()
        steps = self.decide(root) if session.synced else ()
        try:
            if steps:
                await self._carry_out(session, root, steps)
        except NotHeld:
            return _AGAIN_S
        except (Forbidden, InvalidSpec) as error:
            self._counts.failures += 1
            if self._refusals.put(root, error):
                _log.warning("write.refused ring=%s reason=%s", session.view.ring, error)
            self._wake()
            return _REFUSED_S + _REFUSED_EACH_S * len(self._refusals) * random.random()
        self._refusals.drop(root)
        return None

    async def _carry_out(self, session: Session, root: str, steps: Sequence[Step]) -> None:
        """Write; what somebody else wrote first is read again and decided on once more, only once.

        A session that began meanwhile decides for itself, when it has seen all.
        """
        _log.debug("family.written root=%s steps=%s", root, [step.kind for step in steps])
        try:
            await self._write(session, root, steps)
        except (Conflict, NotFound):
            self._counts.conflicts += 1
            if self._session() is not session or not session.view.kin.is_root(root):
                return
            family = session.view.family(root)
            uids = [family.root.uid, *(child.uid for child in family.children)]
            await self._writer.read_again(uids, session.view, session.keys)
            if self._session() is session:
                await self._write(session, root, self.decide(root))

    async def _write(self, session: Session, root: str, steps: Sequence[Step]) -> None:
        """Write, and count a root as asked for from the moment that it may be."""
        starting = session.deciding.starting
        if any(step.kind == "drain" and step.target != NOBODY for step in steps):
            starting.add(root)
        try:
            await self._writer.carry_out(steps, session.view, session.keys)
        finally:
            starting.discard(root)
            self._wake()

    async def _calm(self) -> None:
        """Wait while the API server is left alone."""
        while (left_s := self._calm_at_s - self._now_s()) > 0:
            await asyncio.sleep(left_s)

    def _failed(self, _root: str, error: PoiseError, _wait_s: float) -> None:
        """Count a failure; where the API server did not answer, all writes wait, longer each time."""
        self._counts.failures += 1
        if isinstance(error, Unavailable) and self._calm_at_s <= self._now_s():
            self._failures += 1
            self._trouble = str(error)
            wait_s = max(_PACE.wait_s(self._failures, random.random()), asked_wait_s(error))
            self._calm_at_s = self._now_s() + wait_s


def _subject(error: PoiseError) -> Subject:
    """Give what refusals have in common that one sentence tells: the missing right, whichever object it was."""
    if isinstance(error, Forbidden):
        return error.verb, error.group, error.resource, error.namespace
    return (str(error),)


def _is_marked(view: View, step: Step) -> bool:
    """Say whether all that a step writes is held by somebody already."""
    return all(view.kin.objects[write.uid].marks.shard is not None for write in step.writes)
