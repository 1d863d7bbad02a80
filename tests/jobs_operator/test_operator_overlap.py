"""Two installations that see rings of one name, over objects in memory: one at most is run, and people are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.cluster.operator_process import SeenEvent
from tests.jobs_sharder.memory_world import until
from tests.kube.fake_time import run
from tests.kube.memory_api import MemoryApi, loop_s

from poise.jobs.operating import Operator
from poise.jobs.sharder.accepting import FINALIZER, OPERATOR_ANNOTATION
from poise.jobs.sharder.rings import RINGS, Lookout, Rings
from poise.kube import ObjectRef
from poise.kube.mirror import Key
from poise.kube.objects import Custom
from poise.kube.resources import EVENTS

Shape = TypeVar("Shape")
OLD, YOUNG = "2026-11-16T10:00:00Z", "2026-11-16T10:00:09Z"


class EventfulApi(MemoryApi):
    """Creates an Event that is applied, as the API server does."""

    async def apply(
        self, ref: ObjectRef, body: object, shape: type[Shape], *, manager: str = "poise", force: bool = False
    ) -> Shape:
        """Apply fields."""
        if ref.resource == EVENTS and (EVENTS.plural, ref.namespace, ref.name) not in self.stored:
            self.put_now(ref, {})
        return await super().apply(ref, body, shape, manager=manager, force=force)


@asynccontextmanager
async def running(api: MemoryApi, home: str, scope: str | None = None) -> AsyncIterator[Rings]:
    """Run the job as the leader of one installation."""
    me = f"poise-sharder-{home}_1"
    job = Rings(Lookout(client=api, me=me, home=home, may_act=lambda: True, scope=scope, now_s=loop_s))
    task = asyncio.create_task(job.run())
    try:
        yield job
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def ref_of(namespace: str, name: str = "web") -> ObjectRef:
    return ObjectRef(RINGS, name, namespace)


def put_ring(
    api: MemoryApi, namespace: str, name: str = "web", *, created: str = OLD, by: str = "", **spec: object
) -> None:
    """Put a ring there; with `by` as one that this installation has accepted."""
    claim: dict[str, object] = {"finalizers": [FINALIZER], "annotations": {OPERATOR_ANNOTATION: by}} if by else {}
    kind = {"apiVersion": RINGS.api_version, "kind": RINGS.kind}
    secrets = {"resources": [{"resource": "secrets"}]}
    api.put_now(
        ref_of(namespace, name), kind | {"metadata": {"creationTimestamp": created} | claim, "spec": secrets | spec}
    )


def set_claim(api: MemoryApi, namespace: str, by: str | None) -> None:
    """Change whose a ring is, as people do."""
    found = api.get_now(ref_of(namespace), Custom)
    claim = {} if by is None else {OPERATOR_ANNOTATION: by}
    meta = msgspec.structs.replace(found.metadata, annotations=claim)
    api.put_now(ref_of(namespace), msgspec.structs.replace(found, metadata=meta))


def claim_of(api: MemoryApi, namespace: str) -> str | None:
    return api.get_now(ref_of(namespace), Custom).metadata.annotations.get(OPERATOR_ANNOTATION)


def shown(api: MemoryApi, namespace: str) -> str:
    return bytes(api.get_now(ref_of(namespace), Custom).status).decode()


def run_by(*jobs: Rings) -> list[Key]:
    """List the rings that are run, once for every job that does."""
    return [look.meta.key for job in jobs for look in job.looks() if look.report is not None]


def refusals(job: Rings) -> dict[Key, str]:
    return {look.meta.key: look.refusal.reason for look in job.looks() if look.refusal is not None}


@pytest.mark.parametrize(("own", "other"), [(OLD, YOUNG), (YOUNG, OLD)])
def test_a_ring_gives_way_to_one_of_its_name_that_is_run_elsewhere(own: str, other: str) -> None:
    async def scenario() -> None:
        api = MemoryApi()
        put_ring(api, "team-b", created=own)
        async with running(api, "central") as central:
            await until(lambda: run_by(central) == [("team-b", "web")])
            assert claim_of(api, "team-b") == "central"
            put_ring(api, "team-a", created=other, by="local")
            await until(lambda: run_by(central) == [] and claim_of(api, "team-b") is None)
            await until(lambda: "NameTaken" in shown(api, "team-b"))
            assert refusals(central) == {("team-a", "web"): "RunElsewhere", ("team-b", "web"): "NameTaken"}
            assert "the operator of the namespace local runs it" in shown(api, "team-b")
            assert FINALIZER in api.get_now(ref_of("team-b"), Custom).metadata.finalizers
            await asyncio.sleep(60)
            assert run_by(central) == []
            assert shown(api, "team-a") == "{}", "its status is the other one's to write"
            api.drop_now(ref_of("team-a"))
            await until(lambda: run_by(central) == [("team-b", "web")])
            assert claim_of(api, "team-b") == "central"
            assert refusals(central) == {}

    run(scenario())


def test_a_new_ring_is_not_accepted_while_its_name_is_run_elsewhere() -> None:
    async def scenario() -> None:
        api = MemoryApi()
        put_ring(api, "team-a", created=YOUNG, by="local")
        put_ring(api, "team-b", created=OLD)
        async with running(api, "central") as central:
            await until(lambda: len(refusals(central)) == 2)
            await asyncio.sleep(60)
            assert run_by(central) == []
            assert not api.get_now(ref_of("team-b"), Custom).metadata.finalizers

    run(scenario())


@pytest.mark.parametrize(("first", "second"), [(OLD, YOUNG), (YOUNG, OLD), (OLD, OLD)])
def test_two_that_each_see_the_ring_of_the_other_do_not_both_give_way_for_ever(first: str, second: str) -> None:
    async def scenario() -> None:
        api = MemoryApi()
        put_ring(api, "team-a", created=first, by="one")
        put_ring(api, "team-b", created=second, by="two")
        async with running(api, "one") as one, running(api, "two") as two:
            await until(lambda: len(run_by(one, two)) == 1)
            (key,) = run_by(one, two)
            home = "one" if run_by(one) else "two"
            for _ in range(200):
                await asyncio.sleep(0.5)
                assert run_by(one, two) == [key]
                assert claim_of(api, key[0]) == home

    run(scenario())


def events(api: MemoryApi) -> list[SeenEvent]:
    return api.all_now(EVENTS.plural, SeenEvent)


def test_a_ring_that_is_left_alone_is_told_so_once_and_its_status_stays() -> None:
    async def scenario() -> None:
        api = EventfulApi()
        put_ring(api, "team-a", by="gone")
        before = api.get_now(ref_of("team-a"), Custom).metadata.resource_version
        async with running(api, "here") as job:
            await until(lambda: bool(events(api)))
            await asyncio.sleep(300)  # It is looked at every ten seconds.
            (told,) = events(api)
            assert (told.reason, told.type, told.count) == ("RunElsewhere", "Warning", 1)
            assert "the operator of the namespace gone runs this ring" in told.message
            assert "kubectl annotate shardring web --namespace team-a poise.dev/operator-" in told.message
            assert api.get_now(ref_of("team-a"), Custom).metadata.resource_version == before
            set_claim(api, "team-a", None)
            await until(lambda: run_by(job) == [("team-a", "web")])
            assert claim_of(api, "team-a") == "here"
            # Somebody else has it now: that is news.
            set_claim(api, "team-a", "third")
            await until(lambda: events(api)[0].count == 2)
            assert "the operator of the namespace third runs this ring" in events(api)[0].message
            assert run_by(job) == []

    run(scenario())


def test_every_ring_that_is_refused_is_counted_as_long_as_it_is() -> None:
    def counted(operator: Operator) -> float:
        families = text_string_to_metric_families(operator.metrics.exposition().decode())
        (number,) = [each.value for one in families for each in one.samples if each.name == "poise_rings_refused"]
        return number

    async def scenario() -> None:
        api = EventfulApi()
        put_ring(api, "team-a", "web", by="elsewhere")
        put_ring(api, "team-b", "web")
        put_ring(api, "team-b", "odd", resources=[])
        put_ring(api, "team-b", "well")
        operator = Operator(api, me="poise-sharder-here_1", home="here")
        async with running(api, "here") as job:
            operator._jobs["ShardRing"] = job
            await until(lambda: run_by(job) == [("team-b", "well")] and len(refusals(job)) == 3)
            assert sorted(refusals(job).values()) == ["InvalidSpec", "NameTaken", "RunElsewhere"]
            assert counted(operator) == 3
            put_ring(api, "team-b", "odd")
            await until(lambda: counted(operator) == 2)
            api.drop_now(ref_of("team-a"))
            await until(lambda: counted(operator) == 0)
            assert len(run_by(job)) == 3

    run(scenario())
