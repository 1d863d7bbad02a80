"""Follows every resource of a ring, and its namespaces where it selects some: found by discovery, then mirrored.

Whatever cannot be found or followed is a sentence for people, and is tried again. Owners are followed upward by their
kinds, so nothing is mirrored before all resources of the ring are found.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import msgspec

from poise.errors import NotFound, PoiseError
from poise.jobs.sharder.selecting import Keys
from poise.jobs.sharder.view import Kind
from poise.kube import (
    NAMESPACES,
    Client,
    Event,
    Missing,
    Partial,
    Reflector,
    Resource,
    Selection,
    find_resource,
)
from poise.kube.pacing import Pace
from poise.model.shard_ring import ShardRingSpec

_PACE = Pace(0.5, 15.0)
Take = Callable[[Event[Partial]], None]


class Wanted(msgspec.Struct, frozen=True):
    """One resource that a ring names; `shared`: its objects are shared out, else they only follow others."""

    group: str
    plural: str
    shared: bool


def wanted_resources(spec: ShardRingSpec) -> tuple[Wanted, ...]:
    """List each resource of a ring once; one that is named both ways is shared out."""
    shared = {(each.group, each.resource): True for each in spec.resources}
    for each in spec.resources:
        for controlled in each.controlled:
            shared.setdefault((controlled.group, controlled.resource), False)
    return tuple(Wanted(group, plural, is_shared) for (group, plural), is_shared in shared.items())


class Unfound(msgspec.Struct, frozen=True):
    """Why a resource cannot be followed now; `absent`: since there is none of it, and so no object either."""

    why: str
    absent: bool = False


class Mirrors:
    """The mirrors of one ring. `found` hears the kinds before anything is mirrored; then `take` and `choose` hear all.

    `take` hears of objects, `choose` of namespaces.
    """

    def __init__(
        self,
        client: Client,
        spec: ShardRingSpec,
        keys: Keys,
        scope: str | None,
        *,
        found: Callable[[tuple[Kind, ...]], None],
        take: Callable[[Kind, Event[Partial]], None],
        choose: Take,
    ) -> None:
        """Prepare to follow; `scope` is the only namespace that may be looked at."""
        self._client, self._keys, self._scope = client, keys, scope
        self._wanted = wanted_resources(spec)
        self._selecting = bool(spec.namespace_selector.match_labels or spec.namespace_selector.match_expressions)
        self._found, self._take, self._choose = found, take, choose
        self._missing: dict[Wanted, str] = {}
        self._removing = asyncio.Event()
        self._complete = False
        self._reflectors: list[Reflector[Partial]] = []

    @property
    def synced(self) -> bool:
        """Say whether every mirror was listed once."""
        return self._complete and all(reflector.lists > 0 for reflector in self._reflectors)

    @property
    def faults(self) -> tuple[str, ...]:
        """Say what cannot be found or followed now."""
        troubles = (reflector.trouble for reflector in self._reflectors)
        told = [*self._missing.values(), *(str(trouble) for trouble in troubles if trouble is not None)]
        return tuple(dict.fromkeys(told))

    @property
    def lost(self) -> bool:
        """Say whether a resource is no longer served as it was found: then all begins anew."""
        return any(isinstance(reflector.trouble, NotFound) for reflector in self._reflectors)

    def remove(self) -> None:
        """Wait no longer for resources that are not there: of a ring that is being removed they hold nothing."""
        self._removing.set()

    async def run(self) -> None:
        """Find all resources, then follow them until cancelled."""
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(self._find(wanted)) for wanted in self._wanted]
        found = zip((task.result() for task in asked), self._wanted, strict=True)
        kinds = [Kind(resource, wanted.shared) for resource, wanted in found if resource is not None]
        self._found(tuple(kinds))
        for kind in kinds:
            chosen = Selection(kind.resource, self._scope or "" if kind.resource.namespaced else "")
            self._follow(chosen, self._keys.shape, partial(self._take, kind), self._keys.keep)
        if self._selecting:
            fields = f"metadata.name={self._scope}" if self._scope else ""
            self._follow(Selection(NAMESPACES, fields=fields), Partial, self._choose, None)
        self._complete = True
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())

    def _follow(
        self, chosen: Selection, shape: type[Partial], take: Take, keep: Callable[[Partial], Partial] | None
    ) -> None:
        self._reflectors.append(Reflector(self._client, chosen, shape, take, keep=keep))

    async def _find(self, wanted: Wanted) -> Resource | None:
        """Find one resource, however long it takes; None where there is none and the ring is being removed."""
        failures = 0
        while True:
            found = await self._ask(wanted)
            if isinstance(found, Resource) or (found.absent and self._removing.is_set()):
                self._missing.pop(wanted, None)
                return found if isinstance(found, Resource) else None
            self._missing[wanted] = found.why
            failures += 1
            await self._pause(_PACE.wait_s(failures, random.random()))

    async def _pause(self, wait_s: float) -> None:
        """Wait; the first news that the ring is being removed ends that."""
        if self._removing.is_set():
            await asyncio.sleep(wait_s)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._removing.wait()

    async def _ask(self, wanted: Wanted) -> Resource | Unfound:
        """Give the resource, or why it cannot be followed."""
        try:
            found = await find_resource(self._client, wanted.group, wanted.plural)
        except PoiseError as error:
            return Unfound(str(error))
        if isinstance(found, Missing):
            return Unfound(found.why, absent=True)
        if self._scope and not found.namespaced:
            why = f"{wanted.plural} are in no namespace, and only the namespace {self._scope} may be looked at"
            return Unfound(why, absent=True)
        return found
