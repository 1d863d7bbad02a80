"""Two real servers on one store: gauges are the same on both, and everything that is counted is counted once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.serve.talking_member import TalkingMember
from tests.serve.told_store import ToldStore
from tests.serve_process import ServerProcess, await_met, servers

from poise.jobs.stored import SERVERS
from poise.model.ownership import Line, Row
from poise.move.handoff import Transition
from poise.serve.facade import Event
from poise.serve.metrics import Metrics
from poise.serve.whereabouts import MISSED_S, Whereabouts
from poise.stores.base import Transaction

SET = "apiVersion: poise.dev/v1alpha1\nkind: PartitionSet\nmetadata: {{name: {name}}}\nspec: {{partitions: 12}}\n"
JOBS = ("a", "b")
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
GAUGES = ("poise_items", "poise_load", "poise_unowned", "poise_spread", "poise_moves_in_flight", "poise_members")


def scrape(client: httpx2.Client) -> Samples:
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def total(found: Samples, name: str, **labels: str) -> float:
    """Add up all samples of a name that have these labels."""
    return sum(value for (each, has), value in found.items() if each == name and labels.items() <= dict(has).items())


def gauges(found: Samples) -> Samples:
    return {key: value for key, value in found.items() if key[0] in GAUGES}


class Crew:
    """Members that speak on and on, each to one of the servers, and count how often."""

    def __init__(self) -> None:
        self.members: list[TalkingMember] = []
        self.beats = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._speak)

    def start(self) -> None:
        self._thread.start()

    def _speak(self) -> None:
        while not self._ended.wait(0.2):
            for member in list(self.members):
                member.beat()
                self.beats += 1

    def end(self) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(10)


@contextmanager
def crew() -> Iterator[Crew]:
    made = Crew()
    try:
        yield made
    finally:
        made.end()


def loads(client: httpx2.Client, job: str) -> dict[str, int]:
    items = client.get(f"/v1/jobs/PartitionSet/{job}/members").json()["items"]
    summary = client.get(f"/v1/jobs/PartitionSet/{job}/summary").json()
    return {} if summary["movesInFlight"] else {one["name"]: one["load"] for one in items}


@pytest.mark.slow
def test_what_two_servers_count_adds_up_and_what_is_true_now_is_the_same_on_both(tmp_path: Path) -> None:
    for name in JOBS:
        (tmp_path / f"{name}.yaml").write_text(SET.format(name=name))
    first = ServerProcess(tmp_path, "--name", "s1", *(f"{name}.yaml" for name in JOBS))
    with servers(first):
        first.ready()
        second = ServerProcess(tmp_path, "--name", "s2")
        with servers(second), first.client() as one, second.client() as two, crew() as speaking:
            second.ready()
            await_met(lambda: any("server.runs job=" in line for line in second.said), 20)
            speaking.members = [TalkingMember(one, "m1", "a"), TalkingMember(two, "m1", "b")]
            speaking.start()
            await_met(lambda: all(loads(one, job) == {"m1": 12} for job in JOBS), 20)
            speaking.members += [TalkingMember(two, "m2", "a"), TalkingMember(one, "m2", "b")]
            await_met(lambda: all(loads(one, job) == {"m1": 6, "m2": 6} for job in JOBS), 20)
            for job in JOBS:
                two.post(f"/v1/jobs/PartitionSet/{job}/members/m1/drain")
            await_met(lambda: all(loads(one, job) == {"m1": 0, "m2": 12} for job in JOBS), 20)
            speaking.end()
            await_met(lambda: moved(scrape(one), *JOBS) + moved(scrape(two), *JOBS) == 24)
            check_sums(scrape(one), scrape(two), speaking.beats)
            check_kill(one, second, scrape(two), speaking.members)


def moved(found: Samples, *jobs: str) -> float:
    return sum(total(found, "poise_moves_total", job=f"PartitionSet/{job}") for job in jobs)


def check_sums(one: Samples, two: Samples, beats: int) -> None:
    assert gauges(one) == gauges(two)
    for job in JOBS:
        label = f"PartitionSet/{job}"
        counted = [total(each, "poise_moves_total", job=label) for each in (one, two)]
        assert sorted(counted) == [0, 12], "one server has the job, and counts its moves"
        least = [total(each, "poise_moves_min_total", job=label) for each in (one, two)]
        assert least == counted, "the same server counts how many were needed, and no plan moved more"
        done = sum(total(each, "poise_moves_total", job=label, reason="drain", outcome="done") for each in (one, two))
        assert done == 6
    assert sum(total(each, "poise_handoff_seconds_count") for each in (one, two)) == 24
    assert sum(total(each, "poise_unowned_seconds_count") for each in (one, two)) == 24
    assert sum(total(each, "poise_lease_renew_seconds_count") for each in (one, two)) == beats
    for each in (one, two):
        assert total(each, "poise_cycle_seconds_count") > 0, "each runs a job"
        assert total(each, "poise_cycle_errors_total") == 0
        assert total(each, "poise_build_info") == 1


def check_kill(one: httpx2.Client, second: ServerProcess, last: Samples, members: list[TalkingMember]) -> None:
    """The jobs of a killed server go on elsewhere, and so does the counting of their moves."""
    second.kill()
    for member in members:
        member.client = one
    with crew() as speaking:
        speaking.members = members
        speaking.start()
        for job in JOBS:
            one.post(f"/v1/jobs/PartitionSet/{job}/members/m1/undrain")
        await_met(lambda: all(loads(one, job) == {"m1": 6, "m2": 6} for job in JOBS), 40)
    await_met(lambda: [moved(scrape(one), job) + moved(last, job) for job in JOBS] == [18, 18])


def line(job: str, version: int, at_s: float, transition: str = Transition.T1, member: str = "m") -> Line:
    return Line(
        set=job,
        item="0",
        transition=transition,
        member=member,
        epoch=1,
        at_s=at_s,
        reason="",
        number=1,
        version=version,
    )


def given(server: str, version: int, at_s: float, transition: str = Transition.T1) -> Line:
    """A line of the ring of servers: this server has the job, or was missed."""
    return msgspec.structs.replace(line(SERVERS, version, at_s, transition, server), item="a")


def follow_move(metrics: Metrics, at_s: float) -> None:
    """Let an item of a member that is gone come to another one."""
    for version, transition, member in ((20, Transition.T7, "m1"), (21, Transition.T1, "m2")):
        ended = line("a", version, at_s, transition, member)
        metrics.on_event(Event(id=str(version), kind="PartitionSet", job="a", line=ended))


class Readers:
    """Two servers that read the same lines."""

    def __init__(self, *lines: Line) -> None:
        store = ToldStore().store
        self.each = {name: Whereabouts(store, name) for name in ("s1", "s2")}
        for told in lines:
            for reader in self.each.values():
                reader.take(told)

    def who(self, told: Line) -> list[str]:
        return [name for name, reader in self.each.items() if reader.counts(told)]


def test_a_move_is_counted_by_the_server_that_had_the_job_when_it_ended() -> None:
    readers = Readers(given("s1", 1, 10.0), given("s2", 50, 100.0))
    assert readers.who(line("a", 40, 90.0)) == ["s1"]
    assert readers.who(line("a", 60, 110.0)) == ["s2"]
    assert readers.who(line("other", 60, 110.0)) == ["s1", "s2"], "a job that no server has is everybody's"


def test_the_order_in_which_lines_are_read_does_not_matter() -> None:
    lines = [given("s1", 1, 10.0), given("s2", 50, 100.0), given("s1", 70, 200.0)]
    for told in ([*lines], [*reversed(lines)], [lines[1], lines[0], lines[1], lines[2]]):
        assert Readers(*told).who(line("a", 60, 110.0)) == ["s2"]


def test_the_last_moments_of_a_missed_server_are_counted_by_the_next() -> None:
    missed_s = 100.0
    lines = [given("s1", 1, 10.0), given("s1", 50, missed_s, Transition.T7)]
    late, early = line("a", 40, missed_s - MISSED_S + 0.1), line("a", 30, missed_s - MISSED_S - 0.1)
    assert Readers(*lines).who(late) == [], "nobody has the job yet"
    after = Readers(*lines, given("s2", 51, missed_s))
    assert after.who(late) == ["s2"]
    assert after.who(early) == ["s1"], "it was alive, and has counted it"


def test_a_server_that_starts_knows_who_has_the_jobs() -> None:
    told = ToldStore()

    def write(tx: Transaction) -> None:
        tx.write_rows([Row(id="a", owner="s2", revision=1)])

    told.store.transact(SERVERS, write)
    found: list[tuple[str, Callable[[Line], bool]]] = [
        (name, Whereabouts(told.store, name).counts) for name in ("s1", "s2")
    ]
    assert [name for name, counts in found if counts(line("a", 5, 1.0))] == ["s2"]


def test_what_another_server_did_not_live_to_count_is_claimed() -> None:
    told = ToldStore()
    whereabouts = Whereabouts(told.store, "s2")
    metrics = Metrics(told.api, whereabouts.counts)
    whereabouts.take(given("s1", 1, 10.0))
    follow_move(metrics, 95.0)
    assert b'outcome="done"' not in metrics.exposition()
    whereabouts.take(given("s1", 50, 100.0, Transition.T7))
    whereabouts.take(given("s2", 51, 100.0))
    for _ in range(2):
        found = metrics.exposition().decode()
        assert 'poise_moves_total{job="PartitionSet/a",outcome="done",reason="gone"} 1.0' in found
        assert 'poise_moves_min_total{job="PartitionSet/a"} 1.0' in found


def counted_by_two(*, honest: bool) -> int:
    """Let two servers follow one move, and add up what both count."""
    told = ToldStore()
    found = 0
    for name in ("s1", "s2"):
        whereabouts = Whereabouts(told.store, name)
        whereabouts.take(given("s1", 1, 10.0))
        metrics = Metrics(told.api, whereabouts.counts) if honest else Metrics(told.api)
        follow_move(metrics, 50.0)
        found += 'outcome="done",reason="gone"} 1.0' in metrics.exposition().decode()
    return found


def test_servers_that_count_everything_would_count_a_move_twice() -> None:
    assert counted_by_two(honest=True) == 1
    assert counted_by_two(honest=False) == 2
