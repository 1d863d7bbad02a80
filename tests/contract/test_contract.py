"""What a store promises to one process: compare-and-set, all or nothing, store time, nothing forgotten, the journal."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from tests.store_places import do, make_set, owned, put

from poise.errors import Conflict, Unavailable
from poise.model.ownership import GENERATION, LeaderRow, Line, MemberRow, OwnerState, Row, SetRow, Terms
from poise.model.partition_set import PartitionGuards
from poise.stores.base import Store, Transaction

Work = Callable[[Transaction], None]
replace = msgspec.structs.replace


class Halt(Exception):
    """The error of a work of our own."""


def line(item: str = "0", reason: str = "", name: str = "orders") -> Line:
    return Line(set=name, item=item, transition="assigned", member="n1", epoch=7, at_s=1.5, reason=reason, term=2)


def facts(store: Store, name: str = "orders") -> tuple[object, ...]:
    """Read everything that a set has."""
    read = store.transact(name, lambda tx: (tx.job(), tx.leader(), tx.members(), tx.rows(), tx.tombstones()))
    return (*read, store.journal(name))


FULL_ROW = Row(
    id="ключ/7 ☃",
    state=OwnerState.PENDING_RELEASE,
    confirmed=True,
    owner="null",
    owner_incarnation=2**40,
    target="true",
    epoch=3 * GENERATION + 5,
    lease_until_s=1794786585.3130801,
    granted_s=0.1,
    deadline_s=1e-9,
    offers={"n 1": 2, "": 1},
    since_s=1 / 3,
    reason="a 'quoted' % ? reason",
    plan=2**40,
    retiring=True,
    revision=1,
)
FULL_SET = SetRow(
    name="orders",
    kind="ShardRing",
    count=12,
    policy="ring",
    tokens=7,
    brake_percent=35,
    brake_released_s=1794786585.3130801,
    braked=True,
    terms=Terms(lease_s=7.5, grace_s=0.5, release_s=3.0, restart_grace_s=9.0, revoke=False),
    guards=PartitionGuards(cooldown_seconds=5, moves_in_flight_max=None, per_source_max=2),
    weights={"n1": 3},
    started=(1 / 3, 1794786585.3130801),
    generation=2,
    quarantine_until_s=55.5,
    granted_max_s=20.0,
    paused=True,
    halted=True,
    ended=True,
    revision=1,
)
FULL_MEMBER = MemberRow(
    name="n1",
    incarnation=4,
    process="a-b",
    lease_until_s=1 / 3,
    weight=0,
    seq=2**40,
    leaving="restart",
    draining=True,
)


@pytest.mark.parametrize("full", [FULL_ROW, FULL_SET, FULL_MEMBER], ids=lambda full: type(full).__name__)
def test_the_full_examples_leave_no_field_at_its_default(full: Row | SetRow | MemberRow) -> None:
    fields = msgspec.structs.fields(full)
    plain = [each.name for each in fields if not each.required and getattr(full, each.name) == each.default]
    assert plain == []


def write_everything(tx: Transaction) -> None:
    tx.write_job(FULL_SET)
    tx.write_leader(LeaderRow(term=3, holder="c1", lease_until_s=9.5))
    tx.write_member(FULL_MEMBER)
    tx.write_rows([FULL_ROW, owned("1"), owned("2")])
    tx.bury_rows([owned("2")])
    tx.renew_rows([replace(owned("1"), lease_until_s=200.0)])
    tx.write_lines([line()])


def test_what_is_written_is_read_in_the_same_transaction_and_later(store: Store) -> None:
    def work(tx: Transaction) -> tuple[object, ...]:
        write_everything(tx)
        return (tx.job(), tx.leader(), tx.members(), tx.rows(), tx.tombstones())

    inside = do(store, work)
    expected = (
        FULL_SET,
        LeaderRow(term=3, holder="c1", lease_until_s=9.5),
        {"n1": FULL_MEMBER},
        {FULL_ROW.id: FULL_ROW, "1": replace(owned("1"), lease_until_s=200.0)},
        {"2": 7},
    )
    assert inside == expected
    assert facts(store) == (*expected, [replace(line(), number=1, version=1)])


def test_an_empty_place_has_nothing(store: Store) -> None:
    assert facts(store) == (None, LeaderRow(), {}, {}, {}, [])
    assert store.sets() == []
    assert do(store, lambda tx: (tx.member("n1"), tx.rows_for("n1", ["0"]), tx.last_line())) == (None, {}, 0)


@pytest.mark.parametrize("guards", [PartitionGuards(), PartitionGuards(per_source_max=None)])
def test_guards_come_back_as_what_they_were(store: Store, guards: PartitionGuards) -> None:
    job = SetRow(name="orders", guards=guards, revision=1)
    do(store, lambda tx: tx.write_job(job))
    assert do(store, lambda tx: tx.job()) == job


def test_a_members_rows_are_what_it_owns_and_what_it_names(store: Store) -> None:
    put(store, owned("0"), owned("1", owner="n2"), owned("2", owner="n2"), Row(id="3", revision=1))
    found = do(store, lambda tx: tx.rows_for("n1", ["1", "3", "9"]))
    assert sorted(found) == ["0", "1", "3"]
    assert found["1"] == owned("1", owner="n2")


def test_a_member_may_name_very_many_items(store: Store) -> None:
    put(store, *(Row(id=str(number), revision=1) for number in range(1200)))
    assert len(do(store, lambda tx: tx.rows_for("n1", map(str, range(5_000))))) == 1200


def test_sets_do_not_see_each_other(store: Store) -> None:
    make_set(store)
    make_set(store, "mail")
    put(store, owned())
    assert store.sets() == ["mail", "orders"]
    assert store.transact("mail", lambda tx: (tx.rows(), tx.rows_for("n1", ["0"]))) == ({}, {})
    put(store, owned(epoch=9), name="mail")
    assert do(store, lambda tx: tx.rows()) == {"0": owned()}


# Promise 2: all or nothing.


def test_an_error_of_the_work_leaves_nothing(store: Store) -> None:
    def work(tx: Transaction) -> None:
        write_everything(tx)
        raise Halt

    before, version = facts(store), store.version()
    with pytest.raises(Halt):
        do(store, work)
    assert facts(store) == before
    assert store.version() == version
    do(store, write_everything)


def test_a_conflict_leaves_nothing_of_the_transaction(store: Store) -> None:
    put(store, owned("5"))

    def work(tx: Transaction) -> None:
        write_everything(tx)
        tx.write_rows([owned("6"), owned("5")])

    before = facts(store)
    with pytest.raises(Conflict):
        do(store, work)
    assert facts(store) == before


def test_a_conflict_that_the_work_hides_leaves_nothing_either(store: Store) -> None:
    put(store, owned("5"))

    def work(tx: Transaction) -> None:
        try:
            tx.write_rows([owned("6"), owned("5")])
        except Conflict:
            tx.write_lines([line()])

    before = facts(store)
    with pytest.raises(Conflict):
        do(store, work)
    assert facts(store) == before


# Promise 3: compare-and-set.


def write(row: Row) -> Work:
    return lambda tx: tx.write_rows([row])


def renew(row: Row) -> Work:
    return lambda tx: tx.renew_rows([row])


def bury(row: Row) -> Work:
    return lambda tx: tx.bury_rows([row])


def lead_late(tx: Transaction) -> None:
    tx.write_leader(LeaderRow(term=2))


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(write(owned(revision=1)), id="a new row over one that is there"),
        pytest.param(write(owned(revision=2)), id="a row over its own revision"),
        pytest.param(write(owned(revision=4)), id="a row over a revision to come"),
        pytest.param(write(owned("9", revision=3)), id="a later revision over nothing"),
        pytest.param(renew(owned(revision=1)), id="a renewal over another revision"),
        pytest.param(renew(owned(revision=2, epoch=8)), id="a renewal over another epoch"),
        pytest.param(renew(owned(revision=2, owner="n2")), id="a renewal over another owner"),
        pytest.param(renew(replace(owned(revision=2), owner=None)), id="a renewal over no owner"),
        pytest.param(renew(owned("9")), id="a renewal over nothing"),
        pytest.param(bury(owned(revision=1)), id="a tombstone over another revision"),
        pytest.param(bury(owned("9")), id="a tombstone over nothing"),
        pytest.param(lambda tx: tx.write_job(SetRow(name="orders", revision=1)), id="a new set over one that is there"),
        pytest.param(lambda tx: tx.write_job(SetRow(name="orders", revision=3)), id="a set over a revision to come"),
        pytest.param(lead_late, id="a leader over a later term"),
    ],
)
def test_a_write_over_anything_else_is_a_conflict(store: Store, work: Work) -> None:
    make_set(store)
    put(store, owned())
    put(store, owned(revision=2))
    do(store, lambda tx: tx.write_leader(LeaderRow(term=3)))
    before = facts(store)
    with pytest.raises(Conflict):
        do(store, work)
    assert facts(store) == before


def test_each_write_goes_over_the_one_before(store: Store) -> None:
    def work(tx: Transaction) -> None:
        tx.write_rows([owned(revision=1)])
        tx.write_rows([owned(revision=2), owned("1")])
        tx.write_rows([owned(revision=3)])
        tx.write_job(SetRow(name="orders", revision=1))
        tx.write_job(SetRow(name="orders", count=3, revision=2))
        tx.write_leader(LeaderRow(term=1, holder="c1"))
        tx.write_leader(LeaderRow(term=1, holder=""))
        tx.write_leader(LeaderRow(term=5, holder="c2"))

    do(store, work)
    assert do(store, lambda tx: tx.rows()) == {"0": owned(revision=3), "1": owned("1")}
    assert do(store, lambda tx: tx.job()) == SetRow(name="orders", count=3, revision=2)
    assert do(store, lambda tx: tx.leader()) == LeaderRow(term=5, holder="c2")


def test_a_renewal_writes_the_lease_and_nothing_else(store: Store) -> None:
    put(store, owned(), owned("1"))
    renewed = replace(owned(), lease_until_s=300.0, granted_s=20.0)
    other = {"reason": "other", "target": "n9", "plan": 99, "deadline_s": 1.0, "state": OwnerState.PENDING_RELEASE}
    do(store, lambda tx: tx.renew_rows([replace(renewed, **other)]))
    assert do(store, lambda tx: tx.rows()) == {"0": renewed, "1": owned("1")}


def test_empty_writes_write_nothing(store: Store) -> None:
    version = store.version()

    def work(tx: Transaction) -> None:
        tx.write_rows([])
        tx.renew_rows([])
        tx.bury_rows([])
        tx.write_lines([])

    do(store, work)
    assert store.version() == version


# Promise 4: store time.


def test_store_time_grows_as_real_time_does(store: Store) -> None:
    started_s = time.monotonic()
    first_s = do(store, lambda tx: tx.now_s)
    time.sleep(0.2)
    second_s = do(store, lambda tx: tx.now_s)
    assert 0.2 <= second_s - first_s <= time.monotonic() - started_s + 0.01


def test_the_wall_clock_of_this_process_changes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first_s = do(store, lambda tx: tx.now_s)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setattr(time, "monotonic", time.perf_counter)
    assert 0.0 <= do(store, lambda tx: tx.now_s) - first_s < 5.0


def test_store_time_stands_still_within_a_transaction(store: Store) -> None:
    def work(tx: Transaction) -> float:
        first_s = tx.now_s
        time.sleep(0.02)
        return tx.now_s - first_s

    assert do(store, work) == 0.0


# Promise 5: nothing is forgotten.


def test_a_tombstone_keeps_the_epoch_until_the_item_is_back(store: Store) -> None:
    put(store, owned("0", epoch=41), owned("1", epoch=42))
    do(store, lambda tx: tx.bury_rows([owned("0", epoch=41), owned("1", epoch=42)]))
    assert do(store, lambda tx: (tx.rows(), tx.tombstones())) == ({}, {"0": 41, "1": 42})
    put(store, Row(id="0", epoch=41, revision=1))
    assert do(store, lambda tx: tx.tombstones()) == {"1": 42}
    do(store, lambda tx: tx.bury_rows([Row(id="0", epoch=43, revision=1)]))
    assert do(store, lambda tx: tx.tombstones()) == {"0": 43, "1": 42}


def test_a_member_is_written_over_itself_and_stays(store: Store) -> None:
    do(store, lambda tx: tx.write_member(FULL_MEMBER))
    do(store, lambda tx: tx.write_member(MemberRow(name="n2")))
    after = replace(FULL_MEMBER, incarnation=5, leaving=None, seq=0)
    do(store, lambda tx: tx.write_member(after))
    assert do(store, lambda tx: (tx.members(), tx.member("n1"))) == ({"n1": after, "n2": MemberRow(name="n2")}, after)


# Promise 6: the journal.


def test_lines_are_numbered_within_their_set_without_gaps(store: Store) -> None:
    do(store, lambda tx: tx.write_lines([line("0", "a"), line("1", "b")]))

    def undone(tx: Transaction) -> None:
        tx.write_lines([line("0", "lost")])
        raise Halt

    with pytest.raises(Halt):
        do(store, undone)
    store.transact("mail", lambda tx: tx.write_lines([line("0", "other", "mail")]))
    do(store, lambda tx: tx.write_lines([line("0", "c")]))
    assert [(each.number, each.reason) for each in store.journal("orders")] == [(1, "a"), (2, "b"), (3, "c")]
    assert [(each.number, each.set) for each in store.journal("mail")] == [(1, "mail")]
    assert do(store, lambda tx: tx.last_line()) == 3


def test_a_journal_is_read_by_item_from_a_number_and_so_many(store: Store) -> None:
    do(store, lambda tx: tx.write_lines([line(str(number % 3), str(number)) for number in range(9)]))
    assert [each.number for each in store.journal("orders", "1")] == [2, 5, 8]
    assert [each.number for each in store.journal("orders", after=6)] == [7, 8, 9]
    assert [each.number for each in store.journal("orders", after=2, most=3)] == [3, 4, 5]
    assert [each.number for each in store.journal("orders", "1", after=2, most=1)] == [5]
    assert store.journal("nothing") == []
    assert store.journal("orders", "1", most=1) == [replace(line("1", "1"), number=2, version=1)]


# Promise 9: viewing.


def test_a_view_reads_what_was_committed(store: Store) -> None:
    do(store, write_everything)
    read = store.view("orders", lambda tx: (tx.job(), tx.leader(), tx.members(), tx.rows(), tx.tombstones()))
    assert (*read, store.journal("orders")) == facts(store)
    assert store.view("nothing", lambda tx: (tx.job(), tx.rows())) == (None, {})


def test_nothing_can_be_written_in_a_view(store: Store) -> None:
    make_set(store)
    before, version = facts(store), store.version()
    with pytest.raises(Unavailable):
        store.view("orders", lambda tx: tx.write_rows([owned()]))
    with pytest.raises(Halt):
        store.view("orders", halt)
    assert (facts(store), store.version()) == (before, version)
    put(store, owned())


def halt(tx: Transaction) -> None:
    assert tx.rows() == {}
    raise Halt


def test_a_view_and_a_transaction_do_not_wait_for_each_other(store: Store) -> None:
    make_set(store)

    def view_within(tx: Transaction) -> dict[str, Row]:
        tx.write_rows([owned()])
        with ThreadPoolExecutor(1) as other:
            return other.submit(lambda: store.view("orders", lambda seen: seen.rows())).result(5)

    assert do(store, view_within) == {}

    def transact_within(seen: Transaction) -> tuple[dict[str, Row], dict[str, Row]]:
        before = seen.rows()
        with ThreadPoolExecutor(1) as other:
            other.submit(lambda: put(store, owned("1"))).result(5)
        return before, seen.rows()

    before, after = store.view("orders", transact_within)
    assert before == after == {"0": owned()}
    assert store.view("orders", lambda tx: sorted(tx.rows())) == ["0", "1"]
