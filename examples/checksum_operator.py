"""A controller of which several instances run at once: for every Secret a ConfigMap with the checksum of its data.

Run it, with a ring that names secrets and, as controlled, configmaps; once for each instance:
KUBECONFIG=... python examples/checksum_operator.py --ring web --namespace default --name a
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import logging
import signal

import msgspec

from poise.errors import PoiseError
from poise.hold.shard import Held, Shard
from poise.kube.objects import Meta
from poise.kube.patches import Operation
from poise.kube.resources import CONFIG_MAPS, ObjectRef


class WithData(msgspec.Struct):
    """A Secret or a ConfigMap, as far as it matters here."""

    metadata: Meta = Meta()
    data: dict[str, str] = {}


def checksum(data: dict[str, str]) -> str:
    """Give the SHA-256 of all data, whatever its order."""
    return hashlib.sha256(msgspec.json.encode(data, order="sorted")).hexdigest()


async def reconcile(secret: Held) -> None:
    """Let the ConfigMap that is named after a Secret say the checksum of the Secret's data."""
    wanted = {"sha256": checksum((await secret.read(WithData)).data)}
    ref = ObjectRef(CONFIG_MAPS, secret.meta.name, secret.meta.namespace)
    found = await secret.find(ref, WithData)
    if found is None:
        await secret.create(ref, {"data": wanted})
    elif found.data != wanted:
        await secret.patch(Operation("add", "/data", wanted), on=ref)


async def main() -> None:
    """Hold a share of the ring until asked to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ring", required=True)
    parser.add_argument("--namespace", help="the namespace of the ring; else that of the kubeconfig")
    parser.add_argument("--name", help="the name of this instance; else that of the host")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("poise").setLevel(logging.INFO)
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with Shard(ring=given.ring, resources=["secrets"], name=given.name, namespace=given.namespace) as shard:
        await shard.run(reconcile)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except (asyncio.CancelledError, KeyboardInterrupt):
        pass  # Asked to stop: the Lease was given back.
    except PoiseError as error:  # The Lease is lost, or something is asked for that cannot be: end, and start anew.
        raise SystemExit(f"checksum_operator: {'; '.join(str(error).splitlines())}") from None
