"""A whole sharder over objects in memory, on a clock that jumps: minutes of Leases take no time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import msgspec
from tests.kube.memory_api import MemoryApi, loop_s

from poise.hold.ring_leases import Dress
from poise.hold.shard_lease import OwnLease
from poise.hold.shard_terms import ShardPace
from poise.hold.sharding import Claimant
from poise.jobs.sharder.sharder import RingSharder
from poise.kube import LEASES, Lease, ObjectRef, Partial
from poise.kube.resources import CONFIG_MAPS, SECRETS
from poise.model import ShardRing
from poise.model.sharding import RING_LABEL, TOKENS_LABEL, holder_identity, label_names

RING, SPACE, D = "web", "ns", 2
SHARD = label_names(RING)[0]
ME = "poise-sharder-test_1"


def ring(**spec: object) -> ShardRing:
    """Make a ring of Secrets with their ConfigMaps."""
    shared = {"resources": [{"resource": "secrets", "controlled": [{"resource": "configmaps"}]}], "leaseSeconds": D}
    body = {"metadata": {"name": RING, "namespace": SPACE}, "spec": shared | spec}
    return msgspec.convert(body, ShardRing)


async def until(holds: Callable[[], bool], within_s: float = 120.0) -> None:
    """Wait until something holds."""
    end_s = loop_s() + within_s
    while not holds():
        assert loop_s() < end_s, f"not within {within_s} s"
        await asyncio.sleep(0.05)


def lease_ref(name: str) -> ObjectRef:
    """Name the Lease of an instance."""
    return ObjectRef(LEASES, name, SPACE)


def put_lease(api: MemoryApi, name: str, *, duration_s: int = D, process: str = "1", tokens: str = "") -> None:
    """Renew the Lease of an instance, or create it."""
    labels = {RING_LABEL: RING} | ({TOKENS_LABEL: tokens} if tokens else {})
    spec = {"holderIdentity": holder_identity(name, process), "leaseDurationSeconds": duration_s}
    api.put_now(lease_ref(name), {"metadata": {"labels": labels}, "spec": spec})


def lease_of(api: MemoryApi, name: str) -> Lease | None:
    """Read a Lease as it is now."""
    return next((each for each in api.all_now("leases", Lease) if each.metadata.name == name), None)


def holder_of(api: MemoryApi, name: str) -> str:
    """Say who holds a Lease."""
    found = lease_of(api, name)
    return "" if found is None else found.spec.holder_identity or ""


def make_families(api: MemoryApi, count: int, children: int = 0, labels: dict[str, str] | None = None) -> None:
    """Create Secrets `s000` … with some ConfigMaps each."""
    for number in range(count):
        ref = ObjectRef(SECRETS, f"s{number:03}", SPACE)
        api.put_now(ref, {"metadata": {"labels": labels or {}}})
        root = api.get_now(ref, Partial).metadata
        owner = {"apiVersion": "v1", "kind": "Secret", "name": root.name, "uid": root.uid, "controller": True}
        for child in range(children):
            below = ObjectRef(CONFIG_MAPS, f"c{number:03}-{child}", SPACE)
            kept = {name: value for name, value in (labels or {}).items() if "drain" not in name}
            api.put_now(below, {"metadata": {"labels": kept, "ownerReferences": [owner]}})


def owners(api: MemoryApi) -> dict[str, str | None]:
    """Read who has what."""
    found = (*api.all_now("secrets", Partial), *api.all_now("configmaps", Partial))
    return {each.metadata.name: each.metadata.labels.get(SHARD) for each in found}


def owned(api: MemoryApi, names: Iterable[str]) -> Callable[[], bool]:
    """Ask whether these have everything."""
    wanted = set(names)
    return lambda: set(owners(api).values()) <= wanted


@asynccontextmanager
async def renewing(api: MemoryApi, *names: str) -> AsyncIterator[None]:
    """Renew Leases while the block runs; then their instances are silent."""

    async def renew() -> None:
        while True:
            for name in names:
                put_lease(api, name)
            await asyncio.sleep(D / 4)

    task = asyncio.create_task(renew())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def sharding(api: MemoryApi, **spec: object) -> AsyncIterator[RingSharder]:
    """Run a sharder while the block runs."""
    made = RingSharder(api, ring(**spec), namespace=SPACE, me=ME, may_act=lambda: True, now_s=loop_s)
    task = asyncio.create_task(made.run())
    try:
        await until(lambda: made.synced)
        yield made
        assert not task.done(), "a sharder never ends by itself"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def own_lease(
    api: MemoryApi, name: str, process: str, pace: Callable[[], ShardPace] = lambda: ShardPace(float(D))
) -> OwnLease:
    """Make what a process of the shard library holds its Lease by."""
    me = holder_identity(name, process)

    async def is_named() -> bool:
        return name in owners(api).values()

    return OwnLease(
        api,
        lambda: Claimant(name=name, me=me, duration_s=pace().duration_s),
        Dress(namespace=SPACE, ring=RING),
        pace,
        named=is_named,
        eager=False,
        now_s=loop_s,
    )
