"""The history of a job in the store: written by the server that runs the job, at its changes only, and read by all.

It is a note of the job. Every server samples all its jobs in one pass, so that whatever a note wakes is woken once for
all of them, and at most once in a few seconds. Nothing idle writes: a pass that finds no change reads the version of
the store and, before a lease may have ended, the members.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from math import inf
from types import TracebackType
from typing import Self

import msgspec

from poise import clock
from poise.errors import NotFound, PoiseError, Unavailable
from poise.jobs.history import History, Number, Values, columns_of, read_history, with_point, write_history
from poise.jobs.measures import NAMES, Counted, count_moves, measure_division, measure_items, measure_split
from poise.jobs.stored import DOCUMENT, STATUS, read_in, revision_in, store_name
from poise.model import CapacitySplit, Document, ReplicaDivision
from poise.model.ownership import SetRow
from poise.move.executor import snapshot
from poise.move.heartbeat import standing
from poise.stores.base import Store, Transaction

SERIES = "series"
PASS_S = 3.0  # One pass over the jobs of a server; a job is written at most once in it.
AGAIN_S = 30.0  # A split is planned again so often also without a change: ramps go on with time.
_COST = 20  # Looking at a job may take this part of the time at most: a huge one is looked at less often.
_TOGETHER = 16
_PAGE, _PAGES_MAX, _OLD_MAX = 1_000, 20, 10_000
_log = logging.getLogger("poise.series")


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """The history of a job: its points in time (seconds since 1970) and, by name, what was counted from each on.

    A value holds until the next point, the last one until `now`. null: nothing was counted, as where no member is.
    """

    at: list[int]
    series: dict[str, list[Number | None]]
    now: int


def read_series(store: Store, kind: str, name: str, now: datetime | None = None) -> Series:
    """Read the history of a job; `NotFound` where there is no such job."""

    def read(tx: Transaction) -> str | None:
        revision_in(tx, kind, name)
        return tx.note(SERIES)

    points = read_history(store.view(store_name(kind, name), read)).points
    named = columns_of(points)
    at = [point.at_s for point in points]
    return Series(
        at=at,
        series={each: named.get(each, [None] * len(at)) for each in (*NAMES[kind], *named)},
        now=max([int((now or clock.now()).timestamp()), *at[-1:]]),
    )


class _Watch(msgspec.Struct):
    """What is known of a job between two passes; all of it can be read again from the store."""

    text: str | None = None
    history: History = History()
    counted: Counted = msgspec.field(default_factory=Counted)
    line: int = 0
    begun: bool = False
    seen: object = None
    next: object = None
    version: int = -1
    due_s: float = 0.0
    rest_s: float = 0.0


class _Look(msgspec.Struct, frozen=True):
    """What one look at a job found; without values nothing has changed."""

    text: str | None
    seen: object
    last_line: int
    due_s: float
    values: Values | None = None
    document: Document | None = None


class Sampler:
    """Keeps the histories of the jobs that run here while its block runs: `async with Sampler(store, names):`."""

    def __init__(
        self,
        store: Store,
        jobs: Callable[[], Iterable[str]],
        *,
        pass_s: float = PASS_S,
        now: Callable[[], datetime] = clock.now,
        boot_s: Callable[[], float] = clock.boot_s,
    ) -> None:
        """Sample what `jobs` names, as the store names it."""
        self._store, self._jobs, self._pass_s, self._now, self._boot_s = store, jobs, pass_s, now, boot_s
        self._watches: dict[str, _Watch] = {}
        self._stopped = threading.Event()
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Begin."""
        self._task = asyncio.create_task(self.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the pass that runs, before the jobs go to others."""
        self._stopped.set()
        self._ended.set()
        if self._task is not None:
            await self._task

    async def run(self) -> None:
        """Sample again and again; whatever goes wrong here costs a point of a picture, and nothing else."""
        while not self._ended.is_set():
            try:
                await asyncio.to_thread(self.sample)
            except PoiseError as error:
                _log.info("series.waits reason=%s", error)
            except Exception:
                _log.exception("series.broken")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pass_s):
                    await self._ended.wait()

    def sample(self) -> int:
        """Look once at every job in which something may have changed; say how many were written."""
        names, version = set(self._jobs()), self._store.version()
        new: dict[str, History] = {}
        for name in self._watches.keys() - names:
            del self._watches[name]  # It runs elsewhere now: what is known here grows old.
        for name in sorted(names):
            watch = self._watches.setdefault(name, _Watch())
            began_s = self._boot_s()
            is_due = watch.seen is None or watch.version != version or began_s >= watch.due_s
            if is_due and began_s >= watch.rest_s and not self._stopped.is_set():
                history = self._try(name, watch)
                if history is not None:
                    new[name] = history
                watch.version = version
                watch.rest_s = max(watch.rest_s, self._boot_s() + _COST * (self._boot_s() - began_s))
        return self._write_all(new)

    def _try(self, name: str, watch: _Watch) -> History | None:
        """Sample one job; what is wrong with it is no reason to leave the others out, but a store that is away is."""
        try:
            return self._sample(name, watch)
        except Unavailable:
            raise
        except NotFound:
            watch.seen, watch.due_s = "gone", inf  # It was deleted, and has not ended yet.
        except Exception:
            _log.exception("series.broken job=%s", name)
            watch.rest_s = self._boot_s() + AGAIN_S
        return None

    def _sample(self, name: str, watch: _Watch) -> History | None:
        """Look at one job, and give what is to be written if a point is new."""
        look = self._store.view(name, lambda tx: self._look(tx, name, watch))
        watch.due_s = self._boot_s() + look.due_s
        if look.values is None:
            return None
        watch.seen = None  # Until it is written, it was not seen.
        if not watch.begun or look.text != watch.text:
            _begin(watch, look)
        is_complete = self._count(name, watch, look)
        before = History() if watch.counted.ended else watch.history
        values = {"unowned": 0, "moves": watch.counted.moves} | dict(look.values)
        after = with_point(before, int(self._now().timestamp()), values)
        watch.next = look.seen if is_complete else None  # What was not counted yet is counted in the next pass.
        if after.points == watch.history.points:
            watch.seen = watch.next
            return None
        return History(after.points, watch.counted.moves, watch.line)

    def _look(self, tx: Transaction, name: str, watch: _Watch) -> _Look:
        """Read what tells whether anything is new, and only where it is, everything."""
        job = tx.job()
        if job is None or tx.note(DOCUMENT) is None:
            raise NotFound(f"there is no job {name!r}")
        is_counted = job.kind in ("ReplicaDivision", "CapacitySplit")
        seen, due_s = _glance_counts(tx, job, self._now()) if is_counted else _glance(tx, job)
        look = _Look(tx.note(SERIES), seen, tx.last_line(), due_s)
        if watch.seen == seen and look.text == watch.text:
            return look
        if not is_counted:
            return msgspec.structs.replace(look, values=measure_items(snapshot(tx, name)))
        document = read_in(tx, job.kind, name.removeprefix(f"{job.kind}/"), self._now()).document
        return msgspec.structs.replace(look, values=_measured(document, self._now()), document=document)

    def _count(self, name: str, watch: _Watch, look: _Look) -> bool:
        """Count the moves of the lines up to what was looked at; say whether all were read."""
        for _ in range(_PAGES_MAX):
            if watch.line >= look.last_line:
                return True
            lines = self._store.journal(name, None, watch.line, min(_PAGE, look.last_line - watch.line))
            watch.counted = count_moves(lines, watch.counted, look.document)
            watch.line = lines[-1].number if lines else look.last_line
        return False

    def _write_all(self, new: Mapping[str, History]) -> int:
        """Write several together: a store commits what comes at once with one flush, and wakes those who wait once."""
        if len(new) <= 1:
            return sum(self._write(name, history) for name, history in new.items())
        with ThreadPoolExecutor(min(_TOGETHER, len(new)), thread_name_prefix="poise-series") as threads:
            return sum(threads.map(self._write, new.keys(), new.values()))

    def _write(self, name: str, history: History) -> bool:
        """Write over the text that this history was made from; whoever else has written is looked at again."""
        text, watch = write_history(history), self._watches[name]

        def work(tx: Transaction) -> bool:
            if tx.note(SERIES) != watch.text or tx.note(DOCUMENT) is None:
                return False
            tx.write_note(SERIES, text)
            return True

        if not self._store.transact(name, work):
            watch.begun = False
            return False
        watch.seen = watch.next
        watch.text, watch.history = text, read_history(text)
        watch.counted = msgspec.structs.replace(watch.counted, ended=False)
        return True


def _begin(watch: _Watch, look: _Look) -> None:
    """Go on from what the store has: whoever wrote it had counted the journal up to its line."""
    history = read_history(look.text)
    line = min(history.line, look.last_line)
    if look.text is None and look.last_line > _OLD_MAX:
        line = look.last_line  # The moves of a long journal that nobody counted are no news.
    watch.text, watch.history, watch.line, watch.begun = look.text, history, line, True
    watch.counted = Counted(history.moves)


def _glance(tx: Transaction, job: SetRow) -> tuple[object, float]:
    """Read what every load and owner follows from; and in how many seconds a lease may end."""
    members = tx.members().values()
    standings = sorted((each.name, each.incarnation, standing(each, tx.now_s)) for each in members)
    ends = [each.lease_until_s - tx.now_s for each in members if each.lease_until_s > tx.now_s]
    return (job, tx.last_line(), standings), min(ends, default=inf)


def _glance_counts(tx: Transaction, job: SetRow, now: datetime) -> tuple[object, float]:
    """Read the two texts that counts follow from, and the time where they follow from that, too."""
    is_timed = job.kind == "CapacitySplit"
    part = int(now.timestamp() / AGAIN_S) if is_timed else 0
    return (tx.note(DOCUMENT), tx.note(STATUS), tx.last_line(), part), AGAIN_S if is_timed else inf


def _measured(document: Document, now: datetime) -> Values:
    if isinstance(document, ReplicaDivision):
        return measure_division(document)
    assert isinstance(document, CapacitySplit)
    return measure_split(document, now.timestamp())
