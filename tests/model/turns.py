"""What can happen next in a world: every interleaving of what is sent, applied, delivered late, lost, or goes wrong."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.facts import MARK, counter
from tests.model.people import Person
from tests.model.world import (
    ANSWER,
    BEAT,
    FAULTS,
    REGISTRATION,
    WELCOME,
    Done,
    Message,
    Next,
    Universe,
    World,
)

from poise.hold.holding import Phase

_PLACES = {fault: place for place, fault in enumerate(FAULTS)}


def turns(universe: Universe, world: World) -> Iterator[Next]:
    """List every next step, judged: a broken law is named with the step that broke it."""
    for label, reached, broken in _turns(universe, world):
        after = canonical(universe, reached)
        twice = universe.acting(after.people) if after.people != world.people else ""
        yield Next(label, after, broken or twice)


def canonical(universe: Universe, world: World) -> World:
    """Forget sequence numbers that nothing in flight can be compared with."""
    store, persons, messages, plan, backup, budget, granted = world
    beats, answers = universe.in_flight(messages)
    backup = universe.forget(backup, beats) if backup >= 0 else -1
    persons = universe.forget_used(persons, answers)
    return World(universe.forget(store, beats), persons, messages, plan, backup, budget, granted)


def _turns(universe: Universe, world: World) -> Iterator[Next]:
    if not universe.scene.timeless:
        yield Next("a tick passes", tick(universe, world))
    for who in range(len(world.people)):
        yield from _process(universe, world, who)
    for place in range(len(world.messages)):
        yield from _message(universe, world, place)
    yield from _plans(universe, world)
    yield from _faults(universe, world)


def tick(universe: Universe, world: World) -> World:
    """Let a tick pass for everybody: processes fence themselves, and messages grow older."""
    store, persons, messages, plan, backup, budget, granted = world
    return World(
        universe.tick_store(store),
        tuple(map(universe.tick_person, persons)),
        universe.tick_messages(messages),
        plan and (*plan[:3], universe.tick_store(plan[3]) if plan[3] >= 0 else -1),
        universe.tick_store(backup) if backup >= 0 else -1,
        budget,
        granted,
    )


def _spend(world: World, fault: str) -> World | None:
    """Use one of the faults that may happen; None where none is left."""
    place = _PLACES[fault]
    store, persons, messages, plan, backup, budget, granted = world
    if not budget[place]:
        return None
    left = (*budget[:place], budget[place] - 1, *budget[place + 1 :])
    return World(store, persons, messages, plan, backup, left, granted)


def with_person(world: World, who: int, person: int) -> World:
    """Put a process in its place."""
    store, persons, messages, plan, backup, budget, granted = world
    return World(store, (*persons[:who], person, *persons[who + 1 :]), messages, plan, backup, budget, granted)


def _with_messages(world: World, messages: tuple[Message, ...]) -> World:
    store, persons, _, plan, backup, budget, granted = world
    return World(store, persons, messages, plan, backup, budget, granted)


def _with_message(world: World, message: Message) -> World:
    return _with_messages(world, tuple(sorted((*world.messages, message))))


def _without(world: World, place: int) -> World:
    return _with_messages(world, world.messages[:place] + world.messages[place + 1 :])


def _process(universe: Universe, world: World, who: int) -> Iterator[Next]:
    number = world.people[who]
    person = universe.persons.values[number]
    named = f"{person.name} (p{who})"
    for fault, label, after in universe.moves(number):
        paid = _spend(world, fault) if fault else world
        if paid is not None:
            yield Next(f"{named} {label}", with_person(paid, who, after))
    room = len(world.messages) < universe.scene.messages_max
    if person.state == "unborn" and room and (paid := _spend(world, "start")) is not None:
        begun = universe.persons.place(Person(name=person.name, state="registering"))
        yield Next(
            f"{named} starts and registers",
            _with_message(with_person(paid, who, begun), (who, REGISTRATION, 0, 0, MARK)),
        )
    if speaks(person):
        for label, before in _room(universe, world, who):
            yield Next(f"{named} sends a heartbeat{label}", send(universe, before, who))


def _room(universe: Universe, world: World, who: int) -> Iterator[tuple[str, World]]:
    """Make room for one more message: what was never delivered when the next one is sent counts as lost."""
    mine = sum(each[0] == who for each in world.messages)
    if mine < universe.scene.each_max and len(world.messages) < universe.scene.messages_max:
        yield "", world
    else:
        for place, each in enumerate(world.messages):
            if mine < universe.scene.each_max or each[0] == who:
                yield f"; an earlier message of p{each[0]} is lost", _without(world, place)


def speaks(person: Person) -> bool:
    """Say whether a process sends heartbeats; one that is superseded only has to say what it released."""
    if person.state != "live" or person.paused:
        return False
    known = person.knows()
    return not known.ended or any(piece.phase is Phase.STOPPED for piece in known.pieces.values())


def send(universe: Universe, world: World, who: int) -> World:
    """Put a heartbeat on its way; what the process sent before is now older by one."""
    store, persons, messages, plan, backup, budget, granted = world
    person, words = universe.say(persons[who])
    return World(
        universe.aging(store, who),
        (*persons[:who], person, *persons[who + 1 :]),
        universe.send(messages, who, words),
        plan,
        universe.aging(backup, who) if backup >= 0 else -1,
        budget,
        granted,
    )


def _message(universe: Universe, world: World, place: int) -> Iterator[Next]:
    message = world.messages[place]
    rest = _without(world, place)
    if message[1] in (BEAT, REGISTRATION):
        yield from receive(universe, rest, message)
        if (paid := _spend(world, "twice")) is not None and len(world.messages) < universe.scene.messages_max:
            yield from receive(universe, paid, message, " and arrives again later")
    else:
        yield from deliver(universe, rest, message)


def receive(universe: Universe, world: World, message: Message, more: str = "") -> Iterator[Next]:
    """Let the store take a request; its answer goes on its way."""
    who, kind, words, age, seq = message
    what = "heartbeat" if kind == BEAT else "registration"
    done = universe.take(world.store, who, words, seq) if kind == BEAT else universe.register(world.store, who)
    after = _committed(universe, world, done)
    if after is None:
        return
    if done.answer >= 0:
        answer = ANSWER if kind == BEAT else WELCOME
        words = universe.older(done.answer, age) if kind == BEAT else done.answer
        after = _with_message(after, (who, answer, words, 0, done.seq if kind == BEAT else MARK))
    label = f"the store takes the {what} of {universe.scene.names[who]} (p{who}){more}"
    yield Next(label, after, done.broken or _regrant(universe, world, done))


def _committed(universe: Universe, world: World, done: Done) -> World | None:
    """Go on with what was written; None where a bound of the scene is passed."""
    _, persons, messages, plan, backup, budget, granted = world
    for item, epoch in done.granted:
        if counter(epoch) > universe.scene.grants_max:
            return None
        granted = (*granted[:item], max(granted[item], epoch), *granted[item + 1 :])
    if plan is not None and universe.steps.values[plan[0]].partition in done.moved:
        plan = (plan[0], False, plan[2], plan[3])
    return World(done.store, persons, messages, plan, backup, budget, granted)


def _regrant(universe: Universe, world: World, done: Done) -> str:
    """Name an item that is granted at an epoch that was granted before."""
    again = (
        f"item {item} is granted again at epoch {epoch}" for item, epoch in done.granted if epoch <= world.granted[item]
    )
    return next(again, "") if universe.scene.follows_table else ""


def deliver(universe: Universe, world: World, message: Message) -> Iterator[Next]:
    """Let a process hear an answer, however late."""
    who, kind, words, _, seq = message
    person = universe.persons.values[world.people[who]]
    name = f"{person.name} (p{who})"
    if kind == WELCOME and person.state == "registering":
        yield Next(f"{name} is registered", with_person(world, who, universe.born(who, words)))
    elif kind == ANSWER and person.state == "live" and not person.paused:
        heard = universe.heard(world.people[who], words, seq)
        yield Next(f"{name} hears an answer: {universe.spelled(words)}", with_person(world, who, heard))


def _plans(universe: Universe, world: World) -> Iterator[Next]:
    """Let a leader plan and write at once, or plan now and write later, when it may be neither current nor leader."""
    for number in universe.candidates(world.store):
        yield from write(universe, world, number, fresh=True, current=True, view=-1)
        if world.plan is None and (paid := _spend(world, "late plan")) is not None:
            view = world.store if universe.scene.keeps_view else -1
            planned = universe.steps.values[number]
            label = f"the leader plans to {planned.kind} {planned.partition} (target {planned.target})"
            yield Next(label, paid._replace(plan=(number, True, True, view)))
    if world.plan is not None:
        number, fresh, current, view = world.plan
        dropped = world._replace(plan=None)
        yield from write(universe, dropped, number, fresh=fresh, current=current, view=view)
        yield Next("the plan is dropped", dropped)
        if current and (paid := _spend(world, "election")) is not None:
            yield Next("another leader is elected", paid._replace(plan=(number, fresh, False, view)))


def write(universe: Universe, world: World, number: int, *, fresh: bool, current: bool, view: int) -> Iterator[Next]:
    """Let a leader write one step, if that changes anything."""
    done = universe.apply(world.store, number, fresh, current, view)
    after = _committed(universe, world, done)
    if after is None or after.store == world.store:
        return
    planned = universe.steps.values[number]
    label = f"the leader writes: {planned.kind} {planned.partition} (target {planned.target})"
    yield Next(label, after, done.broken or _regrant(universe, world, done))


def _faults(universe: Universe, world: World) -> Iterator[Next]:
    for fault, label, done in universe.operations(world.store):
        after = _committed(universe, world, done)
        if after is not None and (paid := _spend(after, fault)) is not None:
            yield Next(label, paid, done.broken)
    if world.backup >= 0:
        yield Next(
            "the store fails over, and what was written since is lost",
            world._replace(store=universe.fail_over(world.backup), backup=-1, plan=None),
        )
    elif (paid := _spend(world, "failover")) is not None:
        yield Next("from here on the standby gets no more commits", paid._replace(backup=world.store))
