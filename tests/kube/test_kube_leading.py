"""A leader whose requests take long: its lead counts from the moment it sent what succeeded; then the work stops."""

from __future__ import annotations

import asyncio

import pytest
from tests.kube.fake_time import run
from tests.kube.memory_api import MemoryApi, loop_s

from poise.kube import ObjectRef
from poise.kube.leadership import LeadTerms
from poise.kube.leading import Lead

TERMS = LeadTerms(me="me_1", duration_s=15, renew_s=3.0, margin_s=5.0)
TAKES_S, STEP_S = 2.0, 0.25


@pytest.mark.parametrize("answered", [1, 2])
def test_the_lead_lasts_from_the_moment_that_its_last_write_was_sent(answered: int) -> None:
    """The first write creates the Lease, the second one replaces it; those after them are never answered."""
    ended: list[float] = []

    async def scenario() -> None:
        writes = 0

        def takes_s(verb: str, _ref: ObjectRef) -> float:
            nonlocal writes
            writes += verb != "get"
            return 0.0 if verb == "get" else TAKES_S if writes <= answered else 1e6

        api = MemoryApi(takes_s)
        lead = Lead(api, "lead", "ns", TERMS, now_s=loop_s)

        async def work() -> None:
            try:
                while True:
                    assert lead.may_act()
                    await asyncio.sleep(STEP_S)
            finally:
                ended.append(loop_s())

        leading = asyncio.create_task(lead.run(work))
        while not ended:
            await asyncio.sleep(STEP_S)
        sent = [each.sent_at_s for each in api.asked if each.verb in ("create", "replace")]
        until_s = sent[answered - 1] + TERMS.duration_s - TERMS.margin_s
        assert until_s - STEP_S <= ended[0] <= until_s + STEP_S
        assert loop_s() < until_s + TAKES_S
        assert not lead.may_act()
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)

    run(scenario())
