"""From the document of a pool to what its engine works with: its pods, and how long everything may take."""

from __future__ import annotations

import msgspec

from poise.errors import Fault, InvalidSpec
from poise.jobs.stored import Kept
from poise.model import TargetPool
from poise.model.target_pool import Endpoint

PROCESS = "pod"  # Pods are passive: whoever speaks for them, it is the same process, and its incarnation stays.
PODS_NOTE, SOURCE_NOTE = "pods", "source"
TEARDOWN_S = 30.0


class Pace(msgspec.Struct, frozen=True):
    """How often a pod is looked at, and how long one look and one document are waited for."""

    gone_after_s: float
    look_s: float
    answer_s: float
    apply_s: float
    backoff_max_s: float
    teardown_s: float = TEARDOWN_S


class PoolDocument(msgspec.Struct, frozen=True):
    """A document as the store keeps it, with the revision that grows at each change."""

    pool: TargetPool
    revision: int


def pace_of(gone_after_s: float) -> Pace:
    """Fit looks and waits into the time after which a pod counts as gone.

    Law: a pod that answers looks and lets every write time out is still spoken for: apply + back-off + answer < gone
    after.
    """
    return Pace(
        gone_after_s=gone_after_s,
        look_s=min(5.0, gone_after_s / 4),
        answer_s=min(5.0, gone_after_s / 3),
        apply_s=min(15.0, gone_after_s / 3),
        backoff_max_s=min(10.0, gone_after_s / 6),
    )


def read_document(text: str) -> PoolDocument:
    """Read the note of a document."""
    kept = msgspec.json.decode(text, type=Kept)
    return PoolDocument(msgspec.json.decode(kept.text, type=TargetPool), kept.revision)


def endpoints_of(pool: TargetPool) -> list[Endpoint]:
    """List the pods of a pool; those of Kubernetes are known there only."""
    pods = pool.spec.pods
    if pods.endpoints is None:
        source = "statefulSet" if pods.stateful_set is not None else "selector"
        raise InvalidSpec(Fault(f"$.spec.pods.{source}", "is known on Kubernetes only: give endpoints"))
    return pods.endpoints
