"""What every act needs: an instance of its own, its processes, its Secrets, and patience that ends.

An act waits for what it wants to see. What does not come in time ends the act: it is said under the rule that was
looked at, and what would have come later is not observed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from poise.clock import boot_s
from poise.conformance.gate import Gate, Hold
from poise.conformance.processes import Casting, Process, write_kubeconfig
from poise.conformance.requests import Asked, Intent
from poise.conformance.rules import Finding, failed
from poise.conformance.sharder import PlayedSharder
from poise.conformance.stage import Stage, refuse_intruder
from poise.conformance.story import Drain, Ending, Gain, Life, Story, Version
from poise.model.sharding import Marks

START_S = 45.0  # So long a process may take from its start to its first request.
LOOK_S = 0.05


class Unseen(Exception):
    """Something did not happen in time: the act ends, and the finding says what is missing."""

    def __init__(self, finding: Finding) -> None:
        """Carry what is to be reported."""
        super().__init__(finding.seen)
        self.finding = finding


class Places(NamedTuple):
    """Where files are: kubeconfigs for the time of the check, and what COMMAND says, which may be kept."""

    kubeconfigs: Path
    logs: Path


class Scene:
    """One act with one instance; all its names end with the run's, so that they occur nowhere else."""

    def __init__(
        self, name: str, stage: Stage, gate: Gate, sharder: PlayedSharder, command: Sequence[str], places: Places
    ) -> None:
        """Prepare; nothing runs yet."""
        self.name, self.stage, self.gate, self.sharder = name, stage, gate, sharder
        self.instance = f"{name}-{stage.run}"
        self.lease_s = float(stage.lease_s)
        self.began_s = boot_s()
        self.findings: list[Finding] = []
        self._command, self._places = command, places
        self._processes: list[Process] = []
        self._lives: dict[str, Life] = {}
        self._gains: list[Gain] = []
        self._drains: list[Drain] = []
        self._names: list[str] = []
        self._strays: list[str] = []
        self._inherited: list[Gain] = []

    @property
    def last(self) -> Process:
        """The process that was started last."""
        return self._processes[-1]

    @property
    def start_s(self) -> float:
        """How long a process may take from its start to its first request."""
        return START_S

    @property
    def patience_s(self) -> float:
        """How long anything may take that a shard does by itself."""
        return max(20.0, 4 * self.lease_s)

    # Processes.

    async def start(self) -> Process:
        """Start COMMAND once more."""
        number = len(self._processes) + 1
        name = f"{self.instance}#{number}"
        path = self._places.kubeconfigs / f"{self.name}-{number}"
        write_kubeconfig(path, self.gate.admit(name), self.stage.namespace)
        casting = Casting(
            ring=self.stage.ring,
            namespace=self.stage.namespace,
            instance=self.instance,
            lease_s=self.stage.lease_s,
            kubeconfig=path,
        )
        process = await Process.start(name, self._command, casting, self._places.logs / f"{self.name}-{number}.log")
        self._processes.append(process)
        self._lives[name] = Life(name)
        return process

    async def holds(self, process: Process, wait_s: float = 0.0) -> None:
        """Wait until a process holds the Lease; `wait_s` is what it must wait by itself."""
        told = f"no Lease {self.instance} of {self.stage.namespace} was taken"
        await self.until(
            "lease-upkeep", told, lambda: self.acquired(process) is not None, START_S + wait_s, alive=process
        )

    def acquired(self, process: Process) -> Asked | None:
        """Give the write by which a process took the Lease."""
        return next((asked for asked in self.gate.of(process.name) if asked.holder), None)

    def disturb(self, process: Process, ending: Ending = "") -> None:
        """Note that from now on the upkeep of its Lease is not its own matter any more, and why."""
        self._lives[process.name] = Life(process.name, boot_s(), ending)

    async def end(self, process: Process) -> None:
        """End a process now, and whatever it left."""
        if self._lives[process.name].until_s is None:
            self.disturb(process)
        await process.end()
        self.gate.dismiss(process.name)

    async def close(self) -> None:
        """End everything."""
        for process in self._processes:
            await self.end(process)

    # Secrets.

    async def make(self, role: str, marks: Marks | None = None, children: int = 0) -> str:
        """Make a Secret of this act."""
        name = f"{self.name}-{role}-{self.stage.run}"
        self.gate.names.append(name)
        self._names.append(name)
        await self.sharder.make_root(name, marks, children)
        return name

    async def make_stray(self, role: str, marks: Marks | None = None) -> None:
        """Make a Secret that is none of this instance's business."""
        self._strays.append(await self.make(role, marks))

    async def make_inherited(self, role: str) -> str:
        """Make a Secret, with a child, that carries the name of this instance before it runs."""
        epoch = 3
        name = await self.make(role, Marks(self.instance, epoch), children=1)
        self._inherited.append(Gain(name, boot_s(), epoch))
        return name

    async def give(self, role: str, children: int = 0, *, unconfirmed_s: float = 0.0) -> str:
        """Make a Secret, give it to this instance, and see that it is reconciled.

        For a while renewals may be held up: so nothing can confirm the gain, and whoever does not wait shows itself.
        """
        name = await self.make(role, children=children)
        renewals = self.hold_renewals() if unconfirmed_s else None
        try:
            sent_s = await self.sharder.give(name, self.instance)
            self._gains.append(Gain(name, sent_s, 1))
            while boot_s() < sent_s + unconfirmed_s and not self._is_touched(name):
                await asyncio.sleep(LOOK_S)
        finally:
            if renewals is not None:
                renewals.let_go()
        await self.acts(name, sent_s)
        self.findings.append(Finding("take-up-gains", "passed"))
        return name

    def hold_renewals(self) -> Hold:
        """Hold all writes of the Lease by the process that was started last."""
        process = self.last.name
        return self.gate.hold(lambda asked: asked.process == process and asked.intent is Intent.LEASE, once=False)

    def _is_touched(self, name: str) -> bool:
        return any(asked.intent is Intent.ACT and name in asked.roots for asked in self.gate.log)

    async def acts(self, name: str, since_s: float) -> None:
        """Wait until a write for this Secret has succeeded that came since then."""
        told = f"no write named the Secret {name} after it was given to {self.instance} or changed"
        await self.until("take-up-gains", told, lambda: self.has_acted(name, since_s), self.patience_s, alive=self.last)

    def has_acted(self, name: str, since_s: float) -> bool:
        """Say whether a write for this Secret has succeeded that came since then."""
        return any(
            asked.intent is Intent.ACT and asked.succeeded and name in asked.roots and asked.at_s >= since_s
            for asked in self.gate.log
        )

    async def touch_strays(self) -> None:
        """Change the strays: whoever acts on them is seen."""
        for name in self._strays:
            await self.sharder.touch(name)

    async def ask_back(self, name: str, target: str) -> None:
        """Ask for a Secret; those of its children count that are copies of it now."""
        root = self.stage.marks("secrets", name)
        copies = Marks(root.shard, root.epoch)
        children = [child for child in self.sharder.children(name) if self.stage.marks("configmaps", child) == copies]
        self._drains.append(Drain(name, boot_s(), target, tuple(children)))
        await self.sharder.ask_back(name, target)

    async def redirect(self, name: str, target: str) -> None:
        """Say that somebody else is to have what was asked for; its children may then be with either."""
        self._drains = [
            Drain(each.root, each.at_s, each.target, redirected=True) if each.root == name else each
            for each in self._drains
        ]
        await self.sharder.ask_back(name, target)

    def hold_reconcile(self, name: str) -> Hold:
        """Hold the next write of a reconcile of this Secret."""
        return self.gate.hold(lambda asked: asked.intent is Intent.ACT and name in asked.roots)

    def hold_hand_over(self, plural: str, name: str) -> Hold:
        """Hold the next hand-over of this Secret, or of one of its children."""

        def fits(asked: Asked) -> bool:
            here = asked.place is not None and asked.place.plural == plural
            return here and asked.intent is Intent.HAND_OVER and name in asked.roots

        return self.gate.hold(fits)

    async def caught(self, hold: Hold, rule: str, told: str) -> Asked:
        """Wait until something is held."""
        await self.until(rule, told, lambda: bool(hold.caught), self.patience_s, alive=self.last)
        return self.gate.log[hold.caught[0]]

    async def given_away(self, name: str, rule: str) -> None:
        """Wait until a Secret does not carry this instance's name any more."""
        told = f"the Secret {name} was asked for and not handed over"
        await self.until(rule, told, lambda: not self.has(name), self.patience_s, alive=self.last)

    def has(self, name: str) -> bool:
        """Say whether a Secret carries this instance's name."""
        return self.stage.marks("secrets", name).shard == self.instance

    # Waiting, and what comes of it.

    async def until(
        self, rule: str, told: str, holds: Callable[[], bool], within_s: float, *, alive: Process | None = None
    ) -> None:
        """Wait until something holds. Unseen where it does not in time, or where the process ends before."""
        end_s = boot_s() + within_s
        while not holds():
            refuse_intruder(self.stage)
            if alive is not None and alive.exit_code is not None:
                raise Unseen(failed(rule, f"{told}: {alive.end_told}"))
            if boot_s() >= end_s:
                raise Unseen(failed(rule, f"{told} within {within_s:.0f} s"))
            await asyncio.sleep(LOOK_S)

    def story(self) -> Story:
        """Give all that was seen of this act."""
        mine = {process.name for process in self._processes}
        uids = {meta.uid for (_, name), meta in self.stage.metas.items() if name in self._names}

        def concerns(each: Version) -> bool:
            named = any(name in each.name for name in self._names)
            return each.name == self.instance or each.parent in uids or named

        return Story(
            instance=self.instance,
            ring=self.stage.ring,
            namespace=self.stage.namespace,
            lease_s=self.lease_s,
            began_s=self.began_s,
            asked=tuple(asked for asked in self.gate.log if asked.process in mine),
            names=tuple(self._names),
            versions=tuple(filter(concerns, self.stage.versions)),
            lives=tuple(self._lives.values()),
            gains=tuple(self._gains),
            inherited=tuple(self._inherited),
            drains=tuple(self._drains),
            strays=tuple(self._strays),
        )
