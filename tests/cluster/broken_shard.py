"""A shard that keeps the contract but for one rule: `python -m tests.cluster.broken_shard HOW`; `long` keeps them all.

It is the shard library with one guard taken away, told who it is by its environment alone. Its duty: it notes the
latest turn of a Secret's data on the Secret.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import NamedTuple

import msgspec

from poise.errors import PoiseError
from poise.hold import ring_leases, shard_lease, shard_steps, shard_view, sharding
from poise.hold.shard import Held, Shard
from poise.hold.shard_lease import OwnLease
from poise.hold.shard_runs import Runs
from poise.hold.shard_steps import Steps
from poise.hold.shard_view import Entry, View
from poise.hold.sharding import Claimant, Grip, Knowledge, SeenOwnLease, Take, Verdict, Wait
from poise.kube import Client, Lease, Meta, ObjectRef, Partial, Selection
from poise.kube import client as kube_client
from poise.kube.patches import Operation, pointer
from poise.kube.resources import SECRETS
from poise.model.sharding import LeaseWrite, Marks, SeenObject, Step, Write, label_names

RING, NAMESPACE, INSTANCE = (os.environ.get(f"POISE_{name}", "") for name in ("RING", "NAMESPACE", "INSTANCE"))


class Noted(msgspec.Struct):
    """A Secret as far as it matters here."""

    metadata: Meta = Meta()
    data: dict[str, str] = {}


def note(turn: str) -> Operation:
    """Write down the latest turn."""
    return Operation("add", pointer("metadata", "annotations"), {"seen": turn})


async def reconcile(held: Held) -> None:
    """Note the latest turn on the Secret; where it stands there already there is nothing to do."""
    read = await held.read(Noted)
    turn = read.data.get("turn", "none")
    if read.metadata.annotations.get("seen") != turn:
        await held.patch(note(turn))


# Each of these takes one guard away.


def share_a_holder() -> None:
    make = Shard.__init__

    def made(shard: Shard, **given: object) -> None:
        make(shard, **given)  # type: ignore[arg-type]  # Whatever was given is passed on.
        shard._process = "thesame"

    set_in(Shard, __init__=made)


def forget_the_ring() -> None:
    dressed = ring_leases.shard_lease

    def bare(write: LeaseWrite, old: Lease | None, *rest: object) -> Lease:
        lease = dressed(write, old, *rest)  # type: ignore[arg-type]  # Whatever was given is passed on.
        return msgspec.structs.replace(lease, metadata=msgspec.structs.replace(lease.metadata, labels={}))

    set_in(shard_lease, shard_lease=bare)


def renew_late() -> None:
    def late_s(grip: Grip, newest_gain_s: float | None, pause_s: float) -> float:
        unconfirmed = newest_gain_s is not None and newest_gain_s > grip.sent_at_s
        return grip.sent_at_s + (pause_s if unconfirmed else 1.4 * grip.duration_s)

    set_in(shard_lease, next_renewal_s=late_s)
    last_longer()


def last_longer() -> None:
    set_in(Grip, until_s=property(lambda grip: grip.sent_at_s + 20 * grip.duration_s))


def renew_any_version() -> None:
    replace = Client.replace

    async def blindly(client: Client, ref: ObjectRef, body: object, shape: type[Lease]) -> Lease:
        if not isinstance(body, Lease) or not body.spec.holder_identity:
            return await replace(client, ref, body, shape)
        return await client.patch(ref, [Operation("add", "/spec", body.spec)], shape)

    set_in(Client, replace=blindly)


def take_from_others() -> None:
    decide = sharding.claim

    def at_once(who: Claimant, lease: SeenOwnLease, now_s: float, *, named: bool) -> Take | Wait:
        later_s = now_s if lease.fact is None else now_s + 1e6
        return decide(who, lease, later_s, named=named)

    set_in(shard_lease, claim=at_once)


def take_though_named() -> None:
    decide = sharding.claim
    set_in(shard_lease, claim=lambda who, lease, now_s, *, named: decide(who, lease, now_s, named=named and False))


def act_first() -> None:
    take = OwnLease.take

    async def taken(lease: OwnLease) -> None:
        mine = Selection(SECRETS, NAMESPACE, labels=f"{label_names(RING)[0]}={INSTANCE}")
        for each in (await lease._client.list_all(mine, Partial))[0]:
            await lease._client.patch(ObjectRef(SECRETS, each.metadata.name, NAMESPACE), [note("early")], Partial)
        await take(lease)

    set_in(OwnLease, take=taken)


def list_what_was() -> None:
    def query(chosen: Selection) -> dict[str, str]:
        given = {"labelSelector": chosen.labels, "fieldSelector": chosen.fields, "resourceVersion": "0"}
        return {name: value for name, value in given.items() if value}

    set_in(Selection, query=property(query))


def trust_what_was_there() -> None:
    async def nothing(_steps: Steps, _uid: str) -> None: ...

    set_in(sharding, _was_taken_away=lambda _who, _fact: False)
    set_in(Steps, fence_first=nothing)


def trust_gains() -> None:
    set_in(sharding, _is_confirmed=lambda _grip, _known: True)


def be_curious() -> None:
    async def everywhere(held: Held) -> None:
        await reconcile(held)
        for each in (await held._client.list_all(Selection(SECRETS, NAMESPACE), Partial))[0]:
            if each.metadata.labels.get(label_names(RING)[0], INSTANCE) != INSTANCE:
                ref = ObjectRef(SECRETS, each.metadata.name, NAMESPACE)
                await held._client.patch(ref, [note("curious")], Partial)

    globals()["reconcile_now"] = everywhere


def be_idle() -> None:
    async def nothing(_held: Held) -> None: ...

    globals()["reconcile_now"] = nothing


def go_on() -> None:
    decide = sharding.verdict

    def undrained(root: SeenObject | None) -> SeenObject | None:
        if root is None:
            return None
        return msgspec.structs.replace(root, marks=Marks(root.marks.shard, root.marks.epoch))

    def verdict(
        grip: Grip | None,
        root: SeenObject | None,
        child: SeenObject | None,
        known: Knowledge | None,
        now_s: float,
        *,
        handing: bool = False,
    ) -> Verdict:
        del handing
        return decide(grip, undrained(root), child, known, now_s)

    set_in(shard_view, verdict=verdict)


def never_forget_a_drain() -> None:
    put, judge, drained = View.put, View.judge, set[str]()

    def noted(view: View, entry: Entry, now_s: float, *, inherited: bool = False) -> bool:
        if entry.seen.marks.drain is not None:
            drained.add(entry.uid)
        return put(view, entry, now_s, inherited=inherited)

    def offended(view: View, uid: str, grip: Grip | None, now_s: float, handing: Collection[str]) -> Verdict:
        return Verdict.DRAINED if uid in drained else judge(view, uid, grip, now_s, handing)

    set_in(View, put=noted, judge=offended)


def hand_over_busy() -> None:
    set_in(Runs, is_running=lambda _runs, _uids: False)


def turn_the_order() -> None:
    carry_out = Steps._carry_out

    async def turned(steps: Steps, head: Entry, step: Step) -> None:
        await carry_out(steps, head, Step(step.kind, step.groups[::-1], step.needs, step.target))

    set_in(Steps, _carry_out=turned)


def skip_an_epoch() -> None:
    set_in(Marks, next_epoch=property(lambda marks: (marks.epoch or 0) + 2))


def forget_the_epoch() -> None:
    decide = sharding.hand_over

    def forgetful(grip: Grip | None, root: SeenObject, *rest: object, **more: object) -> Step | None:
        step = decide(grip, root, *rest, **more)  # type: ignore[arg-type]  # Whatever was given is passed on.
        if step is None or root.marks.drain:
            return step
        return Step("hand over", ((Write(root.uid, root.version, Marks()),),))

    set_in(shard_steps, hand_over=forgetful)


def hand_over_any_version() -> None:
    def unguarded(meta: Meta, change: Mapping[str, object]) -> dict[str, object]:
        given = change.get("metadata", {})
        assert isinstance(given, Mapping)
        return {**change, "metadata": {**given, "uid": meta.uid}}

    set_in(kube_client, guarded=unguarded)


def leave_in_silence() -> None:
    async def release(lease: OwnLease, reason: str) -> None:
        del reason
        lease.grip = None

    set_in(OwnLease, release=release)


def leave_at_once() -> None:
    async def idle(_runs: Runs, _timeout_s: float, _hurried: Callable[[], bool] = lambda: False) -> bool:
        return True

    set_in(Runs, idle=idle)


def use_the_long_form() -> None:
    decide = sharding.hand_over
    set_in(shard_steps, hand_over=lambda *given, **more: decide(*given, **more, short=False))


def set_in(place: object, **given: object) -> None:
    """Put something in the place of a guard."""
    for name, value in given.items():
        assert hasattr(place, name), f"{place} has no {name}"
        setattr(place, name, value)


class Broken(NamedTuple):
    """One guard that is taken away, and the rule that is then broken."""

    rule: str
    break_it: Callable[[], None]


BROKEN: dict[str, Broken] = {
    "offended": Broken("resume-when-kept", never_forget_a_drain),  # It takes longest, and so it begins first.
    "holder": Broken("unique-holder", share_a_holder),
    "label": Broken("lease-upkeep", forget_the_ring),
    "renewals": Broken("lease-upkeep", renew_late),
    "lease-version": Broken("lease-with-version", renew_any_version),
    "impatient": Broken("wait-for-holder", take_from_others),
    "unnamed": Broken("wait-when-named", take_though_named),
    "early": Broken("act-as-holder", act_first),
    "stale": Broken("list-after-acquiring", list_what_was),
    "unfenced": Broken("fence-inherited", trust_what_was_there),
    "idle": Broken("take-up-gains", be_idle),
    "unconfirmed": Broken("confirm-gains", trust_gains),
    "curious": Broken("only-own-objects", be_curious),
    "goes-on": Broken("stop-when-drained", go_on),
    "busy": Broken("handover-after-reconcile", hand_over_busy),
    "root-first": Broken("children-before-root", turn_the_order),
    "epoch": Broken("handover-form", skip_an_epoch),
    "emptied": Broken("empty-drain", forget_the_epoch),
    "version": Broken("handover-with-version", hand_over_any_version),
    "lives-on": Broken("no-write-after-loss", last_longer),
    "silent": Broken("release-on-exit", leave_in_silence),
    "hasty": Broken("release-on-exit", leave_at_once),
}
SOUND: dict[str, Callable[[], None]] = {"long": use_the_long_form}
reconcile_now = reconcile


async def main() -> None:
    """Hold a share of the ring until asked to stop."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with Shard(ring=RING, resources=["secrets"], name=INSTANCE, namespace=NAMESPACE) as shard:
        await shard.run(reconcile_now)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    how = sys.argv[1]
    (SOUND[how] if how in SOUND else BROKEN[how].break_it)()
    try:
        with suppress(asyncio.CancelledError):
            asyncio.run(main())
    except PoiseError as error:
        sys.exit(f"{type(error).__name__}: {error}")
