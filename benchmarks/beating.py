"""Members that do nothing but live: each process beats for its share of them through a store of its own, as in life."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import NamedTuple

from poise.clock import boot_s
from poise.hold.holding import Holding, Order, hear, speak
from poise.model.ownership import Reply
from poise.move.executor import register_member, take_heartbeat
from poise.stores.base import Store
from poise.stores.open import open_store

PERIOD_S = 3.0
MARGIN_S = 1.0
SETTLING_ROUNDS = 4  # One heartbeat brings the items, the next one confirms them, and then the queues empty.
_THREADS = 16


class Load(NamedTuple):
    """What to bear: a set, its members (of which each process speaks for one share), and for how long."""

    url: str
    job: str
    members: int
    processes: int
    seconds: float


class Lived(NamedTuple):
    """What the members of one process saw once they had settled: seconds, orders to start or stop, items at the end."""

    latencies_s: list[float]
    orders: int
    items: int
    cpu_s: float


class _Member:
    """One member: a pure state machine, and the store that its heartbeats go through."""

    def __init__(self, store: Store, job: str, name: str) -> None:
        self._store, self._job, self._name = store, job, name
        row = store.transact(job, lambda tx: register_member(tx, job, name, f"process of {name}"))
        self.holding = Holding(process=row.process, incarnation=row.incarnation, margin_s=MARGIN_S)

    def beat(self, due_s: float) -> tuple[float, list[Order]]:
        """Send one heartbeat and hear the answer; the latency counts from when it was due, not from when it began."""
        sent_at_s = boot_s()
        self.holding, said = speak(self.holding)
        reply = self._store.transact(self._job, lambda tx: take_heartbeat(tx, self._job, self._name, said))
        assert isinstance(reply, Reply), reply
        now_s = boot_s()
        self.holding, orders = hear(self.holding, reply, sent_at_s, now_s)
        return now_s - due_s, orders


def live(load: Load, share: int, line: Connection[object, object]) -> None:
    """Register one share of the members, wait to be told when to begin, beat until the time is over, and report."""
    store = open_store(load.url)
    try:
        numbers = range(share, load.members, load.processes)
        members = {number: _Member(store, load.job, f"n{number}") for number in numbers}
        line.send("ready")
        start_s = line.recv()
        assert isinstance(start_s, float)
        with ThreadPoolExecutor(_THREADS) as threads:
            settled_s = start_s + SETTLING_ROUNDS * PERIOD_S
            _beat_all(load, members, threads, start_s, SETTLING_ROUNDS)
            before_s = time.process_time()
            heard = _beat_all(load, members, threads, settled_s, round(load.seconds / PERIOD_S))
            cpu_s = time.process_time() - before_s
    finally:
        store.close()
    orders = sum(len(each) for _, each in heard)
    items = sum(len(member.holding.pieces) for member in members.values())
    line.send(Lived([latency_s for latency_s, _ in heard], orders, items, cpu_s))


def _beat_all(
    load: Load, members: dict[int, _Member], threads: ThreadPoolExecutor, start_s: float, turns: int
) -> list[tuple[float, list[Order]]]:
    """Spread the heartbeats of all members evenly over every period; any failure ends the benchmark."""
    sent: list[Future[tuple[float, list[Order]]]] = []
    for turn in range(turns):
        for number, member in members.items():
            due_s = start_s + (turn + number / load.members) * PERIOD_S
            time.sleep(max(0.0, due_s - boot_s()))
            sent.append(threads.submit(member.beat, due_s))
    return [each.result() for each in sent]
