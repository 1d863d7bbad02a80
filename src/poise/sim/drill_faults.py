"""What befalls a drilled world, besides the messages that are lost, late or refused all the time."""

from __future__ import annotations

from poise.jobs.coordinator import LEAD_S
from poise.sim.drill_values import LOOK_S, PERIOD_S, STEP_S, TERMS, TRAVEL_S, Chance, Leader, Process
from poise.sim.drill_world import DrillWorld

FAULTS = (
    "crash",
    "restart",
    "twin",
    "freeze",
    "long freeze",
    "cut",
    "store away",
    "leader crash",
    "leader freeze",
    "store step",
    "wall clock jump",
)
# After a fault of an owner: its lease and the grace run out, a leader looks twice (to free, then to give), and the next
# owner hears of it with its next heartbeat. How long the fault lasts does not matter.
RECOVERY_S = TERMS.lease_s + TERMS.grace_s + 2 * LOOK_S + PERIOD_S + 2 * TRAVEL_S
# After a fault of a leader: its term runs out, and another one looks.
ELECTION_S = LEAD_S + LEAD_S / 3 + LOOK_S
_DAY_S = 86_400.0


def befall(world: DrillWorld, verb: str, draw: Chance, names: list[str]) -> None:
    """Do one fault to the world."""
    running = world.running()
    victim = running[draw.below(len(running))] if running else None
    match verb:
        case "crash" | "restart" if victim is not None:
            _crash(world, victim, draw.between(0.1, 2.0) if verb == "restart" else draw.between(5.0, 30.0))
        case "twin":
            name = names[draw.below(len(names))]
            world.trouble(name, 1.0, RECOVERY_S)
            world.start(name)
        case "freeze" | "long freeze" if victim is not None:
            _freeze(world, victim, draw.between(1.0, 5.0 if verb == "freeze" else 40.0))
        case "cut" if victim is not None:
            length_s = draw.between(1.0, 25.0)
            victim.cut_until_s = world.now_s + length_s
            world.trouble(victim.name, length_s, RECOVERY_S)
        case "store away":
            length_s = draw.between(0.5, 15.0)
            world.away_until_s = max(world.away_until_s, world.now_s + length_s)
            # Leases run out meanwhile: whatever the store then gives may need to be given once more.
            world.trouble("", length_s, length_s + RECOVERY_S)
        case "store step":
            _step_store(world, draw.between(0.0, STEP_S))
        case "wall clock jump":
            _jump(draw, [*running, *world.leaders])
        case "leader crash" | "leader freeze":
            _trouble_leader(world, verb, draw)
        case _:
            pass


def _crash(world: DrillWorld, victim: Process, back_s: float) -> None:
    world.trouble(victim.name, 0.0, RECOVERY_S)
    world.crash(victim)
    world.after(back_s, lambda: None if world.calm else world.start(victim.name))


def _freeze(world: DrillWorld, victim: Process, length_s: float) -> None:
    world.trouble(victim.name, length_s, RECOVERY_S)
    world.freeze(victim)
    world.after(length_s, lambda: world.thaw(victim))


def _step_store(world: DrillWorld, step_s: float) -> None:
    """Step the store's clock forward, by no more within one lease and its grace than the settings say."""
    if world.now_s >= world.step_next_s:
        world.stepped_s += step_s
        world.step_next_s = world.now_s + TERMS.lease_s + TERMS.grace_s


def _jump(draw: Chance, clocks: list[Process | Leader]) -> None:
    """Set a wall clock to any time within a day; nothing may come of it."""
    clocks[draw.below(len(clocks))].jumped_s += draw.between(-_DAY_S, _DAY_S)


def _trouble_leader(world: DrillWorld, verb: str, draw: Chance) -> None:
    """Crash one that leads or would, or freeze it between reading and writing: its plan then comes too late."""
    alive = [leader for leader in world.leaders if leader.alive]
    leader = alive[draw.below(len(alive))]
    freeze_at, freeze_s = 1 + draw.below(3), draw.between(1.0, 2 * LEAD_S)
    world.trouble("", 0.0, ELECTION_S)
    if verb == "leader crash":
        leader.alive = False
        world.start_leader()
    elif world.now_s + freeze_s < world.until_s:
        leader.freeze_at, leader.freeze_s = freeze_at, freeze_s


def heal(world: DrillWorld, names: list[str]) -> None:
    """End all faults; whoever is missing comes back."""
    world.away_until_s, world.calm = 0.0, True
    for leader in world.leaders:
        leader.freeze_at = 0
    for process in world.processes:
        process.cut_until_s = 0.0
        world.thaw(process)
    there = {process.name for process in world.running() if not process.holding.ended}
    for name in names:
        if name not in there:
            world.start(name)
