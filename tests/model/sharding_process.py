"""One shard process of the explored ring: everything it decides is a function of `poise.hold.sharding`.

Requests and their answers are separate steps: between the two anything may happen. A paused process does nothing; when
it wakes it may first send what it was about to send, before it looks at its clock.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.sharding_party import (
    Habits,
    Move,
    Process,
    Request,
    born,
    checked,
    claimant,
    gone,
    look,
    outdated,
)
from tests.model.sharding_server import (
    NOW,
    OLD,
    TIME,
    Change,
    Server,
    lease_fact,
    replace,
    write_lease,
)
from tests.model.sharding_work import decides, late_writes, steps_on, watches, works

from poise.hold import sharding as hold
from poise.hold.sharding import Take


def moves(process: Process, server: Server, habits: Habits) -> Iterator[Move]:
    """List what a process may do next."""
    count = len(server.things)
    match process.state, process.mode:
        case "unborn", _:
            yield Move("start", "starts", born(process, count), server)
        case "gone", _:
            again = born(replace(process, life=process.life + 1), count)
            yield Move("restart", "starts again", again, server)
        case _, "paused":
            yield Move("", "wakes up", replace(process, mode="woken"), server)
        case _, "woken":
            yield Move("", "looks at its clock", checked(replace(process, mode=""), count), server)
            yield from late_writes(process, server)
            yield from steps_on(process, server)
        case "waiting", _:
            yield from _crashes(process, server)
            yield from _wait(process, server, habits)
        case _:
            yield from _crashes(process, server)
            yield from _hold(process, server, habits)


def _crashes(process: Process, server: Server) -> Iterator[Move]:
    yield Move("crash", "crashes", gone(process, len(server.things)), server)
    if process.cut:
        yield Move("", "can renew again", replace(process, cut=False), server)
    elif process.grip is not None:
        yield Move("cut", "can no longer renew", replace(process, cut=True), server)
    if process.step is not None or any(epoch is not None for epoch in process.running):
        yield Move("pause", "is paused", replace(process, mode="paused"), server)


def _wait(process: Process, server: Server, habits: Habits) -> Iterator[Move]:
    place = habits.names.index(process.name)
    fact = lease_fact(server, habits.names, place)
    looked = hold.see_own_lease(process.lease, fact, TIME)
    named = fact is None and server.named(process.name)
    if (looked, named) != (process.lease, process.named):
        yield Move("", "looks at its Lease", replace(process, lease=looked, named=named), server)
    if process.request is not None:
        yield from answers(process, server, habits)
    elif process.lease is not None:
        decided = hold.claim(claimant(process, habits), process.lease, TIME, named=process.named)
        if isinstance(decided, Take):
            asking = replace(process, request=Request(decided.write, TIME, fences=decided.fences))
            yield Move("slow", "asks for its Lease", asking, server)
            yield from answers(asking, server, habits)
    if habits.caches:
        yield from watches(process, server)


def answers(process: Process, server: Server, habits: Habits) -> Iterator[Move]:
    """Let the request for a Lease arrive: its answer comes at once, or late, or is lost."""
    assert process.request is not None
    place = habits.names.index(process.name)
    request, idle = process.request, replace(process, request=None)
    if request.applied:
        yield Move("", "hears the answer", _heard(idle, request, server, habits), server)
        return
    written = write_lease(server, place, request.write)
    verb = "its Lease" if process.grip is None else "its renewal"
    if not written.accepted:
        yield Move("", f"is refused {verb}", _refused(idle, server, habits), server)
        return
    changed: tuple[Change, ...] = (("lease", place),)
    applied = replace(request, write=replace(request.write, version=NOW), applied=True)
    yield Move("", f"gets {verb}", _heard(idle, applied, written.server, habits), written.server, changed)
    unheard = outdated(idle, ("lease", place), habits)
    yield Move("lost", f"gets {verb} and does not hear it", unheard, written.server, changed)
    waiting = replace(unheard, request=applied)
    yield Move("slow", f"gets {verb}, and the answer is late", waiting, written.server, changed)


def _heard(process: Process, request: Request, server: Server, habits: Habits) -> Process:
    """Take the answer that a request for the Lease succeeded."""
    version = request.write.version or NOW
    if process.grip is not None:
        known = tuple(
            replace(each, gained_at_s=request.sent_at_s) if each is not None and place in request.covers else each
            for place, each in enumerate(process.known)
        )
        renewed = hold.renewed(process.grip, version, request.sent_at_s)
        return checked(replace(process, grip=renewed, known=known), len(server.things))
    take, who = Take(request.write, request.fences), claimant(process, habits)
    grip = hold.grasp(who, take, version, request.sent_at_s, habits.margin_s, eager=habits.eager)
    held = replace(process, grip=grip, state="holding", lease=None, named=False)
    return checked(held, len(server.things))


def _refused(process: Process, server: Server, habits: Habits) -> Process:
    """Take the answer that a request for the Lease was refused: look again, or end."""
    if process.grip is None:
        return process
    fact = lease_fact(server, habits.names, habits.names.index(process.name))
    grip = hold.read_again(process.grip, fact)
    return gone(process, len(server.things)) if grip is None else replace(process, grip=grip)


def _hold(process: Process, server: Server, habits: Habits) -> Iterator[Move]:
    assert process.grip is not None
    if process.request is not None:
        yield from answers(process, server, habits)
    elif not process.cut and _has_to_renew(process):
        yield Move("slow", "sends a renewal", renewing(process), server)
        yield from answers(renewing(process), server, habits)
    if not process.grip.listed:
        yield Move("", "lists all objects", _listed(process, server), server)
        return
    yield from watches(process, server)
    yield from works(process, server)
    if habits.stubborn:
        yield from late_writes(process, server)
    if process.step is None:
        yield from decides(process, server, habits)
        yield from _releases(process, server, habits)
    else:
        yield from steps_on(process, server)


def renewing(process: Process) -> Process:
    """Send a renewal."""
    assert process.grip is not None
    covers = tuple(place for place, each in enumerate(process.known) if each is not None)
    return replace(process, request=Request(hold.renewal(process.grip), TIME, covers))


def _has_to_renew(process: Process) -> bool:
    """Skip renewals that would change nothing: the last one is of this tick and covers all that is known."""
    assert process.grip is not None
    gains = [each.gained_at_s for each in process.known if each is not None]
    return process.grip.sent_at_s < TIME or process.grip.version == OLD or any(gain_s > TIME for gain_s in gains)


def _listed(process: Process, server: Server) -> Process:
    """Drop the cache, and list with no resourceVersion."""
    assert process.grip is not None
    count = len(server.things)
    listed = replace(process, view=(None,) * count, known=(None,) * count, grip=replace(process.grip, listed=True))
    for place in range(count):
        listed = look(listed, server, place, inherited=True)
    return listed


def _releases(process: Process, server: Server, habits: Habits) -> Iterator[Move]:
    """Give the Lease back when nothing runs."""
    assert process.grip is not None
    if process.request is None and all(epoch is None for epoch in process.running):
        place = habits.names.index(process.name)
        written = write_lease(server, place, hold.release(process.grip, "stop"))
        changed: tuple[Change, ...] = (("lease", place),) if written.accepted else ()
        yield Move("leave", "releases and ends", gone(process, len(server.things)), written.server, changed)
