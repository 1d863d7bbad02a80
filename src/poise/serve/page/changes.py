"""What a wish changes in a document, and what Poise cannot do by itself, with what to do instead."""

from __future__ import annotations

import msgspec

from poise.jobs import capacity, clusters
from poise.jobs.what_if import WhatIf
from poise.model import CapacitySplit, Document, PartitionSet, ReplicaDivision, ShardRing, TargetPool
from poise.serve.page.commands import KUBE, worker_command
from poise.serve.page.what_if import Wish


class Obstacle(msgspec.Struct, frozen=True):
    """Why a part of a wish cannot be applied here, and the command that people run instead, if there is one."""

    text: str
    command: str = ""


class Change(msgspec.Struct, frozen=True):
    """The document that a wish leads to (None: it stays), whom to drain beside it, and what stands in the way."""

    document: Document | None = None
    drain: tuple[str, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()


def change_of(document: Document, wish: Wish, server: str) -> Change:
    """Tell what applying a wish means for a job."""
    match document:
        case PartitionSet():
            return _of_set(document, wish, server)
        case ShardRing():
            return Change(None, wish.drain, (*_members(document, wish, server), *_weights(wish)))
        case TargetPool():
            return _of_pool(document, wish)
        case ReplicaDivision():
            return _changed(document, wish, clusters.imagine(document, wish.what_if or WhatIf()))
        case CapacitySplit():
            return _of_split(document, wish)


def _changed(before: Document, wish: Wish, after: Document, *obstacles: Obstacle) -> Change:
    """Keep a changed document without its status, which is not people's to write."""
    if wish.what_if is None or after.spec == before.spec:
        return Change(None, obstacles=obstacles)
    return Change(msgspec.structs.replace(after, status=type(after.status)()), obstacles=obstacles)


def _of_set(document: PartitionSet, wish: Wish, server: str) -> Change:
    spec = msgspec.structs.replace(document.spec, weights=document.spec.weights | wish.weight)
    after = msgspec.structs.replace(document, spec=spec)
    changed = _changed(document, wish, after, *_members(document, wish, server))
    return msgspec.structs.replace(changed, drain=wish.drain)


def _members(document: PartitionSet | ShardRing, wish: Wish, server: str) -> list[Obstacle]:
    """Members of sets are processes of people: Poise neither starts nor stops them."""
    name = document.metadata.name
    starts = [
        Obstacle(
            f"Poise does not start {each}: start it where it should run",
            "" if server == KUBE else worker_command(name, each, server),
        )
        for each in wish.add
    ]
    return starts + [
        Obstacle(f"Poise does not stop {each}: drain it first, then stop its process") for each in wish.remove
    ]


def _weights(wish: Wish) -> list[Obstacle]:
    return [Obstacle(f"{each} says its weight itself, when it starts") for each in wish.weight]


def _of_pool(document: TargetPool, wish: Wish) -> Change:
    """Change the endpoints that stand in the document; pods that come from elsewhere are changed there."""
    endpoints = document.spec.pods.endpoints
    if endpoints is None:
        asked = (*wish.add, *wish.remove, *wish.weight)
        told = "its pods come from Kubernetes, and are changed there"
        return Change(None, wish.drain, tuple(Obstacle(f"{name}: {told}") for name in asked))
    kept = [
        msgspec.structs.replace(each, weight=wish.weight.get(each.name, each.weight))
        for each in endpoints
        if each.name not in wish.remove
    ]
    pods = msgspec.structs.replace(document.spec.pods, endpoints=kept)
    after = msgspec.structs.replace(document, spec=msgspec.structs.replace(document.spec, pods=pods))
    lacking = [Obstacle(f"{each} needs an address: add it to the pods of the document") for each in wish.add]
    return msgspec.structs.replace(_changed(document, wish, after, *lacking), drain=wish.drain)


def _of_split(document: CapacitySplit, wish: Wish) -> Change:
    """Change pools and counts; whether a pool works is seen, not said."""
    asked = msgspec.structs.replace(wish, drain=())
    after = capacity.imagine(document, asked.what_if or WhatIf())
    down = [Obstacle(f"Poise sees by itself when {each} is down; take it out with a remove") for each in wish.drain]
    return _changed(document, wish, after, *down)
