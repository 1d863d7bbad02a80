"""A seeded world of faults around the real coordinator, the real transactions and the real member state machine.

Time is virtual: a heap of what happens next. Messages are delayed, lost or refused; processes crash, restart, meet
twins of their name, and freeze longer than their leases; clocks run at rates of their own; the store is away, or its
clock steps forward.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

import msgspec

from poise.decide.draw import below, words
from poise.errors import Conflict, Unavailable
from poise.hold.holding import (
    Finish,
    Holding,
    Order,
    Start,
    end,
    hear,
    next_fence_s,
    speak,
    stopped,
    watch,
)
from poise.jobs.coordinator import Coordinator
from poise.model.ownership import Heartbeat, Reply, SetRow, Terms
from poise.move.executor import put_set, register_member, take_heartbeat
from poise.move.heartbeat import Stale, Superseded
from poise.stores.memory import MemoryStore

SET = "drill"
TERMS = Terms(lease_s=10, grace_s=2, release_s=10)
MARGIN_S, STOP_S = 1.0, 1.0
_PERIOD_S = TERMS.lease_s / 3
_TICK_S = 1e-6  # An alarm rings just after its instant: rounding must not ring it just before.


class Chance:
    """One stream of draws: the same seed gives the same world everywhere."""

    def __init__(self, seed: int) -> None:
        """Begin the stream of a seed."""
        self._stream: Iterator[int] = words("drill", str(seed))

    def below(self, bound: int) -> int:
        """Draw one of 0 … bound - 1."""
        return below(self._stream, bound)

    def between(self, low_s: float, high_s: float) -> float:
        """Draw a length of time."""
        return low_s + (high_s - low_s) * self.below(2**20) / 2**20


class Process(msgspec.Struct):
    """One process of a member: its state machine, its own clock, and what befalls it."""

    name: str
    number: int
    holding: Holding
    rate: float
    alive: bool = True
    frozen: bool = False
    cut_until_s: float = 0.0
    fence_s: float | None = None  # The instant of its own clock for which its alarm is set.
    acting: dict[str, int] = msgspec.field(default_factory=dict)
    overslept: set[str] = msgspec.field(default_factory=set)  # What it did when it froze, until it has stopped that.
    waiting: list[Callable[[], None]] = msgspec.field(default_factory=list)


class DrillWorld:
    """Everything that happens, in order of virtual time."""

    def __init__(self, seed: int, members: int, items: int, observer: Observer) -> None:
        """Set the stage: a set, a coordinator, and members that have yet to register."""
        self.chance = Chance(seed)
        self.now_s, self.store_step_s, self.away_until_s = 0.0, 0.0, 0.0
        self.calm = False
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.store = MemoryStore(lambda: self.now_s + self.store_step_s)
        self.observer = observer
        self.processes: list[Process] = []
        self._leaders = 0
        self.coordinator = self._new_coordinator()
        self.store.transact(SET, lambda tx: put_set(tx, SetRow(name=SET, count=items, terms=TERMS)))
        for number in range(members):
            self.start(f"m{number}")
        self.after(0.1, self._lead)

    def after(self, delay_s: float, what: Callable[[], None]) -> None:
        """Let something happen later."""
        self._count += 1
        heapq.heappush(self._queue, (self.now_s + delay_s, self._count, what))

    def run_until(self, until_s: float) -> None:
        """Let everything happen up to an instant."""
        while self._queue and self._queue[0][0] <= until_s:
            self.now_s, _, what = heapq.heappop(self._queue)
            what()
        self.now_s = until_s

    def _new_coordinator(self) -> Coordinator:
        self._leaders += 1
        return Coordinator(self.store, f"leader-{self._leaders}")

    def replace_coordinator(self) -> None:
        """Crash the leader; another one must wait for its term to end."""
        self.coordinator = self._new_coordinator()

    def _lead(self) -> None:
        wake_s = 1.0
        if self.now_s >= self.away_until_s:
            wake_s = min(1.0, max(0.1, self.coordinator.cycle(SET).wake_s))
        self.after(wake_s, self._lead)

    def start(self, name: str) -> None:
        """Start a process of a name; it registers as soon as it reaches the store."""
        rate = 1 + (self.chance.below(2001) - 1000) / 1_000_000
        number = len(self.processes) + 1
        process = Process(name, number, Holding(process=f"p{number}", incarnation=0, margin_s=MARGIN_S), rate)
        self.processes.append(process)
        self.after(self.chance.between(0.0, 1.0), lambda: self._register(process))

    def _register(self, process: Process) -> None:
        if not process.alive:
            return
        if self._unreachable(process):
            self.after(1.0, lambda: self._register(process))
            return
        asked = process.holding.process
        row = self.store.transact(SET, lambda tx: register_member(tx, SET, process.name, asked))
        process.holding = msgspec.structs.replace(process.holding, incarnation=row.incarnation)
        self._do(process, lambda: self._beat(process))

    def _unreachable(self, process: Process) -> bool:
        return self.now_s < max(self.away_until_s, process.cut_until_s)

    def local_s(self, process: Process) -> float:
        """Read a process's own clock."""
        return self.now_s * process.rate

    def _do(self, process: Process, what: Callable[[], None]) -> None:
        """Let a process act now, or when it is no longer frozen."""
        if process.frozen:
            process.waiting.append(what)
        elif process.alive:
            what()

    def _beat(self, process: Process) -> None:
        """Send a heartbeat; its answer comes late, or never."""
        if not process.alive or process.holding.ended:
            return
        process.holding, said = speak(process.holding)
        sent_s = self.local_s(process)
        self.after(self.chance.between(0.0, 0.3), lambda: self._arrive(process, said, sent_s))
        self.after(_PERIOD_S / process.rate, lambda: self._do(process, lambda: self._beat(process)))
        self._plan_fence(process)

    def _arrive(self, process: Process, said: Heartbeat, sent_s: float) -> None:
        if self._unreachable(process) or self._lost():
            return
        try:
            answer = self.store.transact(SET, lambda tx: take_heartbeat(tx, SET, process.name, said))
        except (Conflict, Unavailable):
            return
        if not self._lost():
            slow = not self.calm and self.chance.below(30) == 0
            delay_s = self.chance.between(2.0, 9.0) if slow else self.chance.between(0.0, 0.3)
            self.after(delay_s, lambda: self._do(process, lambda: self._hear(process, answer, sent_s)))

    def _lost(self) -> bool:
        """Lose one message in twenty, while faults last."""
        return not self.calm and self.chance.below(20) == 0

    def _hear(self, process: Process, answer: Reply | Superseded | Stale, sent_s: float) -> None:
        self._look(process)
        if isinstance(answer, Superseded):
            process.holding, orders = end(process.holding)
            self._obey(process, orders)
        elif isinstance(answer, Reply):
            process.holding, orders = hear(process.holding, answer, sent_s, self.local_s(process))
            self._obey(process, orders)
            self._look(process)

    def _look(self, process: Process) -> None:
        """Let a process look at its clock and stop what it may no longer do."""
        process.holding, orders = watch(process.holding, self.local_s(process))
        self._obey(process, orders)
        self._plan_fence(process)

    def _plan_fence(self, process: Process) -> None:
        """Set the alarm to the first instant at which something must be stopped; each instant is waited for once."""
        fence_s = next_fence_s(process.holding)
        if fence_s is not None and fence_s != process.fence_s:
            process.fence_s = fence_s
            wait_s = max(0.0, (fence_s - self.local_s(process)) / process.rate) + _TICK_S
            self.after(wait_s, lambda: self._do(process, lambda: self._fence(process, fence_s)))

    def _fence(self, process: Process, fence_s: float) -> None:
        if process.fence_s == fence_s:
            self._look(process)

    def _obey(self, process: Process, orders: list[Order]) -> None:
        for order in orders:
            if isinstance(order, Start):
                process.acting[order.item] = order.epoch
                self.observer.started(self, process, order.item, order.epoch)
            else:
                longest_s = STOP_S if not isinstance(order, Finish) else 3 * STOP_S
                self.after(self.chance.between(0.0, longest_s), lambda order=order: self._stopped(process, order))  # type: ignore[misc]  # Bound now.

    def _stopped(self, process: Process, order: Order) -> None:
        def tell() -> None:
            process.holding = stopped(process.holding, order.item, order.epoch)
            if process.acting.get(order.item) == order.epoch:
                del process.acting[order.item]
                process.overslept.discard(order.item)

        self._do(process, tell)

    def crash(self, process: Process) -> None:
        """Kill a process: what it did ends at once."""
        process.alive = False
        process.acting.clear()

    def freeze(self, process: Process) -> None:
        """Stop a process without its noticing."""
        process.frozen = True

    def thaw(self, process: Process) -> None:
        """Let a frozen process go on: it looks at its clock first, then finds everything that waited."""
        if not process.alive or not process.frozen:
            return
        process.frozen = False
        process.overslept |= set(process.acting)
        waiting, process.waiting = process.waiting, []
        self._look(process)
        for what in waiting:
            self._do(process, what)

    def running(self) -> list[Process]:
        """List the processes that live and are not frozen."""
        return [process for process in self.processes if process.alive and not process.frozen]


class Observer:
    """Hears of every start of work; the checkers are such observers."""

    def started(self, world: DrillWorld, process: Process, item: str, epoch: int) -> None:
        """Work has begun."""
