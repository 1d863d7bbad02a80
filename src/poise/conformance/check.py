"""A whole check: the stage is set, the acts are played, each is judged, and nothing is left behind."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from poise.clock import boot_s
from poise.conformance.acts import ACTS, Act
from poise.conformance.gate import Gate
from poise.conformance.judging import judge
from poise.conformance.rules import Finding, Report, gather, unseen
from poise.conformance.scene import Places, Scene, Unseen
from poise.conformance.sharder import PlayedSharder
from poise.conformance.stage import Stage, set_up
from poise.errors import PoiseError
from poise.kube.client import Client

SETTLE_S = 0.3  # What was written last is seen by then.


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be checked, and how. Without rules all are; without a namespace the check makes one."""

    command: tuple[str, ...]
    ring: str
    namespace: str | None = None
    lease_s: int = 5
    at_once: int = 1
    rules: tuple[str, ...] = ()
    logs: Path | None = None
    timeout_s: float = 600.0

    @property
    def acts(self) -> tuple[Act, ...]:
        """The acts that show these rules."""
        return tuple(act for act in ACTS if not self.rules or set(act.rules) & set(self.rules))


class Progress(msgspec.Struct, frozen=True):
    """How far a check is."""

    done: int
    total: int
    text: str


async def check(
    client: Client, wanted: Wanted, tell: Callable[[Progress], None], warn: Callable[[str], None]
) -> Report:
    """Run COMMAND in every act and report each rule; whatever happens, processes are ended and objects removed."""
    began_s = boot_s()
    try:
        async with (
            asyncio.timeout(wanted.timeout_s),
            set_up(client, wanted.ring, wanted.namespace, wanted.lease_s, warn) as stage,
        ):
            findings = await _play_all(stage, wanted, tell)
    except TimeoutError:
        raise PoiseError(
            f"the check was not done after {wanted.timeout_s:.0f} s: give it more with --timeout"
        ) from None
    rules = gather(findings, wanted.rules)
    return Report(
        ring=wanted.ring,
        command=wanted.command,
        seconds=round(boot_s() - began_s, 1),
        conforms=all(each.outcome == "passed" for each in rules),
        rules=rules,
    )


async def _play_all(stage: Stage, wanted: Wanted, tell: Callable[[Progress], None]) -> list[Finding]:
    """Play the acts, so many at once, behind one gate."""
    sharder, gate = PlayedSharder(stage), Gate(stage)
    turns, findings, done = asyncio.Semaphore(wanted.at_once), [], 0

    async def take_turn(act: Act, places: Places) -> None:
        nonlocal done
        async with turns:
            tell(Progress(done, len(wanted.acts), act.says))
            findings.extend(await _play(act, Scene(act.name, stage, gate, sharder, wanted.command, places)))
            done += 1

    with _places(wanted.logs) as places:
        async with gate.open():
            mending = asyncio.create_task(sharder.mend_on())
            try:
                async with asyncio.TaskGroup() as group:
                    for act in wanted.acts:
                        group.create_task(take_turn(act, places))
            except ExceptionGroup as error:
                raise error.exceptions[0] from None  # What one act stumbles on, the others do as well.
            finally:
                mending.cancel()
                await asyncio.gather(mending, return_exceptions=True)
                await _remove_created(stage, gate)
    return findings


async def _play(act: Act, scene: Scene) -> list[Finding]:
    """Play one act and judge what was seen; what ends it early is said for all its rules."""
    cut_short: list[Finding] = []
    try:
        await act.play(scene)
        await asyncio.sleep(SETTLE_S)
    except Unseen as missing:
        scene.findings.append(missing.finding)
        cut_short = [unseen(rule, f"the act ended before that: see {missing.finding.rule}") for rule in act.rules]
    finally:
        await scene.close()
    return [*scene.findings, *judge(scene.story()), *cut_short]


@contextmanager
def _places(logs: Path | None) -> Iterator[Places]:
    with tempfile.TemporaryDirectory(prefix="poise-conformance-") as folder:
        kept = Path(folder) if logs is None else logs
        kept.mkdir(parents=True, exist_ok=True)
        yield Places(Path(folder), kept)


async def _remove_created(stage: Stage, gate: Gate) -> None:
    """Remove what shards created beside Secrets and ConfigMaps, such as Events."""
    for asked in gate.log:
        if asked.method == "POST" and asked.status == 201 and asked.answer is not None and asked.answer.metadata.uid:
            meta = asked.answer.metadata
            options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": meta.uid}}
            headers = {"content-type": "application/json"}
            with suppress(PoiseError):
                path = f"{asked.path.rstrip('/')}/{meta.name}"
                response = await stage.client.forward("DELETE", path, headers, msgspec.json.encode(options))
                await response.aclose()
