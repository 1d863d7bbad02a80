"""Every interleaving of what sharder and shard decide, in small worlds: one owner, epochs that only grow, and an end.

What may go wrong here: any order of steps, decisions made from older versions than the write is checked against,
requests and answers that are late or lost, crashes, restarts, twins of one name, Leases that are deleted, late
sharders, and pauses. The one thing left open is what lazy fencing leaves open, as the guarantee table says: a process
that was paused and replaced under its name may write until its successor's first patch.
"""

from __future__ import annotations

import sys

import pytest
from tests.model.explore import VISITED
from tests.model.sharding_fair import FairSchedule
from tests.model.sharding_search import Exploration, explore, wander
from tests.model.sharding_server import replace
from tests.model.sharding_world import FAULTS, Scene, Universe, World

from poise.model.sharding import Marks

FREE = (Marks(), Marks())
SWIFT = ("b",)  # The sharder's lag in seeing a is the point of these scenes; b only has to be there.
PAIR = Scene(swift=SWIFT)
CHILD = Scene(parents=(-1, 0), swift=SWIFT)
ALONE = Scene(processes=("a", "a"), unborn=(1,))
TWINS = Scene(processes=("a", "a", "b"), unborn=(1,), swift=SWIFT)
ADOPTED = Scene(parents=(-1, -1), marks=(Marks("a", 1), Marks("b", 2)), swift=SWIFT)
NEAREST = 15_000
WALKS, STEPS, SEED = 60, 120, 20_261_116

# These are visited to the end: each with the least number of its states.
WHOLE = {
    "the plan changes, and an answer is lost": (replace(PAIR, swift=(), faults={"plan": 1, "lost": 1}), 25_000),
    "a late sharder, and the instance comes back": (
        replace(PAIR, faults={"crash": 1, "restart": 1, "ghost": 1}),
        95_000,
    ),
    "a process is paused, and the plan changes": (replace(PAIR, faults={"plan": 1, "pause": 1}), 30_000),
    "a process is paused, with a child": (replace(CHILD, faults={"pause": 1}), 20_000),
    "a process is paused and replaced, lazily": (replace(TWINS, faults={"start": 1, "pause": 1}), 65_000),
    "a child, and a patch that nobody waits for": (
        replace(CHILD, timeless=True, faults={"plan": 2, "ghost": 1}),
        15_000,
    ),
    "the sharder starts anew": (replace(CHILD, faults={"plan": 1, "sharder": 1}), 10_000),
    "an object is adopted by another owner's": (
        replace(ADOPTED, timeless=True, faults={"adopt": 1, "plan": 1}),
        10_000,
    ),
    "an object is adopted by its own owner's": (
        replace(ADOPTED, marks=(Marks("a", 1), Marks("a", 1)), timeless=True, faults={"adopt": 1, "plan": 1}),
        2_000,
    ),
    "an object is adopted, and a process is paused": (
        replace(ADOPTED, swift=("a", "b"), faults={"adopt": 1, "pause": 1}),
        790_000,
    ),
    "a ring with a child is removed and created again": (
        replace(CHILD, timeless=True, faults={"ring": 2, "plan": 1}),
        8_000,
    ),
    "a twin starts": (replace(ALONE, faults={"start": 1, "cut": 1}), 3_500),
    "the Lease is deleted, and a twin starts": (replace(ALONE, marks=FREE, faults={"start": 1, "delete": 1}), 5_500),
}
# These are larger: their NEAREST states are visited, all that can happen within so many steps, and walks by chance go
# on from there.
NEARBY = {
    "an instance crashes with a child, and starts again": replace(CHILD, faults={"crash": 1, "restart": 1}),
    "an instance releases its Lease": replace(PAIR, faults={"leave": 1, "restart": 1, "plan": 1}),
    "renewals fail for a while": replace(PAIR, faults={"cut": 2, "plan": 1}),
    "renewals and answers are slow": replace(ALONE, duration_s=3.0, faults={"start": 1, "cut": 2, "slow": 1}),
    "a process is paused and replaced, eagerly": replace(TWINS, eager=True, faults={"start": 1, "pause": 1}),
    "twins, and the Lease is deleted": replace(TWINS, faults={"start": 1, "delete": 1}),
    "twins, and the Lease is deleted before anything is assigned": replace(
        TWINS, marks=FREE, faults={"start": 1, "delete": 1}
    ),
    "two sharders, and an instance crashes": replace(PAIR, sharders=2, faults={"crash": 1, "restart": 1, "ghost": 1}),
    "two sharders, a child and a pause": replace(CHILD, sharders=2, faults={"pause": 1}),
    "two sharders, a child and a plan that changes": replace(CHILD, sharders=2, timeless=True, faults={"plan": 2}),
    "an object is adopted, and the sharder forgets": replace(ADOPTED, faults={"adopt": 1, "sharder": 1}),
    "a ring is removed and created again": replace(PAIR, faults={"ring": 2, "plan": 1}),
    "clocks that advance by themselves": replace(
        ALONE, apart=True, duration_s=4.0, margin_s=2.0, faults={"start": 1, "cut": 1}
    ),
    "foreign shards that never acknowledge": replace(CHILD, stubborn=True, drain_timeout_s=1.0, faults={"plan": 1}),
    "the long form": replace(CHILD, short=False, faults={"plan": 1, "crash": 1}),
    "dead Leases are deleted in the end": replace(PAIR, orphans=True, faults={"crash": 1}),
    "two roots": replace(ADOPTED, faults={"plan": 1, "crash": 1}),
}

# Whatever can go wrong does, in one walk: too much to be visited, so chance chooses.
ANY = dict.fromkeys(FAULTS, 1) | {"plan": 2, "restart": 2, "ring": 0, "adopt": 0}
TOGETHER = {
    "twins, a child and two sharders": replace(TWINS, parents=(-1, 0), sharders=2, swift=(), faults=ANY),
    "a ring that comes and goes": replace(CHILD, swift=(), faults=ANY | {"ring": 2}),
    "an adoption": replace(ADOPTED, sharders=2, swift=(), faults=ANY | {"adopt": 1}),
}


def run(name: str, scene: Scene, *, every: int, states_max: int = 10_000_000) -> Exploration:
    """Explore a scene, with a fair schedule from every so many-th state."""
    universe = Universe(scene)
    fair = FairSchedule(universe)
    count = 0

    def judge(world: World) -> str:
        nonlocal count
        count += 1
        return "" if count % every else fair.judge(world)

    found = explore(universe, states_max=states_max, judge=judge)
    VISITED.append(found.states)
    bound = "all" if found.complete else "the nearest"
    told = f"{found.states} states ({bound}), {found.steps} steps; settles within {fair.longest} ticks"
    sys.stdout.write(f"\n{name}: {told}\n")
    assert found.violation is None, found.violation.story()
    return found


def test_one_object_on_two_instances_and_from_every_state_it_settles() -> None:
    found = run("one object on two instances", replace(PAIR, timeless=True, faults={"plan": 2}), every=1)
    assert found.complete
    assert found.states >= 100


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_nothing_goes_wrong_in_any_order(name: str) -> None:
    scene, least = WHOLE[name]
    found = run(name, scene, every=max(10, least // 10_000))
    assert found.complete
    assert found.states >= least


@pytest.mark.slow
@pytest.mark.parametrize("name", NEARBY)
def test_nothing_goes_wrong_within_so_many_steps(name: str) -> None:
    found = run(name, NEARBY[name], every=20, states_max=NEAREST)
    assert found.complete or found.states >= NEAREST
    broken = wander(Universe(NEARBY[name]), SEED, walks=WALKS, steps=STEPS)
    assert broken is None, f"with seed {SEED}: {broken.story()}"


@pytest.mark.slow
@pytest.mark.parametrize("name", TOGETHER)
def test_nothing_goes_wrong_when_all_goes_wrong_and_it_settles(name: str) -> None:
    universe = Universe(TOGETHER[name])
    broken = wander(universe, SEED, walks=WALKS, steps=STEPS, judge=FairSchedule(universe).judge)
    assert broken is None, f"with seed {SEED}: {broken.story()}"


def test_what_lazy_fencing_leaves_open_is_real() -> None:
    lazy = replace(TWINS, strict=True, faults={"start": 1, "pause": 1})
    found = explore(Universe(lazy)).violation
    assert found is not None
    assert "was accepted while" in found.law
    sys.stdout.write(f"\n{found.story()}\n")
