"""The laws of delivery in worlds of faults: real store, planner and turns; and mutants that the laws find."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pool.pool_fakes import first_broken, play

from poise.jobs.pool import pod, speaking, steps
from poise.jobs.pool.steps import Call, Content, Memory, Rights, Sight

Found = Callable[..., object]


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32))
def test_no_two_pods_collect_a_target_and_all_is_even_at_rest(seed: int) -> None:
    assert play(seed) == ""


def believes_a_look_alone(name: str, sight: Sight, memory: Memory) -> bool:
    """Say released though a document with the target may still be on its way."""
    del memory
    return name not in sight.listed


def believes_the_answer_alone(name: str, sight: Sight, memory: Memory) -> bool:
    """Say released though the streams may still run."""
    del sight
    return memory.answered is not None and name not in memory.answered


def speaks_for_everybody(rights: Rights, sight: Sight) -> bool:
    """Count a pod as alive that came back with what is not its own."""
    del rights, sight
    return True


def trusts_what_it_delivered(rights: Rights, sight: Sight | None, memory: Memory, content: Content) -> Call:
    """Never notice that a pod came back empty."""
    if sight is None:
        return Call.LOOK
    if (
        memory.delivered is None
        or memory.delivered.digest != content.digest
        or (rights.leaving and memory.answered is None)
    ):
        return Call.APPLY
    return Call.WATCH if sight.live - content.shape.keys() else Call.REST


def forgets_what_was_delivered(memory: Memory, sight: Sight, now_s: float) -> Memory:
    """Write to unchanged pods whenever it is time to look."""
    return steps.forget(memory) if memory.attempt is None and now_s % 1 < 0.5 else steps.look(memory, sight, now_s)


MUTANTS: dict[str, tuple[object, str, Found]] = {
    "a look alone": (steps, "is_let_go", believes_a_look_alone),
    "an answer alone": (steps, "is_let_go", believes_the_answer_alone),
    "speaks for everybody": (speaking, "may_speak", speaks_for_everybody),
    "no read-back": (pod, "next_call", trusts_what_it_delivered),
    "writes at every look": (pod, "look", forgets_what_was_delivered),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, attribute, mutant = MUTANTS[name]
    monkeypatch.setattr(module, attribute, mutant)
    assert first_broken(range(400)), f"no world shows what is wrong with a pool that trusts: {name}"
