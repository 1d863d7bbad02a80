"""One look at the objects of a ring: their mirrors, the view that they fill, and what is decided on it.

When the ring names other resources, another key or another selector, a new session begins, and until it has seen all
nothing moves.
"""

from __future__ import annotations

from collections.abc import Callable

from poise.errors import InvalidSpec
from poise.jobs.sharder.deciding import Deciding
from poise.jobs.sharder.instances import Instances
from poise.jobs.sharder.mirrors import Mirrors
from poise.jobs.sharder.report import RingCounts
from poise.jobs.sharder.selecting import read_keys, selects
from poise.jobs.sharder.view import Kind, Known, View
from poise.kube import Added, Client, Deleted, Event, Modified, Partial
from poise.model import ShardRing


class Session:
    """The objects of one ring, from the first list on."""

    def __init__(
        self,
        client: Client,
        ring: ShardRing,
        scope: str | None,
        instances: Instances,
        counts: RingCounts,
        *,
        now_s: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        """Prepare; a key that cannot be read is a fault that only another document mends."""
        self._ring, self._counts, self._now_s, self._wake = ring, counts, now_s, wake
        self._instances = instances
        self.fault = ""
        try:
            self.keys = read_keys(ring.spec.key)
        except InvalidSpec as error:
            self.keys, self.fault = read_keys("object"), str(error)
        self.kinds: tuple[Kind, ...] = ()
        self.view = View(ring.metadata.name)
        self.deciding = Deciding(ring.spec, self.view, instances)
        self.mirrors = Mirrors(
            client, ring.spec, self.keys, scope, found=self._found, take=self._take, choose=self._choose
        )

    @property
    def synced(self) -> bool:
        """Say whether everything was seen once; before that nothing may be decided."""
        return not self.fault and self.mirrors.synced

    @property
    def faults(self) -> tuple[str, ...]:
        """Say what is in the way."""
        return (self.fault,) if self.fault else self.mirrors.faults

    def told(self, seen: Known) -> None:
        """Take the answer to an own request; what a watch has told to be gone meanwhile stays gone."""
        if seen.meta.uid in self.view.known:
            self.deciding.touch(self.view.take(seen, self._now_s()))
            self._wake()

    def update(self, ring: ShardRing) -> None:
        """Take another document that names the same objects; every family is looked at again."""
        self._ring = ring
        self.deciding.spec = ring.spec
        self.deciding.unplanned = True
        self.deciding.touch_all()

    def remove(self) -> None:
        """Let go of every object: the ring is being removed."""
        self.mirrors.remove()
        if not self.view.removing:
            self.view.removing = True
            self._chosen(None)

    def _found(self, kinds: tuple[Kind, ...]) -> None:
        """Begin the view, by whose kinds owners are followed upward."""
        selector = self._ring.spec.namespace_selector
        self.kinds, removing = kinds, self.view.removing
        self.view = View(self._ring.metadata.name, kinds)
        self.view.removing = removing
        self.view.namespaces = {} if selector.match_labels or selector.match_expressions else None
        self.deciding = Deciding(self._ring.spec, self.view, self._instances)

    def _take(self, kind: Kind, event: Event[Partial]) -> None:
        """Take what a mirror tells of an object."""
        self._counts.watch_events += 1
        match event:
            case Added(object=seen) | Modified(object=seen):
                touched = self.view.take(Known(kind, seen.metadata, self._key(kind, seen)), self._now_s())
            case Deleted(old=old):
                touched = self.view.drop(old.metadata.uid, self._now_s())
            case _:
                self._wake()
                return
        if touched.roots or touched.moved:
            self.deciding.touch(touched)
            self._wake()

    def _key(self, kind: Kind, seen: Partial) -> str:
        known = self.view.known.get(seen.metadata.uid) if self.keys.fixed else None
        return self.keys.read(kind.resource, seen) if known is None else known.key

    def _choose(self, event: Event[Partial]) -> None:
        """Take what a mirror tells of a namespace."""
        namespaces = self.view.namespaces
        assert namespaces is not None, "namespaces are followed only where some are selected"
        match event:
            case Added(object=seen) | Modified(object=seen):
                name = seen.metadata.name
                chosen = selects(self._ring.spec.namespace_selector, seen.metadata.labels)
                if namespaces.get(name) != chosen:
                    namespaces[name] = chosen
                    self._chosen(name)
            case Deleted(old=old):
                namespaces.pop(old.metadata.name, None)
            case _:
                pass
        self._wake()

    def _chosen(self, namespace: str | None) -> None:
        """Look again at what the ring no longer wants, or wants again."""
        self.deciding.touched.update(dict.fromkeys(self.view.choose(self._now_s(), namespace)))
        self.deciding.unplanned = True
        self._wake()


def same_objects(old: ShardRing, new: ShardRing) -> bool:
    """Say whether two documents of a ring look at the same objects in the same way."""
    before, after = old.spec, new.spec
    return (before.resources, before.key, before.namespace_selector) == (
        after.resources,
        after.key,
        after.namespace_selector,
    )
