"""Ownership under load: 400 members of 10,000 partitions on each shared store, and what the coordinator takes.

Wall time, since commits wait for a disk or a server. Shorter: `python -m benchmarks.ownership --seconds 9 sqlite`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, quantiles

import msgspec
from tests.postgres_server import Server

from benchmarks.beating import PERIOD_S, SETTLING_ROUNDS, Lived, Load, live
from benchmarks.measure import Row, cpu_s, show
from poise.clock import boot_s
from poise.jobs.coordination import Coordination
from poise.jobs.coordinator import Coordinator
from poise.jobs.snapshots import plan_snapshot
from poise.model.ownership import SetRow
from poise.move.executor import Snapshot, put_set, snapshot
from poise.stores.base import Answer, Store, Transaction
from poise.stores.open import open_store

JOB = "orders"
MEMBERS, PARTITIONS, PROCESSES = 400, 10_000, 4
SECONDS = float(os.environ.get("POISE_BENCH_SECONDS", "60"))
P99_MS = {"sqlite": 50.0, "postgres": 100.0}
_IDLE_CYCLES, _LOSSES, _COMMITS = 21, 3, 100
_WAIT_S = 60.0  # Beyond this a process that should have answered is given up.


def rows(seconds: float = SECONDS, kinds: tuple[str, ...] = ("sqlite", "postgres")) -> Iterator[Row]:
    """Measure every shared store, each in an empty place of its own."""
    yield Row("reference: 4 KiB written and synced to the disk, median", _sync_ms(), None, "ms")
    for kind in kinds:
        with _place(kind) as url:
            for row in _life(Load(url, JOB, MEMBERS, PROCESSES, seconds), P99_MS[kind]):
                yield row._replace(what=f"{kind}: {row.what}")


def _sync_ms() -> float:
    """Ask the disk what a commit costs at least."""
    took = []
    with tempfile.NamedTemporaryFile(prefix="poise-bench-") as file:
        for _ in range(_COMMITS):
            start_s = time.perf_counter()
            os.write(file.fileno(), bytes(4096))
            os.fsync(file.fileno())
            took.append(time.perf_counter() - start_s)
    return median(took) * 1000


@contextmanager
def _place(kind: str) -> Iterator[str]:
    """Make a file, or a server that waits for its disk as in life."""
    directory = Path(tempfile.mkdtemp(prefix="poise-bench-"))
    try:
        if kind == "sqlite":
            yield f"sqlite:///{directory / 'poise.db'}"
            return
        directory.chmod(0o755)
        server = Server(directory, fsync="on")
        server.start()
        try:
            yield server.new_place()
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _life(load: Load, p99_ms: float) -> Iterator[Row]:
    """Go through the life of a set: made, planned, held by its members, idle, and without one of them."""
    store = open_store(load.url)
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(load.processes)]
    processes = [context.Process(target=live, args=(load, share, far)) for share, (_, far) in enumerate(pipes)]
    lines = [near for near, _ in pipes]
    try:
        store.transact(JOB, lambda tx: put_set(tx, SetRow(name=JOB, count=PARTITIONS)))
        for process in processes:
            process.start()
        _answers(lines, _WAIT_S)
        yield _first_plan(store)
        with Coordination(store, "bench"):
            for line in lines:
                line.send(boot_s())
            answers = _answers(lines, SETTLING_ROUNDS * PERIOD_S + load.seconds + _WAIT_S)
        yield from _heartbeats([answer for answer in answers if isinstance(answer, Lived)], load, p99_ms)
        for measure in (_idle_cycles, _parts, _losses):
            store.transact(JOB, _renew_all)  # The members have ended, and must be there a little longer.
            yield from measure(store)
    finally:
        for process in processes:
            process.kill()
            process.join()
        store.close()


def _answers(lines: list[Connection[object, object]], wait_s: float) -> list[object]:
    """Hear from every process, or give up."""
    until_s = time.monotonic() + wait_s
    for line in lines:
        assert line.poll(max(0.0, until_s - time.monotonic())), "a process of members does not answer"
    return [line.recv() for line in lines]


def _timed_ms(work: Callable[[], Answer]) -> tuple[float, Answer]:
    start_s = time.perf_counter()
    answer = work()
    return (time.perf_counter() - start_s) * 1000, answer


def _first_plan(store: Store) -> Row:
    took_ms, cycle = _timed_ms(lambda: Coordinator(store, "first", lead_s=0.001).cycle(JOB))
    assert cycle.written == PARTITIONS, cycle.said
    return Row("first plan and apply, 10,000 on 400", took_ms / 1000, 2, "s")


def _heartbeats(lived: list[Lived], load: Load, p99_ms: float) -> Iterator[Row]:
    """Show what the members saw; they must have kept every item, and been told nothing new."""
    assert sum(each.items for each in lived) == PARTITIONS, [each.items for each in lived]
    latencies_ms = sorted(each * 1000 for one in lived for each in one.latencies_s)
    cuts = quantiles(latencies_ms, n=100)
    what = f"{len(latencies_ms):,} heartbeats of {load.members} members in {load.seconds:g} s"
    yield Row(f"{what}, p50", cuts[49], None, "ms")
    yield Row(f"{what}, p99", cuts[98], p99_ms, "ms")
    yield Row("the slowest of them", latencies_ms[-1], None, "ms")
    yield Row(
        "CPU of a heartbeat in its process", sum(each.cpu_s for each in lived) * 1000 / len(latencies_ms), None, "ms"
    )
    yield Row("items begun or ended meanwhile", sum(each.orders for each in lived), 0, "items")


def _idle_cycles(store: Store) -> Iterator[Row]:
    """Time cycles that find nothing new: they must leave no trace but the first, which takes the lead."""
    coordinator = Coordinator(store, "bench")
    while coordinator.cycle(JOB).said != f"{JOB}: nothing new":
        pass
    before = store.version(), store.transact(JOB, _facts)
    cycles = [_timed_ms(lambda: coordinator.cycle(JOB)) for _ in range(_IDLE_CYCLES)]
    assert {cycle.said for _, cycle in cycles} == {f"{JOB}: nothing new"}
    written = before != (store.version(), store.transact(JOB, _facts))
    coordinator.resign(JOB)
    yield Row(f"an idle cycle, median of {_IDLE_CYCLES}", median(took_ms for took_ms, _ in cycles), 5, "ms")
    yield Row("what these cycles wrote", float(written), 0, "rows")


def _facts(tx: Transaction) -> tuple[object, ...]:
    """Read everything that could have been written."""
    return tx.job(), tx.leader(), tx.members(), tx.rows(), tx.tombstones(), tx.last_line()


def _parts(store: Store) -> Iterator[Row]:
    """Show the parts of a cycle that has to look at every row."""

    def look() -> Snapshot:
        return store.transact(JOB, lambda tx: snapshot(tx, JOB))

    took = [_timed_ms(look) for _ in range(_LOSSES)]
    yield Row("part: one snapshot, best", min(took_ms for took_ms, _ in took), None, "ms")
    facts = took[-1][1]
    yield Row(
        "part: one plan of it that finds nothing to do, CPU", cpu_s(lambda: plan_snapshot(facts)) * 1000, None, "ms"
    )


def _losses(store: Store) -> Iterator[Row]:
    """Lose one member after the other; its items are freed in one cycle and given to others in the next."""
    coordinator = Coordinator(store, "bench")
    coordinator.cycle(JOB)
    took = []
    for number in range(_LOSSES):
        lost = f"n{number}"
        store.transact(JOB, partial(_forget, name=lost))
        freed_ms, freed = _timed_ms(lambda: coordinator.cycle(JOB))
        given_ms, given = _timed_ms(lambda: coordinator.cycle(JOB))
        assert freed.written == given.written > 0, (freed.said, given.said)
        took.append((freed_ms, given_ms))
    yield Row("one member of 400 lost, plan and apply: its items freed", min(ms for ms, _ in took), 200, "ms")
    yield Row("one member of 400 lost, plan and apply: freed and given to others", min(map(sum, took)), 200, "ms")


def _renew_all(tx: Transaction) -> None:
    """Let every lease last as if its member had just been heard."""
    job = tx.job()
    assert job is not None
    until_s = tx.now_s + job.terms.lease_s
    for member in tx.members().values():
        tx.write_member(msgspec.structs.replace(member, lease_until_s=until_s))
    tx.renew_rows(msgspec.structs.replace(row, lease_until_s=until_s) for row in tx.rows().values())


def _forget(tx: Transaction, name: str) -> None:
    """Let a member's leases have ended, as if nobody had heard of it for a while."""
    job, member = tx.job(), tx.member(name)
    assert job is not None
    assert member is not None
    past_s = tx.now_s - job.terms.grace_s - 1.0
    tx.write_member(msgspec.structs.replace(member, lease_until_s=past_s))
    tx.renew_rows(msgspec.structs.replace(row, lease_until_s=past_s) for row in tx.rows_for(name, ()).values())


def main() -> int:
    """Measure only this."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long the members are watched")
    parser.add_argument("kinds", nargs="*", choices=[*P99_MS, []], help="which stores, all if none is named")
    asked = parser.parse_args()
    return show(rows(asked.seconds, tuple(asked.kinds) or tuple(P99_MS)))


if __name__ == "__main__":
    sys.exit(main())
