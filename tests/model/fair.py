"""The fair schedule: faults stop, everybody is heard, the shipped planner plans, time passes. Does all settle?"""

from __future__ import annotations

from functools import cache

from tests.model import people, turns
from tests.model.facts import MARK, NOW, Facts
from tests.model.people import Person
from tests.model.world import ANSWER, BEAT, REGISTRATION, WELCOME, Universe, World

from poise.hold.holding import Phase, Piece
from poise.jobs.snapshots import plan_snapshot
from poise.model.ownership import LeaderRow, OwnerState, Row
from poise.move import executor
from poise.move.executor import Snapshot

ROUNDS_MAX = 25


class FairSchedule:
    """Runs worlds on until they settle, and remembers how long each takes.

    A stubborn process never ends its work by itself: it is asked in vain, and stops only what it must stop at once.
    """

    def __init__(self, universe: Universe, *, stubborn: bool) -> None:
        """Stand over a universe."""
        self._universe = universe
        self._stubborn = stubborn
        self._rounds: dict[World, int] = {}
        self._planned = cache(self._plan)
        self._worked = cache(self._work)
        self.longest = 0

    def judge(self, world: World) -> str:
        """Name the broken law if a world does not settle."""
        passed: list[World] = []
        current = self._calm(world)
        while current not in self._rounds:
            if len(passed) >= ROUNDS_MAX:
                return f"not settled after {ROUNDS_MAX} rounds of a fair schedule"
            passed.append(current)
            spoken = self._talk(current)
            if self._settled(spoken):
                self._rounds[current] = 0
                break
            current = turns.canonical(self._universe, turns.tick(self._universe, spoken))
        least = self._rounds[current]
        for rounds, each in enumerate(reversed(passed)):
            self._rounds.setdefault(each, least + rounds + 1)
        self.longest = max(self.longest, least + len(passed))
        return f"not settled after {self.longest} rounds" if self.longest > ROUNDS_MAX else ""

    def _calm(self, world: World) -> World:
        """End the faults: what is under way arrives, the paused wake up, and nothing new goes wrong."""
        universe = self._universe
        persons = tuple(self._awake(each) for each in world.people)
        calm = world._replace(people=persons, plan=None, backup=-1, budget=())
        for kinds, arrive in (((BEAT, REGISTRATION), turns.receive), ((ANSWER, WELCOME), turns.deliver)):
            for message in [each for each in calm.messages if each[1] in kinds]:
                left = [each for each in calm.messages if each is not message]
                rest = calm._replace(messages=tuple(left))
                calm = next((after for _, after, _ in arrive(universe, rest, message)), rest)
        return turns.canonical(universe, calm._replace(messages=(), granted=()))

    def _awake(self, number: int) -> int:
        person = self._universe.persons.values[number]
        return self._universe.persons.place(people.resume(person)) if person.paused else number

    def _talk(self, world: World) -> World:
        """Let the leader plan, and everybody say and hear once."""
        universe = self._universe
        world = world._replace(store=self._planned(world.store))
        for who, number in enumerate(world.people):
            person = universe.persons.values[number]
            if person.state == "registering":
                done = universe.register(world.store, who)
                world = turns.with_person(world._replace(store=done.store), who, universe.born(who, done.answer))
            if turns.speaks(universe.persons.values[world.people[who]]):
                world = self._beat(world, who)
        return world

    def _beat(self, world: World, who: int) -> World:
        """Let one process work, speak and hear."""
        universe = self._universe
        sent = turns.send(universe, turns.with_person(world, who, self._worked(world.people[who])), who)
        ((_, _, words, _, seq),) = sent.messages
        done = universe.take(sent.store, who, words, seq)
        person = sent.people[who] if done.answer < 0 else universe.heard(sent.people[who], done.answer, done.seq)
        return turns.with_person(sent._replace(store=done.store, messages=()), who, person)

    def _work(self, number: int) -> int:
        """Let work end that was asked for, unless it is stubborn."""
        person = self._universe.persons.values[number]
        for item, piece in person.knows().pieces.items():
            if piece.phase is Phase.FINISHING and not self._stubborn:
                person = people.stop(person, item)
        return self._universe.persons.place(person)

    def _plan(self, store: int) -> int:
        """Plan with the shipped planner and write all of it."""
        facts = self._universe.facts.values[store]
        members, rows = {each.name: each for each in facts.members}, {row.id: row for row in facts.rows}
        plan = plan_snapshot(Snapshot(facts.job, LeaderRow(term=MARK), members, rows, NOW))
        seen = dict.fromkeys(rows, MARK)
        return self._universe.operate(store, lambda tx: executor.apply_plan(tx, "s", MARK, seen, plan.steps, 0)).store

    def _settled(self, world: World) -> bool:
        facts = self._universe.facts.values[world.store]
        persons = [self._universe.persons.values[each] for each in world.people]
        if any(int(row.id) >= facts.job.count for row in facts.rows) or len(facts.rows) != facts.job.count:
            return False
        able = self._is_able(facts, persons)
        return all(
            self._is_held(row, persons) if able or row.owner else not _working(row.id, persons) for row in facts.rows
        )

    def _is_held(self, row: Row, persons: list[Person]) -> bool:
        """Say whether one process works on an item, takes new work, and the store knows it."""
        working = _working(row.id, persons)
        if row.state is not OwnerState.ASSIGNED or [piece.epoch for piece in working] != [row.epoch]:
            return False
        return row.confirmed and working[0].phase is Phase.ACTING

    def _is_able(self, facts: Facts, persons: list[Person]) -> bool:
        """Say whether anybody can be given something."""
        draining = {member.name for member in facts.members if member.draining}
        live = [person for person in persons if person.state == "live" and not person.knows().ended]
        return any(person.leaving is None and person.name not in draining for person in live)


def _working(item: str, persons: list[Person]) -> list[Piece]:
    """List what anybody does with an item, until it has stopped."""
    known = [person.holding.pieces.get(item) for person in persons if person.holding is not None]
    return [piece for piece in known if piece is not None and piece.phase in people.BUSY]
