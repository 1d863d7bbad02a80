"""The judges of a drill: they watch who works on what, read rows and journal, and share nothing with the planner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from poise.model.ownership import OWNED, RELEASING, Line, OwnerState, Row
from poise.move.executor import Snapshot, snapshot
from poise.sim.drill_faults import RECOVERY_S
from poise.sim.drill_values import SET, TERMS, Process
from poise.sim.drill_world import DrillWorld, Observer

_OFFERS_MAX = 3


class Watcher(Observer):
    """Judges every moment: no second owner that was not frozen, epochs that only grow, no item left alone too long.

    An item may be without work for RECOVERY_S, and for what each trouble of those it was given to may cost.
    """

    def __init__(self, items: int) -> None:
        """Begin with nothing at work."""
        self.broken: list[tuple[str, str]] = []
        self.unowned_max_s = 0.0
        self._lines = 0
        self._epochs: dict[str, int] = {}
        self._at_work: dict[str, set[Process]] = {str(number): set() for number in range(items)}
        self._since_s = dict.fromkeys(self._at_work, 0.0)

    def begun(self, world: DrillWorld, process: Process, item: str, epoch: int) -> None:
        """Judge the epoch and whoever else is at work."""
        if epoch <= self._epochs.get(item, 0):
            self._tell(world, item, f"{item} begun at epoch {epoch} after {self._epochs[item]}")
        self._epochs[item] = max(epoch, self._epochs.get(item, 0))
        self.resumed(world, process, [item])

    def resumed(self, world: DrillWorld, process: Process, items: Iterable[str]) -> None:
        """Judge whoever else is at work, and how long nobody was."""
        for item in items:
            workers = self._at_work[item]
            for other in workers - {process}:
                told = f"{item} acted on by {process.name} (process {process.number}) and {other.name} ({other.number})"
                self._tell(world, item, told)
            if not workers:
                self._judge_gap(world, item)
            workers.add(process)

    def idle(self, world: DrillWorld, process: Process, items: Iterable[str]) -> None:
        """Note since when nobody works on an item."""
        for item in items:
            workers = self._at_work[item]
            if process in workers:
                workers.discard(process)
                self._since_s[item] = world.now_s

    def led(self, world: DrillWorld) -> None:
        """Judge the budgets whenever a leader has written."""
        if (lines := world.store.length()) != self._lines:
            self._lines = lines
            self.broken += over_budget(world)

    def judge_gaps(self, world: DrillWorld, names: Iterable[str]) -> None:
        """Judge what nobody works on now, though somebody may."""
        alone = {item for item, workers in self._at_work.items() if not workers}
        for item in sorted(alone - _refused_by_all(world, names)):
            self._judge_gap(world, item)

    def _judge_gap(self, world: DrillWorld, item: str) -> None:
        from_s = self._since_s[item]
        gap_s = world.now_s - from_s
        self.unowned_max_s = max(self.unowned_max_s, gap_s)
        if gap_s > RECOVERY_S and gap_s > (allowed_s := _allowed_s(world, item, from_s)):
            self._tell(
                world, item, f"nobody worked on {item} for {gap_s:.1f} s, and its faults explain {allowed_s:.1f}"
            )

    def _tell(self, world: DrillWorld, item: str, told: str) -> None:
        self.broken.append((item, f"{world.now_s:.3f} s: {told}"))


def _allowed_s(world: DrillWorld, item: str, from_s: float) -> float:
    """Add up what the troubles of everyone who was given the item may cost; a crash may be noticed a lease later."""
    lines = world.store.journal(SET, item, most=1_000_000)
    given = [line for line in lines if line.transition == "assigned"]
    before = [line for line in given if line.at_s <= from_s + world.stepped_s]
    involved = {"", *(line.member for line in [*before[-1:], *given[len(before) :]])}
    start_s = from_s - TERMS.lease_s - TERMS.grace_s
    return RECOVERY_S + sum(
        trouble.cost_s
        for trouble in world.troubles
        if trouble.who in involved and trouble.until_s >= start_s and trouble.from_s <= world.now_s
    )


def look(world: DrillWorld) -> Snapshot:
    """Read everything as it is now."""
    return world.store.look(SET, lambda tx: snapshot(tx, SET))


def over_budget(world: DrillWorld) -> list[tuple[str, str]]:
    """Judge the hand-overs that begin at this instant: with them, no more are under way than the set allows.

    Only those of live owners count, the others are recovery; so an owner that is heard again may make them too many.
    """
    facts = look(world)
    guards, now_s = facts.job.guards, facts.now_s
    live = {(each.name, each.incarnation) for each in facts.members.values() if now_s < each.lease_until_s}
    moving: dict[str, list[Row]] = {}
    for row in facts.rows.values():
        if row.state in RELEASING and (row.owner, row.owner_incarnation) in live and now_s < row.lease_until_s:
            for where in ("", f" from {row.owner}", *([f" to {row.target}"] if row.target else [])):
                moving.setdefault(where, []).append(row)
    most = {"": guards.moves_in_flight_max, "from": guards.per_source_max, "to": guards.per_target_max}
    return [
        (rows[0].id, f"{world.now_s:.3f} s: {len(rows)} hand-overs{where} under way, {limit} allowed")
        for where, rows in moving.items()
        if (limit := most[where.strip().partition(" ")[0]]) is not None
        and len(rows) > limit
        and any(row.state is OwnerState.REQUESTED_RELEASE and row.since_s == now_s for row in rows)
    ]


def is_steady(world: DrillWorld, names: Iterable[str], since_s: float) -> bool:
    """Say whether every member was heard since then, and every item is with a living process or free.

    From then on nothing happens to anybody.
    """
    facts = look(world)
    going = [process for process in world.running() if not process.holding.ended]
    latest_s = since_s + world.stepped_s + TERMS.lease_s
    heard = {(each.name, each.incarnation) for each in facts.members.values() if each.lease_until_s >= latest_s}
    owners = {(row.owner, row.owner_incarnation) for row in facts.rows.values() if row.state in OWNED}
    back = sorted(process.name for process in going) == sorted(names)
    return back and heard == {(each.name, each.holding.incarnation) for each in going} and owners <= heard


def fewest_requests(facts: Snapshot, names: list[str]) -> int:
    """Count what must leave a live owner from here, at the least: sum of max(0, load - floor), less the ceilings used.

    What is being released counts on its target. An item that a member refused three times may cost a request more.
    """
    loads = Counter(row.target if row.state in RELEASING else row.owner for row in facts.rows.values())
    floor, ceilings = divmod(len(facts.rows), len(names))
    above = [loads[name] - floor for name in names if loads[name] > floor]
    barred = sum(max(row.offers.values(), default=0) >= _OFFERS_MAX for row in facts.rows.values())
    return sum(above) - min(ceilings, len(above)) + barred


def too_many_requests(lines: list[Line], fewest: int) -> list[tuple[str, str]]:
    """Judge the requests to let go that were written after everybody was back."""
    asked = [line for line in lines if line.transition == "release requested"]
    if len(asked) <= fewest:
        return []
    return [(asked[-1].item, f"after the last fault {len(asked)} releases were asked for, and {fewest} were enough")]


def restless(lines: list[Line]) -> list[tuple[str, str]]:
    """Judge a world in which all is settled: nothing is written any more."""
    return [
        (line.item, f"all was settled, and {line.item} was {line.transition} all the same ({line.reason})")
        for line in lines
        if line.item
    ][:1]


def _refused_by_all(world: DrillWorld, names: Iterable[str]) -> set[str]:
    """Name what was offered to every member three times and never confirmed: nobody may have it, and that is told."""
    rows = look(world).rows.values()
    return {row.id for row in rows if all(row.offers.get(name, 0) >= _OFFERS_MAX for name in names)}


def unsettled(world: DrillWorld, items: int) -> list[tuple[str, str]]:
    """Judge an end: everything is worked on by exactly one, loads are floor or ceiling."""
    actors: dict[str, list[str]] = {}
    loads: dict[str, int] = {}
    for process in world.running():
        if not process.holding.ended:
            loads.setdefault(process.name, 0)
        for item in process.acting:
            actors.setdefault(item, []).append(process.name)
            loads[process.name] = loads.get(process.name, 0) + 1
    alone = [item for item in map(str, range(items)) if len(actors.get(item, [])) != 1]
    refused = _refused_by_all(world, loads) if alone else set()
    broken = [
        (item, f"at the end {item} is worked on by {actors.get(item, [])}")
        for item in alone
        if item in actors or item not in refused
    ]
    if not alone and max(loads.values()) - min(loads.values()) > 1:
        broken.append(("", f"at the end the loads are {sorted(loads.values())}"))
    return broken
