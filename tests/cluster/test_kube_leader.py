"""The leader lease on a real API server: one leads, the others wait a full duration by their own clocks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec
import pytest
from tests.cluster.faulty_proxy import FaultyProxy
from tests.cluster.world import Cluster, until

from poise.errors import Hung
from poise.kube import LEASES, Client, Lead, Lease, ObjectRef
from poise.kube.leadership import LeadTerms

D = 3


def terms(me: str) -> LeadTerms:
    return LeadTerms(me=me, duration_s=D, renew_s=0.3, margin_s=0.8)


class Worker:
    """Work that notes when it ran."""

    def __init__(self) -> None:
        self.began: list[float] = []
        self.ended: list[float] = []

    async def __call__(self) -> None:
        self.began.append(time.monotonic())
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append(time.monotonic())


def candidate(client: Client, namespace: str, me: str, now_s: Callable[[], float] = time.monotonic) -> Lead:
    return Lead(client, "poise-operator", namespace, terms(me), now_s=now_s)


async def read(client: Client, namespace: str) -> Lease:
    return await client.get(ObjectRef(LEASES, "poise-operator", namespace), Lease)


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_one_leads_and_on_release_the_next_one_need_not_wait(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        works = [Worker(), Worker()]
        leads = [candidate(client, namespace, f"c{number}_p") for number in range(2)]
        tasks = [asyncio.create_task(lead.run(work)) for lead, work in zip(leads, works, strict=True)]
        await until(lambda: any(work.began for work in works))
        first = 0 if works[0].began else 1
        await asyncio.sleep(2 * D)
        assert not works[1 - first].began, "a leader that renews is never replaced"
        assert leads[first].may_act()
        assert not leads[1 - first].may_act()
        assert leads[1 - first].holder == f"c{first}_p"
        await stop(tasks[first])
        assert (await read(client, namespace)).spec.holder_identity != f"c{first}_p"
        await until(lambda: bool(works[1 - first].began), D)
        assert works[first].ended[0] <= works[1 - first].began[0], "the work ends before the Lease is let go"
        assert works[1 - first].began[0] - works[first].ended[0] < D
        assert (await read(client, namespace)).spec.lease_transitions == 1
        await stop(tasks[1 - first])

    cluster.run(scenario)


def test_a_leader_that_cannot_renew_stops_before_another_may_lead(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        cut_off, heir = Worker(), Worker()
        async with (
            FaultyProxy(cluster.plane.port, cluster.plane.ca_file) as between,
            cluster.connect(url=between.url) as far,
        ):
            first = asyncio.create_task(candidate(far, namespace, "first_p").run(cut_off))
            await until(lambda: bool(cut_off.began))
            second = asyncio.create_task(candidate(client, namespace, "second_p").run(heir))
            await asyncio.sleep(1.0)
            between.hung = True
            between.cut()
            hung_s = time.monotonic()
            await until(lambda: bool(heir.began), 3 * D + 3)
            assert cut_off.ended, "the work of the old leader has ended"
            assert cut_off.ended[0] < heir.began[0]
            assert cut_off.ended[0] - hung_s <= D
            assert heir.began[0] - hung_s >= D - 1.0, "nobody takes over before a full duration without a change"
            between.hung = False
            await asyncio.sleep(1.0)
            assert len(cut_off.began) == 1, "who comes back finds a leader, and waits"
            await stop(first)
            await stop(second)

    cluster.run(scenario)


def test_clocks_that_differ_by_an_hour_change_nothing(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        early = candidate(client, namespace, "early_p", now_s=lambda: time.monotonic() - 3600)
        late = candidate(client, namespace, "late_p", now_s=lambda: time.monotonic() + 3600)
        works = (Worker(), Worker())
        tasks = [asyncio.create_task(early.run(works[0]))]
        await until(lambda: bool(works[0].began))
        lease = await read(client, namespace)
        wrong = msgspec.structs.replace(lease.spec, renew_time="2001-01-01T00:00:00.000000Z")
        await client.replace(
            ObjectRef(LEASES, "poise-operator", namespace), msgspec.structs.replace(lease, spec=wrong), Lease
        )
        tasks.append(asyncio.create_task(late.run(works[1])))
        await asyncio.sleep(2 * D)
        assert not works[1].began
        assert not works[0].ended, "a write of the own Lease by somebody else costs a read, not the lead"
        for task in tasks:
            await stop(task)

    cluster.run(scenario)


def test_a_lease_that_vanishes_is_waited_for_like_its_holder(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        works = (Worker(), Worker())
        leads = [candidate(client, namespace, f"c{number}_p") for number in range(2)]
        tasks = [asyncio.create_task(leads[0].run(works[0]))]
        await until(lambda: bool(works[0].began))
        tasks.append(asyncio.create_task(leads[1].run(works[1])))
        await until(lambda: leads[1].holder == "c0_p")
        lease = await read(client, namespace)
        deleted_s = time.monotonic()
        await client.delete(ObjectRef(LEASES, "poise-operator", namespace), uid=lease.metadata.uid)
        await until(lambda: len(works[0].began) + len(works[1].began) == 2, 3 * D)
        assert works[0].ended[0] <= max(works[0].began[1:] + works[1].began)
        assert max(works[0].began[1:] + works[1].began) - deleted_s >= D - 0.4
        for task in tasks:
            await stop(task)

    cluster.run(scenario)


def test_work_that_does_not_stop_is_told_and_keeps_the_lease(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        release = asyncio.Event()

        async def stubborn() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await release.wait()

        lead = candidate(client, namespace, "me_p")
        task = asyncio.create_task(lead.run(stubborn))
        await until(lead.may_act)
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(Hung):
            await task
        assert (await read(client, namespace)).spec.holder_identity == "me_p", "nobody else may begin sooner"
        release.set()

    cluster.run(scenario)


def test_the_lead_ends_when_the_work_does(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        lead = candidate(client, namespace, "me_p")

        async def brief() -> None:
            assert lead.may_act()

        await lead.run(brief)
        assert not lead.may_act()
        assert not (await read(client, namespace)).spec.holder_identity

    cluster.run(scenario)


def test_who_may_not_stand_says_so_once(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        told: list[str] = []
        lead = Lead(client, "poise-operator", namespace, terms("a_p"), now_s=time.monotonic, tell=told.append)
        task = asyncio.create_task(lead.run(Worker()))
        await until(lambda: bool(told))
        await asyncio.sleep(3 * terms("a_p").renew_s)
        await stop(task)
        (only,) = told
        assert only.startswith("cannot stand for the lead: ")
        assert "get" in only

    cluster.run(scenario, user="alice")
