"""All metrics of the contract, scraped from a real server process and held against what the API and the journal say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx2
import msgspec
import pytest
from tests.serve.live_server import KEYS, SHOP, AwayStore
from tests.serve.talking_member import TalkingMember
from tests.serve.test_two_servers_metrics import Samples, scrape, total
from tests.serve_process import ServerProcess, await_met, servers

from poise.clock import boot_s
from poise.decide.partition_values import PartitionPlan, Step, StepKind
from poise.decide.plan import Certificate
from poise.documents import load
from poise.jobs.coordination import Turn
from poise.jobs.coordinator import Coordinator, Cycle
from poise.model.ownership import Line
from poise.move.handoff import Transition
from poise.serve.jobs_api import StoreJobs
from poise.serve.metrics import Metrics
from poise.serve.server import _count, begun_by

ORDERS = {
    "kind": "PartitionSet",
    "metadata": {"name": "orders"},
    "spec": {"partitions": 5, "weights": {"n1": 3, "n2": 2}},
}
PATH, JOB = "/v1/jobs/PartitionSet/orders", "PartitionSet/orders"


class Story:
    """A set whose members join, drain and stop, so that every number has something to count; step by step."""

    def __init__(self, client: httpx2.Client) -> None:
        self.client, self.beats = client, 0
        for document in (ORDERS, KEYS, SHOP):
            assert isinstance(document["metadata"], dict)
            client.put(f"/v1/jobs/{document['kind']}/{document['metadata']['name']}", json=document)
        client.post(f"{PATH}/pause", json={"all": True})  # Nobody gets anything before both are there.
        self.n1, self.n2 = TalkingMember(client, "n1"), TalkingMember(client, "n2")
        client.post(f"{PATH}/resume")
        await_met(lambda: self.loads(self.n1, self.n2) == [3, 2])
        self.even = scrape(client)

    def beat(self, member: TalkingMember) -> None:
        member.beat()
        self.beats += 1

    def loads(self, *members: TalkingMember) -> list[int]:
        for member in members:
            self.beat(member)
        items = self.client.get(f"{PATH}/items").json()["items"]
        counted = Counter(one["member"] for one in items if one["confirmed"])
        return [counted["n1"], counted["n2"]]

    def drain(self) -> None:
        """Ask n2 to let go; as long as it is silent the moves are in flight."""
        self.client.post(f"{PATH}/members/n2/drain")
        await_met(lambda: self.client.get(f"{PATH}/summary").json()["movesInFlight"] == 2)
        self.draining = scrape(self.client)
        self.draining_members = self.client.get(f"{PATH}/members").json()["items"]
        await_met(lambda: self.loads(self.n1, self.n2) == [5, 0])

    def stop(self) -> None:
        """Let n1 stop: what it lets go of nobody has asked for, and n2 is back to take it."""
        self.client.post(f"{PATH}/members/n2/undrain")
        await_met(lambda: self.loads(self.n1, self.n2) == [3, 2])
        holds = [{"item": one.item, "epoch": one.epoch, "state": "released"} for one in self.n1.reply.granted]
        assert self.n1.say(holds=holds, leaving="stop").status_code == 200
        self.beats += 1
        await_met(lambda: self.loads(self.n2) == [0, 5])

    def lines(self) -> list[Line]:
        found: list[Line] = []
        query = {"limit": "1000"}
        while True:
            page = self.client.get(f"{PATH}/history", params=query).json()
            found += msgspec.convert(page["items"], list[Line])
            if "continue" not in page:
                return found
            query["continue"] = page["continue"]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    process = ServerProcess(Path(tmp_path_factory.mktemp("metrics")))
    with servers(process):
        process.ready()
        with process.client() as client:
            told = Story(client)
            told.drain()
            told.stop()
            # The stream that the counters follow may be a moment behind.
            await_met(lambda: total(scrape(client), "poise_moves_total", job=JOB) == 2 + 2 + 3)
            yield told


def one(found: Samples, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


@pytest.mark.slow
def test_gauges_of_an_even_set(story: Story) -> None:
    assert one(story.even, "poise_items", job=JOB) == 5
    assert one(story.even, "poise_unowned", job=JOB) == 0
    assert one(story.even, "poise_spread", job=JOB) == 1
    assert one(story.even, "poise_members", job=JOB, state="active") == 2
    assert one(story.even, "poise_moves_in_flight", job=JOB) == 0
    assert [one(story.even, "poise_load", job=JOB, member=name) for name in ("n1", "n2")] == [3, 2]
    assert total(story.even, "poise_moves_total", job=JOB) == 0, "first placements are no moves"


@pytest.mark.slow
def test_gauges_while_a_member_drains(story: Story) -> None:
    assert one(story.draining, "poise_moves_in_flight", job=JOB) == 2
    assert one(story.draining, "poise_members", job=JOB, state="draining") == 1
    progress = {
        member["name"]: (member["load"], member["releasing"], member["reserved"]) for member in story.draining_members
    }
    assert progress == {"n1": (3, 0, 2), "n2": (2, 2, 0)}
    for member in story.draining_members:
        assert one(story.draining, "poise_load", job=JOB, member=member["name"]) == member["load"]


@pytest.mark.slow
def test_gauges_of_every_job_are_what_the_list_says(story: Story) -> None:
    found = scrape(story.client)
    for job in story.client.get("/v1/jobs").json()["items"]:
        label = f"{job['kind']}/{job['name']}"
        plain = [("items", "items"), ("unowned", "unowned"), ("spread", "spread"), ("moves_in_flight", "movesInFlight")]
        for metric, field in plain:
            assert one(found, f"poise_{metric}", job=label) == job[field], (label, metric)
        for state, count in job["members"].items():
            assert one(found, "poise_members", job=label, state=state) == count
    assert one(found, "poise_unowned", job="ShardRing/web") == 5, "nobody holds it"
    assert one(found, "poise_members", job="CapacitySplit/shop", state="ready") == 2


@pytest.mark.slow
def test_moves_are_counted_by_reason_and_each_was_needed(story: Story) -> None:
    found = scrape(story.client)
    assert one(found, "poise_moves_total", job=JOB, reason="drain", outcome="done") == 2
    assert one(found, "poise_moves_total", job=JOB, reason="balance", outcome="done") == 2
    assert one(found, "poise_moves_total", job=JOB, reason="stop", outcome="done") == 3
    assert total(found, "poise_moves_total", job=JOB) == 7
    assert one(found, "poise_moves_min_total", job=JOB) == 7


@pytest.mark.slow
def test_times_are_those_of_the_journal(story: Story) -> None:
    asked: dict[str, float] = {}
    free: dict[str, float] = {}
    handoffs, waits = [], []
    for line in story.lines():
        match line.transition:
            case Transition.T3:
                asked[line.item] = line.at_s
            case Transition.T5 | Transition.T7:
                free[line.item] = line.at_s
            case Transition.T1 if line.item in free:
                waits.append(line.at_s - free.pop(line.item))
                if line.item in asked:
                    handoffs.append(line.at_s - asked.pop(line.item))
    found = scrape(story.client)
    assert one(found, "poise_handoff_seconds_count") == len(handoffs) == 4
    assert one(found, "poise_handoff_seconds_sum") == pytest.approx(sum(handoffs))
    assert one(found, "poise_unowned_seconds_count") == len(waits) == 7
    assert one(found, "poise_unowned_seconds_sum") == pytest.approx(sum(waits), abs=1e-6)


@pytest.mark.slow
def test_heartbeats_cycles_and_the_build(story: Story) -> None:
    found = scrape(story.client)
    assert one(found, "poise_lease_renew_seconds_count") == story.beats
    assert 0 < one(found, "poise_lease_renew_seconds_sum") < 60
    assert one(found, "poise_cycle_seconds_count") > len({line.version for line in story.lines() if line.term})
    assert one(found, "poise_cycle_errors_total") == 0
    version = story.client.get("/version").json()
    assert one(found, "poise_build_info", **version) == 1


def test_a_cycle_that_fails_is_counted_as_an_error() -> None:
    store = AwayStore()
    api = StoreJobs(store, ready=lambda: True)
    api.put(load(msgspec.json.encode(ORDERS), "test")[0], if_match=None)
    metrics = Metrics(api)
    turn = Turn(Coordinator(store, "s1"), "orders", partial(_count, metrics))
    store.away = True
    turn.start()
    begun_s = boot_s()
    while b"poise_cycle_errors_total 0.0" in metrics.exposition():
        assert boot_s() - begun_s < 10
    store.away = False
    turn.stop()
    turn.join(10)
    found = metrics.exposition().decode()
    assert "poise_cycle_seconds_count 0.0" not in found, "a cycle that failed took its time, too"


def plan_of(*kinds: StepKind, needed: int = 9) -> PartitionPlan:
    steps = [Step(kind, str(number), "n1", "n2", "") for number, kind in enumerate(kinds)]
    ends: dict[str, str | None] = {step.partition: "n2" for step in steps}
    return PartitionPlan(
        steps=steps,
        moves_waiting=[],
        quotas={},
        loads={},
        held={},
        assignment=ends,
        certificate=Certificate(len(steps), needed, 0),
        unowned={},
        notices={},
        owed={},
    )


@pytest.mark.parametrize(
    ("kinds", "written", "begun"),
    [
        ([StepKind.RELEASE] * 3, 3, 3),
        ([StepKind.RELEASE] * 3, 1, 1),
        ([StepKind.ASSIGN, StepKind.RELEASE, StepKind.RELEASE], 1, 0),
        ([StepKind.ASSIGN, StepKind.RELEASE, StepKind.RELEASE], 2, 1),
        ([StepKind.UNASSIGN, StepKind.UNASSIGN], 2, 0),
    ],
)
def test_what_a_guard_holds_back_has_not_begun(kinds: list[StepKind], written: int, begun: int) -> None:
    assert begun_by(plan_of(*kinds), written) == begun


@pytest.mark.parametrize(("needed", "told"), [(9, 2), (1, 1), (0, None)])
def test_no_more_is_told_as_needed_than_the_certificate_says(needed: int, told: int | None) -> None:
    metrics = Metrics(StoreJobs(AwayStore(), ready=lambda: True))
    plan = plan_of(StepKind.RELEASE, StepKind.RELEASE, needed=needed)
    _count(metrics, "orders", Cycle("", 0.0, 2, plan, kind="PartitionSet"), 0.1)
    sample = f'poise_moves_min_total{{job="{JOB}"}} {told}.0'
    assert (sample in metrics.exposition().decode()) is (told is not None)
