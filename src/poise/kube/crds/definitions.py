"""The CustomResourceDefinitions of the five kinds: names, columns and schemas. Pure."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from poise.kube.crds.schema import Schema, document_schema
from poise.kube.crds.status import Shown, ShownRing
from poise.kube.resources import Resource
from poise.model import KINDS
from poise.model.common import API_VERSION

GROUP, VERSION = API_VERSION.split("/")
CATEGORY = "poise"


class Column(NamedTuple):
    """One column of `kubectl get`."""

    name: str
    path: str
    kind: str = "string"
    priority: int = 0


class Defined(NamedTuple):
    """How one kind is named and shown on Kubernetes."""

    plural: str
    short: str
    columns: tuple[Column, ...]
    shown: type[msgspec.Struct] = Shown


_READY = Column("Ready", '.status.conditions[?(@.type=="Ready")].status')
_WHY = Column("Reason", '.status.conditions[?(@.type=="Ready")].message', priority=1)
_AGE = Column("Age", ".metadata.creationTimestamp", "date")

DEFINED: dict[str, Defined] = {
    "TargetPool": Defined("targetpools", "tp", (Column("Policy", ".spec.policy"), _READY, _WHY, _AGE)),
    "PartitionSet": Defined(
        "partitionsets", "pset", (Column("Partitions", ".spec.partitions", "integer"), _READY, _WHY, _AGE)
    ),
    "ShardRing": Defined(
        "shardrings",
        "sr",
        (
            Column("Policy", ".spec.policy"),
            _READY,
            Column("Balanced", '.status.conditions[?(@.type=="Balanced")].status'),
            Column("Instances", ".status.ready", "integer"),
            Column("Draining", ".status.drainsPending", "integer"),
            Column("Unassigned", ".status.unassigned", "integer"),
            _WHY,
            _AGE,
        ),
        ShownRing,
    ),
    "ReplicaDivision": Defined("replicadivisions", "rd", (Column("Strategy", ".spec.strategy"), _READY, _WHY, _AGE)),
    "CapacitySplit": Defined("capacitysplits", "csp", (_READY, _WHY, _AGE)),
}


def custom_resource(kind: str) -> Resource:
    """Say where the API server serves one of the five kinds."""
    return Resource(GROUP, VERSION, DEFINED[kind].plural, kind)


def definition(kind: str) -> Schema:
    """Write the CustomResourceDefinition of one kind."""
    defined = DEFINED[kind]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{defined.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": defined.plural,
                "singular": kind.lower(),
                "shortNames": [defined.short],
                "categories": [CATEGORY],
            },
            "scope": "Namespaced",
            "versions": [_version(kind, defined)],
        },
    }


def _version(kind: str, defined: Defined) -> Schema:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [_column(column) for column in defined.columns],
        "schema": {"openAPIV3Schema": document_schema(KINDS[kind], defined.shown)},
    }


def _column(column: Column) -> Schema:
    shown: Schema = {"name": column.name, "type": column.kind, "jsonPath": column.path}
    return shown | ({"priority": column.priority} if column.priority else {})
