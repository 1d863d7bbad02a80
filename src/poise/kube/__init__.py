"""The only code that talks to Kubernetes: client, mirror of what is there, queue, leader lease, resource definitions.

It knows nothing of rings or any other job. Errors of the network and of the API server end here: what leaves this
package is Conflict, Unavailable, NotFound, Forbidden, InvalidSpec or VersionGone of `poise.errors`.
"""

from __future__ import annotations

from poise.kube.client import Client
from poise.kube.connecting import connect
from poise.kube.discovery import Missing, find_resource
from poise.kube.leading import Lead
from poise.kube.mirror import Added, Deleted, Event, Modified, Synced
from poise.kube.objects import Lease, Meta, OwnerReference, Partial
from poise.kube.reflector import Reflector
from poise.kube.resources import LEASES, NAMESPACES, ObjectRef, Resource, Selection
from poise.kube.work_queue import WorkQueue

__all__ = [
    "LEASES",
    "NAMESPACES",
    "Added",
    "Client",
    "Deleted",
    "Event",
    "Lead",
    "Lease",
    "Meta",
    "Missing",
    "Modified",
    "ObjectRef",
    "OwnerReference",
    "Partial",
    "Reflector",
    "Resource",
    "Selection",
    "Synced",
    "WorkQueue",
    "connect",
    "find_resource",
]
