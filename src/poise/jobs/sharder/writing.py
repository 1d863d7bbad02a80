"""Carries out what was decided on a family: groups in their order, each write at its own moment.

A write is sent only while the leader may act and the Lease that it needs is held; it carries uid and version of what
was seen. A refused one costs its family one retry after it was read again. What has no known end is observed again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence

from poise.errors import Conflict, NotFound, NotHeld, PoiseError
from poise.jobs.sharder.instances import Instances
from poise.jobs.sharder.report import RingCounts
from poise.jobs.sharder.selecting import Keys
from poise.jobs.sharder.view import Known, View
from poise.kube import Client, ObjectRef, Partial
from poise.kube.client import within
from poise.model.sharding import Step, Write, label_patch
from poise.observe.leases import LeaseTerms, may_move

WRITES_MAX = 32
_ARRIVES_AT = 0.8  # So much of the margin a request may take; the rest is for the server to notice.


class Writer:
    """Writes the labels of one ring, so many at a time."""

    def __init__(
        self,
        client: Client,
        instances: Instances,
        counts: RingCounts,
        *,
        may_act: Callable[[], bool],
        now_s: Callable[[], float],
        told: Callable[[View, Known], None],
    ) -> None:
        """Prepare; `told` hears every answer at once, with the view that it was asked for."""
        self._client, self._instances, self._counts = client, instances, counts
        self._may_act, self._now_s, self._told = may_act, now_s, told
        self._slots = asyncio.Semaphore(WRITES_MAX)

    async def carry_out(self, steps: Sequence[Step], view: View, keys: Keys) -> None:
        """Carry out the steps of one family; they do not depend on each other."""
        await _all([self._step(step, view, keys) for step in steps])

    async def _step(self, step: Step, view: View, keys: Keys) -> None:
        for group in step.groups:
            await _all([self._write(step, write, view, keys) for write in group])

    async def _write(self, step: Step, write: Write, view: View, keys: Keys) -> None:
        async with self._slots:
            known = view.known.get(write.uid)
            if known is None or known.meta.resource_version != write.version:
                raise Conflict(f"an object of {view.ring} changed since it was decided on")
            change = label_patch(known.meta.labels, view.ring, write.marks)
            if not change:
                return
            self._check(step)
            async with within(None if step.needs is None else longest_s(self._instances.terms)):
                labels = {"metadata": {"labels": change}}
                answer = await self._client.merge(_ref(known), known.meta, labels, keys.shape)
            self._counts.wrote(step.kind)
            self._told(view, _again(known, answer, keys))

    def _check(self, step: Step) -> None:
        """Refuse to send what may no longer be sent, at the very moment of sending."""
        if not self._may_act():
            raise NotHeld("this process no longer leads")
        if step.needs is None:
            return
        watched = self._instances.watched.get(step.needs)
        held = watched is not None and may_move(watched, self._instances.terms, self._now_s())
        if not held or step.needs in self._instances.leaving:
            raise NotHeld(f"the Lease of {step.needs} is not held for long enough")

    async def read_again(self, uids: Sequence[str], view: View, keys: Keys) -> None:
        """Read objects as they are now; what is gone will be told by the watch."""
        await _all([self._read(view.known[uid], view, keys) for uid in uids if uid in view.known])

    async def _read(self, known: Known, view: View, keys: Keys) -> None:
        async with self._slots:
            try:
                answer = await self._client.get(_ref(known), keys.shape)
            except NotFound:
                return
            if answer.metadata.uid == known.meta.uid:
                self._told(view, _again(known, answer, keys))


def longest_s(terms: LeaseTerms) -> float:
    """Give how long a request may take that needs a hold: it must have arrived before the hold can end."""
    return terms.margin_s * _ARRIVES_AT


async def _all(asked: Sequence[Coroutine[None, None, None]]) -> None:
    """Do all at once and wait for each; then the first error is raised."""
    if len(asked) == 1:
        await asked[0]
        return
    ended = await asyncio.gather(*asked, return_exceptions=True)
    errors = [each for each in ended if each is not None]
    # A fault of the program comes first: it must not hide behind a conflict.
    for error in sorted(errors, key=lambda error: isinstance(error, PoiseError)):
        raise error


def _ref(known: Known) -> ObjectRef:
    return ObjectRef(known.kind.resource, known.meta.name, known.meta.namespace)


def _again(known: Known, answer: Partial, keys: Keys) -> Known:
    kept = keys.keep(answer)
    return Known(known.kind, kept.metadata, keys.read(known.kind.resource, kept))
