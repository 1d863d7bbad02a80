"""PartitionSet: numbered partitions on worker nodes, handed over in two phases."""

from __future__ import annotations

import msgspec

from poise.decide.partition_check import check_partitions
from poise.decide.partition_explain import explain_partition
from poise.decide.partition_values import (
    MoveBudgets,
    Node,
    NodeState,
    Partition,
    PartitionPlan,
    PartitionPolicy,
    PartitionState,
    ReleaseTimeout,
    StepKind,
)
from poise.decide.partitions import plan_partitions
from poise.errors import Fault, InvalidSpec
from poise.jobs.entries import ItemsEntry, ItemsView, Planned, PlannedMove, Told, Unassigned, Waits
from poise.jobs.waiting import Gate, waits_of
from poise.jobs.what_if import WhatIf, check_members, refuse
from poise.model import PartitionSet
from poise.model.partition_set import PartitionRow


class SetFacts(msgspec.Struct, frozen=True):
    """What is known of a set: its rows, its nodes and what people want."""

    name: str
    rows: list[Partition]
    nodes: list[Node]
    policy: PartitionPolicy


def facts(document: PartitionSet) -> SetFacts:
    """Read the facts of a set."""
    spec, guards = document.spec, document.spec.guards
    policy = PartitionPolicy(
        count=spec.partitions,
        lease_s=spec.lease_seconds,
        grace_s=spec.grace_seconds,
        release_s=spec.release_seconds,
        on_release_timeout=ReleaseTimeout(spec.on_release_timeout),
        budgets=MoveBudgets(guards.moves_in_flight_max, guards.per_source_max, guards.per_target_max),
        weights=dict(spec.weights),
        seed=f"{document.kind}/{document.metadata.name}",
    )
    nodes = [Node(node.name, NodeState(node.state), node.incarnation, node.weight) for node in document.status.nodes]
    return SetFacts(document.metadata.name, [_row(row) for row in document.status.partitions], nodes, policy)


def _row(row: PartitionRow) -> Partition:
    return Partition(
        id=row.id,
        state=PartitionState(row.state),
        owner=row.owner,
        target=row.target,
        epoch=row.epoch,
        owner_incarnation=row.owner_incarnation,
        confirmed=row.confirmed,
        lease_until_s=row.lease_until.timestamp() if row.lease_until else None,
        deadline_s=row.deadline.timestamp() if row.deadline else None,
        offers=dict(row.offers),
        reason=row.reason,
    )


def imagine(known: SetFacts, what_if: WhatIf) -> SetFacts:
    """Give the facts of a what-if."""
    refuse(what_if, ["replicas"], "a PartitionSet counts no replicas")
    check_members(what_if, [node.name for node in known.nodes], "node")
    nodes = {node.name: node for node in known.nodes} | {name: Node(name) for name in what_if.add}
    for names, state in ((what_if.drain, NodeState.DRAINING), (what_if.remove, NodeState.GONE)):
        nodes |= {name: msgspec.structs.replace(nodes[name], state=state) for name in names}
    policy = msgspec.structs.replace(known.policy, weights=known.policy.weights | what_if.weights)
    return msgspec.structs.replace(known, nodes=list(nodes.values()), policy=policy)


def plan_set(known: SetFacts, gate: Gate) -> Planned:
    """Plan the next writes, check them, and say what waits."""
    plan = plan_partitions(known.rows, known.nodes, now_s=gate.now_s, policy=known.policy)
    faults = check_partitions(plan, known.rows, known.nodes, now_s=gate.now_s, policy=known.policy)
    entry = ItemsEntry(
        kind="PartitionSet",
        name=known.name,
        moves=_moves(plan, gate),
        assignment=plan.assignment,
        unassigned=[Unassigned(item, reason) for item, reason in plan.unowned.items()],
        loads=_ends(plan),
        certificate=plan.certificate,
    )
    owners = {row.id: row.owner for row in known.rows if row.owner is not None}
    gone = {node.name for node in known.nodes if node.state is NodeState.GONE}
    before: dict[str, int] = {}
    for owner in owners.values():
        before[owner] = before.get(owner, 0) + 1
    view = ItemsView(
        noun="node",
        policy="two-phase",
        members_before=len({*before} | {node.name for node in known.nodes} & gone) or len(entry.loads),
        members_after=len(entry.loads),
        loads_before=before,
        stays=sum(owners.get(item) == owner for item, owner in plan.assignment.items() if owner is not None),
    )
    notes = [f"{item}: {notice}" for item, notice in plan.notices.items()]
    return Planned(entry, faults, bool(plan.steps), view, notes)


def explain_set(known: SetFacts, partition: str, gate: Gate) -> Told:
    """Explain one partition."""
    plan = plan_partitions(known.rows, known.nodes, now_s=gate.now_s, policy=known.policy)
    if partition not in plan.assignment and partition not in {row.id for row in known.rows}:
        raise InvalidSpec(Fault("", f"no partition {partition!r} in {known.name}: it has {known.policy.count}"))
    why = explain_partition(partition, known.rows, known.nodes, now_s=gate.now_s, policy=known.policy, plan=plan)
    return Told(partition, why)


def _moves(plan: PartitionPlan, gate: Gate) -> list[PlannedMove]:
    """List the steps, and after them what waits; new releases also ask the guards, recovery does not."""
    closed, allowance = waits_of(gate.refusal()), gate.allowance(len(plan.assignment))
    moves, released = [], 0
    for step in plan.steps:
        waits = None
        if step.kind is StepKind.RELEASE:
            spent = Waits("budget", None, f"{released} of {allowance.allowed} moves of the budget used")
            waits = closed or (spent if released >= allowance.allowed else None)
            released += waits is None
        ends = plan.assignment.get(step.partition) if step.kind is StepKind.UNASSIGN else step.target
        moves.append(PlannedMove(step.partition, step.source, ends, step.reason, waits, step.kind))
    for held in plan.moves_waiting:
        waits = Waits(held.code, None, held.reason)
        moves.append(PlannedMove(held.partition, held.source, held.target, held.reason, waits, StepKind.RELEASE))
    return moves


def _ends(plan: PartitionPlan) -> dict[str, int]:
    """Count what every node ends with if nothing else happens."""
    ends = dict.fromkeys(plan.loads, 0)
    for owner in plan.assignment.values():
        if owner is not None:
            ends[owner] = ends.get(owner, 0) + 1
    return ends
