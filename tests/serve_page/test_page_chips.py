"""The head of a job: who is here, and who is not heard of."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from tests.serve_page.page_world import SET

from poise.documents import load
from poise.jobs.stored import Stored
from poise.serve.facade import JobSummary
from poise.serve.page.chips import chips_of
from poise.serve.page.pictures.seen import Look


def test_members_that_are_not_heard_of_are_not_counted_as_here() -> None:
    job = JobSummary(kind="PartitionSet", name="orders", revision=1, health="fine", members={"active": 5, "gone": 1})
    assert [(chip.text, chip.mood) for chip in chips_of(look_at(job))][1] == ("5 of 6 workers", "wait")
    well = msgspec.structs.replace(job, members={"active": 5, "draining": 1})
    assert [(chip.text, chip.mood) for chip in chips_of(look_at(well))][1] == ("6 workers", "")


def look_at(job: JobSummary) -> Look:
    """Look at a job of which only the summary matters."""
    document = load(msgspec.json.encode(SET).decode(), "test")[0]
    stored = Stored(document, 1)
    return Look(
        kind=job.kind,
        name=job.name,
        stored=stored,
        summary=job,
        items=[],
        members=[],
        planned=None,
        refused="",
        what_if=None,
        now=datetime.now(UTC),
    )
