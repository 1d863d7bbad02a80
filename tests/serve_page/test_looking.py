"""One look at a job: what it reads and how rarely, what cannot be planned, and the plan as people read it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import msgspec
import pytest
from tests.serve_page.drawn import cells, forms
from tests.serve_page.picture_looks import (
    NOW,
    counted_look,
    held_rows,
    member,
    partition_look,
    pool_look,
    releasing,
    row,
)
from tests.serve_page.test_pictures_counts import SPLIT, division
from tests.set_world import World

from poise.documents import load
from poise.errors import NotFound
from poise.jobs.entries import ItemsEntry, Waits
from poise.jobs.stored import put_document
from poise.jobs.what_if import WhatIf
from poise.serve.jobs_api import StoreJobs
from poise.serve.page.looking import LoadChange, Look, PlanLine, look, picture, plan_lines
from poise.serve.page.pictures import plan_text
from poise.stores.base import Transaction
from poise.stores.memory import MemoryStore

Answer = TypeVar("Answer")
ORDERS = "{apiVersion: poise.dev/v1alpha1, kind: PartitionSet, metadata: {name: orders}, spec: {partitions: 12}}"


class CountingStore:
    """A store in memory that counts how often it is read."""

    def __init__(self, store: MemoryStore) -> None:
        self._store, self.reads = store, 0

    def view(self, name: str, work: Callable[[Transaction], Answer]) -> Answer:
        self.reads += 1
        return self._store.view(name, work)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


@pytest.fixture
def world() -> World:
    """Three workers hold twelve partitions."""
    world = World(12, "worker-a", "worker-b", "worker-c")
    put_document(world.store, load(ORDERS, "test")[0], NOW)
    world.settle()
    return world


def api_of(world: World) -> StoreJobs:
    return StoreJobs(world.store, now=lambda: NOW, ready=lambda: True)


def test_a_look_reads_everything_that_the_page_shows(world: World) -> None:
    seen = look(api_of(world), "PartitionSet", "orders", None, NOW)
    assert (seen.kind, seen.name, seen.refused, seen.what_if, seen.now) == ("PartitionSet", "orders", "", None, NOW)
    assert [each.item for each in seen.items] == [str(number) for number in range(12)]
    assert [each.name for each in seen.members] == ["worker-a", "worker-b", "worker-c"]
    assert seen.summary.items == 12
    assert seen.stored.revision == 1
    assert seen.planned is not None
    assert not seen.planned.pending
    for node in forms(picture(seen)).values():
        assert cells(node) == {"held": 12}


def test_a_worker_that_dies_is_late_then_gone_then_healed(world: World) -> None:
    world.kill("worker-c")
    world.settle(6)
    assert "late: 7 s of 10" in str(picture(look(api_of(world), "PartitionSet", "orders", None, NOW)))
    world.settle(5)
    assert "gone for" in str(picture(look(api_of(world), "PartitionSet", "orders", None, NOW)))
    world.settle(12)
    seen = look(api_of(world), "PartitionSet", "orders", None, NOW)
    assert {each.member for each in seen.items} == {"worker-a", "worker-b"}
    for node in forms(picture(seen)).values():
        assert cells(node) == {"held": 12}


def test_a_look_reads_the_store_only_a_few_times(world: World) -> None:
    counting = CountingStore(world.store)
    # It stands in for a store: what it does not count itself it hands on.
    api = StoreJobs(counting, now=lambda: NOW, ready=lambda: True)  # type: ignore[arg-type]
    look(api, "PartitionSet", "orders", None, NOW)
    assert counting.reads <= 8


def test_an_impossible_what_if_is_told_not_raised(world: World) -> None:
    seen = look(api_of(world), "PartitionSet", "orders", WhatIf(drain=["nobody"]), NOW)
    assert seen.planned is None
    assert "nobody" in seen.refused
    assert plan_lines(seen).empty == seen.refused
    assert len(seen.items) == 12


def test_a_job_that_is_not_there_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        look(api_of(world), "PartitionSet", "nothing", None, NOW)


def over_share(**more: object) -> Look:
    rows = held_rows({"a": 4, "b": 4})
    return partition_look(rows, [member("a"), member("b"), member("c")], **more)  # type: ignore[arg-type]


def test_a_plan_reads_as_lines_loads_and_certificate() -> None:
    told = plan_lines(over_share())
    assert [line.target for line in told.lines] == ["c", "c"]
    assert told.lines[0].glyph == "→"
    assert "over its share" in told.lines[0].reason
    assert told.loads == [LoadChange("a", 4, 3), LoadChange("b", 4, 3), LoadChange("c", 0, 2)]
    assert [str(load) for load in told.loads] == ["a 4→3", "b 4→3", "c 0→2"]
    assert told.certificate == "Plan: 2 moves, 6 stay. Fewest possible: 2. Spread 1."
    assert told.proven
    assert (told.more, told.empty) == ("", "")


def test_what_is_cut_is_counted() -> None:
    rows = held_rows({"a": 40, "b": 40})
    told = plan_lines(partition_look(rows, [member("a"), member("b"), member("c")]), most=3)
    assert len(told.lines) == 3
    assert told.more == "… 23 more, 22 of them wait"
    assert told.certificate.startswith("Plan: 26 moves (22 of them wait), 54 stay.")


def test_what_is_cut_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_text, "_more", lambda cut: "")  # noqa: ARG005 - It must be called as the real one is.
    with pytest.raises(AssertionError):
        test_what_is_cut_is_counted()


def test_moves_under_way_first_placements_and_waiting_have_their_glyphs() -> None:
    rows = [*held_rows({"a": 4}), row(4, None), releasing(5, "a", "b", acknowledged=True)]
    told = plan_lines(partition_look(rows, [member("a"), member("b")]))
    first = next(line for line in told.lines if line.item == "4")
    assert (first.glyph, first.source, first.target) == ("+", "nobody", "b")
    assert "1 placed first, 1 under way" in told.certificate


def test_a_plan_without_moves_says_so() -> None:
    told = plan_lines(partition_look(held_rows({"a": 2, "b": 2}), [member("a"), member("b")]))
    assert told.empty == "Nothing is to move."
    assert told.certificate == "Plan: 0 moves, 4 stay. Fewest possible: 0. Spread 0."


def test_what_fits_nowhere_is_noted_with_its_reason() -> None:
    pods = [member("p0", state="ready", lease_s=28.0)]
    told = plan_lines(pool_look({"r1": "p0", "r2": None}, pods, capacity=1))
    assert told.notes[0] == "1 item without an owner: no pod has room"


def test_the_plan_of_a_division_names_only_what_changes() -> None:
    told = plan_lines(division(12, unknown=1))
    assert [line.item for line in told.lines] == ["app-11"]
    assert told.lines[0].glyph == "+"
    assert told.certificate.startswith("Plan: 0 replicas moved, 11 of 12 workloads kept. Largest error of a total: ")
    moved = plan_lines(division(12, what_if=WhatIf(weights={"west": 3})))
    assert any(line.glyph == "→" and "west" in line.target for line in moved.lines)


def test_the_plan_of_a_split_says_actions_and_what_they_wait_for() -> None:
    told = plan_lines(counted_look(SPLIT))
    api = next(line for line in told.lines if line.item == "api")
    assert (api.glyph, api.source, api.target) == ("…", "spot 6, on-demand 4", "spot 7, on-demand 3")
    assert "waits: outside of its windows" in api.reason
    assert told.certificate == "Plan: 2 workloads to act on, 1 of them waits; 1 as they should be."


def test_a_cancelled_release_stays_where_it_is() -> None:
    rows = [releasing(0, "a", "b", acknowledged=False), row(1, "b"), row(2, "b")]
    told = plan_lines(partition_look(rows, [member("a"), member("b")]))
    assert PlanLine("↩", "0", "a", "a", told.lines[0].reason) == told.lines[0]


def test_a_move_that_waits_says_until_when() -> None:
    rows = held_rows({"a": 4, "b": 0})
    seen = partition_look(rows, [member("a"), member("b")])
    assert seen.planned is not None
    waits = Waits("cooldown", NOW + timedelta(seconds=9), "cooldown of 10 s after the last action")
    entry = seen.planned.entry
    assert isinstance(entry, ItemsEntry)
    entry = msgspec.structs.replace(entry, moves=[msgspec.structs.replace(entry.moves[0], waits=waits)])
    told = plan_lines(msgspec.structs.replace(seen, planned=msgspec.structs.replace(seen.planned, entry=entry)))
    assert told.lines[0].reason.endswith("waits: cooldown of 10 s after the last action, until 20:14:13 UTC")
