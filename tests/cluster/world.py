"""The Kubernetes that the tests of one run share: the rig, or the user's own where KUBECONFIG is set."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from tests.cluster.control_plane import ADMIN, ControlPlane

from poise.kube import Client, ObjectRef, Partial, Resource, Selection, connect
from poise.kube.crds import DEFINED, definition
from poise.kube.objects import Custom
from poise.kube.resources import DEFINITIONS, NAMESPACES, SECRETS

Result = TypeVar("Result")
DEADLINE_S = 60.0
RBAC = "rbac.authorization.k8s.io"
ROLES = Resource(RBAC, "v1", "roles", "Role")
BINDINGS = Resource(RBAC, "v1", "rolebindings", "RoleBinding")


class Cluster:
    """One cluster. Tests that break it, or speak as other users, need the rig: `plane` skips them elsewhere."""

    def __init__(self, plane: ControlPlane | None) -> None:
        """Use the rig, or where there is none the cluster of KUBECONFIG."""
        self._plane = plane

    @property
    def plane(self) -> ControlPlane:
        """The rig itself."""
        if self._plane is None:
            pytest.skip("needs the rig: unset KUBECONFIG")
        return self._plane

    def kubeconfig(self, user: str = ADMIN, *, url: str | None = None) -> Path:
        """Give the kubeconfig of a user; another address is that of a proxy of the tests."""
        if self._plane is None and user == ADMIN and url is None:
            return Path(os.environ["KUBECONFIG"])
        return self.plane.kubeconfig(user, url=url)

    def connect(self, user: str = ADMIN, *, url: str | None = None, request_s: float = 10.0) -> Client:
        """Give a client, which belongs to the loop that uses it."""
        return connect(self.kubeconfig(user, url=url), request_s=request_s)

    def run(self, scenario: Callable[[Client], Awaitable[Result]], user: str = ADMIN) -> Result:
        """Play a scenario with a client of a user, within a deadline."""

        async def played() -> Result:
            async with asyncio.timeout(DEADLINE_S), self.connect(user) as client:
                return await scenario(client)

        return asyncio.run(played())


@contextmanager
def started(plane: ControlPlane) -> Iterator[Cluster]:
    """Run a control plane while the block does."""
    try:
        plane.start()
        yield Cluster(plane)
    finally:
        plane.stop()


def secret(name: str, namespace: str) -> ObjectRef:
    """Name a Secret."""
    return ObjectRef(SECRETS, name, namespace)


async def make_secret(client: Client, name: str, namespace: str, labels: dict[str, str] | None = None) -> Partial:
    """Create a Secret, and give its metadata."""
    body = {"metadata": {"name": name, "labels": labels or {}}, "stringData": {"key": "value"}}
    return await client.create(secret(name, namespace), body, Partial)


async def make_secrets(client: Client, names: Iterable[str], namespace: str) -> None:
    """Create many Secrets, some at a time."""
    gate = asyncio.Semaphore(16)

    async def make(name: str) -> None:
        async with gate:
            await make_secret(client, name, namespace)

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(make(name))


async def grant(client: Client, user: str, namespace: str, rules: list[dict[str, list[str]]]) -> None:
    """Grant a user rights in a namespace."""
    role = {"metadata": {"name": f"{user}-role"}, "rules": rules}
    await client.create(ObjectRef(ROLES, f"{user}-role", namespace), role, Partial)
    binding = {
        "metadata": {"name": f"{user}-binding"},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": f"{user}-role"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }
    await client.create(ObjectRef(BINDINGS, f"{user}-binding", namespace), binding, Partial)


async def make_namespace(client: Client, name: str) -> Partial:
    """Create a namespace."""
    return await client.create(ObjectRef(NAMESPACES, name), {"metadata": {"name": name}}, Partial)


async def install_definitions(client: Client) -> list[str]:
    """Apply the definitions of the five kinds, and wait until they are served; gives those that were not there."""
    there = {found.metadata.name for found in (await client.list_all(Selection(DEFINITIONS), Partial))[0]}
    for kind, defined in DEFINED.items():
        ref = ObjectRef(DEFINITIONS, f"{defined.plural}.poise.dev")
        await client.apply(ref, definition(kind), Partial, force=True)
    async with asyncio.timeout(DEADLINE_S):
        while not all([await _is_served(client, kind) for kind in DEFINED]):
            await asyncio.sleep(0.1)
    return [name for defined in DEFINED.values() if (name := f"{defined.plural}.poise.dev") not in there]


async def remove_definitions(client: Client, names: list[str]) -> None:
    """Remove definitions, and with them every object of their kinds."""
    for name in names:
        ref = ObjectRef(DEFINITIONS, name)
        await client.delete(ref, uid=(await client.get(ref, Partial)).metadata.uid)


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Established(msgspec.Struct):
    conditions: list[_Condition] | None = None


async def _is_served(client: Client, kind: str) -> bool:
    read = await client.get(ObjectRef(DEFINITIONS, f"{DEFINED[kind].plural}.poise.dev"), Custom)
    status = msgspec.json.decode(read.status, type=_Established)
    return any((each.type, each.status) == ("Established", "True") for each in status.conditions or [])


async def until(holds: Callable[[], bool], within_s: float = 60.0) -> None:
    """Wait until something holds; an AssertionError when it does not in time."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + within_s
    while not holds():
        assert loop.time() < end_s, f"not within {within_s} s"
        await asyncio.sleep(0.02)
