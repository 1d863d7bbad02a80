"""Families are written for the session that decided on them; refusals are told once, however many there are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.jobs_sharder.memory_world import RING, SPACE, make_families, put_lease, ring, sharding, until
from tests.kube.fake_time import run
from tests.kube.memory_api import MemoryApi, Shape

from poise.errors import Forbidden, PoiseError
from poise.jobs.sharder import working
from poise.jobs.sharder.working import Refusals
from poise.kube import ObjectRef, Partial, Selection
from poise.kube.objects import Page
from poise.kube.resources import CONFIG_MAPS, SECRETS
from poise.model.sharding import label_names

SHARD, EPOCH, _, _ = label_names(RING)
FAMILIES = 300


def test_an_answer_that_comes_late_is_told_to_the_session_that_asked() -> None:
    async def scenario() -> None:
        api = MemoryApi(lambda verb, _ref: 4.0 if verb == "merge" else 0.0)
        make_families(api, 1, labels={"tenant": "blue"})
        async with sharding(api) as sharder:
            put_lease(api, "a-0", duration_s=600)
            await until(lambda: api.most_at_once["merge"] == 1)
            # The new session does not see by its watch what the old one has written.
            api.deaf.add("secrets")
            asked = sharder.session
            sharder.update(ring(key={"label": "tenant"}), removing=False, brake_released="")
            await until(lambda: sharder.session is not asked and sharder.synced)
            await until(lambda: bool(sharder.counts.writes))
            (known,) = sharder.session.view.known.values()
            assert known.key == "blue"
            api.hear("secrets")

    run(scenario())


class HalfListed(MemoryApi):
    """Lists no ConfigMaps while a test holds them back."""

    def __init__(self, takes_s: Callable[[str, ObjectRef], float]) -> None:
        super().__init__(takes_s)
        self.listing = asyncio.Event()
        self.listing.set()

    async def page(self, chosen: Selection, shape: type[Shape], *, limit: int = 500, after: str = "") -> Page[Shape]:
        if chosen.resource == CONFIG_MAPS:
            await self.listing.wait()
        return await super().page(chosen, shape, limit=limit, after=after)


def test_a_family_that_an_earlier_session_asked_for_is_not_written_before_the_next_one_has_seen_all() -> None:
    """The epoch of the root was destroyed: whoever does not see the child would begin with a smaller one."""
    root = ObjectRef(SECRETS, "s000", SPACE)

    async def scenario() -> None:
        api = HalfListed(lambda verb, _ref: 4.0 if verb == "merge" else 0.0)
        make_families(api, 1, children=1, labels={SHARD: "a-0", EPOCH: "7"})
        put_lease(api, "a-0", duration_s=600)
        async with sharding(api) as sharder:
            api.put_now(root, {"metadata": {"labels": {SHARD: "a-0"}}})
            await until(lambda: api.most_at_once["merge"] == 1)
            api.put_now(root, {"metadata": {"labels": {SHARD: "a-0", "another": "version"}}})
            api.listing.clear()
            asked = sharder.session
            sharder.update(ring(key="namespace"), removing=False, brake_released="")
            await until(lambda: sharder.session is not asked and bool(sharder.session.view.known))
            await until(lambda: "merge" in api.refused)
            await asyncio.sleep(10)
            assert EPOCH not in api.get_now(root, Partial).metadata.labels
            api.listing.set()
            await until(lambda: api.get_now(root, Partial).metadata.labels.get(EPOCH) == "8")

    run(scenario())


def test_a_refusal_costs_the_same_however_many_families_are_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks, subject = list[PoiseError](), working._subject

    def counted(error: PoiseError) -> tuple[str, ...]:
        looks.append(error)
        return subject(error)

    monkeypatch.setattr(working, "_subject", counted)
    right = set[str]()

    def forbid(verb: str, _ref: ObjectRef) -> float:
        if verb == "merge" and not right:
            raise Forbidden("patch", "", "secrets", SPACE)
        return 0.0

    async def scenario() -> None:
        api = MemoryApi(forbid)
        make_families(api, FAMILIES)
        put_lease(api, "a-0", duration_s=600)
        async with sharding(api) as sharder:
            await until(lambda: sharder.counts.failures >= FAMILIES)
            assert sharder.faults == ('may not patch secrets of the group "" in the namespace ns',)
            await asyncio.sleep(60)
            assert len(looks) <= sharder.counts.failures
            assert caplog.text.count("write.refused") == 1
            right.add("granted")
            await until(lambda: not sharder.report.unassigned)
            await until(lambda: not sharder.faults)

    run(scenario())


def test_a_reason_is_told_as_long_as_a_family_is_refused_for_it() -> None:
    patch, get = Forbidden("patch", "", "secrets", SPACE), Forbidden("get", "", "secrets", SPACE)
    refusals = Refusals()
    assert [refusals.put(root, patch) for root in ("x", "y", "x")] == [True, False, False]
    assert refusals.put("y", get), "another reason takes the place of the first"
    assert list(refusals.told) == [str(patch), str(get)]
    refusals.drop("x")
    refusals.drop("unknown")
    assert list(refusals.told) == [str(get)]
    assert len(refusals) == 1
    assert refusals.put("x", patch), "it was mended, and is missing again"
