"""Taking a step: whom it meets, what is so before it, and what of it Poise itself does."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from poise import clock
from poise.demo.documents import CLUSTERS, RISEN, RISING
from poise.demo.names import FLEET, ORDERS, ROUTERS, WORKERS
from poise.demo.words import State, StepName, Taken
from poise.errors import Conflict
from poise.model import ReplicaDivision
from poise.serve.facade import JobsApi, MemberView

_RUNNING_MIN = 4  # So many workers keep running, whatever is broken.
DIVISION, SET, POOL = "ReplicaDivision", "PartitionSet", "TargetPool"


def take(step: StepName, api: JobsApi, state: State, *, back: bool) -> Taken:
    """Take a step, or take it back; `Conflict` with the reason where it cannot be taken now."""
    match step:
        case "kill-worker" | "freeze-worker":
            return _meet_worker(step, api, state)
        case "drain-collector":
            return _drain(api, back)
        case "change-weight":
            return _weigh(api)
        case "restart-server":
            epochs = {each.item: each.epoch for each in api.items(SET, ORDERS, member=None, state=None)}
            return Taken(step=step, subject="server", at=clock.now(), epochs=epochs)


def _meet_worker(step: StepName, api: JobsApi, state: State) -> Taken:
    """Meet the worker that is chosen, and note what it holds."""
    subject = chosen_worker(api, state)
    epochs = {each.item: each.epoch for each in api.items(SET, ORDERS, member=subject, state=None)}
    return Taken(step=step, subject=subject, at=clock.now(), epochs=epochs)


def chosen_worker(api: JobsApi, state: State) -> str:
    """Choose the running worker that holds most; a few always go on running, so that there is something to see."""
    running = {part.name for part in state.parts if part.name in WORKERS and part.state == "running"}
    if len(running) <= _RUNNING_MIN:
        raise Conflict("Two workers are broken already. Wait a moment: they come back by themselves.")
    held = {each.name: each.load for each in api.members(SET, ORDERS) if each.name in running}
    if len(held) <= _RUNNING_MIN or not max(held.values()):
        raise Conflict("The workers have only just started. Wait a moment.")
    return max(sorted(held), key=lambda name: held[name])


def chosen_collector(members: Iterable[MemberView]) -> str:
    """Choose the collector that holds most; `Conflict` while there is none."""
    most = max(members, key=lambda each: (each.load, each.name), default=None)
    if most is None:
        raise Conflict(f"{ROUTERS} has no collector yet. Wait a moment.")
    return most.name


def drained_collectors(members: Iterable[MemberView]) -> list[str]:
    """Name the collectors that are drained."""
    return [each.name for each in members if each.draining]


def _drain(api: JobsApi, back: bool) -> Taken:
    """Drain the collector that holds most, or bring all that are drained back."""
    members = api.members(POOL, ROUTERS)
    drained = drained_collectors(members)
    if back:
        for name in drained:
            api.drain(POOL, ROUTERS, name, False)
        return Taken(step="drain-collector", subject=", ".join(drained), at=clock.now(), back=True)
    if drained:
        raise Conflict(f"{drained[0]} is drained already. Bring it back first.")
    subject = chosen_collector(members)
    epochs = {each.item: each.epoch for each in api.items(POOL, ROUTERS, member=subject, state=None)}
    api.drain(POOL, ROUTERS, subject, True)
    return Taken(step="drain-collector", subject=subject, at=clock.now(), epochs=epochs)


def _weigh(api: JobsApi) -> Taken:
    """Let one cluster rise, or fall back where it has risen; whoever changed the document meanwhile wins."""
    stored = api.get(DIVISION, FLEET)
    document = stored.document
    assert isinstance(document, ReplicaDivision)
    before = next((each.weight for each in document.spec.clusters if each.name == RISING), None)
    if before is None:
        raise Conflict(f"{FLEET} has no cluster {RISING} any more.")
    after = RISEN if before != RISEN else CLUSTERS[RISING]
    counts = {each.name: each.load for each in api.members(DIVISION, FLEET)}
    clusters = [
        msgspec.structs.replace(each, weight=after if each.name == RISING else each.weight)
        for each in document.spec.clusters
    ]
    spec = msgspec.structs.replace(document.spec, clusters=clusters)
    api.put(msgspec.structs.replace(document, spec=spec), if_match=stored.revision)
    weights, back = (before, after), after == CLUSTERS[RISING]
    return Taken(step="change-weight", subject=RISING, at=clock.now(), counts=counts, weights=weights, back=back)
