"""`poise drain|undrain|pause|resume --kube`: what people ask of a ring, shown as a plan before it is asked.

Order: look, show the plan, ask, look again; only if nothing has changed meanwhile an annotation of the ring is written.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from poise.cli.common import Output
from poise.cli.kube_get import snapshots
from poise.cli.kube_options import Place, ask, find_ring, wrong
from poise.cli.progress import Line, Seen
from poise.errors import Conflict, PoiseError, Unavailable

if TYPE_CHECKING:
    from poise.jobs.entries import Planned
    from poise.jobs.sharder.orders import Orders, Paused
    from poise.jobs.sharder.reading import ShownStatus
    from poise.jobs.sharder.snapshot import RingSnapshot
    from poise.jobs.what_if import WhatIf
    from poise.kube import Client
    from poise.kube.objects import Custom

_TRIES, _LOOK_S, _OBEYED_S = 20, 1.0, 10.0


class Answering(NamedTuple):
    """How a change is asked for and waited for."""

    yes: bool
    output: Output
    wait: bool = True
    timeout_s: float = 600.0


class Looked(NamedTuple):
    """A ring as it was shown: what a change must find again."""

    custom: Custom
    seen: RingSnapshot
    planned: Planned

    @property
    def mark(self) -> object:
        """What was agreed to: the document, the orders, who is there, and where everything ends."""
        meta, seen = self.custom.metadata, self.seen
        states = [(each.name, each.state) for each in seen.instances]
        return meta.uid, meta.generation, seen.orders, states, getattr(self.planned.entry, "assignment", None)


def drain_instance(place: Place, ring: str, instance: str, how: Answering) -> None:
    """Empty an instance while it goes on running; ends when it has no object."""
    from poise.jobs.sharder.orders import Orders
    from poise.jobs.what_if import WhatIf
    from poise.observe.leases import Health

    looked = _look(place, ring)
    states = {each.name: each.state for each in looked.seen.instances}
    if instance not in states:
        there = f"; there is {', '.join(sorted(states)[:8])}" if states else ""
        raise wrong(f"the ring {_named(looked)} has no instance {instance!r}{there}")
    orders = looked.seen.orders
    if instance in orders.drained:
        _say(f"{instance} is drained already")
    else:
        wanted = Orders(orders.paused, orders.drained | {instance})
        ready = states[instance] is Health.READY
        if not ready:
            _say(f"{instance} is {states[instance].value}: nothing moves from it until it is back or proven dead")
        _change(
            place, ring, WhatIf(drain=[instance]) if ready else None, orders, how, f"Drain {instance} of {{}}?", wanted
        )
        _say(f"{instance} is being drained of {_named(looked)}")
    if how.wait:
        _say(_follow(lambda: _drained(place, ring, instance), how.timeout_s))


def undrain_instance(place: Place, ring: str, instance: str, how: Answering) -> None:
    """Let an instance take its share again."""
    from poise.jobs.sharder.orders import Orders
    from poise.jobs.what_if import WhatIf

    looked = _look(place, ring)
    orders = looked.seen.orders
    if instance not in orders.drained:
        raise wrong(
            f"{instance} is not drained" + (f"; drained: {', '.join(sorted(orders.drained))}" if orders.drained else "")
        )
    wanted = Orders(orders.paused, orders.drained - {instance})
    there = instance in looked.seen.members
    _change(
        place, ring, WhatIf(undrain=[instance]) if there else None, orders, how, f"Undrain {instance} of {{}}?", wanted
    )
    _say(f"{instance} takes part in {_named(looked)} again")


def pause_ring(place: Place, ring: str, paused: Paused, how: Answering) -> None:
    """Hold the moves of a ring back, or let them go on."""
    from poise.jobs.sharder.orders import Orders

    looked = _look(place, ring)
    orders = looked.seen.orders
    if orders.paused == paused:
        _say(f"{_named(looked)} is {'paused already' if paused else 'not paused'}")
        return
    verb = "Pause" if paused else "Resume"
    _change(place, ring, None, orders, how, f"{verb} {{}}?", Orders(paused, orders.drained))
    told = {
        "": "goes on",
        "moves": "is paused: only what nobody holds is given to somebody, and hand-overs that were begun end",
        "all": "is paused: nothing moves, and nothing is recovered; hand-overs that were begun end",
    }
    _say(f"{_named(looked)} {told[paused]}")
    if how.wait and not _obeyed(place, ring, bool(paused)):
        _say("no operator has obeyed yet: is one running?")


def _look(place: Place, ring: str, what_if: WhatIf | None = None, orders: Orders | None = None) -> Looked:
    """Look at a ring, planned as a what-if, and as if other orders held."""
    from poise.jobs.sharder.foresight import plan_snapshot

    ((custom, seen),) = snapshots(place, [ring])
    imagined = seen if orders is None else msgspec.structs.replace(seen, orders=orders)
    return Looked(custom, seen, plan_snapshot(imagined, what_if))


def _change(
    place: Place, ring: str, what_if: WhatIf | None, orders: Orders, how: Answering, question: str, wanted: Orders
) -> None:
    """Show the plan, ask, look again, and write."""
    from poise.cli.plan import show
    from poise.jobs.sharder.orders import Orders

    if not (how.yes or sys.stdin.isatty()):
        raise click.UsageError("nobody can be asked here: say --yes; what it would move: poise plan --kube")
    imagined = Orders(wanted.paused, orders.drained)  # A drain is imagined by the what-if, which checks it.
    looked = _look(place, ring, what_if, imagined)
    show([looked.planned], how.output, everything=False)
    if looked.seen.orders != orders:
        raise _moved(looked)
    if not how.yes:
        if not click.confirm(question.format(_named(looked)), err=True):
            raise PoiseError("nothing was changed")
        if _look(place, ring, what_if, imagined).mark != looked.mark:
            raise _moved(looked)
    ask(place, lambda client: _write(client, looked, wanted))


def _moved(looked: Looked) -> Conflict:
    return Conflict(f"the ring {_named(looked)} has changed meanwhile; nothing was done: look at the new plan")


async def _write(client: Client, looked: Looked, wanted: Orders) -> None:
    """Write the orders over a ring whose document and orders are still those that were shown.

    The operator writes its status all the time: a conflict with that is no reason to give up.
    """
    from poise.jobs.sharder.orders import drain_change, pause_change, read_orders
    from poise.kube import ObjectRef
    from poise.kube.crds import custom_resource
    from poise.kube.objects import Custom

    before = looked.custom.metadata
    ref = ObjectRef(custom_resource("ShardRing"), before.name, before.namespace)
    change = {"metadata": {"annotations": pause_change(wanted.paused) | drain_change(wanted.drained)}}
    for left in reversed(range(_TRIES)):
        now = (await client.get(ref, Custom)).metadata
        same = (now.uid, now.generation) == (before.uid, before.generation)
        if not same or read_orders(now.annotations) != looked.seen.orders:
            raise _moved(looked)
        try:
            await client.merge(ref, now, change, Custom)
            return
        except Conflict:
            if not left:
                raise


def _status(place: Place, ring: str) -> ShownStatus:
    from poise.jobs.sharder.reading import shown_status

    return shown_status(ask(place, lambda client: find_ring(client, place, ring)))


def _drained(place: Place, ring: str, instance: str) -> Seen:
    """Look how much an instance still has; it counts only once the operator shows that it obeys."""
    status = _status(place, ring)
    told = status.condition("Drained")
    left = status.objects.get(instance, 0)
    # A message that was cut short names only some of them.
    obeyed = told.message.endswith("…") or re.search(rf"(?<![\w.-]){re.escape(instance)} \(", told.message)
    if all(each.name != instance for each in status.instances):
        return Seen(f"{instance} is gone", is_end=True)
    if not obeyed:
        return Seen(f"{instance} still has {left}: the operator has not taken notice yet", False)
    if not left:
        return Seen(f"{instance} has no object and may be stopped", is_end=True)
    balanced = status.condition("Balanced")
    return Seen(f"{instance} still has {left}; {balanced.reason}: {balanced.message}", False, 0, left)


def _follow(look: Callable[[], Seen], timeout_s: float) -> str:
    """Look every second until the end; a cluster that is away is waited for."""
    last_s = time.monotonic() + timeout_s
    line, seen, most = Line(), Seen("", is_end=False), 0
    try:
        while True:
            try:
                seen = look()
            except Unavailable as error:
                seen = seen._replace(text=str(error), is_end=False)
            most = max(most, seen.total)
            line.show(seen._replace(done=most - seen.total, total=most))
            if seen.is_end:
                return seen.text
            if time.monotonic() >= last_s:
                raise PoiseError(f"not done after {timeout_s:g} s: {seen.text}; it goes on")
            time.sleep(min(_LOOK_S, max(0.05, last_s - time.monotonic())))
    finally:
        line.clear()


def _obeyed(place: Place, ring: str, paused: bool) -> bool:
    """Wait a while until the operator shows that it has seen a pause, or its end."""
    end_s = time.monotonic() + _OBEYED_S
    while time.monotonic() < end_s:
        if (_status(place, ring).condition("Paused").status == "True") == paused:
            return True
        time.sleep(0.3)
    return False


def _named(looked: Looked) -> str:
    return f"{looked.seen.namespace}/{looked.seen.name}"


def _say(text: str) -> None:
    click.echo(text, err=True)
