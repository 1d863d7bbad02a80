"""A kopf operator of which several instances run at once: for every Secret a ConfigMap with the checksum of its data.

Run it, with a ring that names secrets and, as controlled, configmaps; once for each instance:
KUBECONFIG=... RING=web POD_NAME=a kopf run --all-namespaces examples/kopf_operator.py
"""

from __future__ import annotations

import hashlib
import json
import os

import kopf
from lightkube import AsyncClient
from lightkube.resources.core_v1 import ConfigMap

from poise.hold.kopf import join_ring

join_ring(os.environ.get("RING", "web"), ["secrets"])
client = AsyncClient(field_manager="checksums")


@kopf.on.resume("secrets")
@kopf.on.create("secrets")
@kopf.on.update("secrets", field="data")
async def write_checksum(body: kopf.Body, **_: object) -> None:
    """Let the ConfigMap that is named after a Secret say the checksum of the Secret's data."""
    data = json.dumps(dict(body.get("data") or {}), sort_keys=True, separators=(",", ":"))
    found = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"sha256": hashlib.sha256(data.encode()).hexdigest()}}
    kopf.adopt(found, strict=True)
    await client.apply(ConfigMap.from_dict(found), force=True)
