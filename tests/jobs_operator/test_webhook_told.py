"""Troubles of the webhook and of the policies are conditions of the ring as long as they last, and numbers."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from tests.jobs_operator.ring_reports import CALM

from poise.jobs.sharder.metrics import PROCESS, OperatorMetrics
from poise.jobs.sharder.status import Known, Looked, status_of
from poise.jobs.sharder.webhook.numbers import HookNumbers
from poise.jobs.sharder.webhook.reviewing import Outcome

NOW = datetime(2026, 11, 16, tzinfo=UTC)


class Shown(msgspec.Struct, rename="camel"):
    """A condition as people read it."""

    type: str
    status: str
    reason: str
    message: str


def conditions(known: Known, **troubles: str) -> tuple[dict[str, Shown], Known]:
    status = status_of(Looked(generation=1, report=CALM, troubles=troubles), known, NOW)
    found = msgspec.convert(status["conditions"], list[Shown])
    return {each.type: each for each in found}, msgspec.convert(status, Known)


def test_a_trouble_is_a_condition_as_long_as_it_lasts() -> None:
    calm, known = conditions(Known())
    assert "Protected" not in calm
    shown, known = conditions(known, Protected="the labels of rings are not protected: no right")
    assert (shown["Protected"].status, shown["Protected"].reason) == ("False", "Trouble")
    assert "no right" in shown["Protected"].message
    assert shown["Ready"] == calm["Ready"]
    assert "Protected" not in conditions(known)[0]


def test_every_answer_is_counted_and_timed() -> None:
    numbers = HookNumbers(lambda: -5.0, lambda: True)
    for took_s in (0.00005, 0.0009, 3.0):
        numbers.note(Outcome.ASSIGNED, took_s)
    numbers.note(Outcome.LEFT, 0.002)
    text = OperatorMetrics(lambda: (), dict.fromkeys(PROCESS, lambda: 0.0), (numbers,)).exposition().decode()
    found = {
        sample.name + "".join(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["poise_webhook_answers_totalassigned"] == 3
    assert found["poise_webhook_answers_totalleft"] == 1
    assert found["poise_webhook_answers_totalrestored"] == 0
    assert found["poise_webhook_answer_seconds_count"] == 4
    assert found["poise_webhook_answer_seconds_bucket0.0001"] == 1
    assert found["poise_webhook_answer_seconds_bucket0.001"] == 2
    assert found["poise_webhook_answer_seconds_bucket1.0"] == 3
    assert found["poise_webhook_answer_seconds_bucket+Inf"] == 4
    assert found["poise_webhook_certificate_seconds"] == -5
    assert found["poise_webhook_trouble"] == 1
    assert found["poise_policy_trouble"] == 0
