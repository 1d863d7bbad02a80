"""ShardRing: objects on the instances of one controller."""

from __future__ import annotations

from poise.jobs.items import ItemFacts
from poise.model import ShardRing

# An instance that is late keeps its objects and gets no new ones; one that is proven dead is a member no longer.
_LATE, _LOST = ("expired", "uncertain"), ("dead", "orphaned")


def facts(ring: ShardRing) -> ItemFacts:
    """Read the facts of a ring: instances as last seen, objects as listed, else as assigned."""
    instances = [instance for instance in ring.status.instances if instance.state not in _LOST]
    return ItemFacts(
        kind=ring.kind,
        name=ring.metadata.name,
        noun="instance",
        policy=ring.spec.policy,
        items=ring.spec.objects or list(ring.status.assignment),
        members=[instance.name for instance in instances],
        waiting=[instance.name for instance in instances if instance.state in _LATE],
        current=dict(ring.status.assignment),
        tokens={instance.name: instance.tokens for instance in instances if instance.tokens is not None},
        tokens_each=ring.spec.tokens,
    )
