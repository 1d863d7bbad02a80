"""The history of a job, for the picture of its last hours."""

from __future__ import annotations

from poise.jobs.series import Series
from poise.serve.asking import Answer, Ask
from poise.serve.call import Call, Shown
from poise.serve.calls.jobs import job_of
from poise.serve.site import Site


def get_series(site: Site, ask: Ask) -> Answer:
    """Read the history."""
    return Answer(value=site.api.series(*job_of(ask)))


CALLS = (
    Call(
        method="GET",
        path="/v1/jobs/{kind}/{name}/series",
        does="What was counted of a job over time: unowned, moves, and its loads or replicas",
        handle=get_series,
        role="viewer",
        answers={200: Shown("the history", Series)},
        refusals=(404,),
    ),
)
