"""One sharder process of the explored ring: it decides by the functions of `observe.leases` and `move.sharding`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from tests.model.sharding_party import Ghost, Move, Request, stale_step, told_of
from tests.model.sharding_server import (
    OLD,
    TIME,
    Change,
    Server,
    lease_fact,
    place_of,
    put,
    replace,
    seen,
    uid,
    write_lease,
    write_marks,
)

from poise.model.sharding import SeenObject, Standing, Step, holder_identity
from poise.move.sharding import families, passes
from poise.move.sharding.decide import Outlook
from poise.move.sharding.families import Relatives, Trace
from poise.move.sharding.passes import DrainClock, Pass
from poise.observe import leases
from poise.observe.leases import LeaseTerms, WatchedLease

DEADLINE = 9  # What the label drain-until says: it informs, and nobody looks at it.


class Manner(msgspec.Struct, frozen=True, kw_only=True):
    """How all sharders of a scene are set up."""

    names: tuple[str, ...]
    duration_s: float = 2.0
    margin_s: float = 0.0
    drain_timeout_s: float = 0.0  # 0: drains are not timed.
    orphans: bool = False  # Whether time is counted so far that Leases are deleted.


class Sharder(msgspec.Struct, frozen=True, kw_only=True):
    """What one sharder process knows and does; `life` counts its restarts, each of which is a new holder."""

    who: int
    life: int = 0
    leases: tuple[WatchedLease, ...] = ()
    view: tuple[SeenObject, ...] = ()
    traces: tuple[tuple[str, Trace], ...] = ()
    clocks: tuple[tuple[str, DrainClock], ...] = ()
    request: Request | None = None
    step: Step | None = None
    done: int = 0
    flying: bool = False

    def terms(self, manner: Manner) -> LeaseTerms:
        """Say who it is, and how long leases are."""
        me = holder_identity(f"s{self.who}", str(self.life))
        return LeaseTerms(me=me, duration_s=manner.duration_s, margin_s=manner.margin_s)

    def relatives(self) -> Relatives:
        """Find the families in its view."""
        return families.find_families(self.view, dict(self.traces))


def started(who: int, life: int, server: Server, manner: Manner) -> Sharder:
    """Start a sharder: it lists everything, and every Lease counts as changed just now."""
    fresh = Sharder(who=who, life=life, view=tuple(seen(server, place) for place in range(len(server.things))))
    watched = tuple(
        leases.watch_lease(None, name, lease_fact(server, manner.names, place), fresh.terms(manner), TIME)
        for place, name in enumerate(manner.names)
    )
    return _noted(replace(fresh, leases=watched), manner)


def _noted(sharder: Sharder, manner: Manner) -> Sharder:
    """Keep the memory of families and drains current."""
    relatives = sharder.relatives()
    clocks: Mapping[str, DrainClock] = {}
    if manner.drain_timeout_s:
        clocks = passes.time_drains(dict(sharder.clocks), relatives, TIME)
    traces = tuple((key, relatives.traces[key]) for key in sorted(relatives.traces))
    return replace(sharder, traces=traces, clocks=tuple((key, clocks[key]) for key in sorted(clocks)))


def standings(sharder: Sharder, manner: Manner) -> dict[str, Standing]:
    """Judge all instances."""
    terms = sharder.terms(manner)
    return {each.name: leases.standing(each, terms, TIME) for each in sharder.leases}


def evaluate(sharder: Sharder, server: Server, manner: Manner) -> Pass:
    """Decide what may be written next. The plan prefers one instance; who is not ready is replaced by who is."""
    known = standings(sharder, manner)
    ready = [name for name in manner.names if known[name] is Standing.READY]
    liked = manner.names[server.wanted]
    relatives = sharder.relatives()
    wanted = {
        family.root.uid: liked if liked in ready else _fallback(family.root.marks.shard, ready)
        for family in relatives.families
    }
    late = passes.overdue(dict(sharder.clocks), manner.drain_timeout_s, TIME)
    outlook = Outlook(standings=known, drain_until=DEADLINE, overdue=late, force=bool(manner.drain_timeout_s))
    return passes.plan_pass(relatives, wanted, outlook, dict(sharder.clocks))


def _fallback(shard: str | None, ready: list[str]) -> str | None:
    return shard if shard in ready else next(iter(ready), None)


def moves(sharder: Sharder, server: Server, manner: Manner) -> Iterator[Move]:
    """List what a sharder may do next."""
    yield Move("sharder", "starts anew", started(sharder.who, sharder.life + 1, server, manner), server)
    for place, each in enumerate(sharder.view):
        fresh = seen(server, place)
        if each.version == OLD or each != fresh:
            after = _noted(replace(sharder, view=put(sharder.view, place, fresh)), manner)
            yield Move("", f"sees {uid(place)}", after, server)
    for place, watched in enumerate(sharder.leases):
        after = sees_lease(sharder, server, place, manner)
        if after is not sharder:
            yield Move("", f"sees Lease {watched.name}", after, server)
    if sharder.request is not None:
        yield from _answers(sharder, server, manner)
    elif sharder.step is not None:
        yield from _step(sharder, server, manner)
    else:
        yield from _decides(sharder, server, manner)


def sees_lease(sharder: Sharder, server: Server, place: int, manner: Manner) -> Sharder:
    """See the newest version of one Lease."""
    watched, fact = sharder.leases[place], lease_fact(server, manner.names, place)
    now = leases.watch_lease(watched, watched.name, fact, sharder.terms(manner), TIME)
    return sharder if now == watched else replace(sharder, leases=put(sharder.leases, place, now))


def _decides(sharder: Sharder, server: Server, manner: Manner) -> Iterator[Move]:
    """Choose one of the things that may be written; writing it is another step."""
    decided = evaluate(sharder, server, manner)
    for step in decided.steps:
        told = f"decides: {step.kind} {step.writes[-1].uid}"
        yield Move("", told, replace(sharder, step=step, done=0), server)
    for place in range(len(sharder.leases)):
        request = lease_request(sharder, decided, place, manner)
        if request is not None:
            told = f"sends: {request.write.kind} Lease {request.write.name}"
            yield Move("", told, replace(sharder, request=request), server)


def lease_request(sharder: Sharder, decided: Pass, place: int, manner: Manner) -> Request | None:
    """Decide on the next write of one Lease."""
    watched = sharder.leases[place]
    write = leases.next_lease_write(
        watched,
        sharder.terms(manner),
        TIME,
        work=watched.name in decided.work,
        named=watched.name in decided.named,
    )
    return None if write is None else Request(write, TIME)


def _answers(sharder: Sharder, server: Server, manner: Manner) -> Iterator[Move]:
    """Let the write of a Lease arrive: its answer comes at once, or is lost, or it never arrives."""
    assert sharder.request is not None
    request, idle = sharder.request, replace(sharder, request=None)
    place = manner.names.index(request.write.name)
    written = write_lease(server, place, request.write)
    told = f"{request.write.kind} Lease {request.write.name}"
    if not written.accepted:
        yield Move("", f"is refused: {told}", idle, server)
        return
    fact = lease_fact(written.server, manner.names, place)
    watched = leases.wrote_lease(sharder.leases[place], fact, request.sent_at_s, sharder.terms(manner))
    after = replace(idle, leases=put(sharder.leases, place, watched))
    changed: tuple[Change, ...] = (("lease", place),)
    yield Move("", f"writes: {told}", after, written.server, changed)
    yield Move("lost", f"writes, unheard: {told}", outdated(idle, changed[0]), written.server, changed)


def _step(sharder: Sharder, server: Server, manner: Manner) -> Iterator[Move]:
    """Send the next write, if the Lease that it needs is held at this moment, and let it arrive at any later time."""
    assert sharder.step is not None
    step, idle = sharder.step, replace(sharder, step=None, done=0, flying=False)
    if step.needs is not None and not sharder.flying:
        watched = sharder.leases[manner.names.index(step.needs)]
        if leases.may_move(watched, sharder.terms(manner), TIME):
            yield Move("", "sends it", replace(sharder, flying=True), server)
        else:
            yield Move("", "may no longer send it", idle, server)
        return
    write = step.writes[sharder.done]
    place = place_of(write.uid)
    written = write_marks(server, place, write.version, write.marks)
    if not written.accepted:
        yield Move("", f"is refused {uid(place)}", idle, server)
        return
    changed: tuple[Change, ...] = (("object", place),)
    told = f"writes {uid(place)}={told_of(write.marks)}"
    last = sharder.done + 1 == len(step.writes)
    going = idle if last else replace(sharder, done=sharder.done + 1, flying=False)
    after = _noted(replace(going, view=put(sharder.view, place, seen(written.server, place))), manner)
    yield Move("", told, after, written.server, changed, written.broken)
    yield Move("lost", f"{told}, unheard", stale(idle, place), written.server, changed, written.broken)
    yield Move("ghost", f"no longer waits: {told}", idle, server, ghost=Ghost(place, write.marks))


# What happens to it


def tick(sharder: Sharder, manner: Manner) -> Sharder:
    """Let a tick pass by its clock."""
    far_s = TIME - 2 * manner.duration_s
    watched = tuple(_older(each, manner) for each in sharder.leases)
    request = sharder.request and replace(sharder.request, sent_at_s=max(sharder.request.sent_at_s - 1, far_s))
    limit = TIME - manner.drain_timeout_s
    clocks = tuple((key, replace(clock, since_s=max(clock.since_s - 1, limit))) for key, clock in sharder.clocks)
    return replace(sharder, leases=watched, request=request, clocks=clocks)


def _older(each: WatchedLease, manner: Manner) -> WatchedLease:
    """Let all instants lie one tick further back; beyond the longest wait all are the same."""
    said_s = manner.duration_s if each.fact is None else each.fact.duration_s
    waits = each.fact is None or each.fact.holder
    far = leases.ORPHANED_AFTER * manner.duration_s
    return replace(
        each,
        seen_at_s=max(each.seen_at_s - 1, TIME - 2 * said_s) if waits else TIME,
        alive_at_s=max(each.alive_at_s - 1, TIME - far) if manner.orphans else TIME,
        held_from_s=each.held_from_s and max(each.held_from_s - 1, TIME - 2 * manner.duration_s),
    )


def outdated(sharder: Sharder, change: Change) -> Sharder:
    """Note that somebody else wrote: the copies of that version are old."""
    kind, place = change
    if kind == "object":
        return stale(sharder, place)
    watched, request = sharder.leases[place], sharder.request
    if watched.fact is not None:
        watched = replace(watched, fact=replace(watched.fact, version=OLD))
    if request is not None and request.write.name == watched.name and request.write.version is not None:
        request = replace(request, write=replace(request.write, version=OLD))
    return replace(sharder, leases=put(sharder.leases, place, watched), request=request)


def stale(sharder: Sharder, place: int) -> Sharder:
    """Note that an object has changed."""
    each = replace(sharder.view[place], version=OLD)
    return replace(sharder, view=put(sharder.view, place, each), step=stale_step(sharder.step, place))
