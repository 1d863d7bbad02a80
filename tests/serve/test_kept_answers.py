"""What many look at is worked out once, and again as soon as what it was made from has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import httpx2
import pytest
from tests.serve.live_server import DIVISION, ORDERS, LiveServer
from tests.serve.told_store import ToldStore

from poise.jobs.dividing import divide_stored
from poise.serve import jobs_api, summaries
from poise.serve.kept import Kept

P = ParamSpec("P")
R = TypeVar("R")
SHOP = ("ReplicaDivision", "shop")


class Counting:
    """Counts how often something is worked out."""

    def __init__(self) -> None:
        self.times = 0

    def around(self, work: Callable[P, R]) -> Callable[P, R]:
        def counted(*args: P.args, **kwargs: P.kwargs) -> R:
            self.times += 1
            return work(*args, **kwargs)

        return counted


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """Count the plans of jobs that only count, and of sets."""
    counting = Counting()
    for module, name in ((summaries, "plan_document"), (jobs_api, "plan_snapshot")):
        monkeypatch.setattr(module, name, counting.around(getattr(module, name)))
    return counting


def test_a_division_is_planned_once_for_all_who_look(plans: Counting) -> None:
    told = ToldStore()
    told.put(DIVISION)
    for _ in range(3):
        assert told.api.summary(*SHOP).pending == 1
        assert [each.quota for each in told.api.members(*SHOP)] == ["7/2", "7/2"]
        assert told.api.jobs()[0].health == "changes pending"
    assert plans.times == 1


def test_a_division_that_has_changed_is_planned_again(plans: Counting) -> None:
    told = ToldStore()
    told.put(DIVISION)
    assert told.api.summary(*SHOP).pending == 1
    divide_stored(told.store, "shop", told.now())
    assert told.api.summary(*SHOP).pending == 0, "its status has changed"
    assert sum(each.load for each in told.api.members(*SHOP)) == 7
    told.put(DIVISION, workloads=[{"name": "cart", "replicas": 9}])
    assert told.api.summary(*SHOP).pending == 1, "its document has changed"
    told.api.pause(*SHOP, paused=True, everything=False)
    assert (told.api.summary(*SHOP).paused, plans.times) == (True, 4)
    told.api.delete(*SHOP, if_match=None)
    assert told.api.jobs() == []


def pages(client: httpx2.Client) -> list[str]:
    """Read all items page by page."""
    found: list[str] = []
    more: dict[str, str] = {}
    while True:
        page = client.get("/v1/jobs/PartitionSet/orders/items", params={"limit": "40", **more}).json()
        found += [f"{each['item']}: {each['reason']}" for each in page["items"]]
        if "continue" not in page:
            return found
        more = {"continue": page["continue"]}


def test_the_pages_of_a_list_are_read_from_one_look(
    server: LiveServer, plans: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_api, "_MOMENT_S", 1e9)  # However slow this machine is, it is one moment.
    with server.client() as client:
        server.put({**ORDERS, "spec": {"partitions": 400}}, client)
        assert (len(pages(client)), plans.times) == (400, 1), "nobody has them, so a plan says why"
        server.put({**ORDERS, "spec": {"partitions": 401}}, client)
        assert (len(pages(client)), plans.times) == (401, 2), "a list of what was there before is not kept"


def test_time_that_passes_makes_a_list_old() -> None:
    told = ToldStore()
    told.put(ORDERS)
    told.join("orders", "n1")
    told.settle("orders", "n1")
    before = told.api.items("PartitionSet", "orders", member="n1", state=None)
    assert [each.reason for each in before] != ["" for _ in before]
    told.now_s += 20 * 60  # Nothing is committed when a lease ends.
    after = told.api.items("PartitionSet", "orders", member="n1", state=None)
    assert [each.reason for each in after] != [each.reason for each in before]


def test_only_so_many_answers_are_kept() -> None:
    kept, made = Kept[int](2), Counting()
    make = made.around(lambda: made.times)
    for name in ("a", "b", "c", "c", "b"):
        kept.get(("k", name), 1, make)
    assert made.times == 3
    kept.get(("k", "a"), 1, make)
    assert made.times == 4, "the oldest one was forgotten"
    kept.get(("k", "a"), 2, make)
    assert made.times == 5, "another mark is another answer"
