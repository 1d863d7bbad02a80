"""A controller on lightkube of which several instances run at once: for every Secret a ConfigMap with its checksum.

Run it, with a ring that names secrets and, as controlled, configmaps; once for each instance:
KUBECONFIG=... RING=web POD_NAME=a python examples/lightkube_operator.py
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
from contextlib import suppress

from lightkube import ApiError, AsyncClient
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.core_v1 import ConfigMap, Secret

from poise.hold.shard import Held, Shard

client = AsyncClient(field_manager="checksums")


async def write_checksum(secret: Secret) -> None:
    """Let the ConfigMap that is named after a Secret say the checksum of the Secret's data."""
    meta = secret.metadata
    assert meta is not None
    owner = OwnerReference("v1", "Secret", meta.name or "", meta.uid or "", controller=True)
    data = json.dumps(secret.data or {}, sort_keys=True, separators=(",", ":"))
    named = ObjectMeta(name=meta.name, namespace=meta.namespace, ownerReferences=[owner])
    await client.apply(
        ConfigMap(metadata=named, data={"sha256": hashlib.sha256(data.encode()).hexdigest()}), force=True
    )


async def reconcile(held: Held) -> None:
    """Look after one Secret that this instance holds."""
    try:
        secret = await client.get(Secret, held.ref.name, namespace=held.ref.namespace)
    except ApiError as error:
        if error.status.code != 404:
            raise
        return  # It is gone: its end is an event, too.
    await write_checksum(secret)


async def main() -> None:
    """Hold a share of the ring until asked to stop."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with Shard(ring=os.environ.get("RING", "web"), resources=["secrets"]) as shard:
        await shard.run(reconcile)


if __name__ == "__main__":
    with suppress(asyncio.CancelledError, KeyboardInterrupt):
        asyncio.run(main())
