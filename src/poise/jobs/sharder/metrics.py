"""The numbers of all rings for Prometheus: asked at each scrape, and no label an object."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
import prometheus_client
from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from poise import __version__
from poise.jobs.sharder.report import RingCounts, RingReport
from poise.jobs.sharder.status import JUDGES, Looked, Refusal, drained_instances, ready_instances
from poise.observe.leases import Health


class RingNumbers(msgspec.Struct, frozen=True):
    """One ring that is run, by its name: no two of one name are."""

    name: str
    report: RingReport
    counts: RingCounts
    refusal: Refusal | None = None
    removing: bool = False

    @property
    def conditions(self) -> dict[str, bool]:
        """Say which conditions of its status are True."""
        looked = Looked(generation=0, report=self.report, refusal=self.refusal, removing=self.removing)
        return {kind: judge(looked).status == "True" for kind, judge in JUDGES.items()}

    @property
    def job(self) -> str:
        """The label that names it among all jobs."""
        return f"ShardRing/{self.name}"


def _spread(report: RingReport) -> int:
    loads = [each.objects for each in ready_instances(report)]
    return max(loads) - min(loads) if loads else 0


# name, what it says, and how it is read off a report.
_GAUGES: tuple[tuple[str, str, Callable[[RingReport], float]], ...] = (
    ("items", "Items of a job.", lambda report: report.roots + report.children),
    ("roots", "Objects of a ring whose key decides.", lambda report: report.roots),
    ("unowned", "Items that nobody holds.", lambda report: report.unassigned),
    ("items_waiting", "Items whose owner is not there.", lambda report: report.waiting),
    ("spread", "The largest load minus the smallest.", _spread),
    ("moves_in_flight", "Moves under way.", lambda report: report.in_flight),
    ("moves_delayed", "Moves that wait for movesInFlightMax.", lambda report: report.delayed),
    ("drains_pending", "Objects that an instance is asked for.", lambda report: report.drains),
    ("drains_overdue", "Objects not handed over in time.", lambda report: report.overdue),
    ("oldest_drain_seconds", "Age of the oldest drain.", lambda report: report.oldest_drain_s or 0.0),
    ("moves_withheld", "Moves that a pause holds back.", lambda report: report.withheld),
    ("paused", "1 while moves are paused.", lambda report: bool(report.paused)),
    ("members_drained", "Members that are to hold nothing.", lambda report: len(drained_instances(report))),
    ("brake_engaged", "1 while the brake holds.", lambda report: bool(report.vanished)),
    ("synced", "1 when every list has been read.", lambda report: report.synced),
    ("faults", "What keeps a ring from being read whole.", lambda report: len(report.faults)),
)
_COUNTERS: tuple[tuple[str, str, Callable[[RingCounts], int]], ...] = (
    ("passes", "Evaluations.", lambda counts: counts.passes),
    ("watch_events", "Events of watches.", lambda counts: counts.watch_events),
    ("write_conflicts", "Writes that somebody else was faster than.", lambda counts: counts.conflicts),
    ("write_failures", "Writes that failed.", lambda counts: counts.failures),
)
_BY_KIND: tuple[tuple[str, str, Callable[[RingCounts], Mapping[str, int]]], ...] = (
    ("label_writes", "Patches of labels, by the step they are of.", lambda counts: counts.writes),
    ("lease_writes", "Writes of Leases of instances.", lambda counts: counts.lease_writes),
)


PROCESS = {
    "leads": "1 while this process leads.",
    "rings": "Rings that this process runs.",
    "rings_refused": "Rings that are not run, or not by their newest document.",
    "policy_trouble": "1 while the labels of rings are not protected as they should be.",
    "kube_events_dropped": "Events for people that were only counted: too many at once, or not accepted.",
}


class RingCollector(Collector):
    """Reads off what the sharders of this process know; a process that stands by shows no ring."""

    def __init__(self, rings: Callable[[], Iterable[RingNumbers]]) -> None:
        """Ask this at each scrape."""
        self._rings = rings

    def collect(self) -> Iterator[Metric]:
        """Give every number of every ring."""
        rings = list(self._rings())
        members = GaugeMetricFamily("poise_members", "Members by state.", labels=["job", "state"])
        load = GaugeMetricFamily("poise_load", "What a member holds.", labels=["job", "member"])
        condition = GaugeMetricFamily("poise_condition", "1 while a condition is True.", labels=["job", "type"])
        for ring in rings:
            for kind, is_true in ring.conditions.items():
                condition.add_metric([ring.job, kind], is_true)
            for state in Health:
                count = sum(each.state is state for each in ring.report.instances)
                members.add_metric([ring.job, state.value], count)
            for each in ring.report.instances:
                load.add_metric([ring.job, each.name], each.objects)
        yield from (members, load, condition)
        yield from (_gauge(*row, rings) for row in _GAUGES)
        yield from (_counter(*row, rings) for row in _COUNTERS)
        yield from (_counter_by_kind(*row, rings) for row in _BY_KIND)


def _gauge(name: str, says: str, read: Callable[[RingReport], float], rings: list[RingNumbers]) -> Metric:
    family = GaugeMetricFamily(f"poise_{name}", says, labels=["job"])
    for ring in rings:
        family.add_metric([ring.job], float(read(ring.report)))
    return family


def _counter(name: str, says: str, read: Callable[[RingCounts], int], rings: list[RingNumbers]) -> Metric:
    family = CounterMetricFamily(f"poise_{name}", says, labels=["job"])
    for ring in rings:
        family.add_metric([ring.job], read(ring.counts))
    return family


def _counter_by_kind(
    name: str, says: str, read: Callable[[RingCounts], Mapping[str, int]], rings: list[RingNumbers]
) -> Metric:
    family = CounterMetricFamily(f"poise_{name}", says, labels=["job", "kind"])
    for ring in rings:
        for kind, count in sorted(read(ring.counts).items()):
            family.add_metric([ring.job, kind], count)
    return family


class OperatorMetrics:
    """All numbers of one operator."""

    def __init__(
        self,
        rings: Callable[[], Iterable[RingNumbers]],
        single: Mapping[str, Callable[[], float]],
        more: Iterable[Collector] = (),
    ) -> None:
        """Ask these at each scrape; the single numbers are those of PROCESS, `more` has others of the process."""
        # The times when a counter was made are of no use here, and would double the number of series.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # It has no types.
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(RingCollector(rings))
        ProcessCollector(registry=self._registry)
        for collector in more:
            self._registry.register(collector)
        for name, read in single.items():
            Gauge(f"poise_{name}", PROCESS[name], registry=self._registry).set_function(read)
        labels = ["version", "python"]
        info = Gauge("poise_build_info", "Always 1; the labels say what runs.", labels, registry=self._registry)
        info.labels(__version__, platform.python_version()).set(1)

    def exposition(self) -> bytes:
        """Write everything as text."""
        return prometheus_client.generate_latest(self._registry)
