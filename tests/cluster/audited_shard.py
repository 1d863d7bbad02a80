"""A shard that notes every reconcile, for an auditor: who, what, at which epoch, from when to when, and how it wrote.

It is as bad as a user of the library may be: a reconcile that is cancelled, or told that its time is over, sends its
write all the same, with the tests that it began with. The API server must refuse it once somebody else has begun.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from tests.cluster.audit_lines import AuditFile, Noted, boot_s

from poise import clock
from poise.errors import Conflict, NotFound, NotHeld, PoiseError
from poise.hold.shard import Held, LeaseLost, Shard
from poise.kube import Client, Partial, connect
from poise.kube.patches import Operation, pointer, same_label, same_uid
from poise.model.sharding import label_names

NOTE = "audit.poise.dev/written-by"


class Auditing:
    """The reconcile of the tests: work for a moment, write once, look again after a while."""

    def __init__(self, options: argparse.Namespace, client: Client) -> None:
        """Note into the file of the options; writes that ignore the library go over the client."""
        self._audit = AuditFile(Path(options.audit), options.name)
        self._ring, self._name, self._client = options.ring, options.name, client
        self._period_s, self._child_s, self._slow_s = options.period, options.child_period, options.slow
        self._silent = options.silent
        self._due: dict[tuple[str, int], float] = {}
        self._chance = random.Random()

    async def reconcile(self, held: Held) -> float:
        """Reconcile one object, not more often than its period: the own write wakes it, too."""
        owner = held.meta.controller
        period_s: float = self._period_s if owner is None else self._child_s
        key = held.meta.uid, held.epoch
        if (left_s := self._due.get(key, 0.0) - boot_s()) > 0:
            return left_s
        with self._audit.begin(held.meta.uid, held.meta.uid if owner is None else owner.uid, held.epoch) as noted:
            if self._silent:
                return period_s
            try:
                await asyncio.sleep(self._work_s())
                await self._write(held, noted)
            except (NotHeld, asyncio.CancelledError) as error:
                await self._write_all_the_same(held, noted)
                if isinstance(error, asyncio.CancelledError):
                    raise
        # Only the epoch that it began with: where it has grown meanwhile, the write was refused and is due again.
        self._due[key] = boot_s() + period_s * self._chance.uniform(0.7, 0.95)
        return period_s

    def _work_s(self) -> float:
        """Most reconciles are short, some are not, so that whatever happens hits some in their middle."""
        return self._slow_s or self._chance.choices((0.005, 0.05, 0.5), (90, 8, 2))[0] * self._chance.uniform(0.5, 1.5)

    async def _write(self, held: Held, noted: Noted) -> None:
        """Write through the library, and note how that ended."""
        sent_s, epoch = boot_s(), held.epoch
        try:
            answer = await held.patch(self._change(epoch))
        except NotHeld:
            raise
        except Conflict:
            noted.patch(sent_s, epoch, "refused")
        except NotFound:
            noted.patch(sent_s, epoch, "gone")
        except PoiseError:
            noted.patch(sent_s, epoch, "unknown")
        else:
            noted.patch(sent_s, held.epoch, "written", answer.metadata.resource_version)

    async def _write_all_the_same(self, held: Held, noted: Noted) -> None:
        """Write past the library, with the tests that the reconcile began with."""
        tests = same_uid(held.meta.uid), same_label(label_names(self._ring)[1], str(held.epoch))
        sent_s = boot_s()
        try:
            answer = await self._client.patch(held.ref, [*tests, self._change(held.epoch)], Partial)
        except Conflict:
            noted.patch(sent_s, held.epoch, "refused")
        except PoiseError:
            noted.patch(sent_s, held.epoch, "unknown")
        else:
            noted.patch(sent_s, held.epoch, "written", answer.metadata.resource_version)

    def _change(self, epoch: int) -> Operation:
        return Operation("add", pointer("metadata", "annotations", NOTE), f"{self._name}-{epoch}-{boot_s():.3f}")


async def run(options: argparse.Namespace) -> int:
    """Hold the share of one instance until SIGTERM, or until the Lease is lost."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with connect(request_s=options.request) as client:
        auditing = Auditing(options, client)
        shard = Shard(
            ring=options.ring,
            resources=["secrets", "configmaps"],
            name=options.name,
            namespace=options.namespace,
            scope=options.namespace,
            trust_stable_name=options.trust,
            fence_restarts=options.fence,
            on_release=options.on_release,
            finish_s=options.finish,
            at_once=options.at_once,
            tokens=options.tokens,
        )
        try:
            with suppress(asyncio.CancelledError):
                async with shard:
                    _say(f"holds {shard.holder}")
                    await shard.run(auditing.reconcile)
        except LeaseLost as error:
            _say(f"lost: {error}")
            return 3
    _say("left")
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{boot_s():.3f} {text}\n")
    sys.stderr.flush()


def main() -> int:
    """Read the options and run; the wall clock of this process may be wrong on purpose."""
    parser = argparse.ArgumentParser()
    for name in ("ring", "name", "namespace", "audit"):
        parser.add_argument(f"--{name}", required=True)
    for name, usual in (("period", 5.0), ("child-period", 15.0), ("slow", 0.0), ("finish", 5.0), ("request", 5.0)):
        parser.add_argument(f"--{name}", type=float, default=usual)
    parser.add_argument("--clock-off", type=float, default=0.0)
    parser.add_argument("--at-once", type=int, default=12)
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--silent", action="store_true", help="only note, never write")
    parser.add_argument("--trust", action="store_true")
    parser.add_argument("--fence", choices=("lazy", "eager"), default="lazy")
    parser.add_argument("--on-release", choices=("stop", "restart"), default="stop")
    options = parser.parse_args()
    if options.clock_off:
        right = clock.now

        def wrong() -> datetime:
            return right() + timedelta(seconds=options.clock_off)

        clock.now = wrong
    return asyncio.run(run(options))


if __name__ == "__main__":
    sys.exit(main())
