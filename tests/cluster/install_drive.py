"""Drives an operator through everything that needs a right, as the account that was installed for it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

from tests.cluster.control_plane import free_port
from tests.cluster.install_world import AuditedPlane, Document, parts, text, texts
from tests.cluster.operator_process import OperatorProcess, awaited, eventually, read_ring, ring_ref
from tests.cluster.puppet import Puppet
from tests.cluster.ring_world import make_families, make_family

from poise.errors import NotFound
from poise.kube import LEASES, Client, ObjectRef, Partial, Resource, Selection, connect
from poise.kube.resources import CONFIG_MAPS, SECRETS

RING, INSTANCES = "web", ("a", "b", "c")
PATIENCE_S = 60.0
_ADMISSION = "admissionregistration.k8s.io"
POLICIES = Resource(_ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False)
BINDINGS = Resource(_ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False)
HOOKS = Resource(_ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False)
# An instance renews for longer than the ring's D, so that a slow machine makes nobody late; what waits for D is quick.
LEASE_S, INSTANCE_S = 1, 6
# A file that is opened for writing ends the process: the container's root cannot be written.
READ_ONLY = """
import os, sys
def watch(event, given):
    writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT
    if event == "open" and isinstance(given[2], int) and given[2] & writes and not isinstance(given[0], int):
        if not os.fsdecode(given[0]).startswith("/dev/"):
            os.write(2, b"poise: writes to a file: " + os.fsencode(given[0]) + b"\\n")
            os._exit(70)
sys.addaudithook(watch)
sys.dont_write_bytecode = True
from poise.cli.main import main
main()
"""


def operator_options(documents: Sequence[Document]) -> list[str]:
    """Give the flags of the installed Deployment, but for those that name ports and times of the tests' own."""
    (found,) = [each for each in documents if text(each, "kind") == "Deployment"]
    (container,) = parts(found, "spec", "template", "spec", "containers")
    words = texts(container, "args")
    assert words[0] == "operator"
    dropped = ("--listen", "--lease-seconds", "--webhook")
    return [word for word in words[1:] if not word.startswith(dropped)]


def start_operator(kubeconfig: Path, name: str, *options: str) -> OperatorProcess:
    """Start one process of the operator, which may write no file; several share the ports of this machine."""
    page = ("--page-listen", "127.0.0.1:0") if "--page" in options else ()
    return OperatorProcess(kubeconfig, "--id", name, *options, *page, program=("-c", READ_ONLY, "operator"))


async def seed(client: Client, namespace: str) -> None:
    """Make what is there before the ring: objects, and the Lease of an instance that has left long ago."""
    await make_families(client, namespace, [f"s{number}" for number in range(8)])
    labels = {"poise.dev/ring": RING}
    body = {"metadata": {"name": "old", "labels": labels}, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
    await client.create(ObjectRef(LEASES, "old", namespace), body, Partial)


def hook_options() -> list[str]:
    """Give the flags of a webhook that this machine's API server reaches; there is no Service without nodes."""
    port = free_port()
    return ["--webhook", f"127.0.0.1:{port}", "--webhook-url", f"https://127.0.0.1:{port}"]


async def drive(
    plane: AuditedPlane, client: Client, home: str, namespace: str, options: Sequence[str], *, hooked: bool = False
) -> None:
    """Let a ring that is there be run, with instances that come, leave and vanish, until it is removed.

    `hooked`: with the webhook and its certificates, and by two processes of which the leader ends in between.
    """
    kubeconfig = plane.account_kubeconfig(home)
    with ExitStack() as running:
        processes = [
            running.enter_context(start_operator(kubeconfig, name, *options, *(hook_options() if hooked else ())))
            for name in (("one", "two") if hooked else ("one",))
        ]
        await processes[0].ready(PATIENCE_S)
        if hooked:
            await _spoil(client, ObjectRef(SECRETS, "poise-webhook", home))
        async with AsyncExitStack() as stack:
            people = [await stack.enter_async_context(connect(plane.kubeconfig(name))) for name in INSTANCES]
            stays, *others = (
                Puppet(each, namespace, name, duration_s=INSTANCE_S)
                for each, name in zip(people, INSTANCES, strict=True)
            )
            async with stays.playing():
                await _come_and_go(plane, client, home, stays, *others)
                await _gone(client, ObjectRef(LEASES, "old", namespace))
                if hooked:
                    await _asked(plane, home, "update", "secrets")
                    await _change_leader(processes)
                await remove(client, namespace)
        for process in processes:
            assert process.process.poll() is not None or await process.end() == 0, process.said
            assert "writes to a file" not in process.said


async def _come_and_go(
    plane: AuditedPlane, client: Client, home: str, stays: Puppet, leaves: Puppet, vanishes: Puppet
) -> None:
    """Let one instance leave in order, let another lose its Lease, and meet conflicts in between."""
    namespace = stays.namespace
    async with leaves.playing():
        await _settled(client, namespace, stays, leaves)
    await leaves.release()
    async with vanishes.playing():
        await _settled(client, namespace, stays, vanishes)
        await _collide(plane, client, home, namespace)
    await _vanish(client, vanishes)
    await _settled(client, namespace, stays)


async def _change_leader(processes: Sequence[OperatorProcess]) -> None:
    """End the process that leads, and wait until another one does."""
    leads = [(await each.numbers())["poise_leads"] == 1 for each in processes]
    leader, other = processes if leads[0] else reversed(processes)
    assert await leader.end() == 0, leader.said
    await eventually(lambda: "leads as" in other.said, lambda: other.said, PATIENCE_S)


async def remove(client: Client, namespace: str) -> None:
    """Delete the ring, and wait until it has ended and its policy is gone."""
    ref = ring_ref(namespace, RING)
    await client.delete(ref, uid=(await client.get(ref, Partial)).metadata.uid)
    await _gone(client, ref)

    async def unprotected() -> bool:
        return not await kept(client)

    await awaited(unprotected, lambda: "a policy is left", PATIENCE_S)


async def kept(client: Client) -> list[str]:
    """Name the policies, bindings and webhooks of Poise that are there."""
    found = []
    for resource in (POLICIES, BINDINGS, HOOKS):
        listed, _ = await client.list_all(Selection(resource), Partial)
        found += [
            f"{resource.plural}/{each.metadata.name}" for each in listed if each.metadata.name.startswith("poise-")
        ]
    return found


async def marked(client: Client) -> list[str]:
    """Name the objects that still carry a label of a ring; the epoch may stay."""
    found = []
    for resource in (SECRETS, CONFIG_MAPS):
        listed, _ = await client.list_all(Selection(resource), Partial)
        words = ("shard.poise.dev/", "drain.poise.dev/", "drain-until.poise.dev/")
        found += [each.metadata.name for each in listed if any(name.startswith(words) for name in each.metadata.labels)]
    return found


async def _settled(client: Client, namespace: str, *instances: Puppet) -> None:
    """Wait until every object is where the ring wants it, and exactly these instances have some."""
    names = {each.name for each in instances}

    async def holds() -> bool:
        status = (await read_ring(client, namespace, RING)).status
        is_settled = (status.of("Balanced").status, status.of("Balanced").reason) == ("True", "Settled")
        return is_settled and {name for name, count in status.objects.items() if count} == names

    await awaited(holds, lambda: f"{sorted(names)} do not settle", PATIENCE_S)


async def _spoil(client: Client, ref: ObjectRef) -> None:
    """Wait for the certificates that the operator makes, and spoil them: it makes others."""

    async def made() -> bool:
        return await _is_there(client, ref)

    await awaited(made, lambda: f"{ref} was not made", PATIENCE_S)
    meta = (await client.get(ref, Partial)).metadata
    await client.merge(ref, meta, {"data": {"tls.crt": "c3BvaWx0"}}, Partial)


async def _asked(plane: AuditedPlane, home: str, verb: str, resource: str) -> None:
    async def holds() -> bool:
        return any((each.verb, each.resource) == (verb, resource) for each in plane.asked(home))

    await awaited(holds, lambda: f"nobody asked for {verb} of {resource}", PATIENCE_S)


async def _vanish(client: Client, instance: Puppet) -> None:
    """Delete the Lease of an instance that has objects: the sharder makes it anew, and moves them."""
    await client.delete(instance.ref, uid=(await client.get(instance.ref, Partial)).metadata.uid)


async def _collide(plane: AuditedPlane, client: Client, home: str, namespace: str) -> None:
    """Write objects just when the sharder does, until it had to read a family again."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + PATIENCE_S
    for number in itertools.count():
        await asyncio.gather(*(_restless(client, namespace, f"n{number}-{each}") for each in range(6)))
        read = {each.resource for each in plane.asked(home) if each.verb == "get"}
        if {"secrets", "configmaps"} <= read:
            return
        assert loop.time() < end_s, "the sharder met no conflict"


async def _restless(client: Client, namespace: str, name: str) -> None:
    """Make a family, and write it again and again while it is assigned."""
    await make_family(client, namespace, name)
    for number in range(8):
        for resource in (SECRETS, CONFIG_MAPS):
            notes = {"name": name, "namespace": namespace, "annotations": {"number": str(number)}}
            body = {"apiVersion": "v1", "kind": resource.kind, "metadata": notes}
            await client.apply(ObjectRef(resource, name, namespace), body, Partial, manager="restless", force=True)


async def _gone(client: Client, ref: ObjectRef) -> None:
    async def absent() -> bool:
        return not await _is_there(client, ref)

    await awaited(absent, lambda: f"{ref} is still there", PATIENCE_S)


async def _is_there(client: Client, ref: ObjectRef) -> bool:
    try:
        await client.get(ref, Partial)
    except NotFound:
        return False
    return True
