"""What ends a server's membership does not end the server: it joins anew, unless another process has its name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from poise.clock import boot_s
from poise.documents import load
from poise.errors import Replaced, Unavailable
from poise.jobs.servers import TERMS, JobServer
from poise.jobs.stored import SERVERS, put_document
from poise.move.executor import register_member
from poise.stores.base import Answer, Transaction
from poise.stores.memory import MemoryStore

SET = """apiVersion: poise.dev/v1alpha1
kind: PartitionSet
metadata: {name: orders}
spec: {partitions: 4}
"""


class Stumbling(MemoryStore):
    """Answers as told for the next calls on one set: an error, or a wait."""

    def __init__(self) -> None:
        super().__init__(boot_s)
        self.errors: dict[str, list[Exception]] = {}
        self.waits: dict[str, float] = {}

    def transact(self, name: str, work: Callable[[Transaction], Answer]) -> Answer:
        self._stumble(name)
        return super().transact(name, work)

    def view(self, name: str, work: Callable[[Transaction], Answer]) -> Answer:
        self._stumble(name)
        return super().view(name, work)

    def _stumble(self, name: str) -> None:
        time.sleep(self.waits.get(name, 0.0))
        if self.errors.get(name):
            raise self.errors[name].pop()


def store_with_a_job() -> Stumbling:
    store = Stumbling()
    put_document(store, load(SET, "test")[0], datetime.now(UTC))
    return store


async def until(met: Callable[[], bool], within_s: float = 60.0) -> None:
    last_s = time.monotonic() + within_s
    while not met():
        assert time.monotonic() < last_s, f"it did not come within {within_s:g} s"
        await asyncio.sleep(0.02)


def incarnation(store: Stumbling) -> int:
    member = store.view(SERVERS, lambda tx: tx.member("s1"))
    return 0 if member is None else member.incarnation


@pytest.mark.slow
def test_a_failed_member_joins_anew_and_the_server_goes_on() -> None:
    async def work(store: Stumbling) -> None:
        async with JobServer(store, "s1") as server:
            await until(lambda: server.jobs == ["orders"])
            assert incarnation(store) == 1
            store.errors[SERVERS] = [RuntimeError("something nobody thought of")] * 1000
            await until(lambda: server.jobs == [], TERMS.lease_s)
            store.errors[SERVERS] = []
            # Its old incarnation is missed, and the job comes back to the new one.
            await until(
                lambda: server.jobs == ["orders"] and incarnation(store) >= 2, TERMS.lease_s + TERMS.grace_s + 5
            )

    asyncio.run(work(store_with_a_job()))


@pytest.mark.slow
def test_a_server_whose_name_was_taken_ends() -> None:
    async def work(store: Stumbling) -> None:
        async with JobServer(store, "s1") as server:
            await until(lambda: server.jobs == ["orders"])
            store.transact(SERVERS, lambda tx: register_member(tx, SERVERS, "s1", "another process"))
            await asyncio.sleep(TERMS.lease_s)
            pytest.fail("it goes on")

    store = store_with_a_job()
    with pytest.raises(Replaced, match="incarnation 2 of s1 has registered"):
        asyncio.run(work(store))
    assert incarnation(store) == 2, "it has not registered again"


def test_a_server_that_cannot_join_at_first_says_why() -> None:
    class Closed(Stumbling):
        def transact(self, name: str, work: Callable[[Transaction], Answer]) -> Answer:
            if name == SERVERS and self.view(SERVERS, lambda tx: tx.job()) is not None:
                raise Unavailable("the store is away")
            return super().transact(name, work)

    async def work(store: Stumbling) -> None:
        async with JobServer(store, "s1"):
            pytest.fail("it joined")

    with pytest.raises(Unavailable, match="the store is away"):
        asyncio.run(work(Closed()))


@pytest.mark.slow
def test_a_store_that_stumbles_is_no_reason_to_refuse_a_job() -> None:
    """Three refusals would keep the job from this server for three leases."""

    async def work(store: Stumbling) -> None:
        store.errors["orders"] = [Unavailable("no connection became free")] * 4
        async with JobServer(store, "s1") as server:
            await until(lambda: server.jobs == ["orders"], 5.0)
            await until(lambda: bool(store.view(SERVERS, lambda tx: tx.rows()["orders"].confirmed)), TERMS.lease_s)
            assert store.view(SERVERS, lambda tx: tx.rows()["orders"].epoch) == 1

    asyncio.run(work(store_with_a_job()))


@pytest.mark.slow
def test_a_job_whose_store_hangs_is_let_go_in_time() -> None:
    """Its last call has not ended when its lease does: it is left behind, and the server stays the same member."""

    async def work(store: Stumbling) -> None:
        async with JobServer(store, "s1") as server:
            await until(lambda: server.jobs == ["orders"])
            store.waits["orders"] = 12.0
            await asyncio.sleep(6.0)  # A cycle of the job hangs by now.
            store.errors[SERVERS] = [Unavailable("away")] * 1000
            await until(lambda: server.jobs == [], TERMS.lease_s)
            await asyncio.sleep(TERMS.margin_s)
            store.errors[SERVERS], store.waits = [], {}
            await until(lambda: server.jobs == ["orders"], TERMS.lease_s + TERMS.grace_s + 5)
            assert incarnation(store) == 1

    asyncio.run(work(store_with_a_job()))
