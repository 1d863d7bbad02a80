"""Which rings are run: one of each name, by a document that keeps every rule. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from poise.documents import load
from poise.errors import Fault, Forbidden, InvalidSpec
from poise.jobs.sharder.status import BRAKE_ANNOTATION, Refusal
from poise.kube.objects import Custom, Meta
from poise.model import ShardRing
from poise.model.shard_ring import RingGuards, ShardRingSpec

FINALIZER = "poise.dev/shards"
OPERATOR_ANNOTATION = "poise.dev/operator"
_NO_GUARDS = RingGuards(moves_in_flight_max=None)


def rightful(claims: Iterable[Meta], home: str = "") -> Meta:
    """Choose which ring of one name has it: the one that was accepted before, else the oldest, then by namespace.

    The labels of a ring name it without a namespace, so two of one name would write each other's labels. One that has
    the finalizer was accepted: another one of the same second must not take its place. One that another installation
    runs comes first: that one may not see the others, so only who sees all can give way.
    """
    return min(claims, key=lambda meta: (_rank(meta, home), meta.creation_timestamp or "", meta.namespace))


def _rank(meta: Meta, home: str) -> int:
    if run_elsewhere(meta, home):
        return 0
    if is_claimed(meta, home):
        return 1
    return 2 if is_accepted(meta) else 3


def is_accepted(meta: Meta) -> bool:
    """Say whether a ring was accepted: then it may have written labels."""
    return FINALIZER in meta.finalizers


def run_elsewhere(meta: Meta, home: str) -> str:
    """Name the other installation that accepted a ring, by the namespace of its leader; empty where there is none."""
    by = meta.annotations.get(OPERATOR_ANNOTATION, "")
    return by if is_accepted(meta) and home and by != home else ""


def is_claimed(meta: Meta, home: str) -> bool:
    """Say whether this installation has accepted a ring, and said so on it."""
    return is_accepted(meta) and (not home or meta.annotations.get(OPERATOR_ANNOTATION) == home)


def is_removed(meta: Meta) -> bool:
    """Say whether somebody wants a ring to end."""
    return meta.deletion_timestamp is not None


def brake_released(meta: Meta) -> str:
    """Give what an operator said last to open the brake; any change of it opens it."""
    return meta.annotations.get(BRAKE_ANNOTATION, "")


def read_ring(custom: Custom) -> ShardRing:
    """Read the document of a ring by the same rules as everywhere; InvalidSpec with every fault."""
    (document,) = load(custom.as_document(), custom.metadata.name)
    assert isinstance(document, ShardRing), "only rings are watched"
    faults = tuple(_unkept(document.spec))
    if faults:
        raise InvalidSpec(*faults)
    return document


def _unkept(spec: ShardRingSpec) -> Iterator[Fault]:
    """Find what is right in a file, and would be ignored on Kubernetes."""
    if msgspec.structs.replace(spec.guards, moves_in_flight_max=None) != _NO_GUARDS:
        yield Fault("$.spec.guards", "the operator keeps movesInFlightMax only: other guards would be ignored")
    if spec.objects:
        yield Fault("$.spec.objects", "these are keys where there is no Kubernetes; here resources name the objects")
    if not spec.resources:
        yield Fault("$.spec.resources", "expected at least one resource, such as {resource: secrets}")


def name_taken(meta: Meta, by: Meta, runner: str = "") -> Refusal:
    """Say that another ring has the name, and which other installation runs that one, if one does."""
    whose = f", and the operator of the namespace {runner} runs it" if runner else ""
    told = f"the ring {by.namespace}/{by.name} has this name already{whose}"
    why = "labels of objects name a ring without its namespace"
    advice = f"{told}; {why}: give one of the two ({meta.namespace}/{meta.name}) another name"
    return Refusal("NameTaken", f"{advice}; {_when_gone(by)}" if runner else advice)


def invalid_document(error: InvalidSpec, *, runs: bool, removed: bool) -> Refusal:
    """Say what is wrong with a document, and what happens meanwhile."""
    faults = "; ".join(f"{fault.path}: {fault.message}" for fault in error.faults)
    if runs:
        return Refusal("InvalidSpec", f"{faults} (until this is mended the ring is run as it was before)")
    if removed:
        return Refusal("InvalidSpec", f"{faults} (mend this: its labels cannot be taken off without its resources)")
    return Refusal("InvalidSpec", faults)


def taken_elsewhere(meta: Meta, by: str) -> Refusal:
    """Say that another installation runs a ring; its status is that one's to write, and is old if that one is gone."""
    told = f"the operator of the namespace {by} runs this ring and writes its status: uninstall one of the two"
    return Refusal("RunElsewhere", f"{told}; {_when_gone(meta)}")


def _when_gone(meta: Meta) -> str:
    """Say how people free a ring whose installation does not exist any more."""
    command = f"kubectl annotate shardring {meta.name} --namespace {meta.namespace} {OPERATOR_ANNOTATION}-"
    return f"if that operator is gone for good: {command}"


def forbidden(error: Forbidden) -> Refusal:
    """Say which right the operator lacks to accept a ring."""
    return Refusal("Forbidden", f"the operator {error}")
