"""One look at a job: all that its page says and draws comes from these facts."""

from __future__ import annotations

from datetime import datetime

import msgspec

from poise.jobs.entries import Planned
from poise.jobs.stored import Stored
from poise.jobs.what_if import WhatIf
from poise.serve.facade import ItemView, JobSummary, MemberView


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it was read; `refused` says why it cannot be planned, as with an impossible what-if."""

    kind: str
    name: str
    stored: Stored
    summary: JobSummary
    items: list[ItemView]
    members: list[MemberView]
    planned: Planned | None
    refused: str
    what_if: WhatIf | None
    now: datetime
