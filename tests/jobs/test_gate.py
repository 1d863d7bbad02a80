"""Windows, cooldown and budgets where plans are carried out, with the ledger that the store keeps."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.set_world import World

from poise.jobs.coordinator import Coordinator
from poise.model.common import Budget, Window
from poise.model.ownership import OwnerState
from poise.model.partition_set import PartitionGuards

NIGHT = datetime(2026, 11, 15, 2, 30, tzinfo=UTC)
NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def guards(
    *, cooldown_s: int = 0, budgets: list[Budget] | None = None, windows: list[Window] | None = None
) -> PartitionGuards:
    return PartitionGuards(
        cooldown_seconds=cooldown_s,
        budgets=budgets or [],
        windows=windows or [],
        moves_in_flight_max=2,
        per_source_max=None,
        per_target_max=None,
    )


def joined(told: PartitionGuards) -> World:
    """Let a member hold twelve items, and another one join."""
    world = World(12, "n1", guards=told)
    world.settle()
    world.join("n2")
    return world


def moved(world: World) -> int:
    return world.loads().get("n2", 0)


def test_moves_wait_for_a_window_and_recovery_does_not() -> None:
    world = joined(guards(windows=[Window("0 2 * * *", "1h")]))
    for _ in range(5):
        world.coordinator.cycle("orders", NOON)
        world.beat("n1")
        world.beat("n2")
    assert moved(world) == 0
    world.coordinator.resign("orders")
    world.coordinator = Coordinator(world.store, "leader-2")
    for _ in range(12):
        world.coordinator.cycle("orders", NIGHT)
        world.beat("n1")
        world.beat("n2")
    assert moved(world) == 6
    world.kill("n2")
    for _ in range(16):
        world.coordinator.cycle("orders", NOON)
        world.beat("n1")
        world.now_s += 1
    assert world.loads() == {"n1": 12}


def test_a_cooldown_lets_one_plan_of_moves_begin_at_a_time() -> None:
    world = joined(guards(cooldown_s=60))
    world.settle(30)
    assert moved(world) == 2, "one plan of two moves"
    world.settle(33)
    assert moved(world) == 4


def test_a_budget_counts_what_began_within_its_window_and_a_new_leader_knows_it() -> None:
    world = joined(guards(budgets=[Budget(3, 100)]))
    world.settle(20)
    assert moved(world) == 3
    world.coordinator.resign("orders")
    world.coordinator = Coordinator(world.store, "leader-2")
    world.settle(20)
    assert moved(world) == 3
    world.settle(70)
    assert moved(world) == 6
    began = [line.at_s for line in world.store.journal("orders", most=10_000) if line.transition == "release requested"]
    assert all(later - earlier >= 100 for earlier, later in zip(began, began[3:], strict=False))


def test_the_ledger_keeps_no_more_than_its_guards_count() -> None:
    world = joined(guards(budgets=[Budget(100, 3)]))
    world.settle(20)
    assert moved(world) == 6
    assert len(world.facts().job.started) <= 4
    free = joined(guards())
    free.settle(20)
    assert free.facts().job.started == (), "without a cooldown or a budget nothing is kept"


def test_a_guard_wakes_the_coordinator_when_it_opens() -> None:
    world = joined(guards(cooldown_s=3))
    cycles = [world.coordinator.cycle("orders") for _ in range(2)]
    assert cycles[0].written == 2
    asked = [row for row in world.facts().rows.values() if row.state is OwnerState.REQUESTED_RELEASE]
    assert len(asked) == 2
    assert cycles[1].wake_s <= 3
