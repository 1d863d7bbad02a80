"""PartitionSet: numbered partitions on worker nodes, handed over in two phases."""

from __future__ import annotations

from collections import Counter

import msgspec

from poise.decide.partition_check import check_partitions
from poise.decide.partition_explain import explain_partition
from poise.decide.partition_facts import seconds
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
from poise.jobs.waiting import Gate
from poise.jobs.what_if import WhatIf, check_members, check_undrains, refuse, refuse_drains
from poise.model import PartitionSet
from poise.model.ownership import RELEASING
from poise.model.partition_set import PartitionRow

_STATES = {state.value: state for state in PartitionState}


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
        state=_STATES[row.state],
        owner=row.owner,
        target=row.target,
        epoch=row.epoch,
        owner_incarnation=row.owner_incarnation,
        confirmed=row.confirmed,
        lease_until_s=row.lease_until.timestamp() if row.lease_until else None,
        deadline_s=row.deadline.timestamp() if row.deadline else None,
        offers=row.offers,
        reason=row.reason,
    )


def imagine(known: SetFacts, what_if: WhatIf) -> SetFacts:
    """Give the facts of a what-if."""
    refuse(what_if, ["replicas"], "a PartitionSet counts no replicas")
    gone = {node.name for node in known.nodes if node.state is NodeState.GONE}
    check_members(what_if, [node.name for node in known.nodes], "node", gone=gone)
    refuse_drains(what_if, gone.difference(what_if.add), "is gone: there is nothing to drain")
    nodes = {node.name: node for node in known.nodes}
    drained = {name for name, node in nodes.items() if node.state is not NodeState.ACTIVE}
    check_undrains(what_if, nodes, drained, "node")
    back = [name for name in what_if.undrain if name not in gone]
    nodes |= {name: _joined(nodes.get(name), name) for name in what_if.add}
    changes = ((back, NodeState.ACTIVE), (what_if.drain, NodeState.DRAINING), (what_if.remove, NodeState.GONE))
    for names, state in changes:
        nodes |= {name: msgspec.structs.replace(nodes[name], state=state) for name in names}
    policy = msgspec.structs.replace(known.policy, weights=known.policy.weights | what_if.weights)
    return msgspec.structs.replace(known, nodes=list(nodes.values()), policy=policy)


def _joined(before: Node | None, name: str) -> Node:
    """Let a node join; one that was here before comes back as its next incarnation."""
    if before is None:
        return Node(name)
    return msgspec.structs.replace(before, state=NodeState.ACTIVE, incarnation=before.incarnation + 1)


class SetView(ItemsView, frozen=True):
    """A set also tells how many partitions are on their way already and need nothing new."""

    under_way: int = 0


def plan_set(known: SetFacts, gate: Gate) -> Planned:
    """Plan the next writes, check them, and say what waits."""
    plan = plan_partitions(known.rows, known.nodes, now_s=gate.now_s, policy=known.policy)
    faults = check_partitions(plan, known.rows, known.nodes, now_s=gate.now_s, policy=known.policy)
    entry = ItemsEntry(
        kind="PartitionSet",
        name=known.name,
        moves=_moves(plan, known, gate),
        assignment=plan.assignment,
        unassigned=[Unassigned(item, reason) for item, reason in plan.unowned.items()],
        loads=_ends(plan),
        certificate=plan.certificate,
    )
    going = _under_way(plan, known)
    # What goes on to another node than it was meant for counts as a move of this plan.
    as_meant = sum(row.target is not None and plan.assignment.get(row.id) == row.target for row in going)
    notes = [_on_its_way(row, gate.now_s) for row in going]
    notes += [f"{item}: {notice}" for item, notice in plan.notices.items()]
    return Planned(entry, faults, bool(plan.steps), _view(plan, known, as_meant), notes + gate.notes())


def _view(plan: PartitionPlan, known: SetFacts, under_way: int) -> SetView:
    owners = {row.id: row.owner for row in known.rows if row.owner is not None}
    before = Counter(owners.values())
    return SetView(
        noun="node",
        policy="two-phase",
        members_before=len(before) or len(plan.quotas),
        members_after=len(plan.quotas),
        loads_before=before,
        stays=sum(owners.get(item) == owner for item, owner in plan.assignment.items() if owner is not None),
        under_way=under_way,
    )


def _under_way(plan: PartitionPlan, known: SetFacts) -> list[Partition]:
    """List what live nodes are letting go of, and for which nothing is written or waits."""
    touched = {step.partition for step in plan.steps} | {wait.partition for wait in plan.moves_waiting}
    rows = [row for row in _releasing(known) if row.id not in touched]
    return sorted(rows, key=lambda row: int(row.id))


def _releasing(known: SetFacts) -> list[Partition]:
    gone = {node.name for node in known.nodes if node.state is NodeState.GONE}
    return [row for row in known.rows if row.state in RELEASING and row.owner not in gone]


def _on_its_way(row: Partition, now_s: float) -> str:
    left_s = 0.0 if row.deadline_s is None else row.deadline_s - now_s
    due = f" within {seconds(left_s)}" if left_s > 0 else ""
    return f"{row.id}: {row.owner} -> {row.target or 'nobody'} is under way, {row.owner} is to let go of it{due}"


def explain_set(known: SetFacts, partition: str, gate: Gate) -> Told:
    """Explain one partition; where a guard holds its release back, that is said instead of the release."""
    plan = plan_partitions(known.rows, known.nodes, now_s=gate.now_s, policy=known.policy)
    if partition not in plan.assignment and partition not in {row.id for row in known.rows}:
        raise InvalidSpec(Fault("", f"no partition {partition!r} in {known.name}: it has {known.policy.count}"))
    why = explain_partition(partition, known.rows, known.nodes, now_s=gate.now_s, policy=known.policy, plan=plan)
    steps = _moves(plan, known, gate)[: len(plan.steps)]
    held = next((move for move in steps if move.item == partition and move.waits), None)
    if held is not None and held.waits is not None:
        until = f", until {held.waits.until:%Y-%m-%dT%H:%M:%SZ}" if held.waits.until else ""
        # The second sentence is always what the plan does now.
        why[1:2] = [
            f"Now: nothing is written for it, though {held.reason}.",
            f"It waits ({held.waits.code}): {held.waits.reason}{until}.",
        ]
    return Told(partition, why)


def _moves(plan: PartitionPlan, known: SetFacts, gate: Gate) -> list[PlannedMove]:
    """List the steps, and after them what waits; new releases ask the guards, recovery and new targets do not."""
    states = {row.id: row.state for row in known.rows}
    turns = gate.turns(len(plan.assignment), len(_releasing(known)))
    moves = []
    for step in plan.steps:
        asks = step.kind is StepKind.RELEASE and states.get(step.partition) is PartitionState.ASSIGNED
        ends = plan.assignment.get(step.partition) if step.kind is StepKind.UNASSIGN else step.target
        waits = turns.take() if asks else None
        moves.append(PlannedMove(step.partition, step.source, ends, step.reason, waits, step.kind))
    for held in plan.moves_waiting:
        waits = Waits(held.code, None, held.reason)
        moves.append(PlannedMove(held.partition, held.source, held.target, held.why, waits, StepKind.RELEASE))
    return moves


def _ends(plan: PartitionPlan) -> dict[str, int]:
    """Count what every active node ends with if nothing else happens; one that drains has no share."""
    ends = Counter(plan.assignment.values())
    return {name: ends[name] for name in sorted(plan.quotas)}
