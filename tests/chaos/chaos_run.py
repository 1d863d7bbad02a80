"""One chaos run: faults in the order of a seed, then rest; what happened, and what it shows in numbers."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol

from tests.chaos.chaos_audit import Case, Fault, audit, gaps, late_writes, taken_from_paused
from tests.chaos.chaos_numbers import recoveries
from tests.chaos.chaos_processes import Worker
from tests.chaos.chaos_schedule import WORKERS, Planned, draw_faults
from tests.chaos.chaos_world import TERMS, World, await_that, world

ITEMS = 16
_AWAKE_MIN = 2
_REST_S = 1.5
_LEAVE_S = 10.0
_TOLD_MAX = 30  # Two owners of one item find each other twenty times a second.
_BOUNDS = 3  # How many times the bound of a crash the world may take to come to rest.


class Restartable(Protocol):
    """A server that keeps its data."""

    def stop(self, mode: str = "immediate") -> None:
        """Stop it."""

    def start(self) -> None:
        """Start it again."""


class Story(NamedTuple):
    """What happened under a seed, and what the auditor found."""

    seed: int
    case: Case
    findings: list[str]
    journal: list[str]

    def __str__(self) -> str:
        """Tell it: the findings, every fault with its time, the journal of what was found, and the numbers."""
        case = self.case
        faults = [
            f"  {fault.at_s - case.from_s:6.2f} s  {fault.kind} {fault.member}"
            + (f" until {fault.until_s - case.from_s:.2f} s" if fault.until_s > fault.at_s else "")
            + (", which led" if fault.led else "")
            for fault in case.faults
        ]
        head = f"chaos, POISE_CHAOS_SEED={self.seed}: {len(self.findings)} findings"
        found = [f"  ! {finding}" for finding in self.findings[:_TOLD_MAX]]
        return "\n".join([head, *found, *faults, *self.journal, *self._numbers()])

    def _numbers(self) -> list[str]:
        case = self.case
        kinds = Counter(fault.kind for fault in case.faults)
        told = ", ".join(f"{kinds[kind]} {kind}" for kind in sorted(kinds))
        accepted, late = sum(write.accepted for write in case.writes), len(late_writes(case))
        longest = max(gaps(case, 0.0), key=lambda gap: gap.length_s)
        nearest = max(gaps(case, 0.0), key=lambda gap: gap.length_s / gap.bound_s)
        crashes = recoveries(case)
        plain = [gap.length_s for gap in crashes if gap.bound_s == case.terms.bound_s]
        stalls = ", ".join(f"{end_s - begin_s:.1f} s" for begin_s, end_s in case.stalls)
        lines = [
            f"{case.until_s - case.from_s:.1f} s, faults: {told}",
            f"writes: {accepted} accepted, {len(case.writes) - accepted} refused; {late} late ones of paused workers",
            f"items taken from paused workers: {len(taken_from_paused(case))}",
            f"longest time without a writer: {longest.length_s:.2f} of {longest.bound_s:.2f} s",
            f"nearest to its bound: {nearest.length_s:.2f} of {nearest.bound_s:.2f} s",
            f"crash: {len(plain)} items act again after at most {max(plain, default=0):.2f} of {case.terms.bound_s} s",
            f"crash with other faults near it: {len(crashes) - len(plain)} items",
            f"stalls of the store: {stalls or 'none'}",
        ]
        return [f"  {line}" for line in lines]


def run_chaos(folder: Path, url: str, seed: int, server: Restartable | None = None, *, own_coordinator: bool) -> Story:
    """Let everything happen that a seed says, wait for rest, and audit."""
    with world(folder, url, ITEMS, own_coordinator=own_coordinator) as here:
        for number in range(WORKERS):
            here.start(f"w{number}")
        assert here.await_settled(), "five workers never shared the items"
        from_s = time.monotonic()
        driver = Driver(here, seed, server)
        driver.play()
        here.await_settled(TERMS.bound_s * _BOUNDS)
        settled_s = time.monotonic()
        time.sleep(_REST_S)
        case = here.case(from_s, settled_s)
        findings = audit(case) + driver.strange_ends()
        return Story(seed, case, findings, _told(here, from_s, findings))


def _told(here: World, from_s: float, findings: list[str]) -> list[str]:
    """Tell what the store's journal says of the items in which something was found."""
    assert here.observer is not None
    items = {found.partition(": item ")[2].partition(":")[0] for found in findings if ": item " in found}
    return [
        f"  {line.at_s - from_s:6.2f} s  {line.item} {line.transition} {line.member} {line.epoch}: {line.reason}"
        for line in here.observer.journal()
        if line.item in items
    ]


class _Pause(NamedTuple):
    """Who is frozen until when, by which fault, and the items that others should have taken by then."""

    until_s: float
    worker: Worker
    fault: int
    items: list[str]


class Driver:
    """Does to a world what a seed says."""

    def __init__(self, here: World, seed: int, server: Restartable | None) -> None:
        """Draw the faults."""
        self._world, self._server = here, server
        self._chance = Random(f"{seed} whom")
        self._names = WORKERS
        self._pauses: list[_Pause] = []
        self.faults = draw_faults(
            seed,
            restarts=0 if server is None else 2,
            leaders_work=not here.own_coordinator,
            shortest_pause_s=TERMS.lease_s + TERMS.grace_s + 0.5,
        )

    def play(self) -> None:
        """Do one after the other, and at last let everybody go on."""
        for fault in self.faults:
            self._pass(fault.after_s)
            self._do(fault)
        while self._pauses:
            self._pass(0.05)

    def _pass(self, seconds: float) -> None:
        """Let time pass, and wake up in it whoever was frozen for long enough."""
        last_s = time.monotonic() + seconds
        while (now_s := time.monotonic()) < last_s:
            for pause in [pause for pause in self._pauses if self._is_over(pause, now_s)]:
                self._pauses.remove(pause)
                self._world.faults[pause.fault] = self._world.faults[pause.fault]._replace(until_s=time.monotonic())
                pause.worker.thaw()
            time.sleep(min(0.02, last_s - now_s))

    def _is_over(self, pause: _Pause, now_s: float) -> bool:
        """Wake in time; the first one not before somebody has taken over, so that there is something to refuse."""
        if now_s < pause.until_s or not pause.items or now_s > pause.until_s + TERMS.bound_s:
            return now_s >= pause.until_s
        pids = self._world.faults[pause.fault].pids
        return any(self._world.latest()[item].pid not in pids for item in pause.items)

    def _do(self, planned: Planned) -> None:
        match planned.kind:
            case "join":
                self._join()
            case "store":
                self._restart_store(planned.length_s)
            case "coordinator" if self._world.own_coordinator:
                at_s = time.monotonic()
                self._world.kill_coordinator()
                self._pass(planned.length_s)
                self._world.start_coordinator()
                self._note(at_s, "coordinator", until_s=time.monotonic())
            case "coordinator":
                self._hit(self._choose(leader=True), "coordinator", 0.0)
            case kind:
                self._hit(self._choose(leader=False), kind, planned.length_s)

    def _hit(self, worker: Worker, kind: str, length_s: float) -> None:
        at_s, led = time.monotonic(), self._world.leads(worker)
        if kind == "stop":
            worker.stop()
            self._note(at_s, kind, worker.name)  # It hands the lead over.
        elif not kind.startswith("freeze"):
            worker.kill()
            self._note(at_s, kind, worker.name, led=led)
        else:
            pids = worker.freeze(children=kind == "freeze all")
            first = not any(fault.pids for fault in self._world.faults)
            items = [item for item, write in self._world.latest().items() if first and write.pid in pids]
            self._pauses.append(_Pause(at_s + length_s, worker, len(self._world.faults), items))
            self._note(at_s, kind, worker.name, at_s + length_s, pids, led=led)

    def _choose(self, *, leader: bool) -> Worker:
        """Choose a worker that is well, once enough others are."""
        found: list[Worker] = []

        def look() -> bool:
            self._pass(0.02)
            awake = [worker for worker in self._world.workers if worker.awake]
            found[:] = [worker for worker in awake if not leader or self._world.leads(worker)]
            return len(awake) > _AWAKE_MIN and bool(found)

        await_that(look, "enough workers are awake, and one of them leads")
        return self._chance.choice(found)

    def _join(self) -> None:
        """Start a worker: a new one, or one with the name of one that is gone."""
        present = {worker.name for worker in self._world.present}
        gone = sorted({worker.name for worker in self._world.workers if worker.process.poll() is not None} - present)
        if gone and self._chance.random() < 0.5:
            name = self._chance.choice(gone)
        else:
            name = f"w{self._names}"
            self._names += 1
        self._note(time.monotonic(), "join", name)
        self._world.start(name)

    def _restart_store(self, length_s: float) -> None:
        """Stop the server once everybody has begun: whoever starts without a store ends with an error, as it should."""
        assert self._server is not None
        await_that(self._have_begun, "all workers and the coordinator have begun")
        at_s, mode = time.monotonic(), self._chance.choice(["fast", "immediate"])
        self._server.stop(mode)
        self._pass(length_s)
        self._server.start()
        self._note(at_s, "store", until_s=time.monotonic())

    def _have_begun(self) -> bool:
        self._pass(0.02)
        return self._world.coordinator_begun and all(worker.begun for worker in self._world.present)

    def _note(
        self,
        at_s: float,
        kind: str,
        member: str = "",
        until_s: float = 0.0,
        pids: frozenset[int] = frozenset(),
        *,
        led: bool = False,
    ) -> None:
        self._world.faults.append(Fault(at_s, kind, member, until_s, pids, led))

    def strange_ends(self) -> list[str]:
        """Name the workers that ended though nobody asked them to, or badly though they were asked."""
        found = []
        for worker in self._world.workers:
            if worker.ending:
                with suppress(subprocess.TimeoutExpired):
                    worker.process.wait(_LEAVE_S)
            code = worker.process.poll()
            if worker.ending and code in (0, -signal.SIGKILL):
                continue
            if worker.ending or code is not None:
                said = worker.said.read_text().splitlines()[-3:]
                found.append(f"worker: {worker.name} ended with {code}: {' | '.join(said)}")
        return found
