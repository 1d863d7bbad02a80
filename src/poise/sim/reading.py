"""From documents to worlds: who is there and what there is to hold, as the document and its status say."""

from __future__ import annotations

from poise.errors import Fault, InvalidSpec
from poise.jobs import shards, targets
from poise.jobs.items import ItemFacts
from poise.model import CapacitySplit, Document, PartitionSet, ReplicaDivision, ShardRing, TargetPool
from poise.sim.worlds import FleetWorld, ItemWorld, Member, World


def world_of(document: Document) -> World:
    """Make the world of a document; a CapacitySplit has none."""
    match document:
        case TargetPool():
            return _of_facts(targets.facts(document), document.spec.capacity)
        case ShardRing():
            return _of_facts(shards.facts(document), None)
        case PartitionSet():
            return _of_partitions(document)
        case ReplicaDivision():
            return _of_division(document)
        case CapacitySplit():
            why = "it has one rule and no policies to compare; poise plan shows its next steps"
            raise InvalidSpec(Fault("$.kind", f"cannot be simulated: {why}", f"CapacitySplit {document.metadata.name}"))
    raise AssertionError(f"a document of no known kind: {type(document).__name__}")


def _of_facts(facts: ItemFacts, capacity: int | None) -> ItemWorld:
    """Take over the facts of a pool or a ring; whoever joins later has the pool's capacity and the ring's tokens."""
    members = {
        name: Member(
            weight=facts.weights.get(name, 1),
            capacity=facts.capacity.get(name),
            tokens=facts.tokens.get(name, facts.tokens_each),
            draining=name in facts.draining,
        )
        for name in sorted(facts.members)
    }
    return ItemWorld(
        kind=facts.kind,
        name=facts.name,
        members=members,
        items=dict.fromkeys(sorted(facts.items)),
        joins_as=Member(capacity=capacity, tokens=facts.tokens_each),
        start=facts.current,
    )


def _of_partitions(document: PartitionSet) -> ItemWorld:
    spec, status = document.spec, document.status
    members = {
        node.name: Member(weight=spec.weights.get(node.name, node.weight), draining=node.state == "draining")
        for node in sorted(status.nodes, key=lambda node: node.name)
        if node.state != "gone"
    }
    return ItemWorld(
        kind=document.kind,
        name=document.metadata.name,
        members=members,
        items=dict.fromkeys(map(str, range(spec.partitions))),
        numbered=True,
        start={row.id: row.owner for row in status.partitions if row.owner is not None},
    )


def _of_division(document: ReplicaDivision) -> FleetWorld:
    spec = document.spec
    return FleetWorld(
        kind=document.kind,
        name=document.metadata.name,
        clusters={cluster.name: cluster for cluster in sorted(spec.clusters, key=lambda each: each.name)},
        workloads={each.name: each.replicas for each in sorted(spec.workloads, key=lambda each: each.name)},
        strategy=spec.strategy,
        mix=spec.mix,
        moves_max=spec.moves_max,
        seed=spec.seed,
        start={
            name: dict(record.result)
            for name, record in document.status.divisions.items()
            if record.strategy == spec.strategy
        },
    )
