"""Broken protocols: each law of a drill has a piece here whose breaking the drill must find, and by that law."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import msgspec
import pytest

from poise.decide.partition_values import PartitionPlan, Step, StepKind
from poise.hold.holding import Holding, Order, Phase, hear, speak
from poise.jobs.snapshots import plan_snapshot
from poise.model.ownership import Heartbeat, OwnerState, Reply, Row
from poise.move import executor, handoff
from poise.move.executor import Snapshot
from poise.move.handoff import Event, Expire, Grant, Outcome
from poise.sim import drill_faults, drill_world
from poise.sim.drill import drill
from poise.sim.drill_world import DrillWorld

Patch = pytest.MonkeyPatch
PLANNER = "poise.jobs.debts.plan_snapshot"  # As the coordinator calls it.


def finds(law: str, seeds: int = 20) -> bool:
    """Drill until a world breaks this law."""
    return any(law in text for seed in range(seeds) for text in drill(seed).broken)


def patch_step(monkeypatch: Patch, change: Callable[[Row, Event], Outcome]) -> None:
    monkeypatch.setattr(executor, "step", change)


def patch_plan(monkeypatch: Patch, change: Callable[[Snapshot, PartitionPlan], PartitionPlan]) -> None:
    monkeypatch.setattr(PLANNER, lambda facts, _debt: change(facts, plan_snapshot(facts)))


def test_a_member_that_does_not_fence_itself(monkeypatch: Patch) -> None:
    def careless(holding: Holding, now_s: float) -> tuple[Holding, list[Order]]:
        del now_s
        return holding, []

    monkeypatch.setattr(drill_world, "watch", careless)
    assert finds("acted on by")


def test_a_member_that_begins_what_it_hears_of_too_late(monkeypatch: Patch) -> None:
    def eager(holding: Holding, reply: Reply, sent_at_s: float, now_s: float) -> tuple[Holding, list[Order]]:
        del now_s
        return hear(holding, reply, sent_at_s, -inf)

    monkeypatch.setattr(drill_world, "hear", eager)
    # More replies come late, and later; where members look at their clocks that breaks nothing.
    monkeypatch.setattr(drill_world, "SLOW_S", 20.0)
    monkeypatch.setattr(drill_world, "SLOW_ONE_IN", 4)
    assert finds("acted on by", 60)


def test_a_member_that_measures_with_its_wall_clock(monkeypatch: Patch) -> None:
    monkeypatch.setattr(DrillWorld, "local_s", DrillWorld.wall_s)
    assert finds("acted on by")


def test_a_store_whose_clock_steps_further_than_the_settings_say(monkeypatch: Patch) -> None:
    monkeypatch.setattr(drill_faults, "STEP_S", 10.0)
    assert finds("acted on by")


def test_a_leader_that_does_not_wait_for_leases(monkeypatch: Patch) -> None:
    def hasty(row: Row, event: Event) -> Outcome:
        if isinstance(event, Expire):
            event = msgspec.structs.replace(event, now_s=event.now_s + 60)
        return handoff.step(row, event)

    def impatient(facts: Snapshot) -> PartitionPlan:
        rows = {
            item: msgspec.structs.replace(row, lease_until_s=row.lease_until_s - 9) for item, row in facts.rows.items()
        }
        return plan_snapshot(msgspec.structs.replace(facts, rows=rows))

    patch_step(monkeypatch, hasty)
    monkeypatch.setattr(PLANNER, lambda facts, _debt: impatient(facts))
    assert finds("acted on by")


def test_a_grant_at_the_old_epoch(monkeypatch: Patch) -> None:
    def stuck(row: Row, event: Event) -> Outcome:
        after, actions = handoff.step(row, event)
        if isinstance(event, Grant) and after is not None and row.epoch:
            after = msgspec.structs.replace(after, epoch=row.epoch)
        return after, actions

    patch_step(monkeypatch, stuck)
    assert finds("begun at epoch")


def test_a_member_that_says_released_only_once_where_calls_are_refused(monkeypatch: Patch) -> None:
    """Only refusals are left of what can happen to a message, so it is they that find it."""

    def forgetful(holding: Holding) -> tuple[Holding, Heartbeat]:
        spoken, said = speak(holding)
        kept = {item: piece for item, piece in spoken.pieces.items() if piece.phase is not Phase.STOPPED}
        return msgspec.structs.replace(spoken, pieces=kept), said

    monkeypatch.setattr(drill_world, "speak", forgetful)
    monkeypatch.setattr(DrillWorld, "_lost", lambda _world, _process: False)
    monkeypatch.setattr(drill_world, "MISHAPS_IN", 20)
    assert finds("begun at epoch")


def test_a_leader_that_frees_what_is_lost_much_too_late(monkeypatch: Patch) -> None:
    def slow(row: Row, event: Event) -> Outcome:
        if isinstance(event, Expire):
            event = msgspec.structs.replace(event, now_s=event.now_s - 45)
        return handoff.step(row, event)

    patch_step(monkeypatch, slow)
    assert finds("nobody worked on")


def test_a_leader_that_knows_no_budget(monkeypatch: Patch) -> None:
    def lavish(facts: Snapshot) -> PartitionPlan:
        free = msgspec.structs.replace(
            facts.job.guards, moves_in_flight_max=None, per_source_max=None, per_target_max=None
        )
        return plan_snapshot(msgspec.structs.replace(facts, job=msgspec.structs.replace(facts.job, guards=free)))

    monkeypatch.setattr(PLANNER, lambda facts, _debt: lavish(facts))
    assert finds("allowed")


def test_a_leader_that_never_balances(monkeypatch: Patch) -> None:
    def lazy(facts: Snapshot, plan: PartitionPlan) -> PartitionPlan:
        del facts
        steps = [step for step in plan.steps if step.kind is not StepKind.RELEASE]
        return msgspec.structs.replace(plan, steps=steps)

    patch_plan(monkeypatch, lazy)
    assert finds("at the end the loads are")


def restless_plan(facts: Snapshot, plan: PartitionPlan, of: Callable[[Row], bool]) -> PartitionPlan:
    """Ask one owner to let go of one item that could stay, in favour of whoever comes next by name."""
    names, row = sorted(facts.members), next((row for row in facts.rows.values() if of(row)), None)
    if plan.steps or row is None or row.owner is None or len(names) < 2:
        return plan
    target = names[(names.index(row.owner) + 1) % len(names)]
    return msgspec.structs.replace(plan, steps=[Step(StepKind.RELEASE, row.id, row.owner, target, "restless")])


def test_a_leader_that_moves_what_could_stay(monkeypatch: Patch) -> None:
    def of(row: Row) -> bool:
        return row.state is OwnerState.ASSIGNED and row.confirmed

    patch_plan(monkeypatch, lambda facts, plan: restless_plan(facts, plan, of))
    assert finds("were enough", 3)


def test_a_leader_that_moves_something_when_all_is_settled(monkeypatch: Patch) -> None:
    def of(row: Row) -> bool:
        return row.state is OwnerState.ASSIGNED and row.confirmed

    def late(facts: Snapshot, plan: PartitionPlan) -> PartitionPlan:
        return restless_plan(facts, plan, of) if facts.now_s > 260 else plan

    patch_plan(monkeypatch, late)
    monkeypatch.setattr("poise.jobs.coordinator._same", lambda *_: False)  # Else it does not plan when nothing is new.
    assert finds("all was settled", 3)
