"""The operator's page over a ring that is made up: it draws everything, changes nothing, and says who leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import cast

import httpx2
import pytest
from msgspec.structs import replace
from tests.jobs_operator.ring_reports import CALM, seen
from tests.jobs_sharder.sharder_events import Put
from tests.jobs_sharder.test_ring_foresight import looked, spread_out

from poise.jobs.sharder.orders import Orders
from poise.jobs.sharder.report import RingReport
from poise.jobs.sharder.rings import RingLook, Rings
from poise.jobs.sharder.snapshot import RingSnapshot
from poise.jobs.sharder.status import Refusal
from poise.kube.objects import Meta
from poise.model.sharding import Marks, Standing
from poise.observe.leases import Health
from poise.serve.rings.ring_journal import RingJournal
from poise.serve.rings.ring_page import RingPage
from poise.serve.rings.ring_views import key_views, member_views, ring_summary
from poise.serve.settings import ServeSettings, open_sockets

META = Meta("web", "team", "uid-1", generation=3)
ZERO = datetime(2026, 11, 16, 10, 0, tzinfo=UTC)
READY = {"x-0": Standing.READY, "x-1": Standing.READY, "x-2": Standing.READY}


class PlayedRings:
    """The rings of an operator, as the page asks about them."""

    def __init__(self, snapshot: RingSnapshot, refusal: Refusal | None = None) -> None:
        """Show one ring, or refuse it."""
        self.shown, self.refusal = snapshot, refusal
        self.revision = 1

    def looks(self) -> list[RingLook]:
        """Give what the operator knows."""
        report = None if self.refusal is not None else self.shown.report
        return [RingLook(META, report, self.refusal, self.revision)]

    def snapshot(self, key: tuple[str, str]) -> RingSnapshot | None:
        """Give the ring."""
        assert key == META.key
        return None if self.refusal is not None else self.shown


@asynccontextmanager
async def paged(rings: PlayedRings | None, leader: str = "", *hosts: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve the page as an operator does."""
    sockets = open_sockets(ServeSettings(port=0))
    port, ended = sockets[0].getsockname()[1], asyncio.Event()
    shown = cast("Rings | None", rings)  # The page asks these two questions only.
    page = RingPage(lambda: shown, lambda: leader, ServeSettings(port=port, hosts=hosts))
    serving = asyncio.create_task(page.serve(sockets, ended))
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            yield client
    finally:
        ended.set()
        await serving
        sockets[0].close()


JOB = "/jobs/ShardRing/team%2Fweb"


def played(scenario: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Play an asynchronous test in a loop of its own."""

    @wraps(scenario)
    def test(**given: object) -> None:
        async def play() -> None:
            async with asyncio.timeout(60):
                await scenario(**given)

        asyncio.run(play())

    return test


@played
async def test_every_page_is_drawn_and_says_commands_for_a_cluster() -> None:
    ring = spread_out()
    key = ring.roots[0].key.replace("/", "%2F")
    async with paged(PlayedRings(ring)) as client:
        overview = (await client.get("/")).text
        assert 'href="/jobs/ShardRing/team%2Fweb"' in overview
        assert "for looking only" in overview
        job = await client.get(JOB)
        assert job.status_code == 200
        assert "Who holds what" in job.text
        assert "poise worker" not in job.text
        drained = (await client.get(f"{JOB}?drain=x-0")).text
        assert "poise drain --kube team/web x-0" in drained
        assert "poise plan --kube team/web --drain x-0" in drained
        assert "Nothing can be changed here" in drained
        assert "--server" not in drained
        paused = (await client.get(f"{JOB}?pause=all")).text
        assert "poise pause --kube team/web --all" in paused
        item = (await client.get(f"{JOB}/items/{key}")).text
        assert f"poise explain --kube team/web {ring.roots[0].key}" in item
        assert "has the token" in item
        assert (await client.get(f"{JOB}/items?member=x-0")).status_code == 200
        assert (await client.get("/events")).status_code == 200
        assert (await client.get("/v1/jobs/ShardRing/team%2Fweb/series")).status_code == 200
        assert (await client.get("/jobs/ShardRing/team%2Fnone")).status_code == 404


@pytest.mark.parametrize(
    "path", [JOB, f"{JOB}?drain=x-0", "/v1/jobs/ShardRing/team%2Fweb", "/v1/jobs", "/login", "/logout"]
)
@played
async def test_nothing_can_be_changed(path: str) -> None:
    async with paged(PlayedRings(spread_out())) as client:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            answer = await client.request(method, path, content=b"{}", headers={"Content-Type": "application/json"})
            assert answer.status_code in (403, 404, 405), f"{method} {path}: {answer.status_code}"
        for page in ("/", JOB, f"{JOB}?drain=x-0", f"{JOB}?resume=yes"):
            assert 'method="post"' not in (await client.get(page)).text.lower()


@played
async def test_the_page_answers_to_its_own_names_and_to_no_probe() -> None:
    async with paged(PlayedRings(spread_out()), "", "page.example") as client:
        for path in ("/livez", "/readyz", "/metrics"):
            assert (await client.get(path)).status_code == 404
        assert (await client.get("/", headers={"Host": "evil.example"})).status_code == 421
        assert (await client.get("/", headers={"Host": "10.0.0.7:8081"})).status_code == 421
        assert (await client.get("/", headers={"Host": "page.example"})).status_code == 200
        # A port that kubectl forwards may be any.
        assert (await client.get("/", headers={"Host": "localhost:9000"})).status_code == 200


@played
async def test_a_process_that_stands_by_says_who_leads() -> None:
    async with paged(None, "poise-sharder-other_1") as client:
        overview = (await client.get("/")).text
        assert "<b>poise-sharder-other_1</b> leads" in overview
        missing = await client.get(JOB)
        assert missing.status_code == 404
        assert "poise-sharder-other_1 leads: ask there" in missing.text


@played
async def test_a_leader_that_hangs_with_markup_in_its_name_is_escaped() -> None:
    async with paged(None, "<script>x</script>") as client:
        assert "<script>x" not in (await client.get("/")).text


@played
async def test_a_ring_that_is_refused_is_listed_with_its_reason() -> None:
    refused = PlayedRings(spread_out(), Refusal("NameTaken", "another ring has this name"))
    async with paged(refused) as client:
        assert "another ring has this name" in (await client.get("/")).text
        answer = await client.get(JOB)
        assert answer.status_code == 404
        assert "is not run: another ring has this name" in answer.text


@played
async def test_what_happens_is_told() -> None:
    ring = spread_out()
    root = ring.roots[0]
    rings = PlayedRings(replace(ring, report=replace(ring.report, instances=CALM.instances)))
    async with paged(rings) as client:
        await asyncio.sleep(1.3)
        other = next(name for name in READY if name != root.marks.shard)
        moved = {**ring.objects, root.uid: replace(root, marks=Marks(other, 7))}
        report = replace(ring.report, instances=(*CALM.instances, seen("web-2")), paused="moves")
        rings.shown, rings.revision = replace(ring, objects=moved, report=report), 2
        for _ in range(100):
            told = (await client.get("/events")).text
            if "web-2" in told:
                break
            await asyncio.sleep(0.1)
        assert "<b><bdi>web-2</bdi></b> is ready" in told
        assert "Moves are paused" in told
        short = (await client.get("/")).text
        assert f"moved from <b><bdi>{root.marks.shard}</bdi></b> to <b><bdi>{other}</bdi></b>" in short
        item = (await client.get(f"{JOB}/items/{root.key.replace('/', '%2F')}")).text
        assert f"handed over by {root.marks.shard}" in item
        assert "epoch 7" in item


# What the page is made from.


def test_a_ring_in_a_line() -> None:
    def line(report: RingReport, refusal: Refusal | None = None) -> tuple[str, list[str]]:
        summary = ring_summary(RingLook(META, report, refusal))
        return summary.health, summary.problems

    assert line(CALM) == ("as it should be", [])
    assert line(replace(CALM, paused="all"))[0] == "paused"
    assert line(replace(CALM, drains=2))[0] == "2 objects being handed over"
    assert line(RingReport())[0] == "its objects are being listed"
    assert line(replace(CALM, unassigned=1))[1] == ["1 object without an instance"]
    assert line(replace(CALM, instances=()))[1] == ["no instance is ready; 0 objects unassigned"]
    assert line(replace(CALM, overdue=1, drains=1))[1]
    assert ring_summary(RingLook(META, replace(CALM, instances=(seen("a", Health.EXPIRED),)), None)).late == 1
    drained = replace(CALM, instances=(replace(seen("a"), drained=True), seen("b")))
    assert ring_summary(RingLook(META, drained, None)).members == {"draining": 1, "ready": 1}


def test_instances_and_keys_as_the_page_shows_them() -> None:
    puts = [Put("a", None, Marks("x-0", 4, "x-1", 9)), Put("b", None, Marks("x-0", 1)), Put("c", None, Marks())]
    ring, _, _ = looked(puts, READY, "balanced", Orders(drained=frozenset({"x-0"})))
    items = {each.item.rpartition("/")[2]: each for each in key_views(ring, None)}
    states = {name: (each.state, each.member, each.target) for name, each in items.items()}
    assert set(states.values()) == {
        ("RequestedRelease", "x-0", "x-1"),
        ("Assigned", "x-0", None),
        ("Unassigned", None, None),
    }
    views = {each.name: each for each in member_views(ring, key_views(ring, None))}
    assert (views["x-0"].state, views["x-0"].load, views["x-0"].releasing) == ("draining", 2, 1)
    assert (views["x-1"].reserved, views["x-1"].floor, views["x-1"].ceiling) == (1, 1, 2)
    assert (views["x-0"].floor, views["x-0"].ceiling) == (0, 0)


def test_a_journal_is_bounded_and_goes_on_from_any_place() -> None:
    journal = RingJournal(ZERO)
    held = {f"k{number}": ("a", 1) for number in range(6_000)}
    journal.take("r", CALM, held, ZERO)
    assert journal.events(None, 10) == [], "a first look is no news"
    journal.take("r", CALM, dict.fromkeys(held, ("b", 2)), ZERO + timedelta(seconds=1))
    assert len(journal.events("0", 100_000)) == 10_000
    newest = journal.events(None, 1)[0]
    assert journal.events(newest.id, 10) == []
    assert journal.wait(newest.line.number - 1, 5.0) == newest.line.number
    assert journal.wait(newest.line.number, 0.01) == newest.line.number
    journal.take("r", CALM, None, ZERO + timedelta(seconds=2))
    assert journal.events(newest.id, 10) == []
    series = journal.series("r", ZERO)
    assert series.series["moves"] == [0, 6_000]
    first = journal.lines("r", None, None, 3, newest=True)
    assert [line.number for line in first] == sorted((line.number for line in first), reverse=True)
    journal.forget([])
    journal.take("r", CALM, {}, ZERO)
    assert journal.events(newest.id, 10) == [], "what comes back is no news"
