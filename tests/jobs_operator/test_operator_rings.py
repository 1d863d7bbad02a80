"""The job of rings over objects in memory: what it shows is shown over exactly what it read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from tests.jobs_sharder.memory_world import RING, SPACE, D, make_families, owners, put_lease, renewing, until
from tests.kube.fake_time import run
from tests.kube.memory_api import MemoryApi, loop_s

from poise.jobs.sharder.accepting import FINALIZER
from poise.jobs.sharder.rings import RINGS, Lookout, Rings
from poise.jobs.sharder.sharder import RingSharder
from poise.jobs.sharder.status import BRAKE_ANNOTATION
from poise.kube import ObjectRef, Partial
from poise.kube.crds.status import Condition
from poise.kube.objects import Custom
from poise.model.sharding import read_marks

REF = ObjectRef(RINGS, RING, SPACE)
SECRETS = [{"resource": "secrets"}]


@asynccontextmanager
async def running(api: MemoryApi, make: Callable[..., RingSharder] = RingSharder) -> AsyncIterator[Rings]:
    """Run the job as the leader."""
    job = Rings(Lookout(client=api, me="poise-sharder-test_1", may_act=lambda: True, now_s=loop_s), make)
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


def condition(api: MemoryApi, kind: str) -> tuple[str, str]:
    """Read the reason and the message of one condition."""
    found = msgspec.convert(shown(api).get("conditions", []), list[Condition])
    return next(((each.reason, each.message) for each in found if each.type == kind), ("", ""))


def change_meta(api: MemoryApi, **changed: object) -> None:
    """Change the metadata of the ring, as people do."""
    now = api.get_now(REF, Custom)
    api.put_now(REF, msgspec.structs.replace(now, metadata=msgspec.structs.replace(now.metadata, **changed)))


def aims(api: MemoryApi) -> set[tuple[str | None, str | None]]:
    """Read who holds something, and whom it is asked for."""
    marks = [read_marks(each.metadata.labels, RING) for each in api.all_now("secrets", Partial)]
    return {(each.shard, each.drain) for each in marks}


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


def test_an_answer_that_comes_late_does_not_replace_a_newer_document() -> None:
    async def scenario() -> None:
        # It lands after half of that, and is heard of later than what comes after it.
        api = MemoryApi(lambda verb, _ref: 2.0 if verb == "apply" else 0.0)
        put_ring(api, resources=SECRETS)
        async with running(api):
            put_lease(api, "a-0", duration_s=600)
            await until(lambda: shown(api).get("ready") == 1)
            put_lease(api, "a-1", duration_s=600)
            await until(lambda: shown(api).get("ready") == 2)
            landed = api.get_now(REF, Custom)
            newest = msgspec.json.encode({"leaseSeconds": 9, "resources": SECRETS})
            api.put_now(REF, msgspec.structs.replace(landed, spec=msgspec.Raw(newest)))
            await until(lambda: "9" in str(shown(api).get("terms")))

    run(scenario())


def test_an_answer_that_comes_late_does_not_replace_the_ring_that_took_its_place() -> None:
    async def scenario() -> None:
        api = MemoryApi(lambda verb, _ref: 2.0 if verb == "merge" else 0.0)
        put_ring(api, resources=SECRETS)
        async with running(api) as job:
            await until(lambda: FINALIZER in api.get_now(REF, Custom).metadata.finalizers)
            api.drop_now(REF)
            put_ring(api, resources=SECRETS, leaseSeconds=9)
            await until(lambda: bool(job.numbers()))
            await until(lambda: "9" in str(shown(api).get("terms")))
            assert FINALIZER in api.get_now(REF, Custom).metadata.finalizers

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


def test_a_removal_waits_for_the_brake_and_goes_on_when_it_is_opened() -> None:
    async def scenario() -> None:
        api = MemoryApi()
        make_families(api, 20)
        put_ring(api, resources=SECRETS)
        async with running(api):
            async with renewing(api, "a-0"):
                async with renewing(api, "a-1", "a-2"):
                    await until(lambda: set(owners(api).values()) == {"a-0", "a-1", "a-2"})
                await until(lambda: condition(api, "Ready")[0] == "Braked")
                before = owners(api)
                change_meta(api, deletion_timestamp="2026-11-16T10:00:00Z")
                await until(lambda: condition(api, "Ready")[0] == "Removing")
                await asyncio.sleep(30 * D)
                assert owners(api) == before
                assert {aim for _, aim in aims(api)} == {None}, "not even who is ready is asked"
                for kind, reason in (("Ready", "Removing"), ("Balanced", "Braked"), ("Progressing", "Braked")):
                    assert condition(api, kind)[0] == reason
                    assert "the brake holds the removal up" in condition(api, kind)[1]
                    assert BRAKE_ANNOTATION in condition(api, kind)[1]
                change_meta(api, annotations={BRAKE_ANNOTATION: "somebody looked"})
                # What the lost ones had is let go; who is ready is asked, and this one does not answer.
                await until(lambda: aims(api) == {(None, None), ("a-0", "")})
                assert FINALIZER in api.get_now(REF, Custom).metadata.finalizers
            await until(lambda: not api.get_now(REF, Custom).metadata.finalizers)
            assert set(owners(api).values()) == {None}

    run(scenario())


class SlowToEnd(RingSharder):
    """A sharder that takes its time to end."""

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            await asyncio.sleep(5)


def test_a_ring_that_is_made_anew_while_its_predecessor_ends_is_run() -> None:
    async def scenario() -> None:
        api = MemoryApi()
        put_ring(api, resources=SECRETS)
        async with running(api, SlowToEnd) as job:
            await until(lambda: bool(job.numbers()))
            api.drop_now(REF)
            await until(lambda: not job.numbers())
            put_ring(api, resources=SECRETS)
            await until(lambda: bool(job.numbers()))
            assert FINALIZER in api.get_now(REF, Custom).metadata.finalizers
            api.drop_now(REF)
            await until(lambda: not job.looks())

    run(scenario())
