"""How a ring stands, for its status, its Events and its metrics."""

from __future__ import annotations

from datetime import timedelta

from poise import clock
from poise.jobs.sharder.instances import Instances
from poise.jobs.sharder.report import RingReport
from poise.jobs.sharder.session import Session
from poise.jobs.sharder.snapshot import RingSnapshot
from poise.model import ShardRing
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
        waiting=len(view.waiting),
        drains=len(view.clocks),
        oldest_drain_s=None if oldest_s is None else now_s - oldest_s,
        overdue=len(overdue(view.clocks, deciding.spec.drain_timeout_seconds, now_s)),
        delayed=len(deciding.delayed),
        in_flight=deciding.in_flight,
        vanished=instances.vanished,
        paused=instances.orders.paused,
        withheld=len(deciding.withheld),
        clear=synced and view.clear and idle and not deciding.touched,
    )


def told_snapshot(
    session: Session, instances: Instances, ring: ShardRing, namespace: str, report: RingReport, now_s: float
) -> RingSnapshot:
    """Give a ring at this instant. Only the tables are copied, so that the loop which owns them goes on at once."""
    view, now = session.view, clock.now()
    return RingSnapshot(
        namespace=namespace,
        ring=ring,
        objects=dict(view.kin.objects),
        rooted=view.kin.rooted(),
        known=dict(view.known),
        instances=report.instances,
        standings=dict(instances.standings),
        members=instances.members(ring.spec.tokens),
        now=now,
        orders=instances.orders,
        report=report,
        drain_since={uid: now - timedelta(seconds=now_s - timed.since_s) for uid, timed in view.clocks.items()},
        silent_s={name: max(0.0, now_s - each.seen_at_s) for name, each in instances.watched.items()},
    )
