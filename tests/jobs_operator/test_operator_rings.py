"""The job of rings over objects in memory: what it shows is shown over exactly what it read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from tests.jobs_sharder.memory_world import RING, SPACE, D, make_families, put_lease, until
from tests.kube.fake_time import run
from tests.kube.memory_api import MemoryApi, loop_s

from poise.jobs.sharder.rings import RINGS, Lookout, Rings
from poise.kube import ObjectRef
from poise.kube.objects import Custom

REF = ObjectRef(RINGS, RING, SPACE)
SECRETS = [{"resource": "secrets"}]


@asynccontextmanager
async def running(api: MemoryApi) -> AsyncIterator[Rings]:
    """Run the job as the leader."""
    job = Rings(Lookout(client=api, me="poise-sharder-test_1", may_act=lambda: True, now_s=loop_s))
    task = asyncio.create_task(job.run())
    try:
        yield job
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def put_ring(api: MemoryApi, **spec: object) -> None:
    body = {"apiVersion": RINGS.api_version, "kind": RINGS.kind, "spec": {"leaseSeconds": D, **spec}}
    api.put_now(REF, body)


def shown(api: MemoryApi) -> dict[str, object]:
    return msgspec.json.decode(api.get_now(REF, Custom).status, type=dict[str, object])


def test_a_status_that_comes_late_does_not_replace_a_newer_one() -> None:
    async def scenario() -> None:
        api = MemoryApi()
        make_families(api, 3)
        put_ring(api, resources=SECRETS)
        async with running(api):
            put_lease(api, "a-0", duration_s=600)
            await until(lambda: shown(api).get("ready") == 1)
            # Another leader has shown something since, and this one has not heard of it.
            api.deaf.add(RINGS.plural)
            newer = api.get_now(REF, Custom)
            api.put_now(REF, msgspec.structs.replace(newer, status=msgspec.Raw(b'{"ready": 77}')))
            put_lease(api, "a-1", duration_s=600)
            await until(lambda: "apply" in api.refused)
            await asyncio.sleep(5)
            assert shown(api) == {"ready": 77}
            # Once it hears of it, it looks again.
            api.hear(RINGS.plural)
            await until(lambda: shown(api).get("ready") == 2)

    run(scenario())


def test_the_numbers_say_which_conditions_are_true() -> None:
    async def scenario() -> None:
        api = MemoryApi()
        put_ring(api, resources=SECRETS)
        async with running(api) as job:
            await until(lambda: bool(job.numbers()) and job.numbers()[0].report.synced)
            (numbers,) = job.numbers()
            assert numbers.conditions == {"Ready": False, "Balanced": True, "Progressing": False}
            put_lease(api, "a-0", duration_s=600)
            await until(lambda: job.numbers()[0].conditions["Ready"])
            # A newer document that breaks a rule: the ring runs on, and is not Ready.
            put_ring(api, resources=SECRETS, objects=["a"])
            await until(lambda: not job.numbers()[0].conditions["Ready"])

    run(scenario())


@pytest.mark.parametrize("spec", [{}, {"objects": ["a"], "resources": SECRETS}])
def test_a_ring_that_would_run_with_nothing_is_refused_in_its_status(spec: dict[str, object]) -> None:
    async def scenario() -> None:
        api = MemoryApi()
        put_ring(api, **spec)
        async with running(api) as job:
            await until(lambda: "conditions" in shown(api))
            assert job.numbers() == []
            conditions = msgspec.convert(shown(api)["conditions"], list[dict[str, object]])
            told = {each["type"]: (each["status"], each["reason"]) for each in conditions}
            assert told["Ready"] == ("False", "InvalidSpec")
            assert not api.get_now(REF, Custom).metadata.finalizers

    run(scenario())
