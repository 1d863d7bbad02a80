"""What kopf's own patches do when they come late: each row of the page, sent by kopf itself to a real API server."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import cast

import kopf
import pytest
import yaml
from kopf._cogs.clients import auth, patching
from kopf._cogs.structs.bodies import Body, RawBody
from kopf._cogs.structs.credentials import ConnectionInfo, Vault
from kopf._cogs.structs.finalizers import block_deletion
from kopf._cogs.structs.patches import Patch
from kopf._cogs.structs.references import NamespaceName
from tests.cluster.shard_library_world import World
from tests.cluster.world import Cluster

from poise.kube import Client, ObjectRef
from poise.model.sharding import Marks

pytestmark = pytest.mark.usefixtures("definitions")
SECRETS = kopf.Resource("", "v1", "secrets", kind="Secret", namespaced=True)
FINALIZER, NOTE = "kopf.zalando.org/KopfFinalizerMarker", "kopf.zalando.org/last-handled-configuration"
Late = Callable[[], Awaitable[None]]


def _note(patch: Patch) -> None:
    patch.metadata.annotations[NOTE] = "{}"


def _finalize(patch: Patch) -> None:
    patch.fns.append(partial(block_deletion, finalizer=FINALIZER))


def _both(patch: Patch) -> None:
    _note(patch)
    _finalize(patch)


async def _hand_over(world: World) -> None:
    await world.mark(world.secret("x"), Marks("b", 2))


async def _make_anew(world: World) -> None:
    await world.client.delete(world.secret("x"), uid=(await world.meta(world.secret("x"))).uid)
    await world.make("x")


@pytest.mark.parametrize(
    ("happens", "write", "lands"),
    [
        (_hand_over, _note, (True, False)),
        (_hand_over, _finalize, (False, False)),
        (_hand_over, _both, (True, True)),
        (_make_anew, _note, (True, False)),
        (_make_anew, _finalize, (False, False)),
    ],
    ids=["progress", "finalizer alone", "finalizer beside progress", "progress, made anew", "finalizer, made anew"],
)
def test_a_late_patch_of_kopf(
    cluster: Cluster,
    namespace: str,
    happens: Callable[[World], Awaitable[None]],
    write: Callable[[Patch], None],
    lands: tuple[bool, bool],
) -> None:
    """A patch is made for the object as its owner saw it, and sent after it has another owner, or is another one."""

    async def scenario(client: Client) -> None:
        world = World(client, namespace)
        await world.make("x")
        await world.mark(world.secret("x"), Marks("a", 1))
        patch = Patch(body=Body(await _seen(client, world.secret("x"))))
        write(patch)
        await happens(world)
        await _send(cluster.kubeconfig(), namespace, patch)
        meta = await world.meta(world.secret("x"))
        assert (NOTE in meta.annotations, FINALIZER in meta.finalizers) == lands
        if FINALIZER in meta.finalizers:
            await client.merge(world.secret("x"), meta, {"metadata": {"finalizers": None}}, object)

    cluster.run(scenario)


async def _seen(client: Client, ref: ObjectRef) -> RawBody:
    return cast(RawBody, await client.get(ref, dict))  # The JSON itself is what kopf calls a body.


async def _send(kubeconfig: Path, namespace: str, patch: Patch) -> None:
    """Let kopf send a patch, with the credentials of a kubeconfig."""
    config = yaml.safe_load(kubeconfig.read_text())
    place, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    vault = Vault()
    found = ConnectionInfo(
        server=place["server"],
        ca_path=place.get("certificate-authority"),
        ca_data=place.get("certificate-authority-data"),
        token=user["token"],
    )
    await vault.populate({"test": found})
    auth.vault_var.set(vault)
    try:
        await patching.patch_obj(
            settings=kopf.OperatorSettings(),
            resource=SECRETS,
            namespace=NamespaceName(namespace),
            name="x",
            patch=patch,
            logger=logging.getLogger("kopf.late"),
        )
    finally:
        await vault.close()
