"""Rings as the page asks about jobs: one in a line, its instances and its keys. Pure functions of one look."""

from __future__ import annotations

from collections import Counter
from math import ceil, floor

from poise.jobs.entries import ItemsEntry, Planned
from poise.jobs.sharder.homes import key_places
from poise.jobs.sharder.report import InstanceSeen, RingReport
from poise.jobs.sharder.rings import RingLook
from poise.jobs.sharder.snapshot import RingSnapshot
from poise.jobs.sharder.status import JUDGES, Looked, ready_instances
from poise.model.ownership import OwnerState
from poise.model.sharding import SeenObject, Standing
from poise.observe.leases import Health
from poise.serve.facade import ItemView, JobSummary, MemberView, Stoppable
from poise.serve.shown import counted

KIND = "ShardRing"
# What is a reason for people to look; that objects move, or that somebody paused them, is none.
_TROUBLES = ("Unassigned", "DrainOverdue", "InstancesLost", "OwnerUnseen", "Braked", "Draining")


def ring_name(look: RingLook) -> str:
    """Name a ring as commands do: two of one name may be in two namespaces."""
    return f"{look.meta.namespace}/{look.meta.name}"


def ring_summary(look: RingLook) -> JobSummary:
    """Sum up a ring from what its sharder reports."""
    report = look.report or RingReport()
    looked = Looked(generation=look.meta.generation, report=look.report, refusal=look.refusal)
    problems = _problems(looked)
    progress = JUDGES["Progressing"](looked)
    if problems:
        health = problems[0]
    elif report.paused:
        health = "paused"
    elif looked.is_starting:
        health = "its objects are being listed"
    else:
        health = progress.message if progress.status == "True" else "as it should be"
    loads = [each.objects for each in ready_instances(report) if not each.drained]
    return JobSummary(
        kind=KIND,
        name=ring_name(look),
        revision=look.meta.generation,
        health=health,
        paused=bool(report.paused),
        items=report.roots,
        unowned=report.unassigned,
        members=dict(Counter(map(member_state, report.instances))),
        moves_in_flight=report.in_flight,
        late=sum(each.state is not Health.READY and bool(each.objects) for each in report.instances),
        spread=max(loads) - min(loads) if loads else 0,
        problems=problems,
    )


def _problems(looked: Looked) -> list[str]:
    """Say what is wrong, the worst first."""
    found = [JUDGES["Ready"](looked), JUDGES["Balanced"](looked)]
    wrong = [each for each in found if each.status == "False" and (each is found[0] or each.reason in _TROUBLES)]
    if found[0].reason == "NoInstances":
        return [found[0].message]
    return list(dict.fromkeys(each.message for each in wrong))


def member_state(each: InstanceSeen) -> str:
    """Say the state of an instance; a ready one that is drained says that."""
    return "draining" if each.drained and each.state is Health.READY else each.state.value


def key_views(seen: RingSnapshot, planned: Planned | None) -> list[ItemView]:
    """Show every key with who holds it; a key of several objects is shown by the first of them."""
    why = {}
    if planned is not None and isinstance(planned.entry, ItemsEntry):
        why = {each.item: each.reason for each in planned.entry.unassigned}
    return [_key_view(seen, key, roots, why.get(key, "")) for key, roots in sorted(seen.by_key.items())]


def _key_view(seen: RingSnapshot, key: str, roots: list[SeenObject], why: str) -> ItemView:
    held = [root for root in roots if root.marks.shard is not None]
    if not held:
        return ItemView(item=key, state=OwnerState.UNASSIGNED.value, epoch=roots[0].marks.epoch or 0, reason=why)
    root = next((each for each in held if each.marks.drain is not None), held[0])
    draining = root.marks.drain is not None
    return ItemView(
        item=key,
        state=(OwnerState.REQUESTED_RELEASE if draining else OwnerState.ASSIGNED).value,
        member=root.marks.shard,
        target=root.marks.drain or None,
        epoch=root.marks.epoch or 0,
        since=seen.drain_since.get(root.uid),
        confirmed=not draining,
    )


def member_views(seen: RingSnapshot, items: list[ItemView]) -> list[MemberView]:
    """Show every instance: what it holds by keys, what leaves and comes, and its fair share where there is one."""
    loads = Counter(each.member for each in items)
    leaving = Counter(each.member for each in items if each.state == OwnerState.REQUESTED_RELEASE.value)
    coming = Counter(each.target for each in items)
    low, high = _share(seen)
    lease_s = float(seen.ring.spec.lease_seconds)
    views = []
    for each in seen.instances:
        takes = each.name in seen.members and each.state is Health.READY and not each.drained
        silent_s = seen.silent_s.get(each.name)
        views.append(
            MemberView(
                name=each.name,
                state=member_state(each),
                load=loads[each.name],
                releasing=leaving[each.name],
                reserved=coming[each.name],
                weight=each.tokens,
                draining=each.drained,
                lease_s=None if silent_s is None or each.state is Health.DEAD else lease_s - silent_s,
                floor=low if takes else None if low is None else 0,
                ceiling=high if takes else None if high is None else 0,
                error=each.note,
            )
        )
    return views


def _share(seen: RingSnapshot) -> tuple[int | None, int | None]:
    """Give floor and ceiling of an equal share of what is not kept by instances that are late; none by hashing."""
    if seen.ring.spec.policy != "balanced":
        return None, None
    current, frozen = key_places(seen.roots, seen.standings)
    takers = [name for name in seen.members if seen.standings.get(name) is Standing.READY]
    takers = [name for name in takers if name not in seen.orders.drained]
    share = (len(current) - len(frozen)) / len(takers) if takers else 0
    return floor(share), ceil(share)


def may_stop(seen: RingSnapshot, view: MemberView) -> Stoppable:
    """Say whether an instance may stop now without anybody missing it."""
    reasons = []
    if view.load:
        reasons.append(f"it holds {counted(view.load, 'object')}")
    if view.load and not view.draining:
        reasons.append("it is not drained: nothing leaves it")
    if view.load and seen.orders.paused:
        reasons.append("the ring is paused: nothing moves")
    if view.reserved:
        reasons.append(f"{view.reserved} more {'is' if view.reserved == 1 else 'are'} meant for it")
    return Stoppable(ok=not reasons, reasons=reasons)
