"""A chaos run: shards and operators are killed, frozen and scaled, the API server is restarted; then all comes to rest.

Everything is drawn from one seed: what happens when, and to whom. The judgement is the auditor's.
"""

from __future__ import annotations

import random
import signal
from bisect import insort
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import httpx2
from tests.cluster.audit_case import Case, Fault, Patch, Terms
from tests.cluster.audit_lines import boot_s, read_audit
from tests.cluster.auditor import audit, gaps, late_patches, taken_from_frozen
from tests.cluster.fleet import LEAD_S, Fleet
from tests.cluster.late_writes import deliver_late, stuck_reconciles
from tests.cluster.ring_world import RING, Observer, make_world, plain_rate, read_finals, release_brake, wanted_owners
from tests.cluster.world import Cluster, install_definitions

LEASE_S, PERIOD_S, CHILD_PERIOD_S = 5, 8.0, 20.0
FAMILIES, CHAOS_S = 500, 90.0
_SETTLE_S, _LOOK_S = 120.0, 2.0
SHARD_OPTIONS = ("--period", str(PERIOD_S), "--child-period", str(CHILD_PERIOD_S))
# Each kind of these happens at least once, later where it cannot be at its time; in between more is drawn.
_SURE = ("kill", "kill", "freeze", "freeze", "nap", "kill leader", "freeze leader", "api")
_DRAWN = ("kill", "freeze", "nap")


class Act(NamedTuple):
    """One thing to do, so long after the beginning."""

    at_s: float
    kind: str


def draw_acts(chance: random.Random, seconds: float) -> list[Act]:
    """Draw what happens: the sure acts and some more in any order, and the scaling at a third and two thirds."""
    kinds = [*_SURE, *chance.choices(_DRAWN, k=4)]
    chance.shuffle(kinds)
    step_s = seconds / (len(kinds) + 1)
    acts = [Act((place + chance.uniform(0.2, 0.9)) * step_s, kind) for place, kind in enumerate(kinds)]
    return sorted([*acts, Act(seconds / 3, "scale 6"), Act(seconds * 2 / 3, "scale 2")])


class Story(NamedTuple):
    """A run and its judgement."""

    seed: int
    case: Case
    findings: list[str]
    told: tuple[str, ...]

    def __str__(self) -> str:
        """Read as a report: the seed first, so that the run can be repeated."""
        case = self.case
        outcomes = Counter(patch.outcome for patch in case.patches)
        late = Counter(patch.outcome for patch, _ in late_patches(case))
        slow_s = sum(end_s - begin_s for begin_s, end_s in case.stalls)
        alone = sum(fault.kind == "end" for fault in case.faults)
        longest = max(gaps(case), key=lambda gap: gap.length_s, default=None)
        lines = [
            f"POISE_SEED={self.seed}: {len(case.finals)} objects, {len(case.reconciles)} reconciles",
            f"writes {dict(outcomes)}, late ones {dict(late)}, taken from frozen ones {len(taken_from_frozen(case))}",
            f"{len(case.processes)} processes of shards, of which {alone} ended by themselves",
            f"longest without a write: {longest}; the API server was slow for {slow_s:.1f} s",
            *self.told,
            *self.findings[:40],
        ]
        return "\n".join(lines)


class Chaos:
    """One run on a control plane of its own."""

    def __init__(self, cluster: Cluster, fleet: Fleet, observer: Observer, seed: int) -> None:
        """Draw from the seed."""
        self._cluster, self._fleet, self._observer = cluster, fleet, observer
        self._chance = random.Random(seed)
        self._thaws: list[tuple[float, str]] = []
        self._shaky: dict[str, float] = {}
        self._leaderless: tuple[float, datetime] | None = None
        self._looked_s = self._began_s = boot_s()
        self._braked_s: float | None = None
        self.told: list[str] = []
        self.late: list[Patch] = []

    def run(self, seconds: float) -> None:
        """Do everything in its time, then let all who stand still go on."""
        self._began_s = boot_s()
        acts, done = draw_acts(self._chance, seconds), set[str]()
        while acts or boot_s() < self._began_s + seconds:
            assert boot_s() < self._began_s + seconds + _SETTLE_S, "\n".join([f"never done: {acts}", *self.told])
            if acts and boot_s() >= self._began_s + acts[0].at_s:
                kind = acts.pop(0).kind
                if self._act(kind):
                    done.add(kind)
                elif kind in _SURE and kind not in done:
                    insort(acts, Act(boot_s() - self._began_s + _LOOK_S, kind))
            self._pass_time()
        end_s = boot_s() + _SETTLE_S
        while self._thaws or self._leaderless is not None:
            assert boot_s() < end_s, "\n".join(["nobody leads again", self._fleet.told(), *self.told])
            self._pass_time()

    def settle(self, wanted: dict[str, str]) -> None:
        """Wait until every root is where it belongs."""
        began_s = boot_s()
        while not _is_at_rest(self._observer, wanted):
            if boot_s() > began_s + _SETTLE_S:
                told = [*self.told, *_unrest(self._observer, wanted), _shown(self._cluster, self._fleet.namespace)]
                raise AssertionError("\n".join(["no rest", self._fleet.told(), *told]))
            self._pass_time()
        self._tell(f"at rest, after {boot_s() - began_s:.1f} s")

    def _pass_time(self) -> None:
        self._fleet.sleep(0.1)
        self._mind_brake()
        for due_s, name in [each for each in self._thaws if each[0] <= boot_s()]:
            self._thaws.remove((due_s, name))
            if name in self._fleet.parts and self._fleet.parts[name].frozen_s is not None:
                self._thaw(name)
        # Whoever was hit may lead again, as a new process or late: what counts is a renewal since then.
        if self._leaderless is not None and (leader := self._fleet.leader(self._leaderless[1])):
            self._fleet.faults.append(Fault(self._leaderless[0], "leader", until_s=boot_s()))
            self._tell(f"{leader} leads")
            self._leaderless = None

    def _mind_brake(self) -> None:
        """Do what people do: a brake that holds for long, since some never return, is released by hand."""
        if boot_s() < self._looked_s + _LOOK_S:
            return
        self._looked_s = boot_s()
        if not _is_braked(self._cluster, self._fleet.namespace):
            if self._braked_s is not None:
                self._fleet.faults.append(Fault(self._braked_s - _LOOK_S, "brake", until_s=boot_s()))
                self._tell("the brake is open")
            self._braked_s = None
        elif self._braked_s is None:
            self._braked_s = boot_s()
            self._tell("the brake holds")
        elif boot_s() > self._braked_s + 2 * LEASE_S:
            self._cluster.run(lambda client: release_brake(client, self._fleet.namespace))

    def _thaw(self, name: str) -> None:
        """Let a process go on; what it had on its way arrives now."""
        part = self._fleet.parts[name]
        stuck = stuck_reconciles(self._fleet.audit, part.pid, part.frozen_s or 0.0)
        self._fleet.thaw(name)
        self._tell(f"{name} goes on; {len(stuck)} reconciles stood still")
        self.late += deliver_late(self._cluster, self._observer, self._fleet.ring, stuck)

    def _act(self, kind: str) -> bool:
        """Do one thing; False where it cannot be done now."""
        match kind.split():
            case ["scale", count]:
                self._scale(int(count))
            case ["api"]:
                self._restart_api()
            case [what, "leader"]:
                return self._hit_leader(what)
            case [what]:
                return self._hit_shard(what)
        return True

    def _hit_shard(self, what: str) -> bool:
        """Hit one that runs, but never more than half of them at a time: then the brake would hold everything."""
        names = self._fleet.names()
        recently_s = boot_s() - 2 * LEASE_S
        shaky = [name for name in names if self._shaky.get(name, 0.0) > recently_s]
        steady = [name for name in names if name in self._fleet.parts and name not in shaky]
        if not steady or (2 * (len(shaky) + 1) > len(names) and what != "nap"):
            self._tell(f"no {what}: {len(shaky)} of {len(names)} are not back yet")
            return False
        name = self._chance.choice(steady)
        self._tell(f"{what} {name}")
        if what == "kill":
            self._shaky[name] = boot_s() + LEASE_S
            self._fleet.kill(name)
        else:
            length_s = 0.3 * LEASE_S if what == "nap" else self._chance.uniform(2.2, 3.2) * LEASE_S
            if what != "nap":
                self._shaky[name] = boot_s() + length_s
            self._freeze(name, length_s)
        return True

    def _freeze(self, name: str, length_s: float) -> None:
        self._fleet.freeze(name)
        self._thaws.append((boot_s() + length_s, name))

    def _hit_leader(self, what: str) -> bool:
        leader = self._fleet.leader()
        if self._leaderless is not None or leader not in self._fleet.parts:
            self._tell(f"no {what}: nobody leads")
            return False
        self._tell(f"{what} the leader {leader}")
        at_s = boot_s()
        if what == "kill":
            self._fleet.kill(leader)
        else:
            self._freeze(leader, 2.5 * LEAD_S)
        self._leaderless = (at_s, datetime.now(UTC))
        return True

    def _restart_api(self) -> None:
        at_s = boot_s()
        self._cluster.plane.end("kube-apiserver", self._chance.choice((signal.SIGKILL, signal.SIGTERM)))
        self._cluster.plane.start_api()
        self._fleet.faults.append(Fault(at_s, "api", until_s=boot_s()))
        self._tell(f"the API server was away for {boot_s() - at_s:.1f} s")

    def _scale(self, count: int) -> None:
        names = self._fleet.names()
        self._tell(f"scale {len(names)} -> {count}")
        for number in range(count):
            if f"s-{number}" not in names:
                self._fleet.start_shard(f"s-{number}", *SHARD_OPTIONS)
        for name in names[count:]:
            self._fleet.dismiss(name)

    def _tell(self, text: str) -> None:
        self.told.append(f"{boot_s() - self._began_s:6.1f} s  {text}")


def run_chaos(
    cluster: Cluster, namespace: str, folder: Path, seed: int, *, seconds: float = CHAOS_S, families: int = FAMILIES
) -> Story:
    """Play one run: 4 shards and 2 operators, chaos, rest, judgement."""
    cluster.run(install_definitions)
    cluster.run(lambda client: make_world(client, namespace, families, leaseSeconds=LEASE_S, drainTimeoutSeconds=10))
    rate = cluster.run(lambda client: plain_rate(client, namespace, families))
    with (
        Fleet(cluster, namespace, folder) as fleet,
        Observer(cluster.kubeconfig(), namespace, fleet.ring) as observer,
    ):
        for number in range(2):
            fleet.start_operator(f"op-{number}")
        for number in range(4):
            fleet.start_shard(f"s-{number}", *SHARD_OPTIONS)
        fleet.wait(lambda: _is_shared_out(observer, 2 * families, 4), 120, "everything is shared out")
        from_s = boot_s()
        chaos = Chaos(cluster, fleet, observer, seed)
        chaos.run(seconds)
        instances = fleet.names()
        wanted = cluster.run(lambda client: wanted_owners(client, namespace, instances))
        chaos.settle(wanted)
        fleet.sleep(CHILD_PERIOD_S)
        case = Case(
            Terms(LEASE_S, PERIOD_S, CHILD_PERIOD_S, _catch_up_s(families, rate)),
            from_s,
            boot_s(),
            (audited := read_audit(fleet.audit))[0],
            (*audited[1], *chaos.late),
            fleet.processes(),
            tuple(fleet.faults),
            tuple(observer.sightings),
            cluster.run(lambda client: read_finals(client, namespace)),
            wanted,
            tuple(observer.stalls),
        )
    return Story(seed, case, audit(case), tuple(chaos.told))


def _catch_up_s(families: int, rate: float) -> float:
    """Say what the writes of a takeover take: one of two instances has half of all objects, each is written twice."""
    return 2 * families / 2 * 2 / rate


def _is_shared_out(observer: Observer, objects: int, instances: int) -> bool:
    marks = observer.marks.values()
    return len([each for each in marks if each.shard]) == objects and len({each.shard for each in marks}) == instances


def _is_at_rest(observer: Observer, wanted: dict[str, str]) -> bool:
    """Say whether every root is where it belongs; its children follow before it does."""
    marks = observer.marks
    return all(marks[uid].shard == owner and marks[uid].drain is None for uid, owner in wanted.items())


def _unrest(observer: Observer, wanted: dict[str, str]) -> list[str]:
    """Count what is not where it belongs, by who has it, who should and who is asked for it."""
    marks = observer.marks
    found = Counter(
        f"with {marks[uid].shard}, wanted {owner}, drain {marks[uid].drain}"
        for uid, owner in wanted.items()
        if marks[uid].shard != owner or marks[uid].drain is not None
    )
    return [f"{count} {what}" for what, count in found.most_common()]


def _shown(cluster: Cluster, namespace: str) -> str:
    """Read the ring and all Leases, for a run that fails."""
    return "\n".join(
        _text(cluster, path)
        for path in (_ring_path(namespace), f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
    )


def _is_braked(cluster: Cluster, namespace: str) -> bool:
    """Read whether the brake holds; nobody can say while there is no API server."""
    try:
        return '"reason":"Braked"' in _text(cluster, _ring_path(namespace))
    except httpx2.HTTPError:
        return False


def _ring_path(namespace: str) -> str:
    return f"/apis/poise.dev/v1alpha1/namespaces/{namespace}/shardrings/{RING}"


def _text(cluster: Cluster, path: str) -> str:
    with cluster.plane.client() as client:
        return client.get(path, timeout=5).text
