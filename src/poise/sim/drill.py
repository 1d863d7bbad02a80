"""`poise drill`: minutes of faults in a blink, and checkers that share nothing with what they check."""

from __future__ import annotations

import msgspec

from poise.model.ownership import RELEASING
from poise.move.executor import snapshot
from poise.move.heartbeat import standing
from poise.move.verify import verify
from poise.sim.drill_world import SET, Chance, DrillWorld, Observer, Process

_QUIET_S = 120.0  # Faults stop so long before the end: time enough for everything to settle.


class Verdict(msgspec.Struct, frozen=True):
    """What a drill found: nothing, or the first broken law with the story of its item."""

    seed: int
    broken: list[str]
    story: list[str]
    faults: dict[str, int]
    handovers: int


class _Watcher(Observer):
    """Judges every start of work: no second owner that was not frozen, and epochs that only grow."""

    def __init__(self) -> None:
        self.broken: list[tuple[str, str]] = []
        self.epochs: dict[str, int] = {}

    def started(self, world: DrillWorld, process: Process, item: str, epoch: int) -> None:
        """Look for somebody else who acts on the item, and for a larger epoch before."""
        for other in world.processes:
            if other is not process and _acts(other, item):
                told = f"{item} acted on by {process.name} (process {process.number}) and {other.name} ({other.number})"
                self.broken.append((item, f"{world.now_s:.3f} s: {told}"))
        if epoch <= self.epochs.get(item, 0):
            self.broken.append((item, f"{world.now_s:.3f} s: {item} begun at epoch {epoch} after {self.epochs[item]}"))
        self.epochs[item] = max(epoch, self.epochs.get(item, 0))


def _acts(process: Process, item: str) -> bool:
    """Say whether a process works on an item and is to blame: one that overslept is not, until it has stopped."""
    return process.alive and not process.frozen and item in process.acting and item not in process.overslept


def drill(seed: int, *, minutes: float = 5.0, members: int = 8, items: int = 64) -> Verdict:
    """Run one seeded world and judge it."""
    watcher = _Watcher()
    world = DrillWorld(seed, members, items, watcher)
    until_s, faults = minutes * 60, dict[str, int]()
    draw = Chance(seed + 2**32)
    names = [f"m{number}" for number in range(members)]
    world.run_until(min(20.0, until_s))
    while world.now_s < until_s - _QUIET_S:
        world.run_until(world.now_s + draw.between(1.0, 12.0))
        verb = _FAULTS[draw.below(len(_FAULTS))]
        faults[verb] = faults.get(verb, 0) + 1
        _befall(world, verb, draw, names)
        _keep_budgets(world, watcher)
    _heal(world, names)
    world.run_until(max(until_s, world.now_s + _QUIET_S))
    broken = watcher.broken + _unsettled(world, items)
    sound = verify(world.store.journal(SET, most=1_000_000))
    if sound is not None:
        broken.append((sound.line.item, f"the journal: {sound}"))
    handovers = sum(line.transition == "released" for line in world.store.journal(SET, most=1_000_000))
    return Verdict(seed, [text for _, text in broken], _story(world, broken), faults, handovers)


_FAULTS = ("crash", "restart", "twin", "freeze", "long freeze", "cut", "store away", "leader crash", "store step")


def _befall(world: DrillWorld, verb: str, draw: Chance, names: list[str]) -> None:
    """Do one fault to the world."""
    running = world.running()
    victim = running[draw.below(len(running))] if running else None
    match verb:
        case "crash" | "restart" if victim is not None:
            world.crash(victim)
            delay_s = draw.between(0.1, 2.0) if verb == "restart" else draw.between(5.0, 30.0)
            world.after(delay_s, lambda: world.start(victim.name))
        case "twin":
            world.start(names[draw.below(len(names))])
        case "freeze" | "long freeze" if victim is not None:
            world.freeze(victim)
            longest_s = 5.0 if verb == "freeze" else 40.0
            world.after(draw.between(1.0, longest_s), lambda: world.thaw(victim))
        case "cut" if victim is not None:
            victim.cut_until_s = world.now_s + draw.between(1.0, 25.0)
        case "store away":
            world.away_until_s = world.now_s + draw.between(0.5, 15.0)
        case "leader crash":
            world.replace_coordinator()
        case "store step":
            world.store_step_s += draw.between(0.0, 0.2)
        case _:
            pass


def _heal(world: DrillWorld, names: list[str]) -> None:
    """End all faults; whoever is missing comes back."""
    world.away_until_s, world.calm = 0.0, True
    for process in world.processes:
        process.cut_until_s = 0.0
        world.thaw(process)
    there = {process.name for process in world.running() if not process.holding.ended}
    for name in names:
        if name not in there:
            world.start(name)


def _keep_budgets(world: DrillWorld, watcher: _Watcher) -> None:
    """Judge that no more hand-overs by live owners are under way than the set allows; the others are recovery."""
    facts = world.store.transact(SET, lambda tx: snapshot(tx, SET))
    live = {(each.name, each.incarnation) for each in facts.members.values() if standing(each, facts.now_s).active}
    moving = [
        row
        for row in facts.rows.values()
        if row.state in RELEASING and (row.owner, row.owner_incarnation) in live and facts.now_s < row.lease_until_s
    ]
    most = facts.job.guards.moves_in_flight_max
    if most is not None and len(moving) > most:
        watcher.broken.append(
            (moving[0].id, f"{world.now_s:.3f} s: {len(moving)} hand-overs under way, {most} allowed")
        )


def _unsettled(world: DrillWorld, items: int) -> list[tuple[str, str]]:
    """Judge the end: everything is worked on by exactly one, loads are floor or ceiling."""
    actors: dict[str, list[str]] = {}
    loads: dict[str, int] = {}
    for process in world.running():
        if not process.holding.ended:
            loads.setdefault(process.name, 0)
        for item in process.acting:
            actors.setdefault(item, []).append(process.name)
            loads[process.name] = loads.get(process.name, 0) + 1
    broken = [
        (item, f"at the end {item} is worked on by {actors.get(item, [])}")
        for item in map(str, range(items))
        if len(actors.get(item, [])) != 1
    ]
    if not broken and max(loads.values()) - min(loads.values()) > 1:
        broken.append(("", f"at the end the loads are {sorted(loads.values())}"))
    return broken


def _story(world: DrillWorld, broken: list[tuple[str, str]]) -> list[str]:
    """Tell the journal of the item that broke first."""
    if not broken or not broken[0][0]:
        return []
    lines = world.store.journal(SET, broken[0][0], most=1_000_000)
    return [
        f"{line.at_s:9.3f} s  {line.transition} {line.member or ''} epoch {line.epoch}  {line.reason}" for line in lines
    ]
