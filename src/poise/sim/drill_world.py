"""A seeded world of faults around the real coordinators, the real transactions and the real member state machine.

Time is virtual: a heap of what happens next. Messages are delayed, lost or refused; processes crash, restart, meet
twins of their name, and freeze longer than their leases; clocks run at rates of their own, and wall clocks jump; the
store is away, or its clock steps forward; leaders crash, or freeze between reading and writing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec

from poise.errors import Conflict, Unavailable
from poise.hold.holding import (
    Finish,
    Holding,
    Order,
    Phase,
    Piece,
    Start,
    end,
    hear,
    next_fence_s,
    speak,
    stopped,
    watch,
)
from poise.jobs.coordinator import Coordinator
from poise.model.ownership import Heartbeat, Reply, SetRow
from poise.move.executor import put_set, register_member, take_heartbeat
from poise.move.heartbeat import Stale, Superseded
from poise.sim.drill_store import Mishap, UnsteadyStore
from poise.sim.drill_values import (
    LOOK_S,
    MARGIN_S,
    MISHAPS_IN,
    PERIOD_S,
    RATE_ERROR,
    SET,
    SLOW_ONE_IN,
    SLOW_S,
    STOP_S,
    TERMS,
    TRAVEL_S,
    Chance,
    Leader,
    Process,
    Trouble,
)
from poise.stores.base import Answer, Transaction

_FINISH_S = 3.0
_TICK_S = 1e-6  # An alarm rings just after its instant: rounding must not ring it just before.
_DAWN = datetime(2026, 1, 1, tzinfo=UTC)


class DrillWorld:
    """Everything that happens, in order of virtual time."""

    def __init__(self, seed: int, members: int, items: int, observer: Observer) -> None:
        """Set the stage: a set, two coordinators, and members that have yet to register."""
        self.chance = Chance(seed)
        self.now_s, self.until_s, self.away_until_s = 0.0, 0.0, 0.0
        self.stepped_s, self.step_next_s = 0.0, 0.0
        self.calm = False
        self.troubles: list[Trouble] = []
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._leading: Leader | None = None  # Whose cycle is going on.
        self._speaking = ""  # Whose heartbeat is going on.
        self.store = UnsteadyStore(lambda: self.now_s + self.stepped_s, self._mishap)
        self.observer = observer
        self.processes: list[Process] = []
        self.leaders: list[Leader] = []
        self.store.look(SET, lambda tx: put_set(tx, SetRow(name=SET, count=items, terms=TERMS)))
        for number in range(members):
            self.start(f"m{number}")
        for _ in range(2):
            self.start_leader()

    def after(self, delay_s: float, what: Callable[[], None]) -> None:
        """Let something happen later."""
        self._count += 1
        heapq.heappush(self._queue, (self.now_s + delay_s, self._count, what))

    def run_until(self, until_s: float) -> None:
        """Let everything happen up to an instant; a leader that froze in the midst of a cycle runs on inside."""
        while self._queue and self._queue[0][0] <= until_s:
            self.now_s, _, what = heapq.heappop(self._queue)
            what()
        self.now_s = max(self.now_s, until_s)

    def trouble(self, who: str, length_s: float, cost_s: float) -> None:
        """Note that something goes wrong from now on."""
        self.troubles.append(Trouble(who, self.now_s, self.now_s + length_s, cost_s))

    def _mishap(self) -> Mishap | None:
        """Draw what a call of the store comes to; a leader may freeze before it."""
        leader = self._leading
        if leader is not None:
            self._maybe_freeze(leader)
        if self.calm or (draw := self.chance.below(MISHAPS_IN)) > 2:
            return None
        # A member speaks again a period later; a leader looks again, and its own lease may have been at stake.
        self.trouble(self._speaking, 0.0, PERIOD_S + 2 * TRAVEL_S if self._speaking else LOOK_S)
        return ("refused", "conflict", "unanswered")[draw]

    def start_leader(self) -> None:
        """Start another process that would lead."""
        leader = Leader(Coordinator(self.store, f"leader-{len(self.leaders) + 1}"))
        self.leaders.append(leader)
        self.after(self.chance.between(0.0, LOOK_S), lambda: self._lead(leader))

    def _lead(self, leader: Leader) -> None:
        if not leader.alive:
            return
        wake_s = LOOK_S
        if self.now_s >= self.away_until_s:
            leader.calls, leader.froze, self._leading = 0, False, leader
            try:
                wake_s = self._cycle(leader)
            except (Conflict, Unavailable):
                pass
            finally:
                self._leading = None
            if not leader.froze:
                self.observer.led(self)
        self.after(wake_s, lambda: self._lead(leader))

    def _cycle(self, leader: Leader) -> float:
        """Run one cycle; a change wakes a leader soon, but not at once: what comes meanwhile is planned together."""
        cycle = leader.coordinator.cycle(SET, _DAWN + timedelta(seconds=self.now_s + leader.jumped_s))
        if not cycle.leads:
            return cycle.wake_s
        return min(LOOK_S, max(self.chance.between(0.05, LOOK_S), cycle.wake_s))

    def _maybe_freeze(self, leader: Leader) -> None:
        """Freeze a leader between two calls of its cycle: the world goes on, and another one is elected."""
        leader.calls += 1
        if leader.freeze_at and leader.calls >= leader.freeze_at:
            leader.freeze_at, leader.froze, self._leading = 0, True, None
            self.run_until(self.now_s + leader.freeze_s)
            self._leading = leader

    def start(self, name: str) -> None:
        """Start a process of a name; it registers as soon as it reaches the store."""
        rate = 1 + RATE_ERROR * (self.chance.below(2001) - 1000) / 1000
        number = len(self.processes) + 1
        process = Process(name, number, Holding(process=f"p{number}", incarnation=0, margin_s=MARGIN_S), rate)
        self.processes.append(process)
        self.after(self.chance.between(0.0, 1.0), lambda: self._do(process, lambda: self._register(process)))

    def _register(self, process: Process) -> None:
        asked = process.holding.process
        try:
            row = self._call(process, lambda tx: register_member(tx, SET, process.name, asked))
        except (Conflict, Unavailable):
            self.after(1.0, lambda: self._do(process, lambda: self._register(process)))
            return
        process.holding = msgspec.structs.replace(process.holding, incarnation=row.incarnation)
        self._beat(process)

    def local_s(self, process: Process) -> float:
        """Read a process's own clock, which counts and is never set."""
        return self.now_s * process.rate

    def wall_s(self, process: Process) -> float:
        """Read a process's wall clock, which people and programs set."""
        return self.now_s + process.jumped_s

    def _call(self, process: Process, work: Callable[[Transaction], Answer]) -> Answer:
        """Let a process reach the store, where it can."""
        if self.now_s < max(self.away_until_s, process.cut_until_s):
            raise Unavailable("the store cannot be reached")
        before, self._leading, self._speaking = self._leading, None, process.name
        try:
            return self.store.transact(SET, work)
        finally:
            self._leading, self._speaking = before, ""

    def _do(self, process: Process, what: Callable[[], None]) -> None:
        """Let a process act now, or when it is no longer frozen."""
        if process.frozen:
            process.waiting.append(what)
        elif process.alive:
            what()

    def _beat(self, process: Process) -> None:
        """Send a heartbeat; its answer comes late, or never."""
        if process.holding.ended:
            return
        process.holding, said = speak(process.holding)
        sent_s = self.local_s(process)
        self.after(self.chance.between(0.0, TRAVEL_S), lambda: self._arrive(process, said, sent_s))
        self.after(PERIOD_S / process.rate, lambda: self._do(process, lambda: self._beat(process)))

    def _arrive(self, process: Process, said: Heartbeat, sent_s: float) -> None:
        """Take a heartbeat that is on its way: also one whose sender has died or frozen since."""
        if self._lost(process):
            return
        try:
            answer = self._call(process, lambda tx: take_heartbeat(tx, SET, process.name, said))
        except (Conflict, Unavailable):
            return
        if self._lost(process):
            return
        delay_s = self.chance.between(0.0, TRAVEL_S)
        if not self.calm and self.chance.below(SLOW_ONE_IN) == 0:
            delay_s = self.chance.between(2.0, SLOW_S)
            self.trouble(process.name, delay_s, PERIOD_S)
        self.after(delay_s, lambda: self._do(process, lambda: self._hear(process, answer, sent_s)))

    def _lost(self, process: Process) -> bool:
        """Lose one message in twenty, while faults last."""
        if self.calm or self.chance.below(20) > 0:
            return False
        self.trouble(process.name, 0.0, PERIOD_S + 2 * TRAVEL_S)
        return True

    def _hear(self, process: Process, answer: Reply | Superseded | Stale, sent_s: float) -> None:
        self._look(process)
        if isinstance(answer, Superseded):
            process.holding, orders = end(process.holding)
            self._obey(process, orders)
        elif isinstance(answer, Reply):
            process.holding, orders = hear(process.holding, answer, sent_s, self.local_s(process))
            self._obey(process, orders)
            self._plan_fence(process)

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
                self.observer.begun(self, process, order.item, order.epoch)
            else:
                longest_s = _FINISH_S if isinstance(order, Finish) else STOP_S
                self.after(self.chance.between(0.0, longest_s), partial(self._stopped, process, order))

    def _stopped(self, process: Process, order: Order) -> None:
        def tell() -> None:
            process.holding = stopped(process.holding, order.item, order.epoch)
            if process.acting.get(order.item) == order.epoch:
                del process.acting[order.item]
                process.overslept.discard(order.item)
                self.observer.idle(self, process, [order.item])

        self._do(process, tell)

    def crash(self, process: Process) -> None:
        """Kill a process: what it did ends at once."""
        process.alive = False
        self.observer.idle(self, process, process.acting)
        process.acting.clear()

    def freeze(self, process: Process) -> None:
        """Stop a process without its noticing."""
        process.frozen = True
        self.observer.idle(self, process, process.acting)

    def thaw(self, process: Process) -> None:
        """Let a frozen process go on: it looks at its clock first, then finds everything that waited.

        What it may no longer do by then it has overslept, and is not to blame for until it has stopped; what it may
        still do is its own as before.
        """
        if not process.alive or not process.frozen:
            return
        process.frozen = False
        waiting, process.waiting = process.waiting, []
        self._look(process)
        pieces = process.holding.pieces
        process.overslept = {item for item in process.acting if not _may_act(pieces.get(item))}
        self.observer.resumed(self, process, [item for item in process.acting if item not in process.overslept])
        for what in waiting:
            self._do(process, what)

    def running(self) -> list[Process]:
        """List the processes that live and are not frozen."""
        return [process for process in self.processes if process.alive and not process.frozen]


def _may_act(piece: Piece | None) -> bool:
    return piece is not None and piece.phase in (Phase.ACTING, Phase.FINISHING)


class Observer:
    """Hears of all that matters to a judge; the checkers are such observers."""

    def begun(self, world: DrillWorld, process: Process, item: str, epoch: int) -> None:
        """Work has begun."""

    def resumed(self, world: DrillWorld, process: Process, items: Iterable[str]) -> None:
        """A process goes on with what it still may do."""

    def idle(self, world: DrillWorld, process: Process, items: Iterable[str]) -> None:
        """A process no longer works on these: it has stopped, crashed or frozen."""

    def led(self, world: DrillWorld) -> None:
        """A cycle of a leader is over, in one instant."""
