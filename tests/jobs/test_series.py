"""The history of a job: a point at every change and none otherwise, on every store, over restarts and servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from tests.postgres_server import running_server
from tests.set_world import World
from tests.store_places import Place

from poise.documents import load
from poise.errors import NotFound, Unavailable
from poise.hold.member import Member
from poise.jobs import measures, series
from poise.jobs.coordinator import Coordinator
from poise.jobs.dividing import divide_stored
from poise.jobs.entries import DivisionEntry
from poise.jobs.history import BYTES_MAX, POINTS_MAX, History, Point, Values
from poise.jobs.planning import plan_document
from poise.jobs.series import SERIES, Sampler, Series, read_series
from poise.jobs.servers import JobServer
from poise.jobs.stored import delete_document, put_document, read_document
from poise.model.ownership import GENERATION, RESTART, Line
from poise.move.executor import put_set, snapshot
from poise.move.handoff import Transition
from poise.serve.jobs_api import StoreJobs
from poise.stores.base import Store
from poise.stores.memory import MemoryStore
from poise.stores.sqlite import SqliteStore

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
SET = "{apiVersion: poise.dev/v1alpha1, kind: PartitionSet, metadata: {name: orders}, spec: {partitions: %d}}"
DIVISION = """{apiVersion: poise.dev/v1alpha1, kind: ReplicaDivision, metadata: {name: shop},
  spec: {clusters: [{name: a}, {name: b, weight: %d}],
  workloads: [{name: cart, replicas: 7}, {name: pay, replicas: 4}]}}"""
SPLIT = """{apiVersion: poise.dev/v1alpha1, kind: CapacitySplit, metadata: {name: shop}, spec: {
  workloads: [{name: api, replicas: 10, spotPercentage: 70, minOnDemand: 1}]},
  status: {workloads: {api: {spot: %d, onDemand: %d}}}}"""
POOLS = """{apiVersion: poise.dev/v1alpha1, kind: CapacitySplit, metadata: {name: tiers}, spec: {
  workloads: [{name: api, replicas: 10}], pools: [{name: on, weight: 1, min: 2}, {name: spot-a, weight: 4}]},
  status: {workloads: {api: {pools: {on: 4, spot-a: 5}}}}}"""


class Life(World):
    """A set of a store of any kind, with members that work, a sampler, and clocks that the test moves."""

    def __init__(self, store: Store, count: int, *members: str) -> None:
        self.any, self.now_s, self.wall = store, 1000.0, NOW
        self.members = {}
        self.write(SET % count)
        self.coordinator = Coordinator(store, "leader-1")
        self.sampler = self.new_sampler()
        for name in members:
            self.join(name)

    @property
    def store(self) -> Store:  # type: ignore[override]  # The one in memory is only the simplest.
        return self.any

    def new_sampler(self, *names: str) -> Sampler:
        """Begin anew, as another server does."""
        wanted = names or ("orders",)
        return Sampler(self.any, lambda: wanted, now=lambda: self.wall, boot_s=lambda: self.now_s)

    def write(self, text: str) -> None:
        put_document(self.any, load(text, "test")[0], self.wall)

    def sample(self, sampler: Sampler | None = None) -> int:
        """Sample a moment later."""
        self.now_s, self.wall = self.now_s + 60.0, self.wall + timedelta(seconds=60)
        return (sampler or self.sampler).sample()

    def series(self, kind: str = "PartitionSet", name: str = "orders") -> Series:
        return read_series(self.any, kind, name, self.wall)


def make_place(kind: str, directory: Path) -> Place:
    if kind == "sqlite":
        return Place(kind, f"sqlite:///{directory / 'poise.db'}")
    return Place(kind, "memory:" if kind == "memory" else running_server().new_place())


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    place = make_place(str(request.param), tmp_path)
    yield place
    place.close()


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


@pytest.fixture
def memory(tmp_path: Path) -> Store:
    return make_place("memory", tmp_path).open()


def last(found: Series) -> dict[str, float | int | None]:
    return {name: column[-1] for name, column in found.series.items()}


def test_a_set_from_its_first_second_over_a_move_to_an_outage(store: Store) -> None:
    life = Life(store, 8)
    assert life.sample() == 1
    assert last(life.series()) == {"unowned": 8, "moves": 0, "loadMin": None, "loadMean": None, "loadMax": None}
    life.join("n1")
    life.settle(4)
    life.sample()
    assert last(life.series()) == {"unowned": 0, "moves": 0, "loadMin": 8, "loadMean": 8.0, "loadMax": 8}
    life.join("n2")
    life.settle(12)
    life.sample()
    assert last(life.series()) == {"unowned": 0, "moves": 4, "loadMin": 4, "loadMean": 4.0, "loadMax": 4}
    put = store.transact("orders", lambda tx: tx.members())["n2"]
    store.transact("orders", lambda tx: tx.write_member(msgspec.structs.replace(put, lease_until_s=0.0)))
    life.sample()
    found = life.series()
    assert last(found) == {"unowned": 4, "moves": 4, "loadMin": 4, "loadMean": 4.0, "loadMax": 4}
    assert found.at == [int(NOW.timestamp()) + 60 * turn for turn in (1, 2, 3, 4)]
    assert found.now == found.at[-1]


def test_nothing_idle_writes(store: Store) -> None:
    life = Life(store, 8, "n1", "n2")
    life.settle(8)
    life.sample()
    version, before = store.version(), store.view("orders", lambda tx: tx.note(SERIES))
    for _ in range(10):
        life.beat("n1")
        life.beat("n2")
        assert life.sample() == 0
    assert store.version() == version
    assert store.view("orders", lambda tx: tx.note(SERIES)) == before


def test_a_sampler_that_writes_every_time_is_found(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def add(history: History, at_s: int, values: Values) -> History:
        return History((*history.points, Point(at_s, values)))

    monkeypatch.setattr(series, "with_point", add)
    monkeypatch.setattr(series, "_glance", lambda _tx, _job: (object(), 0.0))
    with pytest.raises(AssertionError):
        test_nothing_idle_writes(memory)


def test_a_pass_without_a_change_does_not_read_the_job(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(memory, 8, "n1")
    life.settle(4)
    life.sample()
    life.sampler.sample()
    looks: list[str] = []
    monkeypatch.setattr(Sampler, "_look", lambda *_arguments: looks.append("look"))
    assert life.sampler.sample() == 0
    assert looks == []


def test_its_note_wakes_coordinators_once_and_into_nothing(memory: Store) -> None:
    life = Life(memory, 8, "n1")
    life.settle(6)
    life.coordinator.cycle("orders")
    version, lines = memory.version(), memory.view("orders", lambda tx: tx.last_line())
    assert life.sample() == 1
    assert memory.version() == version + 1
    assert life.coordinator.cycle("orders").said == "orders: nothing new"
    assert memory.view("orders", lambda tx: tx.last_line()) == lines, "no event is told"
    assert (life.sample(), memory.version()) == (0, version + 1), "its own note is no change"


def test_a_lease_that_ends_in_silence_is_seen() -> None:
    now_s = [1000.0]
    store = MemoryStore(lambda: now_s[0])
    life = Life(store, 4, "n1")
    life.settle(4)
    life.sample()
    assert last(life.series())["unowned"] == 0
    version = store.version()
    now_s[0] += 60
    life.sample()
    assert last(life.series())["unowned"] == 4, "time alone has changed it"
    assert store.version() == version + 1


def test_a_restart_and_another_server_go_on(place: Place) -> None:
    life = Life(place.open(), 8, "n1")
    life.settle(6)
    life.sample()
    life.join("n2")
    life.settle(12)
    other = Life.new_sampler(life)
    other._store = place.open()
    assert life.sample(other) == 1, "it counts what has moved while nobody looked"
    assert life.series().series["moves"] == [0, 4]
    life.kill("n1")
    gone = life.any.transact("orders", lambda tx: tx.members())["n1"]
    life.any.transact("orders", lambda tx: tx.write_member(msgspec.structs.replace(gone, lease_until_s=0.0)))
    assert life.sample() == 1, "the first server runs the job again, and sees that another one has written"
    assert life.series().series["moves"] == [0, 4, 4]
    assert life.sample(other) == 0
    assert len(life.series().at) == 3


def test_a_server_that_writes_late_overwrites_nothing(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    life, sampler = Life(memory, 8, "n1"), None
    life.settle(6)
    sampler = life.new_sampler()
    count = Sampler._count

    def interrupted(self: Sampler, name: str, watch: series._Watch, look: series._Look) -> bool:
        if self is sampler:
            life.sample()
        return count(self, name, watch, look)

    monkeypatch.setattr(Sampler, "_count", interrupted)
    assert life.sample(sampler) == 0, "the other one came first"
    monkeypatch.undo()
    assert (life.sample(sampler), len(life.series().at)) == (0, 1), "and has said the same"


def test_moves_grow_only_and_a_restarted_counter_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def moves_over_servers() -> list[float | int | None]:
        store = MemoryStore(lambda: 5000.0)
        life = Life(store, 8, "n1")
        life.settle(6)
        for name in ("n2", "n3", "n4"):
            life.join(name)
            life.settle(16)
            life.sample(life.new_sampler())
        return life.series().series["moves"]

    assert moves_over_servers() == [4, 6, 8]
    monkeypatch.setattr(series, "Counted", lambda _moves=0: measures.Counted())
    assert moves_over_servers() != [4, 6, 8]


def line(item: str, transition: str, member: str | None, epoch: int = 2, reason: str = "") -> Line:
    return Line(set="orders", item=item, transition=transition, member=member, epoch=epoch, at_s=1.0, reason=reason)


@pytest.mark.parametrize(
    ("lines", "moves"),
    [
        ([line("0", Transition.T1, "a", 1)], 0),
        ([line("0", Transition.T1, "a", 5 * GENERATION + 1)], 0),
        ([line("0", Transition.T5, "a"), line("0", Transition.T1, "b", 3)], 1),
        ([line("0", Transition.T5, "a", reason=RESTART), line("0", Transition.T1, "a", 3)], 0),
        ([line("0", Transition.T7, "a"), line("0", Transition.T1, "b", 3), line("0", Transition.T2, "b", 3)], 1),
        ([line("0", Transition.T1, "b", 3)], 1),
        ([line("0", Transition.T5, "a"), line("0", Transition.T9, None), line("0", Transition.T1, "b", 9)], 0),
        ([line("0", Transition.T3, "a"), line("0", Transition.T6, "a")], 0),
        ([line("api", "reported", None, 0, "spot 3")], 1),
    ],
)
def test_what_counts_as_a_move(lines: list[Line], moves: int) -> None:
    together = measures.count_moves(lines, measures.Counted(), None)
    one_by_one = measures.Counted()
    for each in lines:
        one_by_one = measures.count_moves([each], one_by_one, None)
    assert together.moves == one_by_one.moves == moves


def test_a_job_that_was_deleted_and_made_again_begins_anew(store: Store) -> None:
    life = Life(store, 4, "n1")
    life.settle(6)
    life.join("n2")
    life.settle(12)
    life.sample()
    assert last(life.series())["moves"] == 2
    delete_document(store, "PartitionSet", "orders")
    with pytest.raises(NotFound):
        life.series()
    assert life.sample() == 0
    life.settle(12)
    life.write(SET % 4)
    life.settle(12)
    life.sample()
    assert life.series().series["moves"] == [0]


def test_what_nobody_works_on_is_what_the_api_says(store: Store) -> None:
    life = Life(store, 16, "n1", "n2", "n3")
    life.settle(8)
    api = StoreJobs(store, ready=lambda: True)
    member = store.transact("orders", lambda tx: tx.members())["n3"]
    for changed in ({"lease_until_s": 0.0}, {"incarnation": member.incarnation + 1}, {"draining": True}):
        after = msgspec.structs.replace(member, **changed)
        store.transact("orders", lambda tx, after=after: tx.write_member(after))  # type: ignore[misc]
        values = store.view("orders", lambda tx: measures.measure_items(snapshot(tx, "orders")))
        (summary,) = api.jobs()
        assert values["unowned"] == summary.unowned
        assert values["loadMax"] - values["loadMin"] == summary.spread


def test_a_division_is_counted_by_its_replicas_and_its_error(store: Store) -> None:
    life = Life(store, 1)
    sampler = life.new_sampler("ReplicaDivision/shop")
    life.write(DIVISION % 1)
    life.sample(sampler)
    assert last(life.series("ReplicaDivision", "shop")) == {"unowned": 11, "moves": 0, "replicas": 0, "error": 5.5}
    divide_stored(store, "shop", NOW)
    life.sample(sampler)
    assert last(life.series("ReplicaDivision", "shop")) == {"unowned": 0, "moves": 0, "replicas": 11, "error": 0.5}
    life.write(DIVISION % 3)
    life.sample(life.new_sampler("ReplicaDivision/shop"))
    stands = last(life.series("ReplicaDivision", "shop"))["error"]
    assert stands is not None
    assert stands > 2, "what the plan would mend is still so"
    planned = plan_document(read_document(store, "ReplicaDivision", "shop", NOW).document, NOW).entry
    assert isinstance(planned, DivisionEntry)
    divide_stored(store, "shop", NOW)
    assert life.sample(life.new_sampler("ReplicaDivision/shop")) == 1
    found = last(life.series("ReplicaDivision", "shop"))
    moved = sum(each.moved for each in planned.divisions.values())
    assert (found["moves"], found["replicas"], found["error"]) == (moved, 11, 0.25)
    assert moved > 0
    assert life.sample(sampler) == 0


def test_a_split_is_counted_by_side_and_over_pools_by_place(store: Store) -> None:
    life = Life(store, 1)
    sampler = life.new_sampler("CapacitySplit/shop", "CapacitySplit/tiers")
    life.write(SPLIT % (0, 9))
    life.write(POOLS)
    assert life.sample(sampler) == 2
    found = {"unowned": 1, "moves": 1, "spot": 0, "onDemand": 9, "desiredSpot": 7, "desiredOnDemand": 3}
    assert last(life.series("CapacitySplit", "shop")) == found
    tiers = {"unowned": 1, "moves": 1, "replicas": 9, "desired": 10, "misplaced": 3}
    assert last(life.series("CapacitySplit", "tiers")) == tiers
    life.write(SPLIT % (7, 3))
    assert life.sample(sampler) == 1
    assert last(life.series("CapacitySplit", "shop")) == found | {"unowned": 0, "moves": 2, "spot": 7, "onDemand": 3}


def test_a_long_life_stays_small(memory: Store) -> None:
    life = Life(memory, 1)
    for turn in range(POINTS_MAX * 2):
        memory.transact("orders", lambda tx, turn=turn: put_set(tx, World.job(turn + 2)))  # type: ignore[misc]
        assert life.sample() == 1
    text = memory.view("orders", lambda tx: tx.note(SERIES))
    assert text is not None
    assert len(text) < BYTES_MAX
    found = life.series()
    assert POINTS_MAX // 2 < len(found.at) <= POINTS_MAX
    assert found.at == sorted(set(found.at))
    assert {len(column) for column in found.series.values()} == {len(found.at)}


def test_a_journal_of_many_pages_is_counted_in_several_passes(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "_PAGE", 3)
    monkeypatch.setattr(series, "_PAGES_MAX", 2)
    life = Life(memory, 8, "n1")
    life.settle(6)
    life.join("n2")
    life.settle(12)
    for _ in range(30):
        life.sample()
    assert last(life.series())["moves"] == 4
    assert life.sample() == 0


def test_a_point_that_could_not_be_written_is_written_later(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(memory, 4)

    def away(_name: str, _work: object) -> None:
        raise Unavailable("the store is away")

    with monkeypatch.context() as patched:
        patched.setattr(memory, "transact", away)
        with pytest.raises(Unavailable):
            life.sample()
        with pytest.raises(Unavailable):
            life.sample()
    assert (life.sample(), life.sample()) == (1, 0)
    assert life.series().series["unowned"] == [4]


def test_what_many_jobs_write_in_a_pass_wakes_once_or_a_few_times(tmp_path: Path) -> None:
    place = make_place("sqlite", tmp_path)
    store = place.open()
    assert isinstance(store, SqliteStore)
    names = [f"set-{number}" for number in range(60)]
    for name in names:
        put_document(store, load((SET % 2).replace("orders", name), "test")[0], NOW)
    rings = store._bell._rings
    assert Sampler(store, lambda: names).sample() == 60
    assert store._bell._rings - rings < 30
    place.close()


def test_one_broken_job_leaves_the_others_alone(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(memory, 4)
    life.write(DIVISION % 1)
    sampler = life.new_sampler("ReplicaDivision/shop", "orders", "a job that is not there")

    def broken(_document: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(series, "measure_division", broken)
    assert life.sample(sampler) == 1
    assert life.series().at != []


def test_its_loop_samples_and_ends_with_its_block(memory: Store) -> None:
    life = Life(memory, 4)

    async def work() -> None:
        async with Sampler(memory, lambda: ["orders"], pass_s=0.01):
            for _ in range(200):
                if life.series().at:
                    return
                await asyncio.sleep(0.01)

    asyncio.run(work())
    assert life.series().series["unowned"] == [4]


def test_a_history_over_the_wire_has_one_shape(memory: Store) -> None:
    life = Life(memory, 4)
    life.sample()
    shown = msgspec.json.decode(msgspec.json.encode(life.series()))
    assert shown == {
        "at": [int(NOW.timestamp()) + 60],
        "series": {"unowned": [4], "moves": [0], "loadMin": [None], "loadMean": [None], "loadMax": [None]},
        "now": int(NOW.timestamp()) + 60,
    }
    with pytest.raises(NotFound):
        read_series(memory, "PartitionSet", "nobody")
    with pytest.raises(NotFound):
        read_series(memory, "Nothing", "orders")


@pytest.mark.slow
def test_a_server_keeps_the_history_of_what_it_runs(tmp_path: Path) -> None:
    async def work(store: Store) -> list[float | int | None]:
        put_document(store, load(SET % 4, "test")[0], NOW)
        async with (
            JobServer(store, "s1") as jobs,
            Sampler(store, lambda: jobs.jobs, pass_s=0.05),
            Member(store, set="orders", name="n1", on_gain=hold, on_loss=hold),
        ):
            for _ in range(400):
                found = read_series(store, "PartitionSet", "orders").series
                if found["loadMax"][-1:] == [4]:
                    return found["unowned"]
                await asyncio.sleep(0.02)
        return []

    async def hold(_item: str, _epoch: int) -> None:
        await asyncio.sleep(0)

    place = make_place("sqlite", tmp_path)
    assert asyncio.run(work(place.open()))[-1:] == [0]
    place.close()
