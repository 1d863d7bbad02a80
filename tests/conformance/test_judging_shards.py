"""Every rule on small stories: kept, broken in each way, and not said anything about where it does not show."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from poise.conformance.acts import ACTS
from poise.conformance.judging import judge
from poise.conformance.requests import Answer, Asked, Intent, Place
from poise.conformance.rules import RULES, Finding, failed, gather, passed, unseen
from poise.conformance.story import Drain, Ending, Gain, Life, Story, Version
from poise.kube.objects import LeaseSpec, Meta
from poise.model.sharding import Marks

ME, P, ROOT, D = "a", "a#1", "one", 4.0
_VERSIONS = iter(range(1, 10**6))


def lease(at_s: float, holder: str = "a_1", **more: object) -> Asked:
    """A write of the Lease that succeeded."""
    meta = Meta(
        name=ME,
        resource_version=str(next(_VERSIONS)),
        labels={"poise.dev/ring": "r"},
        annotations={"poise.dev/released": "stop"},
    )
    answer = Answer(meta, LeaseSpec(holder or None, 4))
    made = Asked(
        process=P,
        at_s=at_s,
        method="PUT",
        path="/",
        place=Place("coordination.k8s.io", "leases", "ns", ME),
        intent=Intent.LEASE,
        status=200,
        answered_s=at_s + 0.1,
        answer=answer,
    )
    return msgspec.structs.replace(made, **more)


def write(at_s: float, intent: Intent = Intent.ACT, plural: str = "secrets", name: str = ROOT, **more: object) -> Asked:
    """A write of an object that succeeded."""
    made = Asked(
        process=P,
        at_s=at_s,
        method="PATCH",
        path="/",
        place=Place("", plural, "ns", name),
        intent=intent,
        roots=(ROOT,),
        status=200,
        answered_s=at_s + 0.1,
    )
    return msgspec.structs.replace(made, **more)


def listed(at_s: float) -> Asked:
    """A list of all Secrets as they are now."""
    return Asked(
        process=P,
        at_s=at_s,
        method="GET",
        path="/",
        place=Place("", "secrets", "ns"),
        status=200,
        answered_s=at_s + 0.1,
    )


def story(*asked: Asked, **more: object) -> Story:
    """A story of one instance."""
    made = Story(instance=ME, ring="r", namespace="ns", lease_s=D, names=(ROOT,), asked=asked)
    return msgspec.structs.replace(made, **more)


def versions(
    *marks: Marks, plural: str = "secrets", name: str = ROOT, first: int = 1, own: int = 1
) -> tuple[Version, ...]:
    """Versions of one object, of which the first were written by the check."""
    return tuple(
        Version(plural=plural, name=name, uid=name, number=first + place, seen_s=1.0, marks=each, own=place < own)
        for place, each in enumerate(marks)
    )


def found(made: Story, rule: str) -> list[str]:
    """Give the outcomes of one rule."""
    return [each.outcome for each in judge(made) if each.rule == rule]


def life(until_s: float, ending: Ending = "") -> tuple[Life, ...]:
    return (Life(P, until_s, ending),)


HELD, ASKED, NEXT, FREE = Marks(ME, 4), Marks(ME, 4, "b", 9), Marks("b", 5), Marks(epoch=4)
GAIN, INHERITED, DRAINED = (Gain(ROOT, 2.0, 1),), (Gain(ROOT, 0.0, 3),), (Drain(ROOT, 3.0, "b", ("kid",)),)
MOVED = (Drain(ROOT, 3.0, "b", redirected=True),)
EPOCH4 = Answer(Meta(labels={"shard.poise.dev/r": ME, "epoch.poise.dev/r": "4"}))
RAISED = write(1.5, Intent.RAISE, answer=EPOCH4)
GIVEN = write(6.0, Intent.HAND_OVER)
KID = write(5.0, Intent.HAND_OVER, "configmaps", "kid")
FAILED, PASSED, NOTHING = ["failed"], ["passed"], list[str]()
CASES: list[tuple[str, str, Story, list[str]]] = [
    ("unique-holder", "two processes", story(lease(1), lease(5, "a_2", process="a#2")), PASSED),
    ("unique-holder", "one process", story(lease(1), lease(2)), NOTHING),
    ("unique-holder", "shared", story(lease(1), lease(5, process="a#2")), FAILED),
    ("unique-holder", "another's name", story(lease(1, "b_1")), FAILED),
    ("unique-holder", "no id", story(lease(1, "a")), FAILED),
    ("lease-upkeep", "kept", story(lease(1), lease(4), lease(7), lives=life(9.5)), PASSED),
    ("lease-upkeep", "too short to say", story(lease(1), lease(4), lives=life(5.0)), NOTHING),
    ("lease-upkeep", "a gap", story(lease(1), lease(5.1), lease(7), lives=life(9.5)), ["failed", "passed"]),
    ("lease-upkeep", "a gap at the end", story(lease(1), lives=life(6.0)), FAILED),
    (
        "lease-upkeep",
        "what comes after it was disturbed does not count",
        story(lease(1), lease(9), lives=life(2.0)),
        NOTHING,
    ),
    (
        "lease-upkeep",
        "no ring",
        story(lease(1, answer=Answer(Meta(name=ME, resource_version="1"), LeaseSpec("a_1", 4))), lives=life(2.0)),
        FAILED,
    ),
    (
        "lease-upkeep",
        "another duration",
        story(
            lease(1, answer=Answer(Meta(name=ME, labels={"poise.dev/ring": "r"}), LeaseSpec("a_1", 15))),
            lives=life(2.0),
        ),
        FAILED,
    ),
    ("act-as-holder", "after", story(lease(1), write(2), inherited=INHERITED), PASSED),
    ("act-as-holder", "before", story(write(0.5), lease(1), inherited=INHERITED), FAILED),
    ("act-as-holder", "before the answer", story(lease(1), write(1.05), inherited=INHERITED), FAILED),
    ("act-as-holder", "never held", story(write(2), inherited=INHERITED), FAILED),
    ("act-as-holder", "nothing tempted it", story(lease(1), write(2)), NOTHING),
    ("list-after-acquiring", "listed", story(lease(1), listed(2), write(3)), PASSED),
    ("list-after-acquiring", "before the Lease", story(listed(0.5), lease(1), write(3)), FAILED),
    ("list-after-acquiring", "not answered yet", story(lease(1), listed(2), write(2.05)), FAILED),
    ("list-after-acquiring", "nothing written", story(lease(1)), NOTHING),
    ("fence-inherited", "raised", story(lease(1), RAISED, write(2), inherited=INHERITED), PASSED),
    ("fence-inherited", "raised too late", story(lease(1), write(1.2), RAISED, inherited=INHERITED), FAILED),
    ("fence-inherited", "not raised", story(lease(1), write(2), inherited=INHERITED), FAILED),
    ("fence-inherited", "no work", story(lease(1), inherited=INHERITED), NOTHING),
    ("confirm-gains", "renewed", story(lease(1), lease(2.5), write(3), gains=GAIN), PASSED),
    ("confirm-gains", "renewed before", story(lease(1), write(3), gains=GAIN), FAILED),
    ("confirm-gains", "not answered", story(lease(1), lease(2.95), write(3), gains=GAIN), FAILED),
    ("only-own-objects", "its own", story(lease(1), write(3), gains=GAIN, names=(ROOT, "x"), strays=("x",)), PASSED),
    ("only-own-objects", "a stray", story(lease(1), write(3), gains=GAIN, strays=(ROOT,)), FAILED),
    ("only-own-objects", "of another act", story(lease(1), write(3), names=()), FAILED),
    (
        "only-own-objects",
        "elsewhere",
        story(write(3, Intent.ASIDE, place=Place("", "secrets", "kube-system", "x"), roots=())),
        FAILED,
    ),
    ("only-own-objects", "after it was given away", story(lease(1), GIVEN, write(7), drains=DRAINED), FAILED),
    ("no-write-after-loss", "stops", story(lease(1), write(4.9), lives=life(2.0, "cut off")), PASSED),
    ("no-write-after-loss", "goes on", story(lease(1), write(5.1), lives=life(2.0, "cut off")), FAILED),
    (
        "lease-with-version",
        "refused",
        story(lease(1), lease(2, status=409, held=True), lives=life(2.0, "cut off")),
        PASSED,
    ),
    ("lease-with-version", "accepted", story(lease(1), lease(2, held=True), lives=life(2.0, "cut off")), FAILED),
    ("lease-with-version", "nothing was held", story(lease(1), lives=life(2.0, "cut off")), NOTHING),
    (
        "release-on-exit",
        "released",
        story(lease(1), write(2, held=True, answered_s=3.0), lease(4, ""), lives=life(2.5, "asked to leave")),
        PASSED,
    ),
    ("release-on-exit", "not released", story(lease(1), lives=life(2.5, "asked to leave")), FAILED),
    (
        "release-on-exit",
        "while it works",
        story(lease(1), write(2, held=True, answered_s=5.0), lease(4, ""), lives=life(2.5, "asked to leave")),
        FAILED,
    ),
    (
        "release-on-exit",
        "and works on",
        story(lease(1), lease(4, ""), write(4.5), lives=life(2.5, "asked to leave")),
        FAILED,
    ),
    (
        "release-on-exit",
        "without a reason",
        story(lease(1), lease(4, "", answer=Answer()), lives=life(2.5, "asked to leave")),
        FAILED,
    ),
    (
        "stop-when-drained",
        "stops",
        story(write(2.9), write(4, Intent.HAND_OVER, status=409), GIVEN, drains=MOVED),
        PASSED,
    ),
    (
        "stop-when-drained",
        "begins again",
        story(write(4, Intent.HAND_OVER, status=409), write(5), GIVEN, drains=MOVED),
        FAILED,
    ),
    ("handover-after-reconcile", "waits", story(write(2, held=True, answered_s=5.5), GIVEN, drains=DRAINED), PASSED),
    ("handover-after-reconcile", "does not", story(write(2, held=True, answered_s=6.5), GIVEN, drains=DRAINED), FAILED),
    (
        "handover-after-reconcile",
        "the child does not",
        story(write(2, held=True, answered_s=5.5), KID, GIVEN, drains=DRAINED),
        FAILED,
    ),
    ("handover-after-reconcile", "nothing ran", story(GIVEN, drains=DRAINED), NOTHING),
    (
        "children-before-root",
        "in order",
        story(
            KID,
            GIVEN,
            drains=DRAINED,
            versions=(
                *versions(HELD, NEXT, plural="configmaps", name="kid"),
                *versions(HELD, ASKED, NEXT, first=10, own=2),
            ),
        ),
        PASSED,
    ),
    (
        "children-before-root",
        "turned round",
        story(
            GIVEN,
            drains=DRAINED,
            versions=(
                *versions(HELD, ASKED, NEXT, own=2),
                *versions(HELD, NEXT, plural="configmaps", name="kid", first=2),
            ),
        ),
        FAILED,
    ),
    (
        "children-before-root",
        "sent together",
        story(
            KID,
            write(5.05, Intent.HAND_OVER),
            drains=DRAINED,
            versions=(
                *versions(HELD, NEXT, plural="configmaps", name="kid"),
                *versions(HELD, ASKED, NEXT, first=10, own=2),
            ),
        ),
        FAILED,
    ),
    (
        "children-before-root",
        "the long form",
        story(
            GIVEN,
            drains=DRAINED,
            versions=(*versions(HELD, plural="configmaps", name="kid"), *versions(HELD, ASKED, FREE, first=10, own=2)),
        ),
        PASSED,
    ),
    ("handover-form", "short", story(versions=versions(HELD, ASKED, NEXT, own=2)), PASSED),
    ("handover-form", "long", story(versions=versions(HELD, ASKED, FREE, own=2)), PASSED),
    ("handover-form", "the same epoch", story(versions=versions(HELD, ASKED, Marks("b", 4), own=2)), FAILED),
    ("handover-form", "no epoch", story(versions=versions(HELD, ASKED, Marks(), own=2)), FAILED),
    ("handover-form", "the drain stays", story(versions=versions(HELD, ASKED, Marks("b", 5, "b", 9), own=2)), FAILED),
    ("handover-form", "only the drain goes", story(versions=versions(HELD, ASKED, HELD, own=2)), FAILED),
    (
        "handover-form",
        "drain-until stays",
        story(versions=versions(HELD, ASKED, Marks("b", 5, None, 9), own=2)),
        FAILED,
    ),
    ("handover-form", "to somebody else", story(versions=versions(HELD, ASKED, Marks("c", 5), own=2)), FAILED),
    ("handover-form", "unasked", story(versions=versions(HELD, NEXT)), FAILED),
    ("handover-form", "a fence", story(versions=versions(HELD, Marks(ME, 5))), NOTHING),
    ("handover-form", "another's labels", story(versions=versions(Marks("c", 4), Marks("c", 5))), FAILED),
    ("empty-drain", "to nobody", story(versions=versions(HELD, Marks(ME, 4, "", 9), FREE, own=2)), PASSED),
    ("empty-drain", "the epoch goes, too", story(versions=versions(HELD, Marks(ME, 4, "", 9), Marks(), own=2)), FAILED),
    (
        "empty-drain",
        "to a name that is empty",
        story(versions=versions(HELD, Marks(ME, 4, "", 9), Marks(None, 5), own=2)),
        FAILED,
    ),
    (
        "handover-with-version",
        "refused",
        story(write(4, Intent.HAND_OVER, held=True, status=409), drains=MOVED),
        PASSED,
    ),
    ("handover-with-version", "accepted", story(write(4, Intent.HAND_OVER, held=True), drains=MOVED), FAILED),
    ("handover-with-version", "nothing was held", story(GIVEN, drains=MOVED), NOTHING),
]


@pytest.mark.parametrize(
    ("rule", "made", "outcomes"), [pytest.param(rule, *rest, id=f"{rule}: {name}") for rule, name, *rest in CASES]
)
def test_a_rule_on_a_story(rule: str, made: Story, outcomes: list[str]) -> None:
    assert found(made, rule) == outcomes


def test_every_rule_has_an_act_and_every_judged_one_a_broken_story() -> None:
    assert {rule for act in ACTS for rule in act.rules} == set(RULES)
    in_acts = {
        "take-up-gains",
        "resume-when-kept",
        "wait-for-holder",
        "wait-when-named",
    }  # These are told by the acts themselves.
    assert {rule for rule, _, _, outcomes in CASES if "failed" in outcomes} == set(RULES) - in_acts


def test_broken_once_is_broken_and_kept_once_is_kept() -> None:
    said = [passed("empty-drain"), failed("empty-drain", "x"), passed("unique-holder"), unseen("unique-holder", "y")]
    results = {each.name: each for each in gather(said)}
    assert list(results) == list(RULES)
    assert (results["empty-drain"].outcome, results["empty-drain"].seen) == ("failed", ("x",))
    assert (results["unique-holder"].outcome, results["unique-holder"].seen) == ("passed", ())
    assert results["act-as-holder"].outcome == "not observed"
    assert [each.name for each in gather(said, ["act-as-holder"])] == ["act-as-holder", "empty-drain"]


def test_a_finding_says_when_and_what() -> None:
    told = [each.seen for each in judge(story(write(0.5), lease(1))) if each.outcome == "failed"]
    assert told[0] == "PATCH secrets ns/one at 0.50 s, before the Lease was held"
    assert isinstance(judge(story(write(0.5)))[0], Finding)


def test_the_contract_numbers_exactly_these_rules() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "shard-contract.md").read_text()
    numbered = re.findall(r"^(\d+)\. \*\*([a-z-]+)\*\*:", page, re.MULTILINE)
    assert numbered == [(str(number), name) for number, name in enumerate(RULES, 1)]
    for act in ACTS:
        row = next(line for line in page.splitlines() if line.startswith(f"| {act.name} |"))
        assert all(rule in row for rule in act.rules), row
