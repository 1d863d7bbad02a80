"""The independent checker of a partition plan: it reads a plan and the facts, and names every broken law.

It shares no planning code. It writes the steps into a copy of the rows and judges the copy by counting: where the
planner asks "who is next", this asks "is anything left that a law forbids or demands".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from poise.decide.partition_values import Node, Partition, PartitionPlan, PartitionPolicy, Step
from poise.decide.partition_world import ASKED, FREE, HELD, LETTING_GO, World, score_again


def check_partitions(
    plan: PartitionPlan,
    partitions: Iterable[Partition],
    nodes: Iterable[Node],
    *,
    now_s: float,
    policy: PartitionPolicy,
) -> list[str]:
    """Say every broken law of a plan as a sentence; an empty list means that it is sound."""
    before = World(partitions, nodes, now_s, policy)
    faults = _named_once(plan, before) or _allowed(plan, before)
    if faults:
        return faults  # Steps that may not be written lead to rows that mean nothing.
    after = before.written(plan.steps)
    laws = (_quotas, _told, _recalls, _loads, _fewest, _recovery, _retirement, _mended, _budgets, _undone, _ends)
    return [fault for law in laws for fault in law(plan, before, after)]


def _named_once(plan: PartitionPlan, world: World) -> list[str]:
    """Judge that no row has two steps, and that every step has its row and its reason."""
    times = Counter(step.partition for step in plan.steps)
    faults = [f"{name} has {count} steps, one is allowed" for name, count in times.items() if count > 1]
    faults += [f"{step.partition} has a step but no row" for step in plan.steps if step.partition not in world.rows]
    faults += [f"{step.kind} of {step.partition} has no reason" for step in plan.steps if not step.reason]
    faults += [
        f"{wait.partition} waits and has no row" for wait in plan.moves_waiting if wait.partition not in world.rows
    ]
    return faults + [f"{wait.partition} waits without a reason" for wait in plan.moves_waiting if not wait.reason]


def _allowed(plan: PartitionPlan, world: World) -> list[str]:
    """Judge every step by the transition table."""
    faults = []
    for step in plan.steps:
        row = world.rows.get(step.partition)
        problem = _problem(step, row, world) if row is not None else None
        if row is not None and problem is None and step.source != row.owner:
            problem = f"its owner is {row.owner}, not {step.source}"
        if problem:
            faults.append(f"{step.kind} of {step.partition} to {step.target}: {problem}")
    return faults


def _problem(step: Step, row: Partition, world: World) -> str | None:
    extra = int(row.id) >= world.policy.count
    match step.kind:
        case "assign":
            return _problem_of_assign(step, row, world, extra)
        case "release":
            return _problem_of_release(step, row, world, extra)
        case "cancel":
            if row.state != ASKED:
                return f"only a request that is not acknowledged is cancelled, it is {row.state}"
            if extra:
                return "a retirement is never cancelled"
            return None if world.goes_back(row) or _recalled(row, world) else f"{row.target} still waits for it"
        case "unassign":
            if row.owner is None:
                return "nobody owns it"
            if step.target != world.kept_target(row):
                return f"its target should be {world.kept_target(row)}"
            return None if world.over(row) else "its lease and grace have not ended"
        case _:
            if not extra:
                return f"the set has {world.policy.count} partitions, it is one of them"
            return None if row.state == FREE else f"only an Unassigned row is retired, it is {row.state}"


def _problem_of_assign(step: Step, row: Partition, world: World, extra: bool) -> str | None:
    if row.state != FREE:
        return f"{row.owner} owns it, nothing is taken from an owner"
    if extra:
        return "the set is smaller than that"
    if world.state(step.target) != "active" or world.refused(row, step.target):
        return f"{step.target} is {world.state(step.target)} or never confirmed it"
    return "it is awaited by its target" if world.awaited(row) else None


def _problem_of_release(step: Step, row: Partition, world: World, extra: bool) -> str | None:
    if row.owner is None or not world.alive(row):
        return "no live owner could answer"
    if extra and (step.target is not None or (row.state != HELD and row.target is None)):
        return "a retirement is for nobody, and is asked for once"
    if extra:
        return None
    if step.target is not None and (world.state(step.target) != "active" or step.target == row.owner):
        return f"{step.target} is {world.state(step.target)}, or its owner"
    if step.target is not None and world.refused(row, step.target):
        return f"{step.target} never confirmed it"
    if row.state == HELD:
        return None if step.target is not None else "a release needs a target"
    return None if world.state(row.target) == "gone" else f"its target {row.target} is not gone"


def _quotas(plan: PartitionPlan, before: World, _: World) -> list[str]:
    """Judge floors and ceilings, and who got the ceilings."""
    shares, policy = before.shares(), before.policy
    if set(plan.quotas) != set(shares):
        return [f"quotas are for {sorted(plan.quotas)}, active are {before.active}"]
    floors = {name: share.numerator // share.denominator for name, share in shares.items()}
    firm, all_told = before.firm(), before.firm() + before.meant()
    split = sorted((-score_again(policy.seed, name), name) for name, share in shares.items() if share.denominator > 1)
    split.sort(key=lambda one: -policy.debt.get(one[1], 0))
    split.sort(key=lambda one: -(firm[one[1]] > floors[one[1]]) - (all_told[one[1]] > floors[one[1]]))
    raised = {name for _, name in split[: int(sum(shares.values())) - sum(floors.values())]}
    return [
        f"{name} has quota {plan.quotas[name]}, its share {share} and its turn give {floors[name] + (name in raised)}"
        for name, share in shares.items()
        if plan.quotas[name] != floors[name] + (name in raised)
    ]


def _told(plan: PartitionPlan, before: World, _: World) -> list[str]:
    """Judge what is only reported: real loads, and what each node is owed."""
    owners = Counter(row.owner for row in before.rows.values())
    held = {name: owners[name] for name in before.nodes if before.state(name) != "gone"}
    owed = {name: share - plan.quotas.get(name, 0) for name, share in before.shares().items()}
    faults = [f"held says {plan.held}, the rows say {held}"] if plan.held != held else []
    return faults + ([f"owed says {plan.owed}, the shares say {owed}"] if plan.owed != owed else [])


def _recalls(plan: PartitionPlan, before: World, after: World) -> list[str]:
    """Judge that requests are recalled from nodes with too much to owners with room: all that can be, and no more."""
    firm, settled = before.firm(), _firm(plan, before)
    faults = []
    for name, quota in plan.quotas.items():
        if settled[name] < min(firm[name], quota) or settled[name] > max(firm[name], quota):
            faults.append(f"requests are recalled beyond the quota of {name}")
    for row in after.inside:
        owner, target = row.owner or "", row.target or ""
        asked = row.state == ASKED and before.rows[row.id].state == ASKED and after.firm_on(row) == target
        if asked and settled[target] > plan.quotas.get(target, 0) and settled[owner] < plan.quotas.get(owner, 0):
            faults.append(f"{row.id} goes to {target}, which has too much, from {owner}, which has room")
    return faults


def _recalled(row: Partition, world: World) -> bool:
    """Say whether a request stands, and could only be cancelled because it is superseded."""
    alive = row.state == ASKED and world.alive(row) and world.state(row.owner) == "active"
    return alive and world.state(row.target) == "active"


def _firm(plan: PartitionPlan, before: World) -> Counter[str | None]:
    """Count the firm rows once the recalled ones are back."""
    firm = before.firm()
    for step in plan.steps:
        row = before.rows[step.partition]
        if step.kind == "cancel" and _recalled(row, before):
            firm[row.target] -= 1
            firm[row.owner] += 1
    return firm


def _loads(plan: PartitionPlan, before: World, after: World) -> list[str]:
    """Judge that loads count what is Assigned and what is reserved, and nothing else."""
    firm = after.firm() - Counter(row.owner for row in after.inside if after.goes_back(row))
    counted = after.loads(plan.quotas, firm)
    counted |= {name: firm[name] for name in before.nodes if before.state(name) == "draining"}
    # A row that was refused may take the place of one that is only meant for that node.
    slack = after.meant() if _anyone_refused(before) else Counter[str | None]()
    return [
        f"loads say {plan.loads.get(name)} for {name}, the rows say {counted.get(name)}"
        for name in sorted(set(plan.loads) | set(counted))
        if not counted.get(name, -1) <= plan.loads.get(name, -2) <= counted.get(name, -1) + slack[name]
    ]


def _fewest(plan: PartitionPlan, before: World, _: World) -> list[str]:
    """Judge that every node lets go of exactly what it has too much, and that the certificate says so."""
    cancelled = {step.partition for step in plan.steps if step.kind == "cancel"}
    asked = {step.partition for step in plan.steps if step.kind == "release"}
    leaving = Counter(wait.source for wait in plan.moves_waiting if _inside(wait.partition, before))
    for row in before.inside:
        goes_on = before.goes_back(row) and row.id not in cancelled
        if row.owner and (goes_on or (row.state == HELD and row.id in asked)):
            leaving[row.owner] += 1
    firm = _firm(plan, before)
    needed = {name: max(0, firm[name] - plan.quotas.get(name, 0)) for name in before.active}
    needed |= {name: firm[name] for name in before.nodes if before.state(name) == "draining"}
    faults = [
        f"{name} lets go of {leaving[name]}, it has {needed.get(name, 0)} too many"
        for name in sorted(set(needed) | set(leaving))
        if leaving[name] != needed.get(name, 0)
    ]
    gone = sum(before.state(row.owner) == "gone" for row in before.inside)
    fewest, made = gone + sum(needed.values()), gone + leaving.total()
    told = plan.certificate
    faults += [f"the certificate says fewest {told.moves_min}, the facts say {fewest}"] * (told.moves_min != fewest)
    return faults + [f"the certificate says {told.moves} moves, the plan makes {made}"] * (told.moves != made)


def _inside(partition: str, world: World) -> bool:
    return int(partition) < world.policy.count


def _recovery(plan: PartitionPlan, before: World, after: World) -> list[str]:
    """Judge that nothing free or lost waits without need, that the furthest below takes, and that reasons are given."""
    faults = []
    for row in after.rows.values():
        if row.owner is not None and after.over(row):
            faults.append(f"{row.id} is not taken from {row.owner}, whose lease and grace have ended")
        stays = row.state == FREE and before.rows[row.id].state == FREE and _inside(row.id, before)
        if stays and not before.awaited(row) and any(not before.refused(row, name) for name in before.active):
            faults.append(f"{row.id} is free and is not given to anybody")
    unowned = {row.id for row in after.inside if row.owner is None or not after.alive(row)}
    faults += [f"{name} is unowned without a reason" for name in sorted(unowned - set(plan.unowned))]
    faults += [f"{name} is called unowned and is not" for name in sorted(set(plan.unowned) - unowned)]
    return faults + _level(plan, before)


def _level(plan: PartitionPlan, before: World) -> list[str]:
    """Judge the givings: to its own target while that has room, else to whoever is furthest below its quota.

    Then nobody is left more than one further below than any node that was given to.
    """
    firm, meant = _firm(plan, before), before.meant()
    given, turned_away = Counter[str](), Counter[str]()
    for step in plan.steps:
        target = before.meant_for(before.rows[step.partition])
        if step.kind == "assign" and step.target is not None and step.target != target:
            given[step.target] += 1
            turned_away[target or ""] += target is not None
    faults = [
        f"{count} of what is reserved for {name} goes elsewhere, and it has room"
        for name, count in turned_away.items()
        if count > max(0, firm[name] + meant[name] - plan.quotas.get(name, 0))
    ]
    if _anyone_refused(before):
        return faults
    loads = before.loads(plan.quotas, firm)
    left = {name: quota - loads[name] - given[name] for name, quota in plan.quotas.items()}
    furthest = max(left.values(), default=0)
    return faults + [
        f"{name} is given more while others are further below" for name in given if left[name] + 1 < furthest
    ]


def _anyone_refused(world: World) -> bool:
    return any(world.refused(row, name) for row in world.inside for name in row.offers)


def _retirement(plan: PartitionPlan, before: World, after: World) -> list[str]:
    """Judge that rows beyond the count are on their way out, for nobody."""
    waits = {wait.partition for wait in plan.moves_waiting}
    faults = []
    for row in after.beyond:
        if before.rows[row.id].state == FREE:
            faults.append(f"{row.id} is beyond the count, free, and not retired")
        elif row.state == HELD and after.alive(row) and row.id not in waits:
            faults.append(f"{row.id} is beyond the count and {row.owner} is not asked to let go")
        elif row.state in (ASKED, LETTING_GO) and row.target is not None and after.alive(row):
            faults.append(f"{row.id} is beyond the count and still reserved for {row.target}")
    return faults


def _mended(plan: PartitionPlan, _: World, after: World) -> list[str]:
    """Judge that no release goes on for a node that is gone, and that a superseded one goes back to where room is."""
    faults = []
    for row in after.inside:
        releasing = row.state in (ASKED, LETTING_GO) and after.alive(row)
        if releasing and after.state(row.target) == "gone":
            faults.append(f"{row.id} is still being released for {row.target}, which is gone")
    firm = after.firm()
    back = Counter(row.owner for row in after.inside if after.goes_back(row))
    return faults + [
        f"{name} has room for what it was asked to let go of"
        for name, count in back.items()
        if name is not None and firm[name] - count < plan.quotas.get(name, 0)
    ]


def _budgets(plan: PartitionPlan, before: World, after: World) -> list[str]:
    """Judge that new releases keep the budgets; what was under way already may be more."""
    budgets = before.policy.budgets
    total, sources, targets = after.in_flight()
    fresh = [step for step in plan.steps if step.kind == "release" and before.rows[step.partition].state == HELD]
    aimed = {step.target for step in plan.steps if step.kind == "release" and step.target is not None}
    grown = [("in flight", total, budgets.moves_in_flight_max)] if fresh else []
    grown += [(f"from {name}", sources[name], budgets.per_source_max) for name in {step.source for step in fresh}]
    grown += [(f"to {name}", targets[name], budgets.per_target_max) for name in aimed]
    return [
        f"{count} moves {where} are under way, {most} are allowed"
        for where, count, most in sorted(grown)
        if most is not None and count > most
    ]


def _undone(plan: PartitionPlan, before: World, after: World) -> list[str]:
    """Judge the fixpoint: what waits for a budget could not begin now, so a second plan would add nothing."""
    budgets = before.policy.budgets
    total, sources, targets = after.in_flight()
    if budgets.moves_in_flight_max is not None and total >= budgets.moves_in_flight_max:
        return []
    room = {
        name
        for name, quota in plan.quotas.items()
        if plan.loads.get(name, 0) < quota and not _reached(targets[name], budgets.per_target_max)
    }
    faults = []
    for wait in plan.moves_waiting:
        row = after.rows[wait.partition]
        could = not _reached(sources[row.owner], budgets.per_source_max) and row.state == HELD and after.alive(row)
        takes = any(not before.refused(row, name) for name in room) or not _inside(row.id, before)
        if could and takes and row.owner == wait.source:
            faults.append(f"{row.id} waits, and could leave {row.owner} now")
    return faults


def _reached(count: int, most: int | None) -> bool:
    return most is not None and count >= most


def _ends(plan: PartitionPlan, before: World, _: World) -> list[str]:
    """Judge that everybody ends at the quota, where the steps say, and that the spread is that of the ends."""
    names = {row.id for row in before.inside}
    faults = [f"{name} has no end, or is none of the set" for name in sorted(names ^ set(plan.assignment))]
    moving_on = {wait.partition for wait in plan.moves_waiting}
    for step in plan.steps:
        end = plan.assignment.get(step.partition)
        binding = step.kind in ("assign", "release") and step.target is not None and step.partition not in moving_on
        if binding and end != step.target:
            faults.append(f"{step.partition} goes to {step.target}, the assignment says {end}")
    ends = Counter(plan.assignment.values())
    loads = [ends[name] for name in before.active] or [0]
    if plan.certificate.spread != max(loads) - min(loads):
        faults.append(f"the certificate says spread {plan.certificate.spread}, the ends {max(loads) - min(loads)}")
    if not _anyone_refused(before):
        faults += [
            f"{name} ends with {ends[name]}, its quota is {quota}"
            for name, quota in plan.quotas.items()
            if ends[name] != quota
        ]
    return faults
