"""Why a partition is where it is, where it goes, what it waits for, and what would move it."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from poise.decide.partition_facts import Facts, is_barred, read_facts, seconds
from poise.decide.partition_values import (
    Node,
    Partition,
    PartitionPlan,
    PartitionPolicy,
    PartitionState,
    Step,
    StepKind,
)
from poise.decide.partitions import plan_partitions
from poise.decide.scores import score
from poise.errors import invalid
from poise.model.ownership import RELEASING

_SHOWN_MAX = 3  # So many alternatives are named; the others are only counted.
_MEANS = {
    StepKind.ASSIGN: "it is given to {target}",
    StepKind.RELEASE: "{source} is asked to let go of it, reserved for {target}",
    StepKind.CANCEL: "the request is cancelled",
    StepKind.UNASSIGN: "it is taken from {source}",
    StepKind.RETIRE: "its row is written off",
}


def explain_partition(
    partition: str,
    partitions: Iterable[Partition],
    nodes: Iterable[Node],
    *,
    now_s: float,
    policy: PartitionPolicy,
    plan: PartitionPlan | None = None,
) -> list[str]:
    """Explain one partition in sentences: where it is, what this plan does, where it ends, what would move it.

    A plan that was made of these facts may be given; else it is made here.
    """
    rows, known = list(partitions), list(nodes)
    facts = read_facts(rows, known, now_s, policy)
    row = next((row for row in [*facts.rows, *facts.beyond] if row.id == partition), None)
    if row is None:
        raise invalid("$.partition", f"{partition!r:.40} is not among the {policy.count} partitions")
    made = plan or plan_partitions(rows, known, now_s=now_s, policy=policy)
    step = next((step for step in made.steps if step.partition == partition), None)
    sentences = [_where(facts, row), _now(facts, row, made, step), *_waits(row, made, step)]
    if int(row.id) < policy.count:
        sentences += [*_end(row, made), *_alternatives(facts, row, made), *_would(facts, row, made)]
    return sentences


def _where(facts: Facts, row: Partition) -> str:
    """Say who holds it."""
    if row.owner is None:
        meant = f", reserved for {row.target}" if row.target else ""
        return f"{row.id} is Unassigned{meant}; nobody holds it."
    if facts.is_lost(row):
        return f"{row.id} is {row.state}: {row.owner} ({facts.state_of(row.owner)}) held it last, at epoch {row.epoch}."
    held = f"{row.id} is {row.state}: {row.owner} ({facts.state_of(row.owner)}) holds it at epoch {row.epoch}"
    if row.state in RELEASING:
        left_s = row.deadline_s - facts.now_s if row.deadline_s is not None else 0.0
        due = f", within {seconds(left_s)}" if left_s > 0 else ""
        return f"{held} and is to let go of it for {row.target or 'nobody in particular'}{due}."
    offers = row.offers.get(row.owner, 0)
    return f"{held}{f', offered {offers} times and not confirmed yet' if offers and not row.confirmed else ''}."


def _now(facts: Facts, row: Partition, plan: PartitionPlan, step: Step | None) -> str:
    """Say what this plan does with it, and why."""
    if step is None:
        return f"Now: nothing is written for it{_calm(facts, row, plan)}."
    means = _MEANS[step.kind].format(source=step.source, target=step.target or "nobody")
    limit = f", within {seconds(facts.policy.release_s)}" if _is_new_request(row, step) else ""
    return f"Now: {means}{limit}, since {step.reason}."


def _is_new_request(row: Partition, step: Step) -> bool:
    return step.kind == StepKind.RELEASE and row.state == PartitionState.ASSIGNED


def _calm(facts: Facts, row: Partition, plan: PartitionPlan) -> str:
    """Say why a row may stay: its node is not over its quota, or it is not its turn."""
    owner = row.owner
    if owner is None or owner not in plan.quotas or row.state != PartitionState.ASSIGNED or facts.is_lost(row):
        return ""
    return f"; {owner} has {plan.loads[owner]} of its quota {plan.quotas[owner]}, {_quota(plan, owner)}"


def _quota(plan: PartitionPlan, name: str) -> str:
    """Say how a quota comes from its share."""
    share = plan.quotas[name] + plan.owed[name]
    if share.denominator == 1:
        return "exactly its share"
    return f"the {'ceiling' if plan.owed[name] < 0 else 'floor'} of its share {_mixed(share)}"


def _mixed(share: Fraction) -> str:
    return f"{share.numerator}/{share.denominator}"


def _waits(row: Partition, plan: PartitionPlan, step: Step | None) -> list[str]:
    """Say what it waits for, and what people should look at."""
    waits = [f"It waits: {wait.reason}." for wait in plan.moves_waiting if wait.partition == row.id]
    if step is None or step.kind == StepKind.UNASSIGN:
        waits += [f"Nobody holds it: {plan.unowned[row.id]}."] if row.id in plan.unowned else []
    return waits + ([f"Look at it: {plan.notices[row.id]}."] if row.id in plan.notices else [])


def _end(row: Partition, plan: PartitionPlan) -> list[str]:
    """Say where it ends under the present facts."""
    end = plan.assignment[row.id]
    if end is None:
        return ["It ends nowhere while things are as they are."]
    if end == row.owner:
        return [f"It stays on {end}."]
    return [f"It ends on {end}, which has {plan.loads[end]} of its quota {plan.quotas[end]}, {_quota(plan, end)}."]


def _alternatives(facts: Facts, row: Partition, plan: PartitionPlan) -> list[str]:
    """Rank the other nodes as the planner does: furthest below the quota, ties by score."""
    seed, end = facts.policy.seed, plan.assignment[row.id]
    ranked = sorted(
        (name for name in plan.quotas if name != end),
        key=lambda name: (plan.loads[name] - plan.quotas[name], -score(seed, name), name),
    )
    if not ranked:
        return []
    told = [f"{name} ({_verdict(row, plan, name)})" for name in ranked[:_SHOWN_MAX]]
    more = f", and {len(ranked) - _SHOWN_MAX} more" if len(ranked) > _SHOWN_MAX else ""
    return [f"Not on: {', '.join(told)}{more}."]


def _verdict(row: Partition, plan: PartitionPlan, name: str) -> str:
    load, quota = plan.loads[name], plan.quotas[name]
    if is_barred(row, name):
        return f"{load} of {quota}, offered {row.offers[name]} times and never confirmed"
    if name == row.owner and load >= quota:
        return f"{load} of {quota}, it leaves there"
    return f"{load} of {quota}, {'full' if load >= quota else 'has room for others'}"


def _would(facts: Facts, row: Partition, plan: PartitionPlan) -> list[str]:
    """Say what would move it from where it ends, or bring it somewhere."""
    end = plan.assignment[row.id]
    if end is None:
        return ["It would be given to any other node that becomes active."]
    would = [f"It would move if {end} were draining or gone."]
    if end == row.owner and row.state == PartitionState.ASSIGNED:
        ahead = _ahead(facts, row, plan)
        quota = plan.quotas[end] - ahead - 1
        first = f", after {ahead} that go first" if ahead else ", as the first to go"
        would.insert(0, f"It would move if the quota of {end} fell to {quota}{first}.")
    wait = next((wait for wait in plan.moves_waiting if wait.partition == row.id and wait.code == "budget"), None)
    return [f"It would begin to move once a move in flight ends ({wait.reason}).", *would] if wait else would


def _ahead(facts: Facts, row: Partition, plan: PartitionPlan) -> int:
    """Count the rows that stay on the same node and would leave it earlier: not confirmed ones, then higher numbers."""
    mine = (bool(row.confirmed), -int(row.id))
    return sum(
        other.owner == row.owner
        and other.state == PartitionState.ASSIGNED
        and plan.assignment[other.id] == row.owner
        and (bool(other.confirmed), -int(other.id)) < mine
        for other in facts.rows
    )
