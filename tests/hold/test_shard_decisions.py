"""What a shard may do: taking its Lease, acting, handing over, fencing, releasing; every rule by its name."""

from __future__ import annotations

import msgspec
import pytest

from poise.hold.sharding import (
    Claimant,
    Grip,
    Knowledge,
    SeenOwnLease,
    Take,
    Verdict,
    Wait,
    claim,
    fence,
    fenced,
    grasp,
    hand_over,
    learn,
    next_renewal_s,
    overdue,
    read_again,
    release,
    renewal,
    renewed,
    see_own_lease,
    verdict,
)
from poise.model.sharding import LeaseFact, LeaseWrite, Marks, SeenObject

ME, EARLIER, SHARDER = "web-0_p2", "web-0_p1", "sharder_1"
WHO = Claimant(name="web-0", me=ME, duration_s=15.0)
TRUSTING = Claimant(name="web-0", me=ME, duration_s=15.0, trust_stable_name=True)
replace = msgspec.structs.replace


def lease(holder: str, duration_s: float = 15.0, released: str = "") -> LeaseFact:
    return LeaseFact("web-0", "uid-1", "7", holder, duration_s, released)


@pytest.mark.parametrize(
    ("fact", "named", "who", "after_s", "fences"),
    [
        pytest.param(None, False, WHO, 0.0, True, id="no Lease and nothing carries its name: at once"),
        pytest.param(None, True, WHO, 30.0, True, id="no Lease while objects carry its name: 2·D"),
        pytest.param(None, True, TRUSTING, 30.0, True, id="no Lease while objects carry its name: trust does not help"),
        pytest.param(lease(EARLIER), True, WHO, 15.0, False, id="held by its own earlier process: until that ran out"),
        pytest.param(
            lease(EARLIER), True, TRUSTING, 0.0, False, id="trustStableName: its own earlier process, at once"
        ),
        pytest.param(lease(SHARDER, 30.0), True, WHO, 30.0, True, id="held by the sharder: until that ran out"),
        pytest.param(lease(SHARDER, 30.0), True, TRUSTING, 30.0, True, id="trustStableName: never a sharder's hold"),
        pytest.param(lease(SHARDER, 0.0), True, WHO, 30.0, True, id="a hold of nonsense is as long as a sharder's"),
        pytest.param(lease("web-01_p1"), True, TRUSTING, 15.0, True, id="held by somebody else: until that ran out"),
        pytest.param(lease("", released="restart"), True, WHO, 0.0, False, id="released by itself: at once"),
        pytest.param(lease(""), True, WHO, 0.0, True, id="emptied by the sharder: at once"),
        pytest.param(lease(ME), True, WHO, 0.0, True, id="acquired, and the answer was lost: once more"),
    ],
)
def test_when_a_process_may_take_its_lease(
    fact: LeaseFact | None, named: bool, who: Claimant, after_s: float, fences: bool
) -> None:
    seen = SeenOwnLease(fact, 100.0)
    if after_s:
        assert claim(who, seen, 99.9 + after_s, named=named) == Wait(100.0 + after_s)
    version, uid = (None, None) if fact is None else ("7", "uid-1")
    write = LeaseWrite("hold", "web-0", version, uid, ME, 15.0)
    assert claim(who, seen, 100.0 + after_s, named=named) == Take(write, fences)


def test_the_waiting_begins_again_whenever_the_lease_changes() -> None:
    seen = see_own_lease(None, lease(EARLIER), 100.0)
    assert see_own_lease(seen, lease(EARLIER), 110.0) == seen
    assert see_own_lease(seen, replace(lease(EARLIER), version="8"), 110.0).seen_at_s == 110.0
    assert see_own_lease(seen, None, 110.0) == SeenOwnLease(None, 110.0)


def grip(*, listed: bool = True, eager: bool = False, sent_at_s: float = 100.0) -> Grip:
    return Grip(
        name="web-0",
        me=ME,
        version="7",
        sent_at_s=sent_at_s,
        duration_s=15.0,
        margin_s=3.0,
        eager=eager,
        listed=listed,
    )


MINE = Marks("web-0", 4)


def root(marks: Marks = MINE) -> SeenObject:
    return SeenObject("r", "/Root/ns/r", "v-r", marks)


def kid(marks: Marks = MINE, uid: str = "k") -> SeenObject:
    return SeenObject(uid, f"/Kid/ns/{uid}", f"v-{uid}", marks, "r")


KNOWN = Knowledge(4, 90.0)
INHERITED = Knowledge(4, 90.0, inherited=True)


@pytest.mark.parametrize(
    ("held", "seen", "child", "known", "now_s", "expected"),
    [
        pytest.param(grip(), root(), None, KNOWN, 101.0, Verdict.ACT, id="a root that it holds"),
        pytest.param(grip(), root(), kid(), KNOWN, 101.0, Verdict.ACT, id="a child with the root's shard and epoch"),
        pytest.param(None, root(), None, KNOWN, 101.0, Verdict.NO_LEASE, id="a process that is not the holder"),
        pytest.param(grip(), root(), None, KNOWN, 111.9, Verdict.ACT, id="to the end of D less the margin"),
        pytest.param(grip(), root(), None, KNOWN, 112.0, Verdict.NO_LEASE, id="it stops before D is over"),
        pytest.param(grip(listed=False), root(), None, KNOWN, 101.0, Verdict.NOT_LISTED, id="it lists after acquiring"),
        pytest.param(grip(), None, kid(), None, 101.0, Verdict.NOT_MINE, id="a child whose root is not in sight"),
        pytest.param(grip(), root(Marks("web-1", 4)), kid(), KNOWN, 101.0, Verdict.NOT_MINE, id="another's root"),
        pytest.param(grip(), root(Marks("web-0")), None, KNOWN, 101.0, Verdict.NO_EPOCH, id="an epoch of nonsense"),
        pytest.param(
            grip(), root(Marks("web-0", 4, "web-1", 9)), None, KNOWN, 101.0, Verdict.DRAINED, id="a drained root"
        ),
        pytest.param(grip(), root(Marks("web-0", 4, "", 9)), kid(), KNOWN, 101.0, Verdict.DRAINED, id="to nobody"),
        pytest.param(
            grip(), root(), kid(Marks("web-0", 3)), KNOWN, 101.0, Verdict.CHILD_DIFFERS, id="a child's own epoch"
        ),
        pytest.param(
            grip(), root(), kid(Marks("web-1", 4)), KNOWN, 101.0, Verdict.CHILD_DIFFERS, id="a child's own shard"
        ),
        pytest.param(
            grip(), root(), None, Knowledge(4, 100.1), 101.0, Verdict.UNCONFIRMED, id="gained after the last renewal"
        ),
        pytest.param(grip(), root(), None, INHERITED, 101.0, Verdict.ACT, id="lazy: it fences in its first patch"),
        pytest.param(
            grip(eager=True), root(), None, INHERITED, 101.0, Verdict.FENCE_FIRST, id="eager: it fences first"
        ),
        pytest.param(
            grip(eager=True), root(), None, KNOWN, 101.0, Verdict.ACT, id="eager: what is its own is not fenced"
        ),
    ],
)
def test_what_may_be_acted_on(
    held: Grip | None,
    seen: SeenObject | None,
    child: SeenObject | None,
    known: Knowledge | None,
    now_s: float,
    expected: Verdict,
) -> None:
    assert verdict(held, seen, child, known, now_s) is expected


def test_a_hand_over_that_has_begun_is_ended_before_anything_else_begins() -> None:
    assert verdict(grip(), root(), kid(), KNOWN, 101.0, handing=True) is Verdict.HANDED_OVER


def test_d_counts_from_when_the_last_renewal_that_succeeded_was_sent() -> None:
    assert renewed(grip(), "8", 105.0).until_s == 117.0
    assert renewed(renewed(grip(), "8", 105.0), "9", 103.0).until_s == 117.0, "answers out of order shorten nothing"
    assert renewal(grip()) == LeaseWrite("hold", "web-0", "7", None, ME, 15.0)
    taken = grasp(WHO, Take(renewal(grip()), True), "9", 100.0, 3.0)
    assert (taken.until_s, taken.listed, taken.eager) == (112.0, False, True)
    assert not grasp(WHO, Take(renewal(grip()), False), "9", 100.0, 3.0).eager
    assert grasp(WHO, Take(renewal(grip()), False), "9", 100.0, 3.0, eager=True).eager


def test_a_refused_renewal_is_an_own_write_unheard_or_the_end() -> None:
    assert read_again(grip(), replace(lease(ME), version="8")) == replace(grip(), version="8")
    for fact in (None, lease(EARLIER), lease(SHARDER), lease("")):
        assert read_again(grip(), fact) is None


def test_renewals_are_sent_at_a_third_of_d_and_soon_after_a_gain() -> None:
    assert next_renewal_s(grip(), None, 0.5) == 105.0
    assert next_renewal_s(grip(), 99.0, 0.5) == 105.0
    assert next_renewal_s(grip(), 100.2, 0.5) == 100.5


def test_it_releases_with_a_reason() -> None:
    for reason in ("stop", "restart"):
        assert release(grip(), reason) == LeaseWrite("empty", "web-0", "7", None, "", 15.0, reason)


ASKED = Marks("web-0", 4, "web-1", 9)


def handed(
    marks: Marks, *kids: Marks, busy: bool = False, short: bool = True, known: Knowledge = KNOWN, now_s: float = 101.0
) -> list[list[tuple[str, Marks]]]:
    children = [kid(each, f"k{place or ''}") for place, each in enumerate(kids)]
    step = hand_over(grip(), root(marks), children, known, now_s, busy=busy, short=short)
    return told(step)


def told(step: object) -> list[list[tuple[str, Marks]]]:
    groups = getattr(step, "groups", ())
    assert all(write.version == f"v-{write.uid}" for group in groups for write in group)
    return [[(write.uid, write.marks) for write in group] for group in groups]


def test_a_hand_over_gives_the_children_first_and_the_root_in_one_patch() -> None:
    given = Marks("web-1", 5)
    assert handed(ASKED) == [[("r", given)]]
    assert handed(ASKED, MINE, MINE) == [[("k", given), ("k1", given)], [("r", given)]]
    assert handed(ASKED, Marks("web-0", 3), Marks("web-1", 4), MINE) == [[("k2", given)], [("r", given)]]


def test_it_goes_on_after_an_interruption() -> None:
    assert handed(ASKED, Marks("web-1", 5), MINE) == [[("k1", Marks("web-1", 5))], [("r", Marks("web-1", 5))]]


def test_to_nobody_and_the_long_form_remove_shard_and_drain_together() -> None:
    assert handed(replace(ASKED, drain=""), MINE) == [[("r", Marks(None, 4))]]
    assert handed(ASKED, MINE, short=False) == [[("r", Marks(None, 4))]]


def test_an_adopted_child_is_handed_over_like_a_root() -> None:
    step = hand_over(grip(), kid(ASKED), (), KNOWN, 101.0, busy=False)
    assert told(step) == [[("k", Marks("web-1", 5))]]


def test_nothing_is_handed_over_that_runs_or_is_not_its_own() -> None:
    assert handed(ASKED, busy=True) == [], "the running reconcile ends first"
    assert handed(MINE) == [], "nobody asked"
    assert handed(replace(ASKED, shard="web-2")) == []
    assert handed(ASKED, now_s=112.0) == [], "who is not the holder does not acknowledge"
    assert handed(ASKED, known=Knowledge(4, 100.1)) == [], "a twin may hold it"
    for held in (None, grip(listed=False)):
        assert hand_over(held, root(ASKED), (), KNOWN, 101.0, busy=False) is None
    assert hand_over(grip(), root(ASKED), (), None, 101.0, busy=False) is None


def test_a_fence_raises_the_root_first_and_then_its_children() -> None:
    step = fence(grip(), root(), [kid(), kid(Marks("web-0", 3), "k1")], INHERITED, 101.0)
    assert told(step) == [[("r", Marks("web-0", 5))], [("k", Marks("web-0", 5))]]
    assert fenced(INHERITED) == Knowledge(5, 90.0)


def test_nothing_is_fenced_that_was_gained_by_this_process_or_may_not_be_acted_on() -> None:
    assert fence(grip(), root(), (), KNOWN, 101.0) is None
    assert fence(grip(), root(ASKED), (), INHERITED, 101.0) is None
    assert fence(grip(), root(Marks("web-1", 4)), (), INHERITED, 101.0) is None
    assert fence(grip(), root(), (), INHERITED, 112.0) is None
    assert fence(None, root(), (), INHERITED, 101.0) is None


def test_another_epoch_is_another_gain_and_stays_inherited() -> None:
    assert learn(None, root(), 50.0, inherited=True) == Knowledge(4, 50.0, inherited=True)
    assert learn(INHERITED, root(), 95.0) == INHERITED
    assert learn(INHERITED, root(Marks("web-0", 5)), 95.0) == Knowledge(5, 95.0, inherited=True)
    assert learn(KNOWN, root(Marks("web-0", 6)), 95.0) == Knowledge(6, 95.0)


@pytest.mark.parametrize(
    ("now_s", "then"), [(159.9, "wait"), (160.0, "cancel"), (164.9, "cancel"), (165.0, "end"), (999.0, "end")]
)
def test_a_reconcile_that_outlasts_the_deadline_is_cancelled_and_then_the_process_ends(now_s: float, then: str) -> None:
    assert overdue(100.0, 60.0, 5.0, now_s) == then
