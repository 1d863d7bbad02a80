"""Each guard of the ring is taken away once: the exploration must find what goes wrong, by the shortest way."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

import pytest
from tests.model import sharding_party, sharding_server, sharding_sharder, sharding_work
from tests.model.sharding_search import Exploration, explore
from tests.model.sharding_server import NOW, TIME, Server, Written, replace
from tests.model.sharding_world import Scene, Universe

from poise.hold import sharding as hold
from poise.hold.sharding import Claimant, Grip, Knowledge, SeenOwnLease, Take, Verdict, Wait
from poise.model.sharding import LeaseFact, LeaseWrite, Marks, SeenObject, Step, StepKind, Write
from poise.move.sharding import decide, families
from poise.move.sharding.decide import Outlook
from poise.move.sharding.families import Family, Trace
from poise.observe import leases
from poise.observe.leases import Health, LeaseTerms, WatchedLease

STATES_MAX = 300_000
Patch = pytest.MonkeyPatch
FREE = (Marks(), Marks())
SWIFT = ("b",)
PAIR = Scene(faults={"plan": 1}, swift=SWIFT)
CHILD = Scene(parents=(-1, 0), faults={"plan": 1}, swift=SWIFT)
TWINS = Scene(processes=("a", "a", "b"), unborn=(1,), faults={"start": 1}, swift=SWIFT)


def expect(law: str, scene: Scene, *, states_max: int = STATES_MAX) -> Exploration:
    """Explore a scene as the code is now, with its guard taken away, and print the shortest trace."""
    found = explore(Universe(scene), states_max=states_max)
    assert found.violation is not None, f"nothing found in {found.states} states"
    sys.stdout.write(f"\n{found.states} states: {found.violation.story()}\n")
    assert law in found.violation.law
    return found


def test_the_same_holder_for_two_processes(monkeypatch: Patch) -> None:
    monkeypatch.setattr(sharding_party, "holder_identity", lambda name, _process: f"{name}_0")
    expect("two owners", TWINS)


def test_a_move_without_holding_the_lease(monkeypatch: Patch) -> None:
    def is_late(watched: WatchedLease, terms: LeaseTerms, now_s: float) -> bool:
        return leases.judge(watched, terms, now_s) is Health.UNCERTAIN

    monkeypatch.setattr(leases, "may_move", is_late)
    expect("two owners", Scene(swift=SWIFT))


def test_acquisition_after_a_fresh_read(monkeypatch: Patch) -> None:
    original = leases.next_lease_write

    def decide_fresh(
        watched: WatchedLease, terms: LeaseTerms, now_s: float, *, work: bool, named: bool, braked: bool = False
    ) -> LeaseWrite | None:
        write = original(watched, terms, now_s, work=work, named=named, braked=braked)
        return replace(write, version=NOW) if write is not None and write.version is not None else write

    monkeypatch.setattr(leases, "next_lease_write", decide_fresh)
    expect("two owners", Scene(swift=SWIFT))


def test_no_list_after_acquiring(monkeypatch: Patch) -> None:
    original = hold.grasp

    def grasp(
        who: Claimant, take: Take, version: str, sent_at_s: float, margin_s: float, *, eager: bool = False
    ) -> Grip:
        return replace(original(who, take, version, sent_at_s, margin_s, eager=eager), listed=True)

    monkeypatch.setattr(hold, "grasp", grasp)
    expect("two owners", replace(TWINS, caches=True, timeless=True, faults={"start": 1, "leave": 1, "plan": 1}))


def test_the_root_before_its_children(monkeypatch: Patch) -> None:
    original = decide.give

    def give(family: Family, target: str | None, kind: StepKind, needs: str | None = None) -> Step:
        step = original(family, target, kind, needs)
        return replace(step, groups=step.groups[::-1])

    monkeypatch.setattr(decide, "give", give)
    expect("accepted after its root was given away", replace(CHILD, faults={"pause": 1}))


def test_a_childs_own_epoch(monkeypatch: Patch) -> None:
    def judge(
        grip: Grip | None,
        root: SeenObject | None,
        child: SeenObject | None,
        known: Knowledge | None,
        now_s: float,
        *,
        handing: bool = False,
    ) -> Verdict:
        mine = child is not None and grip is not None and child.marks.shard == grip.name
        copied = (
            child
            if child is None or root is None or not mine
            else replace(child, marks=Marks(root.marks.shard, root.marks.epoch))
        )
        return original(grip, root, copied, known, now_s, handing=handing)

    original = hold.verdict
    monkeypatch.setattr(hold, "verdict", judge)
    alone = Scene(parents=(-1, 0), processes=("a",), faults={"crash": 1, "restart": 1})
    expect("another epoch than its root's", alone)


def blind(server: Server, place: int, _version: str, marks: Marks) -> Written:
    return sharding_server.write_marks(server, place, NOW, marks)


def test_a_patch_of_the_sharder_without_resource_version(monkeypatch: Patch) -> None:
    monkeypatch.setattr(sharding_sharder, "write_marks", blind)
    expect("fell", replace(PAIR, sharders=2, timeless=True))


def test_a_patch_of_the_shard_without_resource_version(monkeypatch: Patch) -> None:
    monkeypatch.setattr(sharding_work, "write_marks", blind)
    expect("the policy refuses", replace(PAIR, faults={"plan": 2}, timeless=True))


def test_labels_taken_off_at_once_when_a_ring_is_removed(monkeypatch: Patch) -> None:
    original = decide._held

    def take_off(family: Family, target: str | None, outlook: Outlook) -> tuple[Step, ...]:
        if family.root.selected:
            return original(family, target, outlook)
        return (decide._single("mend", family.root, Marks(epoch=family.root.marks.epoch)),)

    monkeypatch.setattr(decide, "_held", take_off)
    expect("two owners", replace(PAIR, faults={"plan": 1, "ring": 2}))


# Further guards


def test_a_child_that_changes_hands_at_the_epoch_of_its_late_holder(monkeypatch: Patch) -> None:
    monkeypatch.setattr(decide, "_least_epoch", lambda child, _family: child.marks.epoch or 0)
    adopted = Scene(parents=(-1, -1), marks=(Marks("a", 1), Marks("b", 2)), swift=("a", "b"))
    expect("accepted after its root was given away", replace(adopted, faults={"adopt": 1, "pause": 1}))


def test_a_key_is_acted_on_before_a_renewal_confirms_it(monkeypatch: Patch) -> None:
    monkeypatch.setattr(hold, "_is_confirmed", lambda _grip, _known: True)
    expect("two owners", replace(TWINS, marks=FREE, timeless=True, faults={"start": 1, "delete": 1}))


LATE = Scene(faults={"crash": 1, "restart": 1, "ghost": 1}, swift=SWIFT)


@pytest.mark.slow
def test_no_fence_after_the_hold_of_a_sharder_that_is_late(monkeypatch: Patch) -> None:
    monkeypatch.setattr(hold, "_was_taken_away", lambda _who, _fact: False)
    expect("two owners", LATE)


def hold_without_end(watched: WatchedLease, terms: LeaseTerms, _now_s: float) -> bool:
    return watched.held_from_s is not None and watched.fact is not None and watched.fact.holder == terms.me


@pytest.mark.slow
def test_an_own_hold_that_never_ends(monkeypatch: Patch) -> None:
    monkeypatch.setattr(leases, "may_move", hold_without_end)
    expect("two owners", replace(LATE, faults={"crash": 1, "restart": 1}))


@pytest.mark.slow
def test_d_measured_from_the_answer(monkeypatch: Patch) -> None:
    def renewed(grip: Grip, version: str, _sent_at_s: float) -> Grip:
        return replace(grip, version=version, sent_at_s=TIME)

    monkeypatch.setattr(hold, "renewed", renewed)
    alone = replace(TWINS, processes=("a", "a"), duration_s=3.0, faults={"start": 1, "cut": 2, "slow": 1})
    expect("two owners", alone)


def test_a_sharder_that_grants_nothing_at_its_start(monkeypatch: Patch) -> None:
    original = leases.watch_lease

    def watch(
        known: WatchedLease | None, name: str, fact: LeaseFact | None, terms: LeaseTerms, now_s: float
    ) -> WatchedLease:
        seen = original(known, name, fact, terms, now_s)
        return seen if known is not None else replace(seen, seen_at_s=now_s - 4)

    monkeypatch.setattr(leases, "watch_lease", watch)
    expect("two owners", Scene(faults={"cut": 1}, swift=SWIFT))


def test_a_drained_key_is_still_taken(monkeypatch: Patch) -> None:
    original = hold.verdict

    def judge(
        grip: Grip | None,
        root: SeenObject | None,
        child: SeenObject | None,
        known: Knowledge | None,
        now_s: float,
        *,
        handing: bool = False,
    ) -> Verdict:
        judged = original(grip, root, child, known, now_s, handing=handing)
        return Verdict.ACT if judged in (Verdict.DRAINED, Verdict.HANDED_OVER) else judged

    monkeypatch.setattr(hold, "verdict", judge)
    expect("while it was acted on", replace(PAIR, timeless=True))


def test_a_hand_over_goes_on_while_a_new_reconcile_begins(monkeypatch: Patch) -> None:
    original = hold.verdict

    def judge(
        grip: Grip | None,
        root: SeenObject | None,
        child: SeenObject | None,
        known: Knowledge | None,
        now_s: float,
        *,
        handing: bool = False,
    ) -> Verdict:
        del handing
        return original(grip, root, child, known, now_s)

    monkeypatch.setattr(hold, "verdict", judge)
    expect("while it was acted on", replace(CHILD, timeless=True, faults={"plan": 2}))


def test_a_hand_over_while_a_reconcile_runs(monkeypatch: Patch) -> None:
    original = hold.hand_over

    def hand_over(
        grip: Grip | None,
        root: SeenObject,
        children: Iterable[SeenObject],
        known: Knowledge | None,
        now_s: float,
        *,
        busy: bool,
        short: bool = True,
    ) -> Step | None:
        del busy
        return original(grip, root, children, known, now_s, busy=False, short=short)

    monkeypatch.setattr(hold, "hand_over", hand_over)
    expect("while it was acted on", replace(PAIR, timeless=True))


def test_the_hold_of_an_earlier_process_is_not_waited_for() -> None:
    expect("two owners", replace(TWINS, trusting=True))


def claim_at_once(who: Claimant, lease: SeenOwnLease, now_s: float, *, named: bool) -> Take | Wait:
    del named
    return hold_claim(who, lease, now_s, named=False)


hold_claim = hold.claim


def test_a_missing_lease_is_created_at_once_while_objects_carry_its_name(monkeypatch: Patch) -> None:
    monkeypatch.setattr(hold, "claim", claim_at_once)
    expect("two owners", replace(TWINS, timeless=True, faults={"start": 1, "delete": 1}))


def test_an_eager_process_that_does_not_fence(monkeypatch: Patch) -> None:
    original = hold.verdict

    def judge(
        grip: Grip | None,
        root: SeenObject | None,
        child: SeenObject | None,
        known: Knowledge | None,
        now_s: float,
        *,
        handing: bool = False,
    ) -> Verdict:
        judged = original(grip, root, child, known, now_s, handing=handing)
        return Verdict.ACT if judged is Verdict.FENCE_FIRST else judged

    monkeypatch.setattr(hold, "verdict", judge)
    expect("was accepted while", replace(TWINS, eager=True, faults={"start": 1, "pause": 1}))


ADOPTED = Scene(parents=(-1, -1), marks=(Marks("a", 1), Marks("b", 2)), faults={"adopt": 1}, timeless=True)


def test_an_adopted_child_is_mended_at_once(monkeypatch: Patch) -> None:
    original = families._family

    def family(root: SeenObject, children: list[SeenObject], traces: Mapping[str, Trace]) -> Family:
        return replace(original(root, children, traces), strange=frozenset())

    monkeypatch.setattr(families, "_family", family)
    expect("two owners", ADOPTED)


def test_a_child_adopted_by_its_own_owner_is_taken_along_without_asking(monkeypatch: Patch) -> None:
    original = families.trace_child

    def trace(child: SeenObject, root: str, last: Trace | None) -> Trace:
        seen = original(child, root, last)
        return replace(seen, settled=seen.settled or child.marks.shard == "a")

    monkeypatch.setattr(families, "trace_child", trace)
    same = replace(ADOPTED, marks=(Marks("a", 1), Marks("a", 1)), faults={"adopt": 1, "plan": 1})
    expect("two owners", same)


FORCED = Scene(stubborn=True, drain_timeout_s=1.0, faults={"plan": 1}, parents=(-1, 0))


def test_a_forced_move_that_does_not_raise_the_epoch(monkeypatch: Patch) -> None:
    original = decide.give

    def give(family: Family, target: str | None, kind: StepKind, needs: str | None = None) -> Step:
        if kind != "force":
            return original(family, target, kind, needs)
        bare = Marks(epoch=family.root.marks.epoch)
        return Step(kind, ((Write(family.root.uid, family.root.version, bare),),), needs, target)

    monkeypatch.setattr(decide, "give", give)
    expect("accepted after its root was given away", FORCED)


def test_a_mend_that_lowers_an_epoch(monkeypatch: Patch) -> None:
    def mends(family: Family, outlook: Outlook) -> tuple[Step, ...]:
        goal = Marks(family.root.marks.shard, family.root.marks.epoch)
        steps = (decide._mend(child, goal, child.uid in family.strange, outlook) for child in family.children)
        return tuple(step for step in steps if step is not None)

    monkeypatch.setattr(decide, "_mends", mends)
    expect("the epoch of y fell", replace(CHILD, timeless=True, faults={"plan": 2}))
