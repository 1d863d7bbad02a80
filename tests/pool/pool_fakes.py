"""A pool in one thread: the real store, planner, steps and pod turns, with pods that live in memory and misbehave.

Law: at no time do two pods collect a target, but for pods that count as gone and were never seen to have stopped.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from itertools import combinations

from tests.pool.pool_world import SET, document, listed, put

from poise.jobs.coordinator import Coordinator
from poise.jobs.pool import facts
from poise.jobs.pool.delivery import Courier, Packet, PodFault, pack
from poise.jobs.pool.engine import WAKING
from poise.jobs.pool.pod import Links, Pod
from poise.jobs.pool.settings import pace_of
from poise.jobs.pool.sources import LastList
from poise.jobs.pool.speaking import Said, read_rights
from poise.jobs.pool.steps import Rights, Sight
from poise.model.target_pool import Target
from poise.move.executor import drain_member
from poise.move.heartbeat import standing
from poise.stores.memory import MemoryStore

GONE_AFTER_S = 2.0
PODS = ("a", "b", "c")
FAULTS = ("time out", "lose", "be late", "refuse", "half")
OFTEN = ("turn",) * 4 + ("cycle",) * 2 + ("pass",) * 2 + ("finish",) * 3
ACTIONS = (*OFTEN, *FAULTS, "kill", "restart", "hang", "thaw", "targets", "engine", "drain", "renew", "desert")


class FakePod(Courier):
    """A collector in memory: apply answers before streams end, and every fault can be set for the next document."""

    def __init__(self, name: str) -> None:
        self.name, self.pace = name, pace_of(GONE_AFTER_S)  # It needs no client: nothing goes over a wire.
        self.configured: dict[str, str] = {}
        self.live: set[str] = set()
        self.silent = False
        self.fault = ""
        self.late: list[dict[str, str]] = []
        self.writes = 0

    async def look(self) -> Sight:
        if self.silent:
            raise PodFault("no answer")
        return Sight(dict(self.configured), frozenset(self.live))

    async def apply(self, packet: Packet) -> None:
        fault, self.fault = self.fault, ""
        if self.silent or fault == "lose":
            raise PodFault("no answer")
        self.writes += 1
        self.land()
        if fault == "be late":
            self.late.append(packet.content.shape)
            raise PodFault("no answer")
        if fault == "refuse":
            raise PodFault("answered 500", refused=True, broken=True)
        if fault == "half":
            self._replace(dict(list(packet.content.shape.items())[::2]))
            raise PodFault("answered 500", refused=True, broken=True)
        self._replace(packet.content.shape)
        if fault == "time out":
            raise PodFault("no answer")

    def land(self) -> None:
        """Carry out documents that were taken and not answered; they come before any later one."""
        for shape in self.late:
            self._replace(shape)
        self.late = []

    def _replace(self, shape: dict[str, str]) -> None:
        self.configured = dict(shape)
        self.live |= shape.keys()

    def finish(self) -> None:
        """End the streams of what is no longer configured."""
        self.live &= self.configured.keys()

    def die(self) -> None:
        self.configured, self.live, self.late, self.silent = {}, set(), [], True


class FakePool:
    """Everything of a pool but time, processes and the network."""

    def __init__(self, targets: int = 6) -> None:
        self.loop = asyncio.new_event_loop()
        self.now_s = 1000.0
        self.store = MemoryStore(lambda: self.now_s)
        self.fakes = {name: FakePod(name) for name in PODS}
        self.names = [f"t{number}" for number in range(targets)]
        self.draining: set[str] = set()
        self.last: LastList | None = None
        self.line = 0
        self._put()
        self.start()

    def close(self) -> None:
        self.loop.close()

    def _put(self) -> None:
        pool = document(self.fakes, listed(self.names), goneAfterSeconds=int(GONE_AFTER_S))
        put(self.store, pool)
        text = self.store.transact(SET, facts.read_note)
        self.last = self.store.transact(SET, lambda tx: facts.adopt(tx, SET, text, self.last)).last
        self.delivery = pool.spec.delivery

    def start(self) -> None:
        """Start an engine: nothing is remembered but what the store keeps, and pods are spoken for once."""
        self.coordinator = Coordinator(self.store, "engine")
        self.renew()
        self.pods = {name: self._pod(fake) for name, fake in self.fakes.items()}

    def renew(self) -> None:
        alive = [name for name in PODS if self.active(name)]
        self.store.transact(SET, lambda tx: facts.renew_all(tx, SET, alive))

    def _pod(self, fake: FakePod) -> Pod:
        links = Links(self._read, self._speak, self._renew, self._pack, lambda _: True, lambda: None)
        return Pod(fake.name, fake, links, pace_of(GONE_AFTER_S), now=lambda: self.now_s)

    async def _read(self, pod: str) -> Rights:
        return self.store.transact(SET, lambda tx: read_rights(tx, pod))

    async def _speak(self, pod: str, said: Said) -> Rights:
        departing = pod in self.draining
        return self.store.transact(SET, lambda tx: facts.speak(tx, SET, pod, said, departing=departing))

    async def _renew(self, pod: str) -> None:
        self.store.transact(SET, lambda tx: facts.renew_all(tx, SET, [pod]))

    def _pack(self, names: Iterable[str]) -> Packet:
        assert self.delivery is not None
        return pack(self.delivery, [Target(name, f"{name}:57400") for name in names if name in self.names])

    def active(self, name: str) -> bool:
        member = self.store.transact(SET, lambda tx: tx.member(name))
        return member is not None and standing(member, self.now_s).active

    def turn(self, name: str) -> None:
        """Take a turn; as in the engine, a pod hears what was written about it, and only that."""
        for line in self.store.journal(SET, after=self.line, most=10_000):
            self.line = line.number
            if line.transition in WAKING and line.member in self.pods:
                self.pods[line.member].wake()
        self.loop.run_until_complete(self.pods[name].turn())

    def act(self, action: str, chance: random.Random) -> None:
        """Let one thing happen."""
        name = chance.choice(PODS)
        if action in FAULTS:
            self.fakes[name].fault = action
        elif action in ("finish", "kill", "restart", "hang", "thaw"):
            self._hit(self.fakes[name], action)
        elif action == "turn":
            self.turn(name)
        elif action == "cycle":
            self.coordinator.cycle(SET)
        elif action == "pass":
            self.now_s += chance.choice((0.1, 0.3, 0.6, 1.1))
        elif action == "targets":
            self.names = sorted(chance.sample([f"t{number}" for number in range(8)], chance.randrange(1, 9)))
            self._put()
        elif action in ("drain", "desert"):
            {"drain": self._drain, "desert": self.act_desert}[action](name)
        else:
            {"engine": self.start, "renew": self.renew}[action]()

    @staticmethod
    def _hit(fake: FakePod, action: str) -> None:
        if action == "finish":
            fake.land()
            fake.finish()
        elif action in ("kill", "restart"):
            fake.die()
        if action in ("restart", "hang", "thaw"):
            fake.silent = action == "hang"

    def act_desert(self, name: str) -> None:
        """Let a pod be silent until it counts as gone, while all others go on."""
        self.fakes[name].silent = True
        for _ in range(4):
            for other in PODS:
                self.turn(other)
            self.now_s += 0.7
            self.coordinator.cycle(SET)

    def _drain(self, name: str) -> None:
        """Take a pod out of the document, or back into it."""
        self.draining ^= {name}
        if name not in self.draining:
            self._undrain(name)

    def _undrain(self, name: str) -> None:
        if self.store.transact(SET, lambda tx: tx.member(name)) is not None:
            self.store.transact(SET, lambda tx: drain_member(tx, SET, name, False))

    def violations(self) -> list[str]:
        """Name every target that two pods collect which both count as alive, or of which one never counted."""
        alive = [fake for fake in self.fakes.values() if self.active(fake.name)]
        return [
            f"{target} is on {one.name} and on {other.name}"
            for one, other in combinations(alive, 2)
            for target in sorted(one.live & other.live)
        ]

    def heal(self) -> None:
        """End all faults and let everybody work until nothing is left to do."""
        self.draining.clear()
        for name, fake in self.fakes.items():
            fake.silent, fake.fault = False, ""
            fake.land()
            self._undrain(name)
        for _ in range(40):
            for name in PODS:
                self.turn(name)
                self.fakes[name].finish()
            self.coordinator.cycle(SET)
            self.now_s += 0.3


def play(seed: int, steps: int = 80) -> str:
    """Play one world; answer the first broken law, or nothing."""
    chance = random.Random(seed)
    pool = FakePool()
    story: list[str] = []
    try:
        for _ in range(steps):
            action = chance.choice(ACTIONS)
            story.append(action)
            pool.act(action, chance)
            if found := pool.violations():
                return f"seed {seed}: {found[0]} after {story[-8:]}"
        pool.heal()
        return _judge_rest(pool, seed)
    finally:
        pool.close()


def _judge_rest(pool: FakePool, seed: int) -> str:
    """Judge a pool at rest: every target on exactly one pod, loads even, and nobody is written to any more."""
    held = [target for fake in pool.fakes.values() for target in fake.live]
    if sorted(held) != pool.names:
        return f"seed {seed}: at rest {sorted(held)} are collected, not {pool.names}"
    loads = [len(fake.live) for fake in pool.fakes.values()]
    if max(loads) - min(loads) > 1:
        return f"seed {seed}: at rest the loads are {loads}"
    writes = {name: fake.writes for name, fake in pool.fakes.items()}
    for name in PODS:
        pool.now_s += 1.0
        pool.turn(name)
    again = {name: fake.writes for name, fake in pool.fakes.items()}
    return "" if writes == again else f"seed {seed}: unchanged pods were written to: {writes}, then {again}"


def first_broken(seeds: Iterable[int], play: Callable[[int], str] = play) -> str:
    """Play worlds until one breaks a law; a world that falls over has found something too."""
    for seed in seeds:
        try:
            if told := play(seed):
                return told
        except (AssertionError, RuntimeError) as error:
            return f"seed {seed}: {error}"
    return ""
