"""The numbers of the contract, for Prometheus: gauges asked at each scrape, the others counted as things happen."""

from __future__ import annotations

import platform
import threading
from collections import deque
from collections.abc import Callable, Iterator

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from poise import __version__
from poise.errors import PoiseError
from poise.model.ownership import Line
from poise.serve.facade import Event, JobsApi
from poise.serve.moves import Ended, Moves

# The times when a counter was made are of no use here, and would double the number of series.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # It has no types.

_CYCLE_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_FOREIGN_MAX, _FOREIGN_S = 10_000, 60.0  # A server is missed, and its jobs go on, in far less than this.
_HANDOFF_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0)


class Metrics:
    """Counts for one server. Everything may be called from any thread.

    Over several servers of a store: gauges are the same on all, everything else is counted by one of them.
    """

    def __init__(self, api: JobsApi, counts: Callable[[Line], bool] = lambda _line: True) -> None:
        """Ask this facade for the gauges; `counts` says whether this server counts what a line ends."""
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(JobGauges(api))
        counted = self._registry
        self._moves = Counter(
            "poise_moves",
            "Moves that ended, by why they began and how they ended.",
            ["job", "reason", "outcome"],
            registry=counted,
        )
        self._moves_min = Counter(
            "poise_moves_min", "How many of the moves were needed, whatever the plan.", ["job"], registry=counted
        )
        self._handoff_s = Histogram(
            "poise_handoff_seconds",
            "From the request to let go to the next grant.",
            registry=counted,
            buckets=_HANDOFF_S,
        )
        self._unowned_s = Histogram(
            "poise_unowned_seconds", "From the end of one grant to the next.", registry=counted, buckets=_HANDOFF_S
        )
        self._cycle_s = Histogram("poise_cycle_seconds", "One cycle of a job.", registry=counted, buckets=_CYCLE_S)
        self._cycle_errors = Counter("poise_cycle_errors", "Cycles that failed.", registry=counted)
        self._renew_s = Histogram(
            "poise_lease_renew_seconds", "Taking one heartbeat.", registry=counted, buckets=_CYCLE_S
        )
        info = Gauge("poise_build_info", "Always 1; the labels say what runs.", ["version", "python"], registry=counted)
        info.labels(__version__, platform.python_version()).set(1)
        self._story, self._counts = Moves(), counts
        self._foreign: deque[tuple[Event, Ended]] = deque(maxlen=_FOREIGN_MAX)
        self._turn = threading.Lock()

    def on_event(self, event: Event) -> None:
        """Follow a transition, and count what it ends, or keep it for the case that its server is missed."""
        ended = self._story.take(event)
        if ended == Ended():
            return
        with self._turn:
            if self._counts(event.line):
                self._count(event, ended)
            else:
                self._foreign.append((event, ended))

    def _claim(self) -> None:
        """Count what another server would have counted, had it not been missed since; forget what is old."""
        with self._turn:
            newest_s = self._foreign[-1][0].line.at_s if self._foreign else 0.0
            kept = []
            for event, ended in self._foreign:
                if self._counts(event.line):
                    self._count(event, ended)
                elif event.line.at_s > newest_s - _FOREIGN_S:
                    kept.append((event, ended))
            self._foreign.clear()
            self._foreign.extend(kept)

    def _count(self, event: Event, ended: Ended) -> None:
        job = job_label(event.kind, event.job)
        if ended.handoff_s is not None:
            self._handoff_s.observe(ended.handoff_s)
        if ended.unowned_s is not None:
            self._unowned_s.observe(ended.unowned_s)
        if ended.outcome:
            self._moves.labels(job, ended.reason, ended.outcome).inc()
        if ended.forced:
            self._moves_min.labels(job).inc()

    def on_cycle(self, kind: str, name: str, seconds: float, *, failed: bool = False, moves_min: int = 0) -> None:
        """Count one cycle of a job; `moves_min` is how many of the moves that it has begun its certificate needs."""
        self._cycle_s.observe(seconds)
        if failed:
            self._cycle_errors.inc()
        if moves_min:
            self._moves_min.labels(job_label(kind, name)).inc(moves_min)

    def on_renewal(self, seconds: float) -> None:
        """Count one heartbeat."""
        self._renew_s.observe(seconds)

    def exposition(self) -> bytes:
        """Write everything as text."""
        self._claim()
        return prometheus_client.generate_latest(self._registry)


class JobGauges(Collector):
    """What is true now, one job at a time; a store that is away leaves these out, and the counters stay."""

    def __init__(self, api: JobsApi) -> None:
        """Ask this facade."""
        self._api = api

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Ask for every job once."""
        members = GaugeMetricFamily("poise_members", "Members by state.", labels=["job", "state"])
        load = GaugeMetricFamily("poise_load", "What a member holds.", labels=["job", "member"])
        plain = {
            "items": GaugeMetricFamily("poise_items", "Items of a job.", labels=["job"]),
            "unowned": GaugeMetricFamily("poise_unowned", "Items that nobody holds.", labels=["job"]),
            "spread": GaugeMetricFamily("poise_spread", "The largest load minus the smallest.", labels=["job"]),
            "moves_in_flight": GaugeMetricFamily("poise_moves_in_flight", "Moves under way.", labels=["job"]),
        }
        try:
            for job in self._api.jobs():
                label = job_label(job.kind, job.name)
                for state, count in job.members.items():
                    members.add_metric([label, state], count)
                for field, family in plain.items():
                    family.add_metric([label], getattr(job, field))
                for member in self._api.members(job.kind, job.name):
                    load.add_metric([label, member.name], member.load)
        except PoiseError:
            return
        yield from (members, load, *plain.values())


def job_label(kind: str, name: str) -> str:
    """Name a job in a label: two kinds may have a job of one name."""
    return f"{kind}/{name}"
