"""Simulates a spot market for the demo: it replays a trace of interruptions, and pretends to do what Poise asks for.

Nothing runs here: replicas are only counted, and reported to the server as any observer of a real platform would.
"""

from __future__ import annotations

import argparse
import csv
import http.client
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from importlib.resources import files
from typing import NamedTuple, TypeVar

import msgspec

from poise import clock
from poise.demo.names import SPOT

_TURN_S = 2.0
_ANSWER_S = 5.0
_JOB = f"/v1/jobs/CapacitySplit/{SPOT}"
# The server is on this machine: a proxy of the environment would look for it on its own.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# What each action changes: spot replicas, and on-demand ones.
_EFFECTS = {
    "scale-up-spot": (1, 0),
    "scale-down-spot": (-1, 0),
    "scale-up-on-demand": (0, 1),
    "scale-down-on-demand": (0, -1),
    "migrate-to-spot": (1, -1),
    "migrate-to-on-demand": (-1, 1),
}


class Interruption(NamedTuple):
    """So many spot replicas are taken away, at this second of every round."""

    second: int
    workload: str
    taken: int


class Trace(NamedTuple):
    """Interruptions that come again and again, by the wall clock: whoever starts later is at the same place."""

    interruptions: tuple[Interruption, ...]
    length_s: int

    def between(self, before_s: float, now_s: float) -> Iterator[Interruption]:
        """Give what falls between two instants that are less than a round apart."""
        for each in self.interruptions:
            if (each.second - before_s) % self.length_s < now_s - before_s:
                yield each


def read_trace(text: str, rest_s: int = 50) -> Trace:
    """Read a trace; after its last line the market rests for a while."""
    rows = list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
    read = tuple(Interruption(int(row["second"]), row["workload"], int(row["taken"])) for row in rows)
    return Trace(read, max(each.second for each in read) + rest_s)


class Counted(msgspec.Struct, rename="camel"):
    """The replicas of one workload; `interrupted` is said of one report only."""

    spot: int = 0
    on_demand: int = 0
    ready_on_demand: int = 0
    interrupted: int = 0


class _Next(msgspec.Struct):
    action: str
    waits: dict[str, object] | None
    desired: Counted


class _Plan(msgspec.Struct):
    workloads: dict[str, _Next]


class _Status(msgspec.Struct):
    workloads: dict[str, Counted] = {}


class _Document(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


Shape = TypeVar("Shape")


class Market:
    """The counts of every workload, which a trace shrinks and the actions of Poise mend."""

    def __init__(self, server: str) -> None:
        """Know nothing yet: the first turn asks."""
        self._server = server
        self._counts: dict[str, Counted] | None = None

    def turn(self, taken: list[Interruption]) -> None:
        """Take replicas away, or else let every workload take its next action; then report."""
        if self._counts is None:
            self._counts = self._begin()
        elif taken:
            self._interrupt(self._counts, taken)
        else:
            self._act(self._counts)
        self._ask("PUT", "/status", _Status(self._counts), _Document)

    def _begin(self) -> dict[str, Counted]:
        """Begin where the last report ended; a market that was never seen has what it should have."""
        reported = self._ask("GET", "", None, _Document).status.workloads
        planned = self._ask("GET", "/plan", None, _Plan).workloads
        return {name: reported.get(name, each.desired) for name, each in planned.items()}

    def _interrupt(self, counts: dict[str, Counted], taken: list[Interruption]) -> None:
        """Take spot replicas away; `interrupted` says how many."""
        for each in taken:
            if each.workload in counts:
                counted = counts[each.workload]
                counted.interrupted = min(each.taken, counted.spot)
                counted.spot -= counted.interrupted

    def _act(self, counts: dict[str, Counted]) -> None:
        """Do what the plan says is next, where nothing holds it back: a new replica is ready by the next report."""
        planned = self._ask("GET", "/plan", None, _Plan).workloads
        for name in counts.keys() - planned.keys():
            del counts[name]
        for name, each in planned.items():
            counted = counts.setdefault(name, Counted())
            counted.ready_on_demand, counted.interrupted = counted.on_demand, 0
            spot, on_demand = _EFFECTS.get(each.action, (0, 0)) if each.waits is None else (0, 0)
            counted.spot += spot
            counted.on_demand += on_demand
            counted.ready_on_demand = min(counted.ready_on_demand, counted.on_demand)

    def _ask(self, method: str, path: str, body: object, shape: type[Shape]) -> Shape:
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._server}{_JOB}{path}", data, headers, method=method)
        with _DIRECT.open(request, timeout=_ANSWER_S) as response:
            return msgspec.json.decode(response.read(), type=shape)


def main(arguments: list[str]) -> None:
    """Replay until the demo ends; a server that does not answer is asked again."""
    parser = argparse.ArgumentParser(prog="replayer")
    parser.add_argument("--server", required=True)
    market = Market(parser.parse_args(arguments).server)
    trace = read_trace((files("poise.demo") / "interruptions.csv").read_text())
    before_s = clock.now().timestamp()
    while True:
        now_s = clock.now().timestamp()
        # A server that ends in the middle of an answer is no reason to end with it.
        with suppress(OSError, http.client.HTTPException, msgspec.DecodeError):
            market.turn(list(trace.between(before_s, now_s)))
        before_s = now_s
        time.sleep(_TURN_S)
