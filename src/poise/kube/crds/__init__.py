"""Custom resource definitions, generated from the Structs of the five kinds."""

from __future__ import annotations

from poise.kube.crds.definitions import DEFINED, custom_resource, definition

__all__ = ["DEFINED", "custom_resource", "definition"]
