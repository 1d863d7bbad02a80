"""Every interleaving of the shipped functions in small worlds: never two owners, epochs only grow, and all settles."""

from __future__ import annotations

import sys

import pytest
from tests.model.explore import VISITED, Exploration, explore
from tests.model.facts import replace
from tests.model.fair import FairSchedule
from tests.model.world import Scene, Universe, World

from poise.model.ownership import Terms

PAIR = Scene(names=("a", "b"), unborn=(), grants_max=2, messages_max=1, each_max=1)
TWINS = Scene(names=("a", "a"), unborn=(1,), grants_max=2, messages_max=1, each_max=1)
TRIO = replace(TWINS, names=("a", "a", "b"), grants_max=1)
LONGER = Terms(lease_s=3.0, grace_s=1.0, release_s=1.0)
NEAREST = 90_000

# These are visited to the end: each with the least number of its states.
WHOLE = {
    "a process crashes": (replace(PAIR, faults={"crash": 1}), 100_000),
    "a restart, or a twin, and another name": (replace(TRIO, faults={"start": 1}), 65_000),
    "twins, one of which is paused longer than its lease": (replace(TWINS, faults={"start": 1, "pause": 1}), 65_000),
    "the store reboots": (replace(PAIR, faults={"reboot": 1}), 115_000),
    "work is waited for (`wait`), and a process crashes": (
        replace(PAIR, terms=replace(PAIR.terms, revoke=False), faults={"crash": 1}),
        100_000,
    ),
    "a member drains, the set is paused": (replace(PAIR, grants_max=1, faults={"drain": 1, "hold": 1}), 50_000),
}
# These are larger: their NEAREST states are visited, all that can happen within so many steps.
NEARBY = {
    "a process is paused longer than its lease": replace(PAIR, faults={"pause": 1}),
    "a restart after a crash, and another name": replace(TRIO, faults={"start": 1, "crash": 1}),
    "a late leader with an old view": replace(PAIR, faults={"late plan": 1, "election": 1}),
    "the set shrinks to nothing and grows": replace(PAIR, faults={"resize": 2}),
    "a failover loses commits": replace(PAIR, faults={"failover": 1}),
    "a failover loses a registration": replace(TWINS, faults={"start": 1, "failover": 1}),
    "members leave to stop or to restart": replace(PAIR, faults={"leave": 1}),
    "requests arrive twice, replies in any order": replace(
        PAIR, messages_max=3, each_max=2, timeless=True, faults={"twice": 1}
    ),
    "two items on two nodes": replace(PAIR, items=2, grants_max=1),
    "two items, and the set shrinks": replace(PAIR, items=2, grants_max=1, faults={"resize": 1}),
}


def run(name: str, scene: Scene, *, every: int = 1, states_max: int = 10_000_000) -> Exploration:
    """Explore a scene, with fair schedules from every so many-th state: workers that stop when asked, or never."""
    universe = Universe(scene)
    # Under `wait` work that never stops may keep its item for ever.
    fair = [FairSchedule(universe, stubborn=stubborn) for stubborn in (False, True)[: 1 + scene.terms.revoke]]
    count = 0

    def judge(world: World) -> str:
        nonlocal count
        count += 1
        return "" if count % every else next(filter(None, (each.judge(world) for each in fair)), "")

    found = explore(universe, states_max=states_max, judge=judge)
    VISITED.append(found.states)
    longest = max(each.longest for each in fair)
    bound = "all" if found.complete else "the nearest"
    told = f"{found.states} states ({bound}), {found.steps} steps; settles within {longest} rounds"
    sys.stdout.write(f"\n{name}: {told}\n")
    assert found.violation is None, found.violation.story()
    return found


def test_one_item_on_two_nodes_and_from_every_state_it_settles() -> None:
    found = run("one item on two nodes", replace(PAIR, grants_max=1, faults={"crash": 1}))
    assert found.complete
    assert found.states >= 15_000


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_nothing_goes_wrong_in_any_order(name: str) -> None:
    scene, least = WHOLE[name]
    found = run(name, scene, every=10)
    assert found.complete
    assert found.states >= least


@pytest.mark.slow
@pytest.mark.parametrize("name", NEARBY)
def test_nothing_goes_wrong_within_so_many_steps(name: str) -> None:
    assert run(name, NEARBY[name], every=10, states_max=NEAREST).states >= NEAREST


@pytest.mark.slow
def test_nothing_goes_wrong_when_leases_become_shorter() -> None:
    shorter = replace(PAIR, terms=LONGER, faults={"shorten": 1})
    assert run("leases become shorter", shorter, every=10, states_max=150_000).states >= 150_000


def test_the_worlds_have_many_states_together() -> None:
    assert sum(least for _, least in WHOLE.values()) + NEAREST * len(NEARBY) >= 1_000_000
