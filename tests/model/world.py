"""The explored world: one store, its processes, coordinators, and the messages between them, in small steps.

Nothing of the protocol is written here. Every change of the store is an operation of `poise.move.executor`, and every
change of a process one of `poise.hold.holding`. Parts of the world are kept once and known by a number, so that a
world is a small tuple and each operation is computed once for each of its inputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache, partial
from typing import Generic, NamedTuple, TypeVar

import msgspec
from tests.model import people
from tests.model.facts import (
    MARK,
    NOW,
    OLDEST,
    BlindTransaction,
    Facts,
    FactsTransaction,
    aged,
    breaches,
    counter,
    replace,
    shifted,
)
from tests.model.people import CLOCK_ERROR_S, Person

from poise.decide.partition_values import Step, StepKind
from poise.errors import Conflict
from poise.hold.holding import Phase
from poise.model.ownership import Heartbeat, OwnerState, Reply, SetRow, Terms
from poise.move import executor, heartbeat
from poise.move.handoff import Transition
from poise.move.heartbeat import Superseded

FAULTS = (
    *("start", "crash", "pause", "twice", "late plan", "election", "resize", "reboot", "failover", "leave", "shorten"),
    *("drain", "hold"),
)
UPTIME_S = 5.0  # How far the store's clock falls back at a reboot.
BEAT, ANSWER, REGISTRATION, WELCOME = range(4)
Message = tuple[int, int, int, int, int]  # The process, the kind, the payload, its age in ticks, its sequence number.
Late = tuple[int, bool, bool, int]  # A plan under way: the step, whether its row and its term are current, its view.
Value = TypeVar("Value")


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What is explored: how many items, whose processes, how many of each fault, and the bounds."""

    items: int = 1
    names: tuple[str, ...] = ("a", "a", "b")
    unborn: tuple[int, ...] = (1,)
    faults: dict[str, int] = {}
    grants_max: int = 3
    messages_max: int = 2
    each_max: int = 2
    terms: Terms = Terms(lease_s=2.0, grace_s=1.0, release_s=1.0, restart_grace_s=1.0)
    keeps_view: bool = False  # A late plan remembers the facts that it was made from.
    rash: bool = False  # The planner also proposes to grant what somebody owns, and to retire it.
    careful: bool = False  # The planner proposes to free only what is due by what it sees, as the shipped one does.
    timeless: bool = False  # No time passes: for what goes wrong within one instant.
    follows_table: bool = True  # Else only two owners count: what follows from an epoch or a change that is wrong.


class World(NamedTuple):
    """One state; all numbers are places in the tables of its universe."""

    store: int
    people: tuple[int, ...]
    messages: tuple[Message, ...]
    plan: Late | None
    backup: int
    budget: tuple[int, ...]
    granted: tuple[int, ...]  # The largest epoch of each item that was ever granted, whatever the store has forgotten.


class Next(NamedTuple):
    """One step: what happened, where it leads, and which law it broke."""

    label: str
    world: World
    broken: str = ""


class Done(NamedTuple):
    """What an operation on the store did."""

    store: int
    answer: int
    seq: int
    moved: tuple[str, ...]
    granted: tuple[tuple[int, int], ...]
    broken: str


class Table(Generic[Value]):
    """Keeps each value once."""

    def __init__(self) -> None:
        """Start empty."""
        self._places: dict[bytes, int] = {}
        self.values: list[Value] = []

    def place(self, value: Value) -> int:
        """Give the number of a value."""
        key = type(value).__name__.encode() + msgspec.msgpack.encode(value)
        if key not in self._places:
            self._places[key] = len(self.values)
            self.values.append(value)
        return self._places[key]


class Universe:
    """All that can happen in a scene. Every operation is remembered: it is pure."""

    def __init__(self, scene: Scene) -> None:
        """Make the tables, and a memory for every operation."""
        self.scene = scene
        self.facts: Table[Facts] = Table()
        self.persons: Table[Person] = Table()
        self.words: Table[Heartbeat | Reply | Superseded] = Table()
        self.steps: Table[Step] = Table()
        self.tick_store = cache(lambda store: self.facts.place(shifted(self.facts.values[store], -1.0)))
        self.tick_person = cache(lambda who: self.persons.place(people.tick(self.persons.values[who])))
        self.say = cache(self._say)
        self.heard = cache(self._heard)
        self.take = cache(self._take)
        self.apply = cache(self._apply)
        self.candidates = cache(self._candidates)
        self.aging = cache(lambda store, who: self.facts.place(aged(self.facts.values[store], *self.identity(who))))
        self.acting = cache(self._acting)
        self.moves = cache(self._moves)
        self.operations = cache(self._operations)
        self.older = cache(self._older)
        self.tick_messages = cache(self._tick_messages)
        self.send = cache(self._send)
        self.in_flight = cache(self._in_flight)
        self.spelled = cache(self._spelled)
        self.forget = cache(self._forget)
        self.forget_used = cache(self._forget_used)
        self.register = cache(self._register)
        self.fail_over = cache(self._fail_over)

    def identity(self, who: int) -> tuple[str, str]:
        """Name a process."""
        return self.scene.names[who], f"p{who}"

    def born(self, who: int, incarnation: int) -> int:
        """Make a process that has heard of its registration."""
        name, process = self.identity(who)
        return self.persons.place(people.born(name, process, incarnation, revoke=self.scene.terms.revoke))

    def start(self) -> World:
        """Begin with a set whose items nobody holds, and processes that have registered."""
        scene = self.scene
        empty = Facts(SetRow(name="s", terms=scene.terms, granted_max_s=scene.terms.lease_s, revision=MARK), (), ())
        store = self.operate(
            self.facts.place(empty),
            lambda tx: executor.put_set(tx, SetRow(name="s", count=scene.items, terms=scene.terms)),
        ).store
        persons = []
        for who, name in enumerate(scene.names):
            if who in scene.unborn:
                persons.append(self.persons.place(Person(name=name)))
            else:
                store = self.register(store, who).store
                persons.append(self.born(who, 1))
        budget = tuple(scene.faults.get(fault, 0) for fault in FAULTS)
        return World(store, tuple(persons), (), None, -1, budget, (0,) * scene.items)

    # Operations on the store

    def operate(self, store: int, work: Callable[[FactsTransaction], object], view: int = -1) -> Done:
        """Run one transaction, and hold what it did against the table."""
        before = self.facts.values[store]
        tx = FactsTransaction(before) if view < 0 else BlindTransaction(before, self.facts.values[view])
        try:
            answer = work(tx)
        except Conflict:
            return Done(store, -1, 0, (), (), "")
        moved = tuple(item for item, row in tx.rows().items() if row.revision != MARK)
        after = tx.result()
        epochs = {row.id: row.epoch for row in after.rows}
        granted = tuple((int(line.item), epochs[line.item]) for line in tx.lines if line.transition == Transition.T1)
        payload, seq = self._payload(answer)
        broken = breaches(before, after, tx.lines) if self.scene.follows_table else ""
        return Done(self.facts.place(after), payload, seq, moved, granted, broken)

    def _payload(self, answer: object) -> tuple[int, int]:
        """Keep an answer without its number, which changes as the process goes on speaking."""
        match answer:
            case Reply():
                return self.words.place(replace(answer, seq=0)), answer.seq
            case Superseded():
                return self.words.place(Superseded(0)), MARK
        return -1, 0

    def _register(self, store: int, who: int) -> Done:
        """Let a process register; the answer is its incarnation."""
        name, process = self.identity(who)
        done = self.operate(store, lambda tx: executor.register_member(tx, "s", name, process))
        members = {member.name: member for member in self.facts.values[done.store].members}
        return done._replace(answer=members[name].incarnation)

    def _take(self, store: int, who: int, payload: int, seq: int) -> Done:
        said = self.words.values[payload]
        assert isinstance(said, Heartbeat)
        numbered = replace(said, seq=seq)
        return self.operate(store, lambda tx: executor.take_heartbeat(tx, "s", self.scene.names[who], numbered))

    def _apply(self, store: int, number: int, fresh: bool, current: bool, view: int) -> Done:
        """Write one step of a plan, made from a row and in a term that may both be over."""
        planned = self.steps.values[number]
        seen = {planned.partition: MARK if fresh or view >= 0 else MARK - 1}
        term = MARK if current else MARK - 1
        return self.operate(store, lambda tx: executor.apply_plan(tx, "s", term, seen, [planned], 0), view)

    def _candidates(self, store: int) -> tuple[int, ...]:
        """List every step that any planner could want: more than the shipped one ever asks for."""
        facts, names = self.facts.values[store], sorted(set(self.scene.names))
        found = []
        for row in facts.rows:
            kinds: list[tuple[StepKind, str | None]] = []
            if row.state is OwnerState.UNASSIGNED or self.scene.rash:
                room = counter(row.epoch) < self.scene.grants_max
                kinds += [(StepKind.ASSIGN, name) for name in names if room]
                kinds.append((StepKind.RETIRE, None))
            if row.state is not OwnerState.UNASSIGNED:
                if not self.scene.careful or row.lease_until_s + facts.job.terms.grace_s <= NOW:
                    kinds.append((StepKind.UNASSIGN, None))
                beyond = int(row.id) >= facts.job.count
                kinds += [(StepKind.RELEASE, name) for name in ([None] if beyond else names) if name != row.owner]
            if row.state is OwnerState.REQUESTED_RELEASE:
                kinds.append((StepKind.CANCEL, None))
            found += [self.steps.place(Step(kind, row.id, row.owner, target, "")) for kind, target in kinds]
        return tuple(found)

    def _operations(self, store: int) -> tuple[tuple[str, str, Done], ...]:
        """List what operators, reboots and failovers can do, each with the fault that it counts as."""
        facts = self.facts.values[store]
        job = facts.job
        shorter = replace(job, terms=replace(job.terms, lease_s=job.terms.lease_s - 1))
        found: list[tuple[str, str, Callable[[], Done]]] = [
            ("shorten", "leases become shorter", lambda: self._put(store, shorter)),
            ("hold", "the set is paused or goes on", partial(self.operate, store, self._pausing(not job.paused))),
            ("reboot", "the store reboots", lambda: Done(self.facts.place(self._reboot(facts)), -1, 0, (), (), "")),
        ]
        found += [
            ("resize", f"the set gets {size} items", partial(self._put, store, replace(job, count=size)))
            for size in range(self.scene.items + 1)
        ]
        for member in facts.members:
            work = self._draining(member.name, not member.draining)
            found.append(("drain", f"{member.name} drains or comes back", partial(self.operate, store, work)))
        return tuple((fault, label, done()) for fault, label, done in found if self.scene.faults.get(fault))

    def _put(self, store: int, job: SetRow) -> Done:
        return self.operate(store, lambda tx: executor.put_set(tx, job))

    def _pausing(self, paused: bool) -> Callable[[FactsTransaction], object]:
        return lambda tx: executor.pause_set(tx, "s", paused)

    def _draining(self, name: str, draining: bool) -> Callable[[FactsTransaction], object]:
        return lambda tx: executor.drain_member(tx, "s", name, draining)

    def _reboot(self, facts: Facts) -> Facts:
        """Let the store's clock begin anew: what it said before means nothing, so everything gets its full length."""
        begun = shifted(facts, UPTIME_S)
        full = NOW + begun.job.terms.lease_s
        quarantined = facts.job.quarantine_until_s > NOW
        return replace(
            begun,
            job=replace(begun.job, quarantine_until_s=full + begun.job.terms.grace_s if quarantined else NOW),
            members=tuple(replace(member, lease_until_s=full) for member in begun.members),
            rows=tuple(heartbeat.after_reboot(begun.job, row, NOW) for row in begun.rows),
        )

    def _fail_over(self, backup: int) -> int:
        """Go on with an older state; the store notices, and starts a new generation before it grants anything."""
        facts = self.facts.values[backup]
        rows = {row.id: row for row in facts.rows}
        job, renewed = heartbeat.next_generation(facts.job, rows, facts.job.generation, NOW)
        tx = FactsTransaction(replace(facts, job=replace(job, revision=MARK)))
        tx.write_rows(renewed.values())
        return self.facts.place(tx.result())

    def _forget(self, store: int, oldest: tuple[int, ...]) -> int:
        """Take the number of the last heartbeat of each process for an old one if every one in flight is newer."""
        facts = self.facts.values[store]
        least = {self.identity(who): number for who, number in enumerate(oldest)}
        members = tuple(
            replace(each, seq=OLDEST) if each.seq < least.get((each.name, each.process), 0) else each
            for each in facts.members
        )
        return self.facts.place(replace(facts, members=members))

    # Messages

    def _older(self, payload: int, by: int) -> int:
        """Let an answer grow older: what it grants is counted from the moment its heartbeat was sent."""
        answer = self.words.values[payload]
        if not isinstance(answer, Reply):
            return payload
        granted = tuple(replace(each, lease_s=max(0.0, each.lease_s - by)) for each in answer.granted)
        release = tuple(
            replace(each, lease_s=max(0.0, each.lease_s - by), deadline_s=max(-CLOCK_ERROR_S, each.deadline_s - by))
            for each in answer.release
        )
        return self.words.place(replace(answer, granted=granted, release=release))

    def _tick_messages(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        most = int(self.scene.terms.lease_s)
        return tuple(
            sorted(
                (who, kind, self.older(words, 1), 0, seq)
                if kind == ANSWER
                else (who, kind, words, min(most, age + 1), seq)
                for who, kind, words, age, seq in messages
            )
        )

    def _send(self, messages: tuple[Message, ...], who: int, words: int) -> tuple[Message, ...]:
        """Add a heartbeat: what is on its way from or to its process is now older by one."""
        older = (
            (each[0], each[1], each[2], each[3], each[4] - 1) if each[0] == who and each[1] in (BEAT, ANSWER) else each
            for each in messages
        )
        return tuple(sorted((*(each for each in older if each[4] > OLDEST), (who, BEAT, words, 0, MARK))))

    def _in_flight(self, messages: tuple[Message, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Give for each process the oldest numbers that its heartbeats and answers on their way have or will have."""

        def oldest(who: int, *kinds: int) -> int:
            return min((each[4] for each in messages if each[0] == who and each[1] in kinds), default=MARK + 1)

        processes = range(len(self.scene.names))
        return tuple(oldest(who, BEAT) for who in processes), tuple(oldest(who, BEAT, ANSWER) for who in processes)

    def _spelled(self, payload: int) -> str:
        """Say what an answer says."""
        answer = self.words.values[payload]
        if not isinstance(answer, Reply):
            return "superseded"
        held = [
            f"{each.item} at epoch {each.epoch} for {each.lease_s:g} from when it was sent" for each in answer.granted
        ]
        gone = [f"release {each.item} at epoch {each.epoch}" for each in answer.release]
        return "; ".join(held + gone) or "nothing"

    # Operations of processes

    def _forget_used(self, persons: tuple[int, ...], oldest: tuple[int, ...]) -> tuple[int, ...]:
        """Take the number of the last reply for an old one if every one in flight to its process is newer."""
        return tuple(itertools.starmap(self._without_used, zip(persons, oldest, strict=True)))

    def _without_used(self, person: int, least: int) -> int:
        known = self.persons.values[person]
        if known.holding is None or known.holding.used_seq >= least:
            return person
        return self.persons.place(replace(known, holding=replace(known.holding, used_seq=OLDEST)))

    def _say(self, person: int) -> tuple[int, int]:
        after, said = people.speak(self.persons.values[person])
        return self.persons.place(after), self.words.place(said)

    def _heard(self, person: int, payload: int, seq: int) -> int:
        answer = self.words.values[payload]
        before = self.persons.values[person]
        if isinstance(answer, Reply):
            return self.persons.place(people.hear(before, replace(answer, seq=seq), NOW))
        return self.persons.place(people.superseded(before))

    def _acting(self, persons: tuple[int, ...]) -> str:
        """Name an item that two processes act on."""
        acting = [item for person in persons for item in self.persons.values[person].acts_on()]
        return next((f"two owners of item {item}" for item in acting if acting.count(item) > 1), "")

    def _moves(self, person: int) -> tuple[tuple[str, str, int], ...]:
        """List what a process can do alone: (the fault that it counts as or "", what happens, the process after)."""
        before = self.persons.values[person]
        if before.state != "live":
            return ()
        found = [("crash", "crashes", Person(name=before.name, state="gone"))]
        if before.paused:
            return tuple(
                (fault, label, self.persons.place(after))
                for fault, label, after in [*found, ("", "resumes", people.resume(before))]
            )
        found.append(("pause", "is paused", replace(before, paused=True)))
        found.append(("", "looks at its clock", people.watch(before)))
        for item, piece in before.knows().pieces.items():
            if piece.phase in (Phase.FINISHING, Phase.STOPPING):
                found.append(("", f"has stopped {item}", people.stop(before, item)))
        if before.leaving is None:
            found += [("leave", f"leaves to {why}", people.leave(before, why)) for why in people.LEAVINGS]
        placed = ((fault, label, self.persons.place(after)) for fault, label, after in found)
        return tuple(each for each in placed if each[2] != person)
