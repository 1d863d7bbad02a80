"""What an idle coordinator must not sleep through: facts that change a plan though nobody's rows have changed."""

from __future__ import annotations

from math import inf
from random import Random

import msgspec
import pytest
from tests.jobs.test_rings import RingWorld
from tests.set_world import FREE, TERMS, World

from poise.hold.holding import Holding, speak
from poise.jobs import coordinator
from poise.jobs.coordinator import Coordinator
from poise.jobs.snapshots import braking
from poise.model.ownership import Heartbeat, MemberRow, Reply
from poise.move.executor import drain_member, pause_set, take_heartbeat
from poise.move.heartbeat import standing

LOST = ("web-1", "web-2", "web-3")


def braked_ring() -> tuple[RingWorld, dict[str, MemberRow]]:
    """Let three of four vanish at once, and their leases end; nobody moves anything of theirs."""
    world = RingWorld("web-0", *LOST)
    world.settle()
    for name in LOST:
        world.kill(name)
    world.settle(60)
    assert braking(world.facts()) == list(LOST)
    return world, world.facts().members


def say_goodbye(world: RingWorld, row: MemberRow) -> None:
    """Let a process that was cut off say that it stops; it has forgotten what it held, and names nothing."""
    said = Heartbeat(process=row.process, incarnation=row.incarnation, seq=row.seq + 1, holds=(), leaving="stop")
    answer = world.store.transact("orders", lambda tx: take_heartbeat(tx, "orders", row.name, said))
    assert isinstance(answer, Reply)


def test_members_that_vanished_and_then_say_goodbye_open_the_brake() -> None:
    world, rows = braked_ring()
    for name in LOST[:2]:
        say_goodbye(world, rows[name])
    assert not braking(world.facts()), "one that vanished alone is no reason to hold anything back"
    world.settle(6)
    assert set(world.loads()) == {"web-0"}
    assert world.sound()


def test_mutant_that_does_not_look_who_leaves_sleeps_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(members: dict[str, MemberRow], now_s: float) -> tuple[tuple[str, int, bool, bool, bool, int], ...]:
        judged = ((standing(member, now_s), member.weight) for member in members.values())
        return tuple(sorted((each.name, each.incarnation, each.active, each.draining, False, w) for each, w in judged))

    monkeypatch.setattr(coordinator, "_standings", blind)
    world, rows = braked_ring()
    for name in LOST[:2]:
        say_goodbye(world, rows[name])
    world.settle(60)
    assert set(world.loads()) == {"web-0", *LOST}


def disturb(world: World, rnd: Random, away: dict[str, Holding]) -> None:
    """Let something happen now and then: a member falls silent, returns, comes anew or is drained; people pause."""
    there = sorted(world.members)
    match rnd.choices(["", "kill", "back", "anew", "drain", "pause", "bye"], [84, 4, 2, 2, 3, 2, 3])[0]:
        case "kill" if len(there) > 1:
            name = rnd.choice(there)
            away[name] = world.members.pop(name)
        case "back" if away:
            name = rnd.choice(sorted(away))
            world.members[name] = away.pop(name)
        case "anew" if away:
            name = rnd.choice(sorted(away))
            del away[name]
            world.join(name, process=f"process {rnd.random()}")
        case "bye" if away:
            name = rnd.choice(sorted(away))
            away[name], said = speak(away[name])
            goodbye = msgspec.structs.replace(said, holds=(), leaving="stop")
            world.store.transact("orders", lambda tx: take_heartbeat(tx, "orders", name, goodbye))
        case "drain":
            name, draining = rnd.choice(there), rnd.random() < 0.5
            world.store.transact("orders", lambda tx: drain_member(tx, "orders", name, draining))
        case "pause":
            paused, everything = rnd.random() < 0.5, rnd.random() < 0.5
            world.store.transact("orders", lambda tx: pause_set(tx, "orders", paused, everything=everything))


def idle_with_nothing_to_do(seed: int) -> bool:
    """Say whether, wherever the coordinator was idle, one that looks for the first time had nothing to write either."""
    rnd = Random(seed)
    guards = msgspec.structs.replace(
        FREE, cooldown_seconds=rnd.choice([0, 7]), moves_in_flight_max=rnd.choice([None, 2])
    )
    names = ("web-0", *LOST)
    terms = msgspec.structs.replace(TERMS, restart_grace_s=rnd.choice([0.0, 8.0]))
    world = RingWorld(*names, guards=guards) if seed % 2 else World(12, *names, guards=guards, terms=terms)
    away: dict[str, Holding] = {}
    idle = True
    for _ in range(150):
        disturb(world, rnd, away)
        cycle = world.coordinator.cycle("orders")
        if "nothing new" in cycle.said:
            idle &= Coordinator(world.store, "leader-1").cycle("orders").written == 0
        for name in sorted(world.members):
            if rnd.random() < 0.85:
                world.beat(name)
        world.now_s += rnd.choice([0.3, 1.0, 1.0, 2.5])
    assert world.sound()
    return idle


@pytest.mark.slow
def test_an_idle_coordinator_decides_what_one_that_looks_for_the_first_time_would() -> None:
    for seed in range(24):
        assert idle_with_nothing_to_do(seed), f"seed {seed}"


@pytest.mark.slow
def test_mutant_that_looks_at_members_only_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "_row_due_s", lambda _facts, _since_s: inf)
    assert not all(idle_with_nothing_to_do(seed) for seed in range(24))
