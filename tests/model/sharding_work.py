"""What a shard process does with objects: it sees, begins, ends, hands over, fences, and writes late."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.sharding_party import (
    Ghost,
    Habits,
    Move,
    Process,
    children_in_sight,
    dropped,
    judged,
    look,
    root_in_sight,
    stale,
    told_of,
)
from tests.model.sharding_server import (
    OLD,
    TIME,
    Change,
    Server,
    place_of,
    put,
    refusal,
    replace,
    shown,
    uid,
    write_marks,
)

from poise.hold import sharding as hold
from poise.hold.sharding import Verdict


def watches(process: Process, server: Server) -> Iterator[Move]:
    """See what is new."""
    for place, known in enumerate(process.view):
        mine = server.things[place].marks.shard == process.name
        if (known is None and mine) or (known is not None and known.version == OLD):
            yield Move("", f"sees {uid(place)}", look(process, server, place), server)


def works(process: Process, server: Server) -> Iterator[Move]:
    """Begin and end to reconcile: the epoch is read once, when it begins."""
    for place, epoch in enumerate(process.running):
        each = process.view[place]
        if epoch is not None:
            yield Move("", f"ends {uid(place)}", replace(process, running=put(process.running, place, None)), server)
        elif each is not None and judged(process, place) is Verdict.ACT:
            root = root_in_sight(process, place)
            differs = root is not None and root.marks.epoch != each.marks.epoch
            broken = "a child acted on with another epoch than its root's" if differs else ""
            begun = replace(process, running=put(process.running, place, each.marks.epoch))
            yield Move("", f"begins {uid(place)}", begun, server, broken=broken)


def decides(process: Process, server: Server, habits: Habits) -> Iterator[Move]:
    """Decide on a hand-over or a fence; writing it is another step."""
    for place, each in enumerate(process.view):
        if each is None:
            continue
        known, children = process.known[place], children_in_sight(process, each)
        family = [place, *(place_of(child.uid) for child in children)]
        busy = any(process.running[member] is not None for member in family)
        handing = hold.hand_over(process.grip, each, children, known, TIME, busy=busy, short=habits.short)
        if handing is not None and not habits.stubborn:
            yield Move("", f"decides to hand {uid(place)} over", replace(process, step=handing, done=0), server)
        if each.parent is None:
            raising = hold.fence(process.grip, each, children, known, TIME)
            if raising is not None:
                yield Move("", f"decides to fence {uid(place)}", replace(process, step=raising, done=0), server)


def steps_on(process: Process, server: Server) -> Iterator[Move]:
    """Send the next write of what was decided: it is answered, or the answer is lost, or nobody waits for it."""
    if process.step is None:
        return
    write, idle = process.step.writes[process.done], replace(process, step=None, done=0)
    place = place_of(write.uid)
    written = write_marks(server, place, write.version, write.marks)
    if not written.accepted:
        yield Move("", f"is refused {uid(place)}", idle, server)
        return
    changed: tuple[Change, ...] = (("object", place),)
    told = f"writes {uid(place)}={told_of(write.marks)}"
    broken = written.broken or refusal(server.things[place], written.server.things[place], process.name)
    if process.step.kind == "hand over" and process.running[place] is not None:
        broken = broken or f"{uid(place)} was handed over while it was acted on"
    yield Move("", told, _wrote(process, written.server, place), written.server, changed, broken)
    yield Move("lost", f"{told} and does not hear it", stale(idle, place), written.server, changed, broken)
    yield Move("ghost", f"no longer waits: {told}", idle, server, ghost=Ghost(place, write.marks))


def _wrote(process: Process, server: Server, place: int) -> Process:
    """Take the answer to an own write."""
    assert process.step is not None
    last = process.done + 1 == len(process.step.writes)
    after = replace(process, step=None if last else process.step, done=0 if last else process.done + 1)
    each, known = shown(server, place), process.known[place]
    if each.marks.shard != process.name:
        return dropped(after, place)
    epoch = process.running[place]
    if process.step.kind == "fence":
        known = known and hold.fenced(known)
        epoch = None if epoch is None else each.marks.epoch
    return replace(
        after,
        view=put(process.view, place, each),
        known=put(process.known, place, known),
        running=put(process.running, place, epoch),
    )


def late_writes(process: Process, server: Server) -> Iterator[Move]:
    """Write with a test of the epoch as it was when the reconcile began: refused where another one has begun.

    What is acted on as a child has its root's epoch, and is over when the root is given away. Another epoch is that of
    an object whose adoption is not settled: until it changes hands itself, nobody else acts on it.
    """
    for place, epoch in enumerate(process.running):
        if epoch is None or server.things[place].marks.epoch != epoch:
            continue
        root = root_in_sight(process, place)
        head = place if root is None or root.marks.epoch != epoch else place_of(root.uid)
        given_away = server.things[head].marks.shard != process.name
        broken = f"a late write to {uid(place)} was accepted after its root was given away" if given_away else ""
        yield Move("", f"writes late to {uid(place)}", process, server, (("object", place),), broken, wrote=place)
