"""What a frozen process had on its way: delivered after it woke up, as a slow network does, with the tests it carried.

The library ends a process that wakes up too late before it can send anything. So the tests send it in its place.
"""

from __future__ import annotations

from pathlib import Path

from tests.cluster.audit_case import Patch, Reconcile
from tests.cluster.audit_lines import boot_s, read_audit
from tests.cluster.ring_world import Observer
from tests.cluster.world import Cluster

from poise.errors import Conflict, PoiseError
from poise.kube import Client, ObjectRef, Partial
from poise.kube.patches import Operation, pointer, same_label, same_uid
from poise.model.sharding import label_names


def stuck_reconciles(audit: Path, process: int, frozen_s: float) -> list[Reconcile]:
    """Find the reconciles of a process that ran when it was frozen."""
    return [
        each
        for each in read_audit(audit)[0]
        if each.process == process and each.start_s < frozen_s and (each.end_s is None or each.end_s > frozen_s)
    ]


def deliver_late(cluster: Cluster, observer: Observer, ring: str, stuck: list[Reconcile]) -> list[Patch]:
    """Send the write of each of these reconciles, which began with its epoch, and tell how each ended."""

    async def send(client: Client) -> list[Patch]:
        return [await _send(client, observer.refs[each.object], each, ring) for each in stuck]

    return cluster.run(send)


async def _send(client: Client, ref: ObjectRef, each: Reconcile, ring: str) -> Patch:
    sent_s, version = boot_s(), 0
    tests = same_uid(each.object), same_label(label_names(ring)[1], str(each.epoch))
    change = Operation("add", pointer("metadata", "annotations", "audit.poise.dev/late"), each.instance)
    try:
        answer = await client.patch(ref, [*tests, change], Partial)
        outcome, version = "written", int(answer.metadata.resource_version)
    except Conflict:
        outcome = "refused"
    except PoiseError:
        outcome = "unknown"
    return Patch(each.object, each.instance, each.process, each.epoch, sent_s, outcome, version)
