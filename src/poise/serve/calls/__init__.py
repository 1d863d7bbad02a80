"""Every row of the API, in the order in which people read about it."""

from __future__ import annotations

from poise.serve.call import Call
from poise.serve.calls import health, items, jobs, login, members, series

CALLS: tuple[Call, ...] = (*jobs.CALLS, *series.CALLS, *items.CALLS, *members.CALLS, *health.CALLS, *login.CALLS)
