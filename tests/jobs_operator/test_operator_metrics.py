"""The numbers of rings as Prometheus reads them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families
from tests.jobs_operator.ring_reports import CALM, seen

from poise.jobs.sharder.metrics import PROCESS, OperatorMetrics, RingNumbers
from poise.jobs.sharder.report import RingCounts, RingReport
from poise.jobs.sharder.status import JUDGES, Refusal
from poise.observe.leases import Health

Numbers = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(*rings: RingNumbers) -> Numbers:
    text = OperatorMetrics(lambda: rings, dict.fromkeys(PROCESS, lambda: 1.0)).exposition().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def number(numbers: Numbers, name: str, **labels: str) -> float:
    return numbers[name, tuple(sorted({"job": "ShardRing/web", **labels}.items()))]


def test_every_field_of_a_report_has_its_number() -> None:
    report = RingReport(
        synced=True,
        faults=("a", "b"),
        instances=(seen("web-0", objects=7), seen("web-1", objects=3), seen("web-2", Health.DEAD, objects=99)),
        roots=100,
        children=9,
        unassigned=5,
        waiting=6,
        drains=4,
        oldest_drain_s=12.5,
        overdue=3,
        delayed=2,
        in_flight=1,
        vanished=("web-2", "web-3"),
    )
    counts = RingCounts(passes=11, watch_events=12, conflicts=13, failures=14, lease_writes={"hold": 15})
    counts.wrote("assign")
    counts.wrote("assign")
    counts.wrote("hand over")
    numbers = scraped(RingNumbers("web", report, counts))
    wanted = {
        "poise_items": 109,
        "poise_roots": 100,
        "poise_unowned": 5,
        "poise_items_waiting": 6,
        "poise_spread": 4,
        "poise_moves_in_flight": 1,
        "poise_moves_delayed": 2,
        "poise_drains_pending": 4,
        "poise_drains_overdue": 3,
        "poise_oldest_drain_seconds": 12.5,
        "poise_brake_engaged": 1,
        "poise_synced": 1,
        "poise_faults": 2,
        "poise_passes_total": 11,
        "poise_watch_events_total": 12,
        "poise_write_conflicts_total": 13,
        "poise_write_failures_total": 14,
    }
    assert {name: number(numbers, name) for name in wanted} == wanted
    assert number(numbers, "poise_label_writes_total", kind="assign") == 2
    assert number(numbers, "poise_label_writes_total", kind="hand over") == 1
    assert number(numbers, "poise_lease_writes_total", kind="hold") == 15
    states = {state.value: number(numbers, "poise_members", state=state.value) for state in Health}
    assert states == {"ready": 2, "expired": 0, "uncertain": 0, "dead": 1, "orphaned": 0}
    assert number(numbers, "poise_load", member="web-2") == 99


@pytest.mark.parametrize(
    ("ring", "true"),
    [
        pytest.param(RingNumbers("web", CALM, RingCounts()), {"Ready", "Balanced"}, id="at rest"),
        pytest.param(RingNumbers("web", replace(CALM, drains=1), RingCounts()), {"Ready", "Progressing"}, id="moving"),
        pytest.param(RingNumbers("web", RingReport(), RingCounts()), set(), id="unknown is not true"),
        pytest.param(
            RingNumbers("web", CALM, RingCounts(), Refusal("InvalidSpec", "x")), {"Balanced"}, id="a newer document"
        ),
        pytest.param(
            RingNumbers("web", CALM, RingCounts(), removing=True), {"Balanced", "Progressing"}, id="being removed"
        ),
    ],
)
def test_a_condition_is_1_while_it_is_true(ring: RingNumbers, true: set[str]) -> None:
    numbers = scraped(ring)
    told = {kind: number(numbers, "poise_condition", type=kind) for kind in JUDGES}
    assert told == {kind: float(kind in true) for kind in ("Ready", "Balanced", "Progressing")}


def test_every_number_of_a_ring_is_in_the_docs() -> None:
    text = OperatorMetrics(lambda: [RingNumbers("web", CALM, RingCounts())], {}).exposition().decode()
    names = {name for name in re.findall(r"^# TYPE (poise_\w+) ", text, re.MULTILINE) if name != "poise_build_info"}
    table = Path("docs/operator.md").read_text().partition("## Metrics")[2].partition("\n## ")[0]
    assert "poise_condition" in names
    assert names <= set(re.findall(r"`(poise_\w+)", table))


def test_a_ring_with_nothing_has_zeros() -> None:
    numbers = scraped(RingNumbers("web", RingReport(), RingCounts()))
    assert number(numbers, "poise_spread") == 0
    assert number(numbers, "poise_oldest_drain_seconds") == 0
    assert number(numbers, "poise_synced") == 0


def test_many_rings_stand_side_by_side_and_none_is_an_ordinary_case() -> None:
    rings = [RingNumbers(name, replace(CALM, roots=roots), RingCounts()) for name, roots in (("a", 1), ("b", 2))]
    numbers = scraped(*rings)
    assert numbers["poise_roots", (("job", "ShardRing/a"),)] == 1
    assert numbers["poise_roots", (("job", "ShardRing/b"),)] == 2
    none = scraped()
    assert none["poise_leads", ()] == 1
    assert not [name for name, labels in none if labels and labels[0][0] == "job"]
    assert any(name == "process_resident_memory_bytes" for name, _ in none)


def test_no_series_an_object() -> None:
    small, large = (scraped(RingNumbers("web", replace(CALM, roots=n), RingCounts())) for n in (10, 100_000))
    assert small.keys() == large.keys()
