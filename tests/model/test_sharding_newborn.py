"""Objects that a webhook labelled as they were made, by a view that may be old: every order of what follows is safe.

A new object never had an owner, so whatever its first labels are, nobody acts on it twice: a root belongs to whom they
name, and a child to nobody until they are those of its root. Nothing that was explored starts from such labels but
these scenes.
"""

from __future__ import annotations

import pytest
from tests.model.sharding_fair import FairSchedule
from tests.model.sharding_search import Exploration, explore, wander
from tests.model.sharding_server import replace
from tests.model.sharding_world import Scene, Universe, World

from poise.hold import sharding as hold
from poise.hold.sharding import Grip, Knowledge, Verdict
from poise.model.sharding import Marks, SeenObject

NEAREST, SEED = 3_000, 20_261_116
FAMILY = Scene(parents=(-1, 0), swift=("b",))
SCENES = {
    "a root at whom the plan no longer wants": replace(
        FAMILY, parents=(-1,), marks=(Marks("b", 1),), faults={"plan": 2}
    ),
    "a root at one who dies": replace(FAMILY, parents=(-1,), marks=(Marks("a", 1),), faults={"crash": 1, "restart": 1}),
    "a child with the labels of the owner before": replace(
        FAMILY, marks=(Marks("b", 2), Marks("a", 1)), faults={"plan": 1, "lost": 1}
    ),
    "such a child, and that owner is paused": replace(
        FAMILY, marks=(Marks("b", 2), Marks("a", 1)), faults={"pause": 1}
    ),
    "such a child, and that owner dies": replace(
        FAMILY, marks=(Marks("b", 2), Marks("a", 1)), faults={"crash": 1, "restart": 1}
    ),
    "a child of a root that is being handed over": replace(
        FAMILY, marks=(Marks("a", 1, "b", 9), Marks("a", 1)), faults={"plan": 1, "pause": 1}
    ),
    "a child of a root that was let go": replace(
        FAMILY, marks=(Marks(None, 1), Marks("a", 1)), faults={"plan": 1, "pause": 1}
    ),
    "a child with an older epoch": replace(
        FAMILY, marks=(Marks("a", 2), Marks("a", 1)), faults={"plan": 1, "pause": 1}
    ),
    "a child that gave its root away in somebody's eyes": replace(
        FAMILY, marks=(Marks("a", 1), Marks("b", 2)), faults={"plan": 1, "crash": 1}
    ),
    "a child, and the sharder starts anew": replace(
        FAMILY, marks=(Marks("b", 2), Marks("a", 1)), faults={"sharder": 1, "plan": 1}
    ),
}


def explored(scene: Scene) -> Exploration:
    """Explore a scene, with a fair schedule from some of its states."""
    universe = Universe(scene)
    fair, count = FairSchedule(universe), 0

    def judge(world: World) -> str:
        nonlocal count
        count += 1
        return "" if count % 20 else fair.judge(world)

    return explore(universe, states_max=NEAREST, judge=judge)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
def test_whatever_was_labelled_at_birth_has_one_owner_and_settles(name: str) -> None:
    found = explored(SCENES[name])
    assert found.violation is None, found.violation.story()
    assert found.complete or found.states >= NEAREST
    broken = wander(Universe(SCENES[name]), SEED, walks=15, steps=100)
    assert broken is None, broken.story()


@pytest.mark.slow
def test_an_instance_that_believed_the_labels_of_a_child_alone_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes labels of birth harmless: a child is acted on only where they are those of its root."""
    usual = hold.verdict

    def believing(
        grip: Grip | None,
        root: SeenObject | None,
        child: SeenObject | None,
        known: Knowledge | None,
        now_s: float,
        *,
        handing: bool = False,
    ) -> Verdict:
        mine = grip is not None and child is not None and child.marks.shard == grip.name
        believed = replace(root, marks=child.marks) if mine and root is not None and child is not None else root
        return usual(grip, believed, child, known, now_s, handing=handing)

    monkeypatch.setattr(hold, "verdict", believing)
    scene = SCENES["a child with the labels of the owner before"]
    found = explore(Universe(scene), states_max=NEAREST)
    assert found.violation is not None
