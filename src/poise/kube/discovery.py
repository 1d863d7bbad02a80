"""Which version and kind the API server serves for a resource; a missing one is an ordinary answer."""

from __future__ import annotations

import msgspec

from poise.errors import NotFound
from poise.kube.client import Client
from poise.kube.objects import KubeValue
from poise.kube.resources import Resource

_FOLLOWED = ("list", "watch")


class Missing(msgspec.Struct, frozen=True):
    """A resource that cannot be followed, and why; it may be there later."""

    group: str
    plural: str
    why: str


class _Version(KubeValue, frozen=True):
    version: str


class _Group(KubeValue, frozen=True):
    versions: tuple[_Version, ...] = ()
    preferred_version: _Version | None = None


class _Served(KubeValue, frozen=True):
    name: str
    kind: str
    namespaced: bool = False
    verbs: tuple[str, ...] = ()


class _ServedList(KubeValue, frozen=True):
    resources: tuple[_Served, ...] = ()


async def find_resource(client: Client, group: str, plural: str) -> Resource | Missing:
    """Find a resource in the version that the server prefers, else in any other; it must allow list and watch."""
    shown = f'{plural} of the group "{group}"'
    versions = await _versions(client, group)
    for version in versions:
        served = await _served(client, Resource(group, version, plural, ""))
        if served is None:
            continue
        lacking = [verb for verb in _FOLLOWED if verb not in served.verbs]
        if lacking:
            return Missing(group, plural, f"{shown} cannot be followed: the API server has no {' or '.join(lacking)}")
        return Resource(group, version, plural, served.kind, served.namespaced)
    why = f"the API server has no {shown}" if versions else f'the API server has no group "{group}"'
    return Missing(group, plural, why)


async def _versions(client: Client, group: str) -> list[str]:
    """Give the versions of a group, the preferred one first."""
    if not group:
        return ["v1"]
    if "/" in group:
        return []
    try:
        found = await client.read(f"/apis/{group}", _Group)
    except NotFound:
        return []
    preferred = [found.preferred_version] if found.preferred_version is not None else []
    return list(dict.fromkeys(each.version for each in (*preferred, *found.versions)))


async def _served(client: Client, wanted: Resource) -> _Served | None:
    """Find one resource of one version."""
    try:
        listed = await client.read(wanted.root, _ServedList)
    except NotFound:
        return None
    return next((each for each in listed.resources if each.name == wanted.plural), None)
