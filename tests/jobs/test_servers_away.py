"""A server that was away, or whose store was: it stops its jobs in time, answers, and joins again by itself."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import httpx2
import pytest
from tests.pool.delivery_audit import doubles, gaps, read_log, spans
from tests.pool.pool_world import SET as POOL_SET
from tests.pool.pool_world import CollectorProcess, document, free_ports, listed
from tests.postgres_server import Server
from tests.serve_process import ServerProcess, servers

from poise.documents import load
from poise.jobs.servers import TERMS
from poise.jobs.stored import SERVERS, put_document, read_document
from poise.model import ReplicaDivision
from poise.model.ownership import OWNED, Row
from poise.stores.base import Store
from poise.stores.open import open_store

DIVISION = """apiVersion: poise.dev/v1alpha1
kind: ReplicaDivision
metadata: {{name: fleet-{number}}}
spec: {{clusters: [{{name: a}}, {{name: b}}], workloads: [{{name: cart, replicas: {replicas}}}]}}
"""
SET = """apiVersion: poise.dev/v1alpha1
kind: PartitionSet
metadata: {{name: set-{number}}}
spec: {{partitions: 4}}
"""
AWAY_S = {"crashed": 30.0, "frozen": 15.0}
PERIOD_S = TERMS.lease_s / 3
# Leases of whoever is away run out, one word to take and one to confirm; the rest is for a busy machine.
BOUND_S = TERMS.lease_s + TERMS.grace_s + 2 * PERIOD_S + 5.0


@contextmanager
def postgres() -> Iterator[Server]:
    directory = Path(tempfile.mkdtemp(prefix="poise-pg-"))
    directory.chmod(0o755)
    server = Server(directory)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory)


@pytest.fixture(scope="module")
def going(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    """Let every story go on beside the others, each with a store and servers of its own: they mostly wait."""
    stories: dict[str, Callable[[Path], None]] = {"frozen server": freeze_server}
    stories |= {how: partial(lose_store, how) for how in AWAY_S}
    with ThreadPoolExecutor(len(stories)) as side_by_side:
        yield {name: side_by_side.submit(tell, tmp_path_factory.mktemp("away")) for name, tell in stories.items()}


def put_division(store: Store, number: int, replicas: int = 7) -> None:
    text = DIVISION.format(number=number, replicas=replicas)
    put_document(store, load(text, "test")[0], datetime.now(UTC))


def shares(store: Store, number: int) -> list[int]:
    found = read_document(store, "ReplicaDivision", f"fleet-{number}", datetime.now(UTC)).document
    assert isinstance(found, ReplicaDivision)
    return sorted(found.status.divisions["cart"].result.values()) if found.status.divisions else []


def jobs(store: Store) -> dict[str, Row]:
    return store.view(SERVERS, lambda tx: tx.rows())


def are_shared(store: Store, *loads: int) -> bool:
    rows = jobs(store).values()
    held = [row.owner for row in rows]
    return sorted(held.count(name) for name in ("s1", "s2")) == list(loads) and all(
        row.state in OWNED and row.confirmed for row in rows
    )


def until(met: Callable[[], bool], within_s: float, told: Callable[[], object] = lambda: "") -> None:
    last_s = time.monotonic() + within_s
    while not met():
        assert time.monotonic() < last_s, f"it did not come within {within_s:g} s: {told()}"
        time.sleep(0.1)


@pytest.mark.slow
def test_a_server_frozen_past_its_lease_takes_its_share_again(going: dict[str, Future[None]]) -> None:
    going["frozen server"].result()


def freeze_server(folder: Path) -> None:
    """It is frozen until the others have its jobs; then it goes on, ends what was its own, and is given jobs anew."""
    with postgres() as database, closing(open_store(url := database.new_place())) as store:
        for number in range(6):
            put_division(store, number)
        first, second = (ServerProcess(folder, "--name", name, db=url) for name in ("s1", "s2"))
        with servers(first, second):
            until(lambda: are_shared(store, 3, 3), 20.0)
            for number in range(6):
                put_division(store, number, 8)  # Now it is in the middle of its work.
            os.kill(first.pid, signal.SIGSTOP)
            try:
                until(lambda: are_shared(store, 0, 6), BOUND_S)
            finally:
                os.kill(first.pid, signal.SIGCONT)
            assert first.get("/livez").status_code == 200
            until(lambda: are_shared(store, 3, 3), BOUND_S, lambda: "\n".join(first.said[-30:]))
            for number in range(6):
                put_division(store, number, 9)
            until(lambda: all(shares(store, number) == [4, 5] for number in range(6)), 10.0)
            first.ready(5.0)
            assert (first.end(), second.end()) == (0, 0)


def answer(url: str, method: str, path: str, body: str = "") -> httpx2.Response:
    headers = {"content-type": "application/json"} if body else {}
    with httpx2.Client(base_url=url, timeout=20.0) as client:
        return client.request(method, path, content=body or None, headers=headers)


@pytest.mark.slow
@pytest.mark.parametrize("how", list(AWAY_S))
def test_all_is_well_again_after_the_store_was_away(going: dict[str, Future[None]], how: str) -> None:
    going[how].result()


def lose_store(how: str, folder: Path) -> None:
    log = folder / "log"
    pods = [CollectorProcess(f"gnmic-{number}", port, log) for number, port in enumerate(free_ports(3))]
    try:
        for pod in pods:
            pod.wait()
        with postgres() as database, closing(open_store(url := database.new_place())) as store:
            run(store, url, database, folder, pods, how)
        events = read_log(log)
        starts = [event for event in events if event.event == "start"]
        assert len(starts) == 30, "no collector lost or gained a target while nobody could tell"
        assert doubles(spans(events)) == []
        assert gaps(events, spans(events), time.monotonic()) == []
    finally:
        for pod in pods:
            pod.end()


def run(store: Store, url: str, postgres: Server, folder: Path, pods: list[CollectorProcess], how: str) -> None:
    """Take the store away for a while under two servers, ask them meanwhile, and see everything go on."""
    for number in range(5):
        put_division(store, number)
        put_document(store, load(SET.format(number=number), "test")[0], datetime.now(UTC))
    put_division(store, 5)
    names = [f"router{number}" for number in range(30)]
    put_document(store, document([pod.endpoint for pod in pods], listed(names), goneAfterSeconds=5), datetime.now(UTC))
    first, second = (ServerProcess(folder, "--name", name, db=url) for name in ("s1", "s2"))

    def told() -> str:
        return "\n".join([*first.said[-30:], "", *second.said[-30:]])

    with servers(first, second):
        until(lambda: are_shared(store, 6, 6), 20.0)
        until(lambda: is_delivered(store), 20.0)
        held = owners(store)
        take_away(postgres, how)
        away_s = time.monotonic()
        try:
            while time.monotonic() < away_s + AWAY_S[how]:
                for server in (first, second):
                    refuses(server.url)
                time.sleep(2.0)
        finally:
            bring_back(postgres, how)
        until(lambda: are_shared(store, 6, 6), BOUND_S, told)
        first.ready(10.0)
        second.ready(10.0)
        assert answer(first.url, "GET", "/v1/jobs").status_code == 200
        assert owners(store) == held
        for number in range(5):
            put_division(store, number, 9)
        until(lambda: all(shares(store, number) == [4, 5] for number in range(5)), 10.0, told)
        assert (first.end(), second.end()) == (0, 0), told()


def refuses(url: str) -> None:
    """It lives, says that it is not ready, and sends everybody away with a time to come again."""
    assert answer(url, "GET", "/livez").status_code == 200
    body = '{"kind": "PartitionSet", "metadata": {"name": "late"}, "spec": {"partitions": 2}}'
    asked = (("GET", "/v1/jobs", ""), ("GET", "/readyz", ""), ("PUT", "/v1/jobs/PartitionSet/late", body))
    for method, path, said in asked:
        refused = answer(url, method, path, said)
        assert refused.status_code == 503, refused.text
        assert int(refused.headers["retry-after"]) >= 1


def is_delivered(store: Store) -> bool:
    rows = store.view(POOL_SET, lambda tx: tx.rows()).values()
    return len(rows) == 30 and all(row.confirmed for row in rows)


def owners(store: Store) -> dict[str, tuple[str | None, int]]:
    return {item: (row.owner, row.epoch) for item, row in store.view(POOL_SET, lambda tx: tx.rows()).items()}


def take_away(postgres: Server, how: str) -> None:
    if how == "crashed":
        postgres.stop("immediate")
    else:
        tell_all(postgres, signal.SIGSTOP)


def bring_back(postgres: Server, how: str) -> None:
    if how == "crashed":
        postgres.start()
    else:
        tell_all(postgres, signal.SIGCONT)


def tell_all(postgres: Server, number: signal.Signals) -> None:
    """Send a signal to the server and to the process of each of its connections."""
    first = int((postgres.data / "postmaster.pid").read_text().split()[0])
    for each in (first, *children_of(first)):
        with suppress(ProcessLookupError):
            os.kill(each, number)


def children_of(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found
