"""What a shard follows: its ring, and of the ring's resources those objects that carry its own name."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from poise.errors import PoiseError
from poise.hold.shard_terms import RingTerms, ShardSettings, read_terms
from poise.kube.client import Client
from poise.kube.crds import custom_resource
from poise.kube.discovery import Missing, find_resource
from poise.kube.mirror import Deleted, Event, Synced
from poise.kube.objects import Custom, Partial
from poise.kube.pacing import Pace
from poise.kube.reflector import Following, Reflector
from poise.kube.resources import Resource, Selection
from poise.model.sharding import label_names

RETRY_S = 2.0
FIRST_TOLD_S, TOLD_S = 1.0, 10.0  # How soon, and then how often, people are told what a shard waits for.
FOLLOWING = Following(pace=Pace(0.2, 5.0))

_log = logging.getLogger("poise.shard")


class RingWatch:
    """The ring as it is now; `terms` is None until it may be worked for."""

    def __init__(self, client: Client, namespace: str, ring: str, changed: Callable[[RingTerms], None]) -> None:
        """Follow one ring; `changed` hears when its terms become others."""
        self.terms: RingTerms | None = None
        self._why = f"there is no ring {ring} in the namespace {namespace}"
        self._changed = changed
        self._news = asyncio.Event()
        chosen = Selection(custom_resource("ShardRing"), namespace, fields=f"metadata.name={ring}")
        self._reflector = Reflector(client, chosen, Custom, self._handle, following=FOLLOWING)

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._reflector.run()

    async def ready(self) -> RingTerms:
        """Wait until the ring is there and an operator has looked at it."""
        wait_s = FIRST_TOLD_S
        while self.terms is None:
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            if self.terms is None:
                _log.warning("shard.waits_for_ring reason=%s", self._reflector.trouble or self._why)
                wait_s = TOLD_S
        return self.terms

    def _handle(self, event: Event[Custom]) -> None:
        if isinstance(event, Synced | Deleted):
            return  # What was last said stays good: whoever still holds something hands it over by it.
        read = read_terms(event.object)
        if isinstance(read, str):
            self._why = read
        elif read != self.terms:
            self.terms = read
            self._changed(read)
        self._news.set()


async def find_resources(client: Client, terms: RingTerms) -> tuple[Resource, ...]:
    """Find every resource of a ring; one that is missing is waited for, since it may be an owner of others."""
    while True:
        try:
            found = [await find_resource(client, group, plural) for group, plural in terms.resources]
            missing = [each.why for each in found if isinstance(each, Missing)]
            if not missing:
                return tuple(each for each in found if isinstance(each, Resource))
            _log.warning("shard.waits_for_resources reason=%s", "; ".join(missing))
        except PoiseError as error:
            _log.warning("shard.waits_for_resources reason=%s", error)
        await asyncio.sleep(RETRY_S)


def own_objects(resource: Resource, settings: ShardSettings) -> Selection:
    """Choose the objects of one resource that carry the own name."""
    label = label_names(settings.ring)[0]
    return Selection(resource, settings.scope if resource.namespaced else "", labels=f"{label}={settings.name}")


async def is_named(client: Client, resources: tuple[Resource, ...], settings: ShardSettings) -> bool:
    """Say whether any object carries the own name, by a list with no resourceVersion."""
    for resource in resources:
        if (await client.page(own_objects(resource, settings), Partial, limit=1)).items:
            return True
    return False


class Watches:
    """One filtered watch a resource. It is made after the Lease was acquired, so that it begins with nothing known."""

    def __init__(
        self,
        client: Client,
        resources: tuple[Resource, ...],
        settings: ShardSettings,
        handle: Callable[[Resource, Event[Partial]], None],
        listed: Callable[[], None],
    ) -> None:
        """Follow all resources; `listed` hears once when each of them has been listed."""
        self._unlisted = {(each.group, each.plural) for each in resources}
        self._handle, self._listed = handle, listed
        self._reflectors = [self._follow(client, each, settings) for each in resources]

    def _follow(self, client: Client, resource: Resource, settings: ShardSettings) -> Reflector[Partial]:
        def handle(event: Event[Partial]) -> None:
            self._handle(resource, event)
            if isinstance(event, Synced) and self._unlisted:
                self._unlisted.discard((resource.group, resource.plural))
                if not self._unlisted:
                    self._listed()

        return Reflector(client, own_objects(resource, settings), Partial, handle, following=FOLLOWING)

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())
            group.create_task(self._tell_troubles())

    async def _tell_troubles(self) -> None:
        while True:
            await asyncio.sleep(TOLD_S)
            for reflector in self._reflectors:
                if reflector.trouble is not None:
                    _log.warning("shard.blind objects=%s reason=%s", reflector.chosen, reflector.trouble)
