"""What to call next, and what may be said: every case as a row of a table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poise.jobs.pool.settings import pace_of
from poise.jobs.pool.steps import (
    Call,
    Content,
    Memory,
    Rights,
    Sight,
    accept,
    after_words,
    forget,
    is_expelled,
    is_given_back,
    look,
    may_speak,
    next_call,
    refuse,
    send,
    to_deliver,
    words,
)
from poise.model.ownership import Hold, Word

AB = {"a": "a:1", "b": "b:1"}
HAS_AB = Sight(AB, frozenset(AB))
CONTENT_AB = Content("ab", AB)
CONTENT_A = Content("a", {"a": "a:1"})
NOTHING = Content("none", {})
OWNS_AB = Rights(active=True, own={"a": 1, "b": 1})
LEAVES_B = Rights(active=True, own={"a": 1}, leaving={"b": 1})
ANSWERED_AB = accept(send(Memory(), CONTENT_AB, Sight({})))
ANSWERED_A = accept(send(Memory(), CONTENT_A, HAS_AB))


@pytest.mark.parametrize(
    ("rights", "sight", "memory", "content", "call"),
    [
        (OWNS_AB, None, Memory(), CONTENT_AB, Call.LOOK),
        (OWNS_AB, None, ANSWERED_AB, CONTENT_AB, Call.LOOK),
        (OWNS_AB, HAS_AB, ANSWERED_AB, CONTENT_AB, Call.REST),
        (OWNS_AB, HAS_AB, Memory(delivered=Content("ab", {})), CONTENT_AB, Call.REST),
        (OWNS_AB, HAS_AB, ANSWERED_AB, Content("ab, other subscriptions", AB), Call.APPLY),
        (OWNS_AB, HAS_AB, Memory(), CONTENT_AB, Call.APPLY),
        (OWNS_AB, HAS_AB, forget(ANSWERED_AB), CONTENT_AB, Call.APPLY),
        (OWNS_AB, Sight({}), ANSWERED_AB, CONTENT_AB, Call.APPLY),
        (OWNS_AB, Sight({"a": "a:1"}), ANSWERED_AB, CONTENT_AB, Call.APPLY),
        (Rights(active=True, own={"a": 1}), HAS_AB, ANSWERED_AB, CONTENT_A, Call.APPLY),
        (Rights(active=True, own={"a": 1}), HAS_AB, ANSWERED_A, CONTENT_A, Call.APPLY),
        (LEAVES_B, Sight({"a": "a:1"}, frozenset("ab")), ANSWERED_A, CONTENT_A, Call.WATCH),
        (LEAVES_B, Sight({"a": "a:1"}, frozenset("a")), ANSWERED_A, CONTENT_A, Call.REST),
        (LEAVES_B, Sight({"a": "a:1"}), Memory(delivered=CONTENT_A), CONTENT_A, Call.APPLY),
        (Rights(active=True), Sight({}), Memory(), NOTHING, Call.REST),
        (Rights(), HAS_AB, Memory(), NOTHING, Call.APPLY),
        (Rights(active=True, leaving={"b": 1}), Sight({}), Memory(), NOTHING, Call.APPLY),
        (Rights(active=True, leaving={"b": 1}), Sight({}), ANSWERED_AB, NOTHING, Call.APPLY),
    ],
    ids=[
        "never looked", "doubt", "unchanged", "unchanged after a restart of Poise", "changed content",
        "unknown content", "told again", "restarted empty", "lost one", "has one too many", "somebody added one",
        "tears down", "torn down",
        "a release before anything was answered", "nothing to do for an empty pod", "came back with strangers",
        "a release by an engine that is gone", "restarted empty while it let go",
    ],
)  # fmt: skip
def test_the_next_call(rights: Rights, sight: Sight | None, memory: Memory, content: Content, call: Call) -> None:
    assert next_call(rights, sight, memory, content) is call


def held(*names: str) -> tuple[Hold, ...]:
    return tuple(Hold(name, 1, Word.HELD) for name in names)


def released(*names: str) -> tuple[Hold, ...]:
    return tuple(Hold(name, 1, Word.RELEASED) for name in names)


@pytest.mark.parametrize(
    ("rights", "sight", "memory", "said"),
    [
        (Rights(active=True, own={"a": 1, "b": 1}, unconfirmed=frozenset("ab")), HAS_AB, Memory(), held("a", "b")),
        (Rights(active=True, own={"a": 1}, unconfirmed=frozenset("a")), Sight({}, frozenset("a")), Memory(), ()),
        (OWNS_AB, HAS_AB, ANSWERED_AB, ()),
        (LEAVES_B, HAS_AB, ANSWERED_AB, ()),
        (LEAVES_B, Sight({"a": "a:1"}), ANSWERED_A, released("b")),
        (LEAVES_B, Sight({"a": "a:1"}, frozenset("ab")), ANSWERED_A, ()),
        (LEAVES_B, Sight({"a": "a:1"}), Memory(), ()),
        (LEAVES_B, Sight({"a": "a:1"}), ANSWERED_AB, ()),
        (LEAVES_B, Sight({"a": "a:1"}), send(ANSWERED_A, CONTENT_AB, HAS_AB), ()),
    ],
    ids=[
        "first sight", "not configured yet", "nothing new", "not taken yet", "gone", "still streams",
        "nothing was answered", "answered with it", "another document is on its way",
    ],
)  # fmt: skip
def test_what_a_look_lets_say(rights: Rights, sight: Sight, memory: Memory, said: tuple[Hold, ...]) -> None:
    assert words(rights, sight, memory) == said


def test_a_pod_that_was_gone_is_freed_before_it_gets_anything() -> None:
    back = Rights(own={"a": 1, "c": 1})
    assert not may_speak(back, HAS_AB)
    assert to_deliver(back, HAS_AB) == {"a"}
    assert may_speak(back, Sight({"a": "a:1"}))
    assert not may_speak(back, Sight({"a": "a:1"}, frozenset("ab"))), "its streams have not ended"
    assert to_deliver(Rights(active=True, own={"a": 1, "c": 1}), HAS_AB) == {"a", "c"}


def test_a_lost_answer_is_found_by_reading_back() -> None:
    sent = send(ANSWERED_A, CONTENT_AB, Sight({"a": "a:1"}))
    assert sent.answered is None
    assert look(sent, HAS_AB, 5.0) == accept(sent)
    assert look(sent, Sight({"a": "", "b": ""}), 5.0) == accept(sent), "a pod that tells no addresses"
    assert look(sent, Sight({"a": "a:1"}), 5.0).answered is None
    assert look(sent, Sight({"a": "a:1", "b": "b:old"}), 5.0).answered is None


def test_what_the_pod_showed_before_proves_nothing() -> None:
    same = send(ANSWERED_AB, Content("ab, other subscriptions", AB), HAS_AB)
    assert look(same, HAS_AB, 5.0).answered is None


def test_refusals_count_from_the_first_until_a_document_is_taken() -> None:
    refused = refuse(refuse(send(Memory(), CONTENT_AB, Sight({})), 10.0), 12.0)
    assert not is_given_back(refused, 29.9, 20.0)
    assert is_given_back(refused, 30.0, 20.0)
    assert words(OWNS_AB, Sight({"a": "a:1"}), refused, given_back=True) == released("b")
    assert accept(send(refused, CONTENT_AB, Sight({}))).refused_s is None
    assert refuse(refused, None).refused_s is None, "a document that is wrong is nobody else's luck"


def test_a_pod_that_is_not_healthy_for_too_long_loses_everything() -> None:
    sick = Sight(AB, frozenset(AB), "healthz answered 503")
    memory = look(look(ANSWERED_AB, sick, 10.0), sick, 15.0)
    assert not is_expelled(memory, 29.9, 20.0)
    assert is_expelled(memory, 30.0, 20.0)
    assert to_deliver(OWNS_AB, sick, expelled=True) == frozenset()
    assert not is_expelled(look(memory, HAS_AB, 31.0), 31.0, 20.0)


NAMES = st.frozensets(st.sampled_from("abcd"))


@given(NAMES, NAMES, NAMES, NAMES, st.none() | NAMES, st.booleans())
def test_released_is_only_said_of_what_nobody_can_find(
    own: frozenset[str], leaving: frozenset[str], configured: frozenset[str], live: frozenset[str],
    answered: frozenset[str] | None, active: bool,
) -> None:  # fmt: skip
    rights = Rights(active=active, own=dict.fromkeys(own - leaving, 1), leaving=dict.fromkeys(leaving, 1))
    sight, memory = Sight(dict.fromkeys(configured, ""), live), Memory(answered=answered)
    said = words(rights, sight, memory)
    gone = {hold.item for hold in said if hold.state is Word.RELEASED}
    assert gone <= leaving - configured - live
    assert not gone or (answered is not None and not gone & answered)
    after = after_words(rights, said)
    assert set(after.leaving) == leaving - gone


@given(st.integers(1, 10_000))
def test_a_pod_whose_writes_all_time_out_is_still_spoken_for(gone_after_s: int) -> None:
    pace = pace_of(gone_after_s)
    assert pace.apply_s + pace.backoff_max_s + pace.answer_s < gone_after_s
    assert pace.look_s + pace.answer_s < gone_after_s
