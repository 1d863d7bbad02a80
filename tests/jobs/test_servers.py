"""Jobs shared out over servers by the same planner and hand-over: a job is an item, a server is a member."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.postgres_server import running_server
from tests.serve_process import ServerProcess, servers

from poise.documents import load
from poise.errors import InvalidSpec
from poise.hold.settings import BEATS_PER_LEASE
from poise.jobs.servers import TERMS, JobServer, hold_jobs
from poise.jobs.stored import SERVERS, delete_document, put_document, read_document
from poise.model import ReplicaDivision
from poise.model.ownership import OWNED
from poise.move.executor import pause_set
from poise.stores.base import Store
from poise.stores.open import open_store

DIVISION = """apiVersion: poise.dev/v1alpha1
kind: ReplicaDivision
metadata: {{name: fleet-{number}}}
spec: {{clusters: [{{name: a}}, {{name: b}}], workloads: [{{name: cart, replicas: 7}}]}}
"""
SET = """apiVersion: poise.dev/v1alpha1
kind: PartitionSet
metadata: {{name: set-{number}}}
spec: {{partitions: 4}}
"""
# A killed server's jobs are given away when its lease and grace have ended; then who has them takes them with its next
# word and confirms them with the one after. The slack is for a busy machine.
SLACK_S = 5.0
OWNED_S = TERMS.lease_s + TERMS.grace_s + SLACK_S
SETTLED_S = OWNED_S + 2 * TERMS.lease_s / BEATS_PER_LEASE


def put(store: Store, text: str) -> None:
    put_document(store, load(text, "test")[0], datetime.now(UTC))


def owners(store: Store) -> dict[str, str | None]:
    return {item: row.owner for item, row in store.view(SERVERS, lambda tx: tx.rows()).items()}


async def until(met: Callable[[], bool], within_s: float = 60.0) -> None:
    until_s = time.monotonic() + within_s
    while not met():
        assert time.monotonic() < until_s, "it did not come in time"
        await asyncio.sleep(0.02)


def test_the_ring_of_jobs_holds_exactly_the_jobs_and_nothing_idle_writes(tmp_path: Path) -> None:
    with closing(open_store(str(tmp_path / "poise.db"))) as store:
        for number in range(3):
            put(store, SET.format(number=number))
        assert hold_jobs(store) == 3
        version = store.version()
        hold_jobs(store)
        assert store.version() == version
        assert sorted(owners(store)) == ["set-0", "set-1", "set-2"]
        with pytest.raises(InvalidSpec, match=r"poise\.servers is Poise's own"):
            put(store, SET.format(number=0).replace("set-0", "poise.servers"))


def test_a_server_runs_every_kind_and_takes_up_jobs_that_come(tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        put(store, DIVISION.format(number=1))
        async with JobServer(store, "s1") as server:
            await until(lambda: server.jobs == ["ReplicaDivision/fleet-1"])
            await until(lambda: shares(store, 1) == [3, 4])
            put(store, DIVISION.format(number=1).replace("replicas: 7", "replicas: 10"))
            await until(lambda: shares(store, 1) == [5, 5], 2.0)
            put(store, SET.format(number=2))
            await until(lambda: "set-2" in server.jobs)
            delete_document(store, "ReplicaDivision", "fleet-1")
            await until(lambda: server.jobs == ["set-2"])
        assert set(owners(store).values()) == {None}, "it hands over before it goes"

    with closing(open_store(str(tmp_path / "poise.db"))) as store:
        asyncio.run(work(store))


def shares(store: Store, number: int) -> list[int]:
    document = read_document(store, "ReplicaDivision", f"fleet-{number}", datetime.now(UTC)).document
    assert isinstance(document, ReplicaDivision)
    return sorted(document.status.divisions["cart"].result.values()) if document.status.divisions else []


def test_a_paused_division_waits(tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        put(store, DIVISION.format(number=1))
        store.transact("ReplicaDivision/fleet-1", lambda tx: pause_set(tx, "ReplicaDivision/fleet-1", True))
        async with JobServer(store, "s1") as server:
            await until(lambda: bool(server.jobs))
            await asyncio.sleep(0.5)
            assert shares(store, 1) == []
            store.transact("ReplicaDivision/fleet-1", lambda tx: pause_set(tx, "ReplicaDivision/fleet-1", False))
            await until(lambda: shares(store, 1) == [3, 4], 3.0)

    with closing(open_store(str(tmp_path / "poise.db"))) as store:
        asyncio.run(work(store))


@pytest.mark.slow
def test_three_servers_share_thirty_jobs_and_a_killed_ones_go_on_elsewhere(tmp_path: Path) -> None:
    url = running_server().new_place()
    with closing(open_store(url)) as store:
        for number in range(15):
            put(store, DIVISION.format(number=number))
            put(store, SET.format(number=number))
        processes = [ServerProcess(tmp_path, "--name", f"s{number}", db=url) for number in (1, 2, 3)]
        with servers(*processes):
            for process in processes:
                process.ready()

            def loads() -> list[int]:
                held = list(owners(store).values())
                return sorted(held.count(f"s{number}") for number in (1, 2, 3))

            asyncio.run(until(lambda: loads() == [10, 10, 10], 30.0))
            asyncio.run(until(lambda: all(shares(store, number) == [3, 4] for number in range(15)), 20.0))
            # One is killed while a fourth joins: in the middle of a rebalance.
            late = ServerProcess(tmp_path, "--name", "s4", db=url)
            with servers(late):
                processes[0].kill()
                killed_s = time.monotonic()
                asyncio.run(until(lambda: set(owners(store).values()) <= {"s2", "s3", "s4"}, OWNED_S))
                try:
                    asyncio.run(until(lambda: _settled(store), killed_s + SETTLED_S - time.monotonic()))
                except AssertionError:
                    said = [line for process in (*processes[1:], late) for line in process.said[-12:]]
                    raise AssertionError("\n".join([str(owners(store)), *said])) from None
                held = list(owners(store).values())
                assert sorted(held.count(name) for name in ("s2", "s3", "s4")) == [10, 10, 10]
                for number in range(15):
                    put(store, DIVISION.format(number=number).replace("replicas: 7", "replicas: 9"))
                asyncio.run(until(lambda: all(shares(store, number) == [4, 5] for number in range(15)), 20.0))
                answers = [process.get("/v1/jobs").json()["items"] for process in (*processes[1:], late)]
                assert all(len(each) == 30 for each in answers), "every server answers for all jobs"
                for process in (*processes[1:], late):
                    assert process.end() == 0


def _settled(store: Store) -> bool:
    rows = store.view(SERVERS, lambda tx: tx.rows()).values()
    held = [row.owner for row in rows]
    even = sorted(held.count(name) for name in ("s2", "s3", "s4")) == [10, 10, 10]
    return even and all(row.state in OWNED and row.confirmed for row in rows)


@pytest.mark.slow
def test_a_signal_ends_a_server_in_order_and_a_second_one_at_once(tmp_path: Path) -> None:
    with closing(open_store(str(tmp_path / "poise.db"))) as store:
        put(store, SET.format(number=1))
        first = ServerProcess(tmp_path, "--name", "s1")
        with servers(first):
            asyncio.run(until(lambda: set(owners(store).values()) == {"s1"}))
            assert first.end() == 0
            assert set(owners(store).values()) == {None}, "it hands over before it goes"
        second = ServerProcess(tmp_path, "--name", "s2")
        with servers(second), closing(sqlite3.connect(tmp_path / "poise.db")) as lock:
            asyncio.run(until(lambda: set(owners(store).values()) == {"s2"}))
            lock.execute("BEGIN IMMEDIATE")  # Nobody can write: it cannot hand over.
            os.kill(second.pid, signal.SIGTERM)
            time.sleep(1.0)
            ended_s = time.monotonic()
            assert second.end() == 130
            assert time.monotonic() - ended_s < 0.5
