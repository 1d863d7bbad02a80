"""The sharder on a real API server: moves, new objects, memory, crashes, releases, rolling restarts.

Rates are compared with plain label patches that one client reaches in the same run, since machines differ: 60 % of
their rate is 1.67 times their time. `--families 500` makes the large world smaller.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from tests.cluster.audit_lines import boot_s, read_audit
from tests.cluster.puppet_world import sharding
from tests.cluster.ring_world import make_families, make_family, wanted_owners
from tests.cluster.world import Cluster

from benchmarks.kube_world import Site, own_cluster, own_site
from benchmarks.measure import Row, p99_ms, show
from poise.decide.balance import rebalance
from poise.kube import Client

FAMILIES, SMALL, OBJECTS = 5_000, 1_000, 20_000
LEASE_S = 5
_SLOWER_MAX = 1 / 0.6
_RATE, _NEW, _LATE = 200, 1_000, 100
_IDLE_S = 10.0
_STABLE = ("--on-release", "restart", "--trust")


def rows(families: int = FAMILIES) -> Iterator[Row]:
    """Measure a large world, a balanced one, and a small one in which instances come and go."""
    with tempfile.TemporaryDirectory(prefix="poise-bench-") as name, own_cluster(Path(name)) as cluster:
        yield from _lives(cluster, Path(name), min(families, SMALL))
        yield from _balanced(cluster, Path(name), min(families, SMALL))
        yield from _large(cluster, Path(name), families)


def _large(cluster: Cluster, folder: Path, families: int) -> Iterator[Row]:
    with own_site(cluster, folder, "large", families) as site:
        site.start_shards("w-0", "w-1", "w-2")
        site.rest(3)
        yield from _quiet(site, families)
        yield from _joining(site, families)
        yield Row("kube: label writes of a second pass", _second_pass(site), 0, "")
        yield from _new_objects(site)
        missing = max(0, OBJECTS - len(site.observer.marks)) // 2
        site.ask(lambda client: make_families(client, site.namespace, (f"more-{each}" for each in range(missing))))
        site.rest(4)
        objects = len(site.observer.marks)
        yield Row(f"kube: memory of the operator with {objects:,} objects", site.memory_mb("VmRSS"), 200, "MB")
        yield Row(f"kube: memory of the operator with {objects:,} objects, peak", site.memory_mb("VmHWM"), None, "MB")


def _quiet(site: Site, families: int) -> Iterator[Row]:
    """Measure an operator that has nothing to do, then one that sees changes that do not concern it."""
    site.fleet.sleep(5)
    before_s, began_s = site.cpu_s(), time.perf_counter()
    site.fleet.sleep(_IDLE_S)
    idle = (site.cpu_s() - before_s) / (time.perf_counter() - began_s)
    yield Row("kube: CPU of the operator while nothing changes", idle * 100, 1, "%")
    before_s, events, began_s = site.cpu_s(), site.number("poise_watch_events_total"), time.perf_counter()
    site.plain_rate(families)
    site.rest(3)
    seen = site.number("poise_watch_events_total") - events
    spent_s = site.cpu_s() - before_s - idle * (time.perf_counter() - began_s)
    yield Row(f"kube: CPU of the operator an event, {seen:,.0f} events", spent_s / max(seen, 1) * 1e6, 100, "µs")


def _joining(site: Site, families: int) -> Iterator[Row]:
    """Let a fourth instance join; plain patches are measured right before and right after."""
    names = ("w-0", "w-1", "w-2")
    least = len(_leaving(site, names, (*names, "w-3")))
    before_rate = site.plain_rate(families)
    site.rest(3)
    since, written, owners = len(site.observer.sightings), site.observer.writes.copy(), site.observer.marks
    site.start_shards("w-3")
    site.rest(4)
    writes = site.observer.writes - written
    seen = site.observer.sightings[since:]
    rate = (before_rate + site.plain_rate(families)) / 2
    moved = {each.object for each in seen if each.shard != owners[each.object].shard}
    roots = moved & site.roots()
    slower = (seen[-1].at_s - seen[0].at_s) * rate / sum(writes.values())
    yield Row("kube: plain label patches a second, one client", rate, None, "")
    yield Row(f"kube: 3 -> 4 instances, {families:,} Secrets, moves", len(roots), least, "")
    yield Row("kube: 3 -> 4 instances, writes of a moved Secret", _mean(writes[uid] for uid in roots), 2, "")
    yield Row("kube: 3 -> 4 instances, writes of a moved ConfigMap", _mean(writes[uid] for uid in moved - roots), 1, "")
    yield Row("kube: 3 -> 4 instances, writes of what stays", sum(writes[uid] for uid in writes.keys() - moved), 0, "")
    yield Row("kube: 3 -> 4 instances, time of as many plain patches", slower, _SLOWER_MAX, "times")


def _mean(numbers: Iterator[int]) -> float:
    listed = list(numbers)
    return sum(listed) / max(len(listed), 1)


def _leaving(site: Site, before: Collection[str], after: Collection[str]) -> set[str]:
    """Find the roots that the ring itself moves: fewer moves there cannot be."""
    old = site.ask(lambda client: wanted_owners(client, site.namespace, before))
    new = site.ask(lambda client: wanted_owners(client, site.namespace, after))
    return {uid for uid, owner in old.items() if new[uid] != owner}


def _second_pass(site: Site) -> int:
    """Let another sharder look at everything that the first one left."""

    async def look(client: Client) -> int:
        async with sharding(client, site.namespace) as sharder:
            while not sharder.report.synced:
                await asyncio.sleep(0.1)
            await asyncio.sleep(3)
            return sharder.counts.label_writes

    return site.ask(look)


def _new_objects(site: Site) -> Iterator[Row]:
    """Create families at a steady rate, and see when each of their objects is first given to somebody."""
    made: dict[str, float] = {}

    async def make(client: Client) -> None:
        began_s = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(_NEW // 2):
                await asyncio.sleep(max(0.0, began_s + 2 * number / _RATE - time.perf_counter()))
                group.create_task(make_family(client, site.namespace, f"new-{number:04}", made=made))

    site.ask(make)
    site.rest(4)
    given = {each.object: each.at_s for each in reversed(site.observer.sightings) if each.shard is not None}
    took_s = [max(0.0, given[uid] - at_s) for uid, at_s in made.items()]
    yield Row(f"kube: {_RATE} new objects a second, assigned after (p99)", p99_ms(took_s) / 1000, 1, "s")
    yield Row(f"kube: {_RATE} new objects a second, assigned after (last)", max(took_s), 1, "s")


def _balanced(cluster: Cluster, folder: Path, families: int) -> Iterator[Row]:
    with own_site(cluster, folder, "even", families, policy="balanced") as site:
        site.start_shards("e-0", "e-1", "e-2")
        site.rest(3)
        owners = {uid: site.observer.marks[uid].shard for uid in site.roots()}
        plan = rebalance(owners, ["e-0", "e-1", "e-2", "e-3"], owners)
        site.start_shards("e-3")
        site.rest(4)
        moved = sum(site.observer.marks[uid].shard != owner for uid, owner in owners.items())
        what = f"kube: balanced, 3 -> 4 instances, {families:,} Secrets, moves"
        yield Row(what, moved, plan.certificate.moves_min, "")


def _lives(cluster: Cluster, folder: Path, families: int) -> Iterator[Row]:
    """Let instances leave, die and start again."""
    with own_site(cluster, folder, "lives", families, leaseSeconds=LEASE_S, restartGraceSeconds=30) as site:
        site.start_shards("a", "d")
        site.start_shards("b", "c", options=_STABLE)
        site.rest(4)
        yield from _crash(site)
        yield from _rolling(site, ("b", "c"))
        site.fleet.dismiss("c")
        site.rest(2)
        yield from _release(site)


def _crash(site: Site) -> Iterator[Row]:
    """Kill an instance, make new objects while it is expired, and wait until others have reconciled all that it had."""
    had = {uid for uid, marks in site.observer.marks.items() if marks.shard == "d"}
    killed_s, since = boot_s(), len(site.observer.sightings)
    site.fleet.kill("d", restart=False)
    site.fleet.sleep(LEASE_S + 1)
    site.ask(lambda client: make_families(client, site.namespace, (f"late-{each}" for each in range(_LATE))))
    done: dict[str, float] = {}

    def reconciled() -> bool:
        for each in read_audit(site.fleet.audit)[0]:
            if each.object in had and each.instance != "d" and each.start_s > killed_s:
                done.setdefault(each.object, each.start_s)
        return done.keys() == had

    site.fleet.wait(reconciled, 60, "everything is reconciled elsewhere")
    given = [each for each in site.observer.sightings[since:] if each.shard == "d" and each.object not in had]
    late_s = max(done.values()) - killed_s - 2 * LEASE_S
    yield Row(f"kube: crash, {len(had):,} objects reconciled elsewhere after 2·D and", late_s, 3, "s")
    yield Row("kube: crash, objects given to the expired one", len(given), 0, "")
    site.rest(3)


def _rolling(site: Site, names: Collection[str]) -> Iterator[Row]:
    """Restart instances one after the other, with a grace and stable names."""
    since, owners = len(site.observer.sightings), site.observer.marks
    for name in names:
        _restart(site, name)
    seen = site.observer.sightings[since:]
    moved = {each.object for each in seen if each.shard != owners[each.object].shard}
    yield Row("kube: rolling restart with grace and stable names, moves", len(moved), 0, "")


def _restart(site: Site, name: str) -> None:
    """Let one instance leave and come back."""
    log = site.fleet.parts[name].log
    begun = log.read_text().count(" holds ")
    site.fleet.stop(name, restart=True)
    site.fleet.wait(lambda: log.read_text().count(" holds ") > begun, 60, f"{name} is back")
    site.fleet.sleep(2)


def _release(site: Site) -> Iterator[Row]:
    """Let an instance leave, and see how soon everything that it had is with others."""
    rate = site.plain_rate(len(site.roots()))
    had = {uid for uid, marks in site.observer.marks.items() if marks.shard == "a"}
    left_s, since = boot_s(), len(site.observer.sightings)
    site.fleet.dismiss("a")
    site.rest(1)
    rate = (rate + site.plain_rate(len(site.roots()))) / 2
    took_s = max(each.at_s for each in site.observer.sightings[since:]) - left_s
    what = f"kube: termination, {len(had):,} objects are with others after"
    yield Row(what, took_s, max(1.0, len(had) * _SLOWER_MAX / rate), "s")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--families", type=int, default=FAMILIES)
    return show(rows(parser.parse_args().families))


if __name__ == "__main__":
    sys.exit(main())
