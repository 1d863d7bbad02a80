"""A shard process that misbehaves, for tests: `python -m tests.cluster.shard_library_process RING NAMESPACE NAME HOW`.

HOW is `blocks` (its event loop hangs in the reconcile), `ignores` (it ignores its cancellation) or `sleeps`. It prints
a line when it enters, when it begins to reconcile, and for every write of a reconcile.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress

from poise.errors import PoiseError
from poise.hold.shard import Held, Shard
from poise.kube.patches import Operation, pointer

NOTE = Operation("add", pointer("metadata", "annotations"), {"late": "yes"})


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def reconcile(held: Held) -> None:
    """Begin, and do not end."""
    say(f"begun {held.meta.name} {held.epoch}")
    how = sys.argv[4]
    if how == "blocks":
        time.sleep(60)
    while how == "ignores":
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
    try:
        await asyncio.sleep(60)
    finally:
        # Whoever wakes up too late may still send what it was about to send.
        try:
            await held._client.patch(held.ref, held_tests(held), dict)
            say("wrote")
        except PoiseError as error:
            say(f"refused {type(error).__name__}")


def held_tests(held: Held) -> tuple[Operation, ...]:
    """Write as the library does, but without asking it."""
    label = pointer("metadata", "labels", f"epoch.poise.dev/{sys.argv[1]}")
    return (
        Operation("test", pointer("metadata", "uid"), held.meta.uid),
        Operation("test", label, str(held.epoch)),
        NOTE,
    )


async def main() -> None:
    """Hold a share until the end."""
    ring, namespace, name = sys.argv[1:4]
    async with Shard(ring=ring, resources=["secrets"], name=name, namespace=namespace) as shard:
        say("holds")
        await shard.run(reconcile)


if __name__ == "__main__":
    asyncio.run(main())
