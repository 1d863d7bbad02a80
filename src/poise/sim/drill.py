"""`poise drill`: minutes of faults in a blink, and checkers that share nothing with what they check."""

from __future__ import annotations

import msgspec

from poise.hold.holding import Phase
from poise.model.ownership import Line, OwnerState
from poise.move.verify import verify
from poise.sim.drill_checks import (
    Watcher,
    fewest_requests,
    is_steady,
    look,
    restless,
    too_many_requests,
    unsettled,
)
from poise.sim.drill_faults import FAULTS, RECOVERY_S, befall, heal
from poise.sim.drill_values import SET, TERMS, Chance
from poise.sim.drill_world import DrillWorld

_QUIET_S = 120.0  # Faults stop so long before the end: time enough for nearly everything to settle.
_REST_MAX_S = 300.0  # What was offered in vain is offered again after pauses that double: so long a world may take.
_PEACE_S = 20.0  # Faults begin so late: everything has been placed by then.


class Verdict(msgspec.Struct, frozen=True):
    """What a drill found: nothing, or the first broken law with the story of its item."""

    seed: int
    broken: list[str]
    story: list[str]
    faults: dict[str, int]
    handovers: int
    unowned_max_s: float


def drill(seed: int, *, minutes: float = 5.0, members: int = 8, items: int = 64) -> Verdict:
    """Run one seeded world and judge it."""
    watcher = Watcher(items)
    world = DrillWorld(seed, members, items, watcher)
    names = [f"m{number}" for number in range(members)]
    faults = _trouble(world, Chance(seed + 2**32), names, minutes * 60 - _QUIET_S)
    broken = watcher.broken
    broken += _settle(world, names, items)
    watcher.judge_gaps(world, names)
    lines = _lines(world)
    sound = verify(lines)
    if sound is not None:
        broken.append((sound.line.item, f"the journal: {sound}"))
    handovers = sum(line.transition == "released" for line in lines)
    told = [text for _, text in broken]
    return Verdict(seed, told, _story(world, broken), faults, handovers, round(watcher.unowned_max_s, 3))


def _trouble(world: DrillWorld, draw: Chance, names: list[str], until_s: float) -> dict[str, int]:
    """Let faults befall the world until an instant, and end them all then."""
    counts: dict[str, int] = {}
    world.until_s = until_s
    world.run_until(min(_PEACE_S, until_s))
    while world.now_s < until_s:
        world.run_until(world.now_s + draw.between(1.0, 12.0))
        verb = FAULTS[draw.below(len(FAULTS))]
        counts[verb] = counts.get(verb, 0) + 1
        befall(world, verb, draw, names)
    heal(world, names)
    return counts


def _settle(world: DrillWorld, names: list[str], items: int) -> list[tuple[str, str]]:
    """Let a healed world come to rest, and judge how: with the fewest hand-overs, evenly, and then with no more."""
    healed_s, end_s = world.now_s, world.now_s + _QUIET_S
    while not is_steady(world, names, healed_s):
        if world.now_s > healed_s + 2 * RECOVERY_S:
            return [("", f"{world.now_s:.3f} s: faults are over, and not everybody is back")]
        world.run_until(world.now_s + 0.5)
    facts, before = look(world), world.store.length()
    # What was lost or late just before may still cost somebody a lease.
    world.run_until(max(world.now_s, healed_s + TERMS.lease_s + TERMS.grace_s))
    while world.now_s < healed_s + _REST_MAX_S and not _rests(world, items):
        world.run_until(world.now_s + 2.0)
    broken, done = unsettled(world, items), world.store.length()
    world.run_until(max(end_s, world.now_s + RECOVERY_S))
    lines = _lines(world)
    return [*broken, *too_many_requests(lines[before:], fewest_requests(facts, names)), *restless(lines[done:])]


def _rests(world: DrillWorld, items: int) -> bool:
    """Say whether all is worked on as it should be and nobody is about to begin or to stop anything."""
    acting = all(
        piece.phase is Phase.ACTING for process in world.running() for piece in process.holding.pieces.values()
    )
    return (
        acting
        and not unsettled(world, items)
        and all(row.confirmed for row in look(world).rows.values() if row.state is not OwnerState.UNASSIGNED)
    )


def _lines(world: DrillWorld) -> list[Line]:
    return world.store.journal(SET, most=1_000_000)


def _story(world: DrillWorld, broken: list[tuple[str, str]]) -> list[str]:
    """Tell the journal of the item that broke first."""
    if not broken or not broken[0][0]:
        return []
    lines = world.store.journal(SET, broken[0][0], most=1_000_000)
    return [
        f"{line.at_s:9.3f} s  {line.transition} {line.member or ''} epoch {line.epoch}  {line.reason}" for line in lines
    ]
