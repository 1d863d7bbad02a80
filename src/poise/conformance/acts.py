"""The acts of a check: each has an instance of its own, and leads its shard to where a rule can be kept or broken.

They are independent of each other. What they saw is judged afterwards; they themselves say only what did not happen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from poise.clock import boot_s
from poise.conformance.processes import Process
from poise.conformance.requests import LEASES, Asked, Intent
from poise.conformance.rules import failed, passed
from poise.conformance.scene import Scene
from poise.errors import Conflict
from poise.model.sharding import Marks

HELD_S = 1.2  # So long something is held up, that whoever does not wait for it shows itself.
TEMPT_S = 0.4  # So often an instance that may not act is tempted to.
EXIT_S = 40.0  # So long a process may take to end when it is asked to.


async def work(scene: Scene) -> None:
    """A new instance: it is given objects one by one, and sees those of others change, for two durations."""
    await scene.make_stray("others", Marks("somebody-else", 1))
    await scene.make_stray("free")
    process = await scene.start()
    await scene.holds(process)
    began_s = boot_s()
    first = ""
    for number in (1, 2, 3):
        name = await scene.give(f"own{number}", unconfirmed_s=scene.lease_s / 4)
        first = first or name
        await scene.touch_strays()
    while boot_s() < began_s + 2.2 * scene.lease_s:
        await scene.touch_strays()
        await asyncio.sleep(scene.lease_s / 4)
    since_s = boot_s()
    await scene.sharder.touch(first)
    await scene.acts(first, since_s)


async def hand_over(scene: Scene) -> None:
    """What it has is asked for: while a reconcile runs, while somebody else writes, and for nobody."""
    process = await scene.start()
    await scene.holds(process)
    await _hand_over_busy(scene, await scene.give("busy", children=2))
    await _hand_over_redirected(scene, await scene.give("moved"))
    await _take_back(scene, await scene.give("kept"))
    name = await scene.give("nobody")
    await scene.ask_back(name, "")
    await scene.given_away(name, "empty-drain")


async def _hand_over_busy(scene: Scene, name: str) -> None:
    """Hold a reconcile up, ask for its object, then hold up the hand-over of a child."""
    reconcile, child = scene.hold_reconcile(name), scene.hold_hand_over("configmaps", name)
    try:
        await scene.sharder.touch(name)
        await scene.caught(reconcile, "take-up-gains", f"the Secret {name} was changed and nothing was written for it")
        await scene.ask_back(name, f"next1-{scene.instance}")
        await asyncio.sleep(HELD_S)
        reconcile.let_go()
        told = f"the Secret {name} was asked for and not handed over"
        await scene.until(
            "handover-form", told, lambda: bool(child.caught) or not scene.has(name), scene.patience_s, alive=scene.last
        )
        await asyncio.sleep(HELD_S if child.caught else 0.0)
    finally:
        reconcile.let_go()
        child.let_go()
    await scene.given_away(name, "handover-form")


async def _hand_over_redirected(scene: Scene, name: str) -> None:
    """Hold the commit up, and meanwhile change the object and who is to have it."""
    commit = scene.hold_hand_over("secrets", name)
    try:
        await scene.ask_back(name, f"next2-{scene.instance}")
        await scene.caught(commit, "handover-form", f"the Secret {name} was asked for and not handed over")
        await scene.redirect(name, f"next3-{scene.instance}")
        await scene.sharder.touch(name)
    finally:
        commit.let_go()
    await scene.given_away(name, "handover-with-version")


async def _take_back(scene: Scene, name: str) -> None:
    """Ask for an object while a reconcile runs, and take that back before it has ended."""
    hold = scene.hold_reconcile(name)
    try:
        await scene.sharder.touch(name)
        await scene.caught(hold, "take-up-gains", f"the Secret {name} was changed and nothing was written for it")
        await scene.ask_back(name, f"next4-{scene.instance}")
        await asyncio.sleep(HELD_S / 2)
        if not scene.has(name):
            return  # It did not wait, which is said under another rule.
        await scene.sharder.keep(name)
    finally:
        hold.let_go()
    since_s = boot_s()
    await scene.sharder.touch(name)
    told = f"the Secret {name} was asked for, that was taken back, and no write named it since"

    def went_on() -> bool:
        return scene.has_acted(name, since_s) or not scene.has(name)

    await scene.until("resume-when-kept", told, went_on, scene.patience_s, alive=scene.last)
    given = f"the Secret {name} was handed over though that had been taken back"
    scene.findings.append(passed("resume-when-kept") if scene.has(name) else failed("resume-when-kept", given))


async def leave(scene: Scene) -> None:
    """SIGTERM while a reconcile runs; then another process of the same instance."""
    process = await scene.start()
    await scene.holds(process)
    name = await scene.give("last")
    hold = scene.hold_reconcile(name)
    try:
        await scene.sharder.touch(name)
        await scene.caught(hold, "take-up-gains", f"the Secret {name} was changed and nothing was written for it")
        scene.disturb(process, "asked to leave")
        process.ask_to_leave()
        await asyncio.sleep(HELD_S)
    finally:
        hold.let_go()
    if not await process.ends_within(EXIT_S):
        scene.findings.append(failed("release-on-exit", f"the process still runs {EXIT_S:.0f} s after SIGTERM"))
    await scene.end(process)
    successor = await scene.start()
    await scene.holds(successor, 2 * scene.lease_s)
    since_s = boot_s()
    await scene.sharder.touch(name)
    await scene.acts(name, since_s)


async def come_named(scene: Scene) -> None:
    """No Lease, but an object carries the name: somebody may still act on it."""
    name = await scene.make_inherited("found")
    process = await scene.start()
    await scene.holds(process, 2 * scene.lease_s)
    looked = _first_look(scene, process)
    _judge_wait(scene, process, "wait-when-named", looked.at_s, 2 * scene.lease_s)
    await _take_up(scene, name)


async def come_held(scene: Scene) -> None:
    """A sharder holds the Lease, and once more after the process has looked at it."""
    name = await scene.make_inherited("found")
    await scene.sharder.hold(scene.instance, scene.lease_s)
    process = await scene.start()
    told = f"the Lease {scene.instance} was never read"
    await scene.until("wait-for-holder", told, lambda: bool(_looks(scene, process)), scene.start_s, alive=process)
    await asyncio.sleep(scene.lease_s / 4)
    since_s = _first_look(scene, process).at_s
    with suppress(Conflict):  # A process that has taken it already is judged by its first look.
        if scene.acquired(process) is None:
            since_s = await scene.sharder.hold(scene.instance, scene.lease_s)
    await scene.holds(process, 2 * scene.lease_s)
    _judge_wait(scene, process, "wait-for-holder", since_s, scene.lease_s)
    await _take_up(scene, name)


def _looks(scene: Scene, process: Process) -> list[Asked]:
    asked = scene.gate.of(process.name)
    return [each for each in asked if each.place is not None and each.place.plural == LEASES]


def _first_look(scene: Scene, process: Process) -> Asked:
    """Give when a process first asked for Leases: before that it cannot have observed any."""
    return _looks(scene, process)[0]


def _judge_wait(scene: Scene, process: Process, rule: str, since_s: float, wait_s: float) -> None:
    """Judge by its first write of the Lease, whether or not it succeeded at once."""
    first = next(each for each in scene.gate.of(process.name) if each.intent is Intent.LEASE and each.at_s >= since_s)
    waited_s = first.at_s - since_s
    if waited_s < wait_s:
        scene.findings.append(failed(rule, f"{first} after {waited_s:.1f} s, expected {wait_s:.0f} s or more"))
    else:
        scene.findings.append(passed(rule, f"waited {waited_s:.1f} s of {wait_s:.0f}"))


async def _take_up(scene: Scene, name: str) -> None:
    since_s = boot_s()
    await scene.sharder.touch(name)
    await scene.acts(name, since_s)


async def lose(scene: Scene) -> None:
    """Renewals are held up, all else passes; a sharder takes the Lease when it may, and they arrive after that."""
    process = await scene.start()
    await scene.holds(process)
    names = [await scene.give("one"), await scene.give("two")]
    renewals = scene.hold_renewals()
    try:
        scene.disturb(process, "cut off")
        last_s = max(asked.at_s for asked in scene.gate.of(process.name) if asked.holder)
        await _tempt(scene, names, last_s + 1.3 * scene.lease_s)
        if process.exit_code is None:
            # One that ends as it should need not be waited for.
            await _tempt(scene, names, last_s + 2 * scene.lease_s)
        await scene.sharder.hold(scene.instance, 2 * scene.lease_s)
    finally:
        renewals.let_go()
    await _tempt(scene, names, boot_s() + max(1.0, scene.lease_s / 2))


async def _tempt(scene: Scene, names: list[str], until_s: float) -> None:
    """Give it something to do all the time."""
    while boot_s() < until_s:
        for name in names:
            await scene.sharder.touch(name)
        await asyncio.sleep(TEMPT_S)


class Act(msgspec.Struct, frozen=True):
    """One act, what is said while it runs, and the rules that it shows."""

    name: str
    says: str
    play: Callable[[Scene], Awaitable[None]]
    rules: tuple[str, ...]


# A rule stands with the act that is played for it alone; it is judged in every act where it shows.
ACTS: tuple[Act, ...] = (
    Act(
        "work",
        "it is given objects",
        work,
        ("lease-upkeep", "list-after-acquiring", "take-up-gains", "confirm-gains", "only-own-objects"),
    ),
    Act(
        "handover",
        "it is asked for objects",
        hand_over,
        (
            *("stop-when-drained", "resume-when-kept", "handover-after-reconcile", "children-before-root"),
            *("handover-form", "empty-drain", "handover-with-version"),
        ),
    ),
    Act("leave", "it is asked to leave, and comes back", leave, ("unique-holder", "release-on-exit")),
    Act("named", "it comes where objects carry its name", come_named, ("wait-when-named", "act-as-holder")),
    Act("held", "it comes while a sharder holds its Lease", come_held, ("wait-for-holder", "fence-inherited")),
    Act("loss", "it is cut off from its Lease", lose, ("lease-with-version", "no-write-after-loss")),
)
