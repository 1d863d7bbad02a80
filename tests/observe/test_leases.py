"""The lease table: what an observer concludes, by its own clock."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poise.model.sharding import LeaseFact, LeaseWrite, Standing, holder_identity, is_process_of
from poise.observe import leases
from poise.observe.brake import is_braked
from poise.observe.leases import (
    Health,
    LeaseTerms,
    SeenLease,
    WatchedLease,
    doubt_hold,
    health,
    judge,
    may_move,
    next_change_s,
    next_lease_write,
    next_look_s,
    standing,
    vanished_together,
    watch_lease,
    wrote_lease,
)

SEEN = SeenLease(seen_at_s=100.0, duration_s=15.0)
VANISHED = SeenLease(100.0, 15.0, vanished=True)
ACQUIRED = SeenLease(100.0, 15.0, acquired=True)


@pytest.mark.parametrize(
    ("lease", "after_s", "expected", "next_s"),
    [
        pytest.param(SEEN, 0.0, Health.READY, 15.0, id="ready: renewed within D"),
        pytest.param(SEEN, 14.999, Health.READY, 15.0, id="ready to the end of D"),
        pytest.param(SEEN, 15.0, Health.EXPIRED, 30.0, id="expired: not renewed for D"),
        pytest.param(SEEN, 29.999, Health.EXPIRED, 30.0, id="expired until 2·D"),
        pytest.param(SEEN, 30.0, Health.UNCERTAIN, None, id="uncertain: not renewed for 2·D"),
        pytest.param(SEEN, 1000.0, Health.UNCERTAIN, None, id="uncertain until it is acquired, however long"),
        pytest.param(VANISHED, 0.0, Health.EXPIRED, 30.0, id="expired: the lease has vanished"),
        pytest.param(VANISHED, 29.999, Health.EXPIRED, 30.0, id="a vanished lease waits for 2·D, too"),
        pytest.param(VANISHED, 30.0, Health.UNCERTAIN, None, id="a vanished lease is uncertain after 2·D"),
        pytest.param(ACQUIRED, 30.0, Health.DEAD, 150.0, id="dead: this observer holds it"),
        pytest.param(ACQUIRED, 149.999, Health.DEAD, 150.0, id="dead until 10·D"),
        pytest.param(ACQUIRED, 150.0, Health.ORPHANED, None, id="orphaned: 10·D past its last renewal"),
    ],
)
def test_the_lease_table(lease: SeenLease, after_s: float, expected: Health, next_s: float | None) -> None:
    now_s = lease.seen_at_s + after_s
    assert health(lease, now_s) is expected
    assert next_change_s(lease, now_s) == (None if next_s is None else lease.seen_at_s + next_s)


def test_a_released_lease_that_was_acquired_is_dead_at_once() -> None:
    assert health(ACQUIRED, 100.0) is Health.DEAD


def test_nothing_is_dead_or_orphaned_that_was_not_acquired() -> None:
    for lease in (SEEN, VANISHED):
        judged = {health(lease, 100.0 + seconds) for seconds in range(1000)}
        assert judged.isdisjoint({Health.DEAD, Health.ORPHANED})


@pytest.mark.parametrize("lease", [SEEN, VANISHED, ACQUIRED])
def test_the_judgement_changes_exactly_at_the_next_change(lease: SeenLease) -> None:
    now_s = lease.seen_at_s
    while (change_s := next_change_s(lease, now_s)) is not None:
        assert health(lease, change_s - 0.001) is health(lease, now_s)
        assert health(lease, change_s) is not health(lease, now_s)
        now_s = change_s


# The Leases of a ring, as one sharder process watches them: D is 15 s, and it first looks at second 100.

ME, OTHER = "sharder_1", "sharder_2"
TERMS = LeaseTerms(me=ME, duration_s=15.0, margin_s=5.0, restart_grace_s=40.0)
START_S = 100.0
replace = msgspec.structs.replace


def fact(holder: str = "web-0_p1", version: str = "7", duration_s: float = 15.0, released: str = "") -> LeaseFact:
    return LeaseFact("web-0", "uid-1", version, holder, duration_s, released)


def watched(lease: LeaseFact | None, now_s: float = START_S) -> WatchedLease:
    return watch_lease(None, "web-0", lease, TERMS, now_s)


def decided(lease: WatchedLease, after_s: float, *, work: bool = True, named: bool = True, braked: bool = False) -> str:
    write = next_lease_write(lease, TERMS, START_S + after_s, work=work, named=named, braked=braked)
    return "" if write is None else write.kind


@pytest.mark.parametrize(
    ("lease", "after_s", "state", "stands", "write"),
    [
        pytest.param(fact(), 0.0, "ready", "ready", "", id="ready: after its own start a full D is granted"),
        pytest.param(fact(), 14.9, "ready", "ready", "", id="ready: renewed within D"),
        pytest.param(fact(), 15.0, "expired", "late", "", id="expired: not renewed for D"),
        pytest.param(fact(), 29.9, "expired", "late", "", id="expired: waits another D"),
        pytest.param(fact(), 30.0, "uncertain", "lost", "hold", id="uncertain: tries to acquire it"),
        pytest.param(fact(), 999.0, "uncertain", "lost", "hold", id="uncertain: at every evaluation"),
        pytest.param(None, 0.0, "expired", "late", "", id="expired: the Lease has vanished"),
        pytest.param(None, 29.9, "expired", "late", "", id="a vanished Lease is waited for"),
        pytest.param(None, 30.0, "uncertain", "lost", "hold", id="a vanished Lease is created"),
        pytest.param(fact(""), 0.0, "dead", "lost", "hold", id="a released Lease is acquired first, at once"),
        pytest.param(fact("", released="stop"), 0.0, "dead", "lost", "hold", id="released to stop"),
        pytest.param(fact("", released="restart"), 39.9, "expired", "late", "", id="restart grace keeps its objects"),
        pytest.param(fact("", released="restart"), 40.0, "dead", "lost", "hold", id="restart grace is over"),
        pytest.param(fact(OTHER, duration_s=30.0), 59.9, "expired", "late", "", id="another sharder is waited out"),
        pytest.param(
            fact(OTHER, duration_s=30.0), 60.0, "uncertain", "lost", "hold", id="another sharder's hold ended"
        ),
        pytest.param(fact("somebody"), 0.0, "expired", "late", "", id="a holder that is somebody else gets nothing"),
        pytest.param(fact("web-01_p1"), 0.0, "expired", "late", "", id="the process of a longer name is somebody else"),
        pytest.param(fact(duration_s=0.0), 14.9, "ready", "ready", "", id="a duration of nonsense is the ring's"),
        pytest.param(fact(duration_s=-3.0), 15.0, "expired", "late", "", id="a negative duration is the ring's"),
    ],
)
def test_every_row_for_a_lease_that_is_seen_once(
    lease: LeaseFact | None, after_s: float, state: str, stands: str, write: str
) -> None:
    seen = watched(lease)
    assert judge(seen, TERMS, START_S + after_s) == state
    assert standing(seen, TERMS, START_S + after_s) == stands
    assert decided(seen, after_s) == write


@pytest.mark.parametrize("steps", [1, 2])
def test_a_look_is_never_missed_by_rounding(steps: int) -> None:
    for tenth in range(1, 200):
        seen = watch_lease(None, "web-0", replace(fact(), duration_s=tenth / 7), TERMS, tenth / 10)
        due_s = tenth / 10 + steps * (tenth / 7)
        judged = judge(seen, TERMS, due_s)
        assert judged is (Health.EXPIRED, Health.UNCERTAIN)[steps - 1]
        assert judge(seen, TERMS, due_s - 1e-6) is not judged


def test_any_change_starts_the_waiting_again() -> None:
    seen = watch_lease(watched(fact()), "web-0", fact(version="8"), TERMS, START_S + 29.0)
    assert judge(seen, TERMS, START_S + 43.0) is Health.READY
    assert judge(seen, TERMS, START_S + 59.0) is Health.UNCERTAIN


def test_nothing_new_does_not_start_the_waiting_again() -> None:
    seen = watch_lease(watched(fact()), "web-0", fact(), TERMS, START_S + 29.0)
    assert seen == watched(fact())


def test_a_lease_that_vanishes_and_returns_is_waited_for_each_time() -> None:
    gone = watch_lease(watched(fact()), "web-0", None, TERMS, START_S + 20.0)
    assert judge(gone, TERMS, START_S + 49.9) is Health.EXPIRED
    back = watch_lease(gone, "web-0", replace(fact(), uid="uid-2"), TERMS, START_S + 49.9)
    assert judge(back, TERMS, START_S + 64.0) is Health.READY


def test_it_is_acquired_over_the_version_of_the_wait_for_twice_d() -> None:
    write = next_lease_write(watched(fact()), TERMS, START_S + 30.0, work=False, named=False)
    assert write == LeaseWrite("hold", "web-0", "7", "uid-1", ME, 30.0)


def test_a_vanished_lease_is_created_only_where_objects_carry_its_name() -> None:
    write = next_lease_write(watched(None), TERMS, START_S + 30.0, work=True, named=True)
    assert write == LeaseWrite("hold", "web-0", None, None, ME, 30.0)
    assert decided(watched(None), 30.0, work=False, named=False) == ""


def held(sent_at_s: float = START_S + 30.0) -> WatchedLease:
    return wrote_lease(watched(fact()), fact(ME, "8", 30.0), sent_at_s, TERMS)


def test_success_makes_it_dead_and_objects_may_move() -> None:
    assert judge(held(), TERMS, START_S + 31.0) is Health.DEAD
    assert standing(held(), TERMS, START_S + 31.0) is Standing.HELD


def test_objects_move_while_the_hold_lasts_less_a_margin_from_when_it_was_sent() -> None:
    assert may_move(held(), TERMS, START_S + 54.9)
    assert not may_move(held(), TERMS, START_S + 55.0)
    assert standing(held(), TERMS, START_S + 55.0) is Standing.LOST


def test_the_hold_is_renewed_for_longer_work_and_emptied_afterwards() -> None:
    assert decided(held(), 44.9) == ""
    assert decided(held(), 45.0) == "hold"
    renewed = wrote_lease(held(), fact(ME, "9", 30.0), START_S + 45.0, TERMS)
    assert may_move(renewed, TERMS, START_S + 69.9)
    emptied = next_lease_write(renewed, TERMS, START_S + 50.0, work=False, named=False)
    assert emptied == LeaseWrite("empty", "web-0", "9", "uid-1", "", 15.0)


def test_a_hold_lasts_as_long_as_the_lease_says_though_the_ring_says_longer_now() -> None:
    longer = replace(TERMS, duration_s=60.0)
    assert may_move(held(), longer, START_S + 54.9)
    assert not may_move(held(), longer, START_S + 55.0), "its instance may take the Lease 30 s after the hold was sent"
    assert next_look_s(held(), longer, START_S + 31.0) == START_S + 45.0
    again = next_lease_write(held(), longer, START_S + 45.0, work=True, named=True)
    assert again is not None
    assert (again.kind, again.duration_s) == ("hold", 120.0)


def test_a_hold_that_may_have_ended_is_renewed_before_anything_moves() -> None:
    doubted = doubt_hold(held())
    assert standing(doubted, TERMS, START_S + 31.0) is Standing.LOST
    assert decided(doubted, 31.0) == "hold"


def test_a_lease_that_vanishes_is_waited_for_by_what_it_said() -> None:
    known = watched(fact(duration_s=60.0))
    gone = watch_lease(known, "web-0", None, TERMS, START_S + 1.0)
    assert judge(gone, TERMS, START_S + 120.9) is Health.EXPIRED, "whoever wrote it may act for 60 s, and nothing less"
    assert judge(gone, TERMS, START_S + 121.0) is Health.UNCERTAIN
    short = watch_lease(watched(fact(duration_s=1.0)), "web-0", None, TERMS, START_S + 1.0)
    assert judge(short, TERMS, START_S + 30.9) is Health.EXPIRED
    mine = watch_lease(held(), "web-0", None, TERMS, START_S + 40.0)
    assert judge(mine, TERMS, START_S + 70.0) is Health.UNCERTAIN, "the own hold says nothing of its instance"


def test_a_stranger_who_says_less_does_not_shorten_the_wait() -> None:
    taken = watch_lease(watched(fact()), "web-0", fact("somebody_else", "8", 1.0), TERMS, START_S + 1.0)
    assert judge(taken, TERMS, START_S + 30.9) is Health.EXPIRED, "its instance may act until it notices"
    assert judge(taken, TERMS, START_S + 31.0) is Health.UNCERTAIN
    longer = watch_lease(watched(fact()), "web-0", fact("somebody_else", "8", 60.0), TERMS, START_S + 1.0)
    assert judge(longer, TERMS, START_S + 120.9) is Health.EXPIRED


def test_a_hold_whose_answer_was_lost_is_renewed_before_anything_moves() -> None:
    seen = watch_lease(watched(fact()), "web-0", fact(ME, "8", 30.0), TERMS, START_S + 31.0)
    assert judge(seen, TERMS, START_S + 31.0) is Health.DEAD
    assert standing(seen, TERMS, START_S + 31.0) is Standing.LOST
    assert decided(seen, 31.0) == "hold"


def test_a_watch_that_lags_behind_the_own_write_changes_nothing() -> None:
    assert watch_lease(held(), "web-0", fact(version="6"), TERMS, START_S + 31.0) == held()
    assert watch_lease(held(), "web-0", fact(ME, "8", 30.0), TERMS, START_S + 31.0) == held()


def test_a_holder_that_came_back_ends_the_own_hold() -> None:
    seen = watch_lease(held(), "web-0", fact("web-0_p2", "9"), TERMS, START_S + 70.0)
    assert standing(seen, TERMS, START_S + 70.0) is Standing.READY


def test_orphaned_a_lease_is_deleted_at_ten_d_past_its_last_renewal_with_preconditions() -> None:
    emptied = wrote_lease(held(), fact("", "9"), START_S + 50.0, TERMS)
    assert decided(emptied, 149.9, work=False, named=False) == ""
    write = next_lease_write(emptied, TERMS, START_S + 150.0, work=False, named=False)
    assert write == LeaseWrite("delete", "web-0", "9", "uid-1")
    assert judge(emptied, TERMS, START_S + 150.0) is Health.ORPHANED
    assert decided(emptied, 150.0, work=False, named=True) == "", "objects still carry its name"
    assert decided(emptied, 150.0, work=True, named=True) == "hold"


def test_a_lease_that_was_deleted_and_that_nobody_names_is_left_alone() -> None:
    emptied = wrote_lease(held(), fact("", "9"), START_S + 50.0, TERMS)
    deleted = wrote_lease(emptied, None, START_S + 150.0, TERMS)
    assert decided(deleted, 999.0, work=False, named=False) == ""


def test_under_the_brake_nothing_is_acquired_or_deleted_and_an_own_hold_is_given_back() -> None:
    emptied = wrote_lease(held(), fact("", "9"), START_S + 50.0, TERMS)
    for seen, work in ((watched(fact()), True), (watched(None), True), (watched(fact("")), True), (emptied, False)):
        assert decided(seen, 200.0, work=work, named=work, braked=True) == ""
    assert decided(held(), 31.0, braked=True) == "empty"


def named_lease(name: str, seen_at_s: float, holder: str | None = None, released: str = "") -> WatchedLease:
    lease = LeaseFact(name, "u", "1", f"{name}_p" if holder is None else holder, 15.0, released)
    return watch_lease(None, name, lease, TERMS, seen_at_s)


@pytest.mark.parametrize(
    ("seen", "gone"),
    [
        pytest.param([0.0, 30.0], ["a", "b"], id="within 2·D"),
        pytest.param([0.0, 31.0], ["a"], id="further apart"),
        pytest.param([0.0, 10.0, 90.0], ["a", "b"], id="who is ready has not vanished"),
    ],
)
def test_the_brake_counts_instances_that_vanish_within_twice_d(seen: list[float], gone: list[str]) -> None:
    known = [named_lease(name, at_s) for name, at_s in zip("abc", seen, strict=False)]
    assert vanished_together(known, {"a", "b", "c"}, TERMS, 100.0) == gone


def test_the_brake_leaves_out_releases_the_unnamed_and_what_an_operator_has_seen() -> None:
    known = [
        named_lease("a", 0.0),
        named_lease("b", 0.0, holder="", released="stop"),
        named_lease("c", 0.0),
        watch_lease(None, "d", None, TERMS, 15.0),
        named_lease("e", 0.0, holder=ME),
    ]
    named = {"a", "b", "d", "e"}
    assert sorted(vanished_together(known, named, TERMS, 100.0)) == ["a", "d", "e"]
    assert is_braked(3, len(named), 50)
    assert vanished_together(known, named, TERMS, 100.0, released_s=15.0) == []


def written(write: LeaseWrite, version: str) -> LeaseFact:
    return LeaseFact(write.name, "u", version, write.holder, write.duration_s, write.released, left=write.left)


def test_who_left_has_not_vanished_whatever_sharders_do_with_its_lease() -> None:
    known = [named_lease(name, 0.0, holder="", released="stop") for name in "abc"]
    for version, work in ((2, True), (3, False)):  # The Leases are held, and emptied when everything has moved.
        for place, lease in enumerate(known):
            write = next_lease_write(lease, TERMS, 1.0, work=work, named=True)
            assert write is not None
            assert write.left == "stop"
            assert not write.released
            known[place] = wrote_lease(lease, written(write, str(version)), 1.0, TERMS)
        assert vanished_together(known, set("abc"), TERMS, 100.0) == []
        # Another sharder knows only what stands on the Leases.
        anew = [watch_lease(None, each.name, each.fact, TERMS, 0.0) for each in known]
        assert vanished_together(anew, set("abc"), TERMS, 100.0) == []


def test_who_left_has_not_vanished_though_its_lease_has() -> None:
    """Whoever deletes Pods deletes what they own; what was said on it is remembered, also by the next hold."""
    released = named_lease("a", 0.0, holder="", released="stop")
    gone = watch_lease(released, "a", None, TERMS, 1.0)
    assert vanished_together([gone], {"a"}, TERMS, 100.0) == []
    assert judge(gone, TERMS, 30.9) is Health.EXPIRED
    write = next_lease_write(gone, TERMS, 31.0, work=True, named=True)
    assert write is not None
    assert (write.kind, write.version, write.left) == ("hold", None, "stop")
    held = wrote_lease(gone, written(write, "9"), 31.0, TERMS)
    assert vanished_together([held], {"a"}, TERMS, 100.0) == []
    assert vanished_together([watch_lease(held, "a", None, TERMS, 32.0)], {"a"}, TERMS, 100.0) == []


def test_a_lease_that_vanishes_after_a_release_for_a_restart_keeps_its_grace() -> None:
    restarting = watched(fact("", released="restart"))
    for gone_s in (1.0, 25.0):
        gone = watch_lease(restarting, "web-0", None, TERMS, START_S + gone_s)
        ends_s = max(TERMS.restart_grace_s, gone_s + 2 * TERMS.duration_s)
        assert judge(gone, TERMS, START_S + ends_s - 0.1) is Health.EXPIRED
        assert decided(gone, ends_s - 0.1) == ""
        assert decided(gone, ends_s) == "hold"
    stopped = watch_lease(watched(fact("", released="stop")), "web-0", None, TERMS, START_S + 1.0)
    assert decided(stopped, 31.0) == "hold"


def test_who_came_back_and_crashed_has_vanished_though_it_left_before() -> None:
    back = LeaseFact("a", "u", "4", "a_p2", 15.0, left="stop")
    known = watch_lease(None, "a", back, TERMS, 0.0)
    assert vanished_together([known], {"a"}, TERMS, 100.0) == ["a"]
    write = next_lease_write(known, TERMS, 100.0, work=True, named=True)
    assert write is not None
    assert not write.left


def test_what_ends_only_later_has_not_vanished_yet() -> None:
    assert vanished_together([named_lease("a", 100.0, holder=ME)], {"a"}, TERMS, 110.0) == []
    assert vanished_together([named_lease("a", 100.0, holder=ME)], {"a"}, TERMS, 115.0) == ["a"]


HOLDERS = st.sampled_from(["web-0_p1", "web-0_p2", "", ME, OTHER, "somebody", "web-0", "_"])
FACTS = st.none() | st.builds(
    LeaseFact,
    st.just("web-0"),
    st.sampled_from(["u1", "u2"]),
    st.sampled_from(["1", "2", "3", "x"]),
    HOLDERS,
    st.sampled_from([15.0, 30.0, 0.0, -1.0, 1e9]),
    st.sampled_from(["", "stop", "restart", "?"]),
)
STORIES = st.lists(st.tuples(FACTS, st.floats(0.0, 60.0)), min_size=1, max_size=6)


@settings(max_examples=300, deadline=None)
@given(STORIES, st.floats(0.0, 400.0), st.booleans(), st.booleans())
def test_whatever_is_seen_no_lease_is_written_that_its_holder_may_still_renew(
    story: list[tuple[LeaseFact | None, float]], wait_s: float, work: bool, named: bool
) -> None:
    check_patience(story, wait_s, work, named)


def check_patience(story: list[tuple[LeaseFact | None, float]], wait_s: float, work: bool, named: bool) -> None:
    now_s, seen = START_S, None
    for lease, pause_s in story:
        now_s += pause_s
        seen = watch_lease(seen, "web-0", lease, TERMS, now_s)
    assert seen is not None
    now_s += wait_s
    write = next_lease_write(seen, TERMS, now_s, work=work, named=named)
    holder = "" if seen.fact is None else seen.fact.holder
    if write is not None and holder not in ("", ME):
        assert seen.fact is not None
        promised_s = seen.fact.duration_s if seen.fact.duration_s > 0 else TERMS.duration_s
        assert write.kind == "hold"
        assert now_s - seen.seen_at_s >= 2 * promised_s
        assert write.version == seen.fact.version
    assert not (standing(seen, TERMS, now_s) is Standing.HELD and holder != ME)


@settings(max_examples=300, deadline=None)
@given(STORIES, st.floats(0.0, 400.0))
def test_nothing_changes_before_the_next_look(story: list[tuple[LeaseFact | None, float]], wait_s: float) -> None:
    now_s, seen = START_S, None
    for lease, pause_s in story:
        now_s += pause_s
        seen = watch_lease(seen, "web-0", lease, TERMS, now_s)
    assert seen is not None
    now_s += wait_s
    look_s = next_look_s(seen, TERMS, now_s)
    before_s = now_s + 10_000.0 if look_s is None else (look_s + now_s) / 2
    if before_s > now_s and (look_s is None or before_s < look_s):
        assert standing(seen, TERMS, before_s) is standing(seen, TERMS, now_s)
        assert judge(seen, TERMS, before_s) is judge(seen, TERMS, now_s)


def test_the_law_of_live_holders_catches_an_impatient_sharder(monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(seen: WatchedLease, _terms: LeaseTerms, _now_s: float) -> Health:
        return Health.READY if seen.fact is None else Health.UNCERTAIN

    monkeypatch.setattr(leases, "judge", impatient)
    with pytest.raises(AssertionError):
        check_patience([(fact(), 0.0)], 1.0, True, True)


def test_no_two_processes_share_a_holder_and_names_are_told_apart() -> None:
    assert holder_identity("web-1", "f00") != holder_identity("web-1", "f01")
    assert is_process_of("foo-1_f00", "foo-1")
    assert not is_process_of("foo-11_f00", "foo-1")
    assert not is_process_of("foo-1", "foo-1")
    assert not is_process_of("foo_1_f00", "foo")
