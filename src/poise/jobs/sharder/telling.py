"""How a ring stands, for its status, its Events and its metrics."""

from __future__ import annotations

from poise.jobs.sharder.instances import Instances
from poise.jobs.sharder.report import RingReport
from poise.jobs.sharder.session import Session
from poise.move.sharding.passes import overdue


def told_report(
    session: Session, instances: Instances, faults: tuple[str, ...], *, synced: bool, idle: bool, now_s: float
) -> RingReport:
    """Tell of one ring. It is clear only when all was seen, and when nothing is left on the children, either."""
    view, deciding = session.view, session.deciding
    oldest_s = min((timed.since_s for timed in view.clocks.values()), default=None)
    return RingReport(
        synced=synced,
        faults=faults,
        instances=instances.shown(deciding.spec.tokens, view.named, now_s),
        roots=view.roots,
        children=view.children,
        unassigned=len(view.unassigned),
        drains=len(view.clocks),
        oldest_drain_s=None if oldest_s is None else now_s - oldest_s,
        overdue=len(overdue(view.clocks, deciding.spec.drain_timeout_seconds, now_s)),
        delayed=len(deciding.delayed),
        in_flight=deciding.in_flight,
        vanished=instances.vanished,
        clear=synced and view.clear and idle and not deciding.touched,
    )
