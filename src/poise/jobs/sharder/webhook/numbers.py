"""The numbers of the webhook for Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from poise.jobs.sharder.webhook.reviewing import Outcome

_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class HookNumbers(Collector):
    """Counts answers, and how long each took to make; no label an object."""

    def __init__(self, left_s: Callable[[], float], troubled: Callable[[], bool]) -> None:
        """Ask these at each scrape: for how long the certificate is good, and whether something is wrong."""
        self._left_s, self._troubled = left_s, troubled
        self._answers: Counter[str] = Counter()
        self._slots = [0] * (len(_BOUNDS_S) + 1)
        self._sum_s = 0.0

    def note(self, outcome: Outcome, took_s: float) -> None:
        """Count one answer."""
        self._answers[outcome.value] += 1
        self._slots[bisect_left(_BOUNDS_S, took_s)] += 1
        self._sum_s += took_s

    def collect(self) -> Iterator[Metric]:
        """Give every number."""
        answers = CounterMetricFamily("poise_webhook_answers", "Answers by what was made of them.", labels=["outcome"])
        for outcome in Outcome:
            answers.add_metric([outcome.value], self._answers[outcome.value])
        yield answers
        took = HistogramMetricFamily("poise_webhook_answer_seconds", "How long an answer took to make.")
        total, buckets = 0, []
        for bound, count in zip((*map(str, _BOUNDS_S), "+Inf"), self._slots, strict=True):
            total += count
            buckets.append((bound, float(total)))
        took.add_metric([], buckets, self._sum_s)
        yield took
        yield GaugeMetricFamily(
            "poise_webhook_certificate_seconds", "How long the certificate is good; negative: expired.", self._left_s()
        )
        yield GaugeMetricFamily(
            "poise_webhook_trouble", "1 while the webhook is not believed, or soon will not be.", self._troubled()
        )
