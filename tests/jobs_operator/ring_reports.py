"""Reports of a sharder, as the tests of what is made of them need them."""

from __future__ import annotations

from poise.jobs.sharder.report import InstanceSeen, RingReport
from poise.observe.leases import Health


def seen(name: str, state: Health = Health.READY, objects: int = 2, note: str = "") -> InstanceSeen:
    """Give one instance."""
    return InstanceSeen(name=name, state=state, tokens=100, objects=objects, note=note)


CALM = RingReport(synced=True, instances=(seen("web-0"), seen("web-1")), roots=3, children=1)
