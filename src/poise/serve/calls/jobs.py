"""The documents of all jobs, their plans, and what holds them back."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from poise.documents import dump
from poise.errors import Conflict, NotFound, invalid
from poise.jobs.stored import Stored
from poise.jobs.what_if import WhatIf
from poise.model import KINDS, Document
from poise.model.capacity_split import CapacitySplitStatus
from poise.serve.asking import Answer, Ask, flag, paged, wanted_revision
from poise.serve.bodies import Nothing, read_document, read_json
from poise.serve.call import DRY_RUN, PAGES, Call, Listed, Shown
from poise.serve.facade import JobsApi, JobSummary, Pause
from poise.serve.plans import CapacityPlan, DivisionPlan, ItemsPlan, shown_plan
from poise.serve.problems import Refused
from poise.serve.site import Site

_JOB = "/v1/jobs/{kind}/{name}"
_DOCUMENT = Shown("the document with its live status", Document, headers=("ETag",))
_PLAN = Shown("the plan", ItemsPlan | DivisionPlan | CapacityPlan)


def job_of(ask: Ask) -> tuple[str, str]:
    """Name the job of a request."""
    kind, name = ask.names["kind"], ask.names["name"]
    if kind not in KINDS:
        raise NotFound(f"there is no kind {kind[:60]!r}; the kinds are {', '.join(KINDS)}")
    return kind, name


def tag(revision: int) -> dict[str, str]:
    """Say the revision."""
    return {"ETag": f'"{revision}"'}


def _stored(stored: Stored, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    return Answer(value=dump(stored.document), status=status, headers={**tag(stored.revision), **(headers or {})})


def revision_of(api: JobsApi, kind: str, name: str) -> int:
    """Read the present revision; 0 where there is no such job."""
    try:
        return api.get(kind, name).revision
    except NotFound:
        return 0


def list_jobs(site: Site, ask: Ask) -> Answer:
    """List every job."""
    return Answer(value=paged(ask, site.api.jobs(), lambda job: f"{job.kind}/{job.name}"))


def get_summary(site: Site, ask: Ask) -> Answer:
    """Say of one job what the list says."""
    return Answer(value=site.api.summary(*job_of(ask)))


def get_job(site: Site, ask: Ask) -> Answer:
    """Read a document."""
    return _stored(site.api.get(*job_of(ask)))


def put_job(site: Site, ask: Ask) -> Answer:
    """Create or change a job, or only plan it."""
    kind, name = job_of(ask)
    document = read_document(ask.body, kind, name)
    condition = wanted_revision(ask, lambda: revision_of(site.api, kind, name))
    if flag(ask, "dryRun"):
        return _try(site, kind, name, document, condition)
    existed = revision_of(site.api, kind, name) > 0
    stored = site.api.put(document, if_match=condition)
    if existed:
        return _stored(stored)
    return _stored(stored, 201, {"Location": f"/v1/jobs/{kind}/{quote(name, safe='')}"})


def _try(site: Site, kind: str, name: str, document: Document, condition: int | None) -> Answer:
    """Plan what a write would lead to; the tag says upon which revision, so that the write can insist on it."""
    there = revision_of(site.api, kind, name)
    if condition is not None and condition != there:
        raise Conflict(f"{kind} {name} is at revision {there}")
    return Answer(value=shown_plan(site.api.try_put(document)), headers=tag(there) if there else {})


def delete_job(site: Site, ask: Ask) -> Answer:
    """Give a job up."""
    kind, name = job_of(ask)
    condition = wanted_revision(ask, lambda: revision_of(site.api, kind, name))
    if condition == 0:
        raise Refused(412, "a job that must not exist cannot be deleted")
    site.api.delete(kind, name, if_match=condition)
    return Answer(status=204)


def get_plan(site: Site, ask: Ask) -> Answer:
    """Plan a job as it is."""
    return Answer(value=shown_plan(site.api.plan(*job_of(ask), None)))


def post_plan(site: Site, ask: Ask) -> Answer:
    """Plan a job as a what-if."""
    job = job_of(ask)
    return Answer(value=shown_plan(site.api.plan(*job, read_json(ask.body, WhatIf))))


def pause_job(site: Site, ask: Ask) -> Answer:
    """Hold moves back."""
    job, pause = job_of(ask), read_json(ask.body or b"{}", Pause)
    return _stored(site.api.pause(*job, paused=True, everything=pause.all))


def resume_job(site: Site, ask: Ask) -> Answer:
    """Let moves go on."""
    job, _ = job_of(ask), read_json(ask.body or b"{}", Nothing)
    return _stored(site.api.pause(*job, paused=False, everything=False))


def report_status(site: Site, ask: Ask) -> Answer:
    """Take what was counted outside; whatever else a status says is known by Poise alone."""
    kind, name = job_of(ask)
    if kind != "CapacitySplit":
        raise invalid("{kind}", f"only the counts of a CapacitySplit are reported; Poise knows those of a {kind}")
    status = read_json(ask.body, CapacitySplitStatus)
    stored = site.api.get(kind, name)
    document = msgspec.structs.replace(stored.document, status=status)
    return _stored(site.api.put(document, if_match=stored.revision))


CALLS = (
    Call(
        method="GET",
        path="/v1/jobs",
        does="List every job with its health in one line",
        handle=list_jobs,
        role="viewer",
        query=PAGES,
        answers={200: Shown("a page of jobs", Listed(JobSummary))},
    ),
    Call(
        method="GET",
        path=f"{_JOB}/summary",
        does="One job as the list says it: its numbers, its health, and what is wrong, the worst first",
        handle=get_summary,
        role="viewer",
        answers={200: Shown("the summary", JobSummary)},
        refusals=(404,),
    ),
    Call(
        method="GET",
        path=_JOB,
        does="Read a document, spec and status",
        handle=get_job,
        role="viewer",
        answers={200: _DOCUMENT},
        refusals=(404,),
    ),
    Call(
        method="PUT",
        path=_JOB,
        does="Create or change a job; with dryRun answer with the plan that it would lead to",
        handle=put_job,
        role="operator",
        query=(DRY_RUN,),
        body=Document,
        conditional=True,
        answers={
            200: Shown(
                "changed: the document; with dryRun the plan", Document | ItemsPlan | DivisionPlan | CapacityPlan
            ),
            201: Shown("created", Document, headers=("ETag", "Location")),
        },
        refusals=(404, 409, 412),
    ),
    Call(
        method="DELETE",
        path=_JOB,
        does="Give a job up; its items go through their ordinary release",
        handle=delete_job,
        role="operator",
        conditional=True,
        answers={204: Shown("given up")},
        refusals=(404, 409, 412),
    ),
    Call(
        method="GET",
        path=f"{_JOB}/plan",
        does="Plan a job as it is now; nothing is changed",
        handle=get_plan,
        role="viewer",
        answers={200: _PLAN},
        refusals=(404, 409),
    ),
    Call(
        method="POST",
        path=f"{_JOB}/plan",
        does="Plan a what-if; nothing is changed",
        handle=post_plan,
        role="viewer",
        body=WhatIf,
        answers={200: _PLAN},
        refusals=(404, 409),
    ),
    Call(
        method="POST",
        path=f"{_JOB}/pause",
        does="Hold moves back; recovery of unowned items goes on unless all is true",
        handle=pause_job,
        role="operator",
        body=Pause,
        body_needed=False,
        answers={200: _DOCUMENT},
        refusals=(404, 409),
    ),
    Call(
        method="POST",
        path=f"{_JOB}/resume",
        does="Let moves go on",
        handle=resume_job,
        role="operator",
        body=Nothing,
        body_needed=False,
        answers={200: _DOCUMENT},
        refusals=(404, 409),
    ),
    Call(
        method="PUT",
        path=f"{_JOB}/status",
        does="Report what was counted outside: the status of a CapacitySplit",
        handle=report_status,
        role="operator",
        body=CapacitySplitStatus,
        answers={200: _DOCUMENT},
        refusals=(404, 409),
    ),
)
