"""The control plane, the fleets and the meters of the Kubernetes figures: real processes, measured from outside."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import httpx2
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fleet import Fleet, Part
from tests.cluster.ring_world import Observer, make_world, plain_rate, wanted_owners
from tests.cluster.world import Cluster, install_definitions, started

from benchmarks.measure import process_cpu_s
from poise.kube import Client

Result = TypeVar("Result")
IN_FLIGHT = 32
REST_S = 600.0
_QUIET_S = 1.5
# They note what they reconcile, and write nothing: what is measured is the moving.
SILENT = ("--silent", "--period", "3600", "--child-period", "3600", "--at-once", "16")
_ANSWERS = re.compile(r"answers on (http://[0-9.:]+)")


@contextmanager
def own_cluster(folder: Path) -> Iterator[Cluster]:
    """Start a control plane that knows the kinds of Poise."""
    with started(ControlPlane(folder)) as cluster:
        cluster.run(install_definitions)
        yield cluster


class Site:
    """One ring in a namespace of its own: an operator, shards that only note, and an observer."""

    def __init__(self, cluster: Cluster, fleet: Fleet, observer: Observer) -> None:
        """Measure what runs."""
        self.cluster, self.fleet, self.observer, self.namespace = cluster, fleet, observer, fleet.namespace

    def ask(self, scenario: Callable[[Client], Awaitable[Result]]) -> Result:
        """Play a scenario with a client of the admin, however long it takes."""

        async def played() -> Result:
            async with self.cluster.connect() as client:
                return await scenario(client)

        return asyncio.run(played())

    def start_shards(self, *names: str, options: tuple[str, ...] = ()) -> None:
        """Start shards."""
        for name in names:
            self.fleet.start_shard(name, *SILENT, *options)

    def rest(self, instances: int, within_s: float = REST_S) -> None:
        """Wait until every object is with one of so many instances, and nothing was written for a while."""
        quiet_s, last = time.monotonic(), -1

        def rests() -> bool:
            nonlocal quiet_s, last
            if (written := self.observer.writes.total()) != last:
                quiet_s, last = time.monotonic(), written
            return time.monotonic() > quiet_s + _QUIET_S and self._is_shared_out(instances)

        self.fleet.wait(rests, within_s, f"everything rests with {instances} instances")

    def _is_shared_out(self, instances: int) -> bool:
        marks = self.observer.marks.values()
        owners = {each.shard for each in marks}
        return bool(marks) and None not in owners and len(owners) == instances and not any(each.drain for each in marks)

    def roots(self) -> set[str]:
        """Name the Secrets by their uids."""
        return set(self.ask(lambda client: wanted_owners(client, self.namespace, ["anybody"])))

    def operator(self) -> Part:
        """The only operator."""
        return self.fleet.parts["op"]

    def number(self, name: str) -> float:
        """Read a counter of the operator off its metrics, summed over its labels."""
        found = _ANSWERS.search(self.operator().said())
        assert found is not None, "an operator says where it answers"
        lines = httpx2.get(f"{found[1]}/metrics", timeout=10).text.splitlines()
        rows = (line.rpartition(" ") for line in lines if line.startswith((f"{name}{{", f"{name} ")))
        return sum(float(value) for _, _, value in rows)

    def cpu_s(self) -> float:
        """Read the CPU seconds of the operator up to now."""
        return process_cpu_s(self.operator().pid)

    def memory_mb(self, field: str) -> float:
        """Read how much memory the operator has (VmRSS), or had at most (VmHWM)."""
        status = Path(f"/proc/{self.operator().pid}/status").read_text().splitlines()
        return int(next(line for line in status if line.startswith(field)).split()[1]) / 1024

    def plain_rate(self, count: int) -> float:
        """Measure how many label patches a second one client writes, back to back, each over the version it saw."""
        return self.ask(lambda client: plain_rate(client, self.namespace, count, IN_FLIGHT))


@contextmanager
def own_site(cluster: Cluster, folder: Path, namespace: str, families: int, **spec: object) -> Iterator[Site]:
    """Make a world of families, and start its operator."""

    async def make() -> None:
        async with cluster.connect() as client:
            await make_world(client, namespace, families, **spec)

    asyncio.run(make())
    with (
        Fleet(cluster, namespace, folder / namespace) as fleet,
        Observer(cluster.kubeconfig(), namespace) as observer,
    ):
        site = Site(cluster, fleet, observer)
        # Nobody takes its place, so it need not hurry to renew.
        fleet.start_operator("op", "--lease-seconds", "60")
        yield site
