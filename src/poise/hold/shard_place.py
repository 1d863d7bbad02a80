"""Where a shard runs: the name of its machine, and the Pod that its Lease belongs to."""

from __future__ import annotations

import logging
import os
import socket

from poise.errors import PoiseError
from poise.kube.client import Client
from poise.kube.objects import OwnerReference, Partial
from poise.kube.resources import ObjectRef, Resource

PODS = Resource("", "v1", "pods", "Pod")
_log = logging.getLogger("poise.shard")


def host_name() -> str:
    """Give the name of this machine, which in a Pod is the Pod's."""
    return os.environ.get("POD_NAME") or socket.gethostname()


async def own_pod(client: Client, namespace: str) -> OwnerReference | None:
    """Find the Pod that this process runs in: by POD_NAME and POD_UID, else by reading it; None outside of a cluster.

    An owner must be in the namespace of what it owns.
    """
    home = os.environ.get("POD_NAMESPACE") or client.namespace
    if home != namespace or not (os.environ.get("POD_UID") or os.environ.get("KUBERNETES_SERVICE_HOST")):
        return None
    name, uid = host_name(), os.environ.get("POD_UID", "")
    if not uid:
        try:
            uid = (await client.get(ObjectRef(PODS, name, namespace), Partial)).metadata.uid
        except PoiseError as error:
            _log.warning("shard.podless name=%s reason=%s", name, error)
            return None
    return OwnerReference("v1", "Pod", name, uid)
