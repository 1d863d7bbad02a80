"""A whole shard over objects in memory: how many writes it makes at once, what it refuses, where it runs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest
from tests.jobs_sharder.memory_world import RING, SPACE, D, make_families, owned, until
from tests.kube.fake_time import run
from tests.kube.memory_api import MemoryApi, loop_s

from poise import clock
from poise.errors import InvalidSpec
from poise.hold.shard import Held, Reconcile, Shard
from poise.hold.shard_place import PODS, own_pod
from poise.jobs.sharder.rings import Lookout
from poise.jobs.sharder.sharder import RingSharder
from poise.kube import ObjectRef
from poise.kube.crds import custom_resource
from poise.kube.crds.status import terms_of
from poise.kube.leading import Lead
from poise.kube.resources import CONFIG_MAPS
from poise.model.shard_ring import ShardRingSpec
from poise.model.sharding import label_names

SHARD, EPOCH, DRAIN, DRAIN_UNTIL = label_names(RING)
MINE = {SHARD: "a-0", EPOCH: "1"}
ASKED_FOR = MINE | {DRAIN: "a-1", DRAIN_UNTIL: "1800000000"}


def put_ring(api: MemoryApi, lease_s: int = D) -> None:
    """Write the ring as an operator leaves it."""
    resources = [{"resource": "secrets", "controlled": [{"resource": "configmaps"}]}]
    spec = msgspec.convert({"resources": resources, "leaseSeconds": lease_s}, ShardRingSpec)
    body = {"spec": spec, "status": {"terms": terms_of(spec)}}
    api.put_now(ObjectRef(custom_resource("ShardRing"), RING, SPACE), body)


@asynccontextmanager
async def shard(
    api: MemoryApi,
    steps_at_once: int = 16,
    *,
    lease_s: int = D,
    at_once: int = 16,
    resources: Sequence[str] = ("secrets",),
    reconcile: Reconcile | None = None,
) -> AsyncIterator[Shard]:
    """Run a shard of a ring that an operator has looked at."""
    put_ring(api, lease_s)
    made = Shard(
        ring=RING,
        resources=resources,
        reconcile=reconcile,
        name="a-0",
        namespace=SPACE,
        client=api,
        at_once=at_once,
        steps_at_once=steps_at_once,
        on_hang="raise",
        clock=loop_s,
    )
    async with made:
        yield made


@pytest.mark.parametrize("most", [1, 3])
def test_hand_overs_are_written_many_at_once_and_never_more_than_the_bound(most: int) -> None:
    async def scenario() -> int:
        api = MemoryApi(lambda verb, _ref: 0.25 if verb == "merge" else 0.0)
        make_families(api, 8, children=5, labels=ASKED_FOR)
        async with shard(api, steps_at_once=most) as made:
            await until(lambda: made.counts.handed_over == 8)
            assert owned(api, ["a-1"])()
        return api.most_at_once["merge"]

    assert run(scenario()) == most


@pytest.mark.parametrize(
    ("name", "metadata"),
    [
        pytest.param("made", {"generateName": "made-"}, id="a name that is another one each time"),
        pytest.param("", {}, id="no name"),
        pytest.param("made", "text", id="no mapping"),
    ],
)
def test_what_is_created_has_a_name_of_its_own(name: str, metadata: object) -> None:
    async def scenario() -> None:
        api, refused = MemoryApi(), list[InvalidSpec]()
        make_families(api, 1, labels=MINE)

        async def reconcile(held: Held) -> None:
            ref = ObjectRef(CONFIG_MAPS, name, SPACE)
            with pytest.raises(InvalidSpec, match=r"\$\.metadata") as caught:
                await held.create(ref, {"metadata": metadata})
            refused.append(caught.value)
            await held.create(ObjectRef(CONFIG_MAPS, "good", SPACE), {"metadata": {"labels": {"x": "y"}}})

        async with shard(api) as made:
            running = asyncio.create_task(made.run(reconcile))
            await until(lambda: bool(refused) and not made.counts.running)
            made.leave()
            await running
        made_now = [each.name for each in api.asked if each.verb == "create"]
        assert made_now == ["a-0", "good"], "the Lease, and what has a name"

    run(scenario())


def at_home(monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
    """Run in a Pod, as far as its environment says."""
    for name in ("POD_NAME", "POD_UID", "POD_NAMESPACE", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def found_pod(api: MemoryApi, namespace: str = SPACE) -> tuple[str, str] | None:
    owner = run(own_pod(api, namespace))
    return None if owner is None else (owner.name, owner.uid)


def test_the_pod_is_read_where_its_uid_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    at_home(monkeypatch, POD_NAME="web-0", POD_NAMESPACE=SPACE, KUBERNETES_SERVICE_HOST="10.0.0.1")
    api = MemoryApi()
    assert found_pod(api) is None, "a Pod that cannot be read owns nothing"
    api.put_now(ObjectRef(PODS, "web-0", SPACE), {})
    found = found_pod(api)
    assert found is not None
    assert found[0] == "web-0"
    assert found[1].startswith("u")
    assert [each.verb for each in api.asked] == ["get", "get"]


def test_the_uid_that_is_told_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    at_home(monkeypatch, POD_NAME="web-0", POD_UID="told", POD_NAMESPACE=SPACE)
    api = MemoryApi()
    assert found_pod(api) == ("web-0", "told")
    assert api.asked == []


@pytest.mark.parametrize("uid", ["", "told"])
def test_a_pod_in_another_namespace_than_the_ring_owns_no_lease(uid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"POD_UID": uid} if uid else {}
    at_home(monkeypatch, POD_NAME="web-0", POD_NAMESPACE="other", KUBERNETES_SERVICE_HOST="10.0.0.1", **known)
    api = MemoryApi()
    api.put_now(ObjectRef(PODS, "web-0", SPACE), {})
    assert found_pod(api) is None
    assert api.asked == []


def test_outside_of_a_cluster_there_is_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    at_home(monkeypatch, POD_NAMESPACE=SPACE)
    assert found_pod(MemoryApi()) is None


def test_the_clock_counts_suspend_unless_another_one_is_given() -> None:
    def usual(made: type[object], name: str) -> object:
        return inspect.signature(made).parameters[name].default

    assert usual(Shard, "clock") is clock.boot_s
    assert usual(RingSharder, "now_s") is clock.boot_s
    assert usual(Lead, "now_s") is clock.boot_s
    assert usual(Lookout, "now_s") is clock.boot_s
