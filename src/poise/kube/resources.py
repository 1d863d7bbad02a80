"""Where things are in the Kubernetes API: resources, single objects, and selections of them."""

from __future__ import annotations

from urllib.parse import quote

import msgspec


class Resource(msgspec.Struct, frozen=True):
    """One kind of object as the API server serves it; the group of the core kinds is empty."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """What objects of this kind carry as apiVersion."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The path below which all versions of its group live."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "") -> str:
        """Give the path of all its objects, or of those in one namespace."""
        if not namespace:
            return f"{self.root}/{self.plural}"
        assert self.namespaced, f"{self.plural} are in no namespace"
        return f"{self.root}/namespaces/{quote(namespace, safe='')}/{self.plural}"


class ObjectRef(msgspec.Struct, frozen=True):
    """One object, or one of its subresources, such as `status`."""

    resource: Resource
    name: str
    namespace: str = ""
    subresource: str = ""

    @property
    def path(self) -> str:
        """Where it is. A name is quoted whole, so that none can lead anywhere else."""
        parts = (self.resource.path(self.namespace), quote(self.name, safe=""), self.subresource)
        return "/".join(part for part in parts if part)

    def __str__(self) -> str:
        """Read as people write it: `leases.coordination.k8s.io default/web-0`."""
        kind = ".".join(part for part in (self.resource.plural, self.resource.group) if part)
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{kind} {name}" + (f" ({self.subresource})" if self.subresource else "")


class Selection(msgspec.Struct, frozen=True):
    """Objects of one kind: all of them, those of one namespace, or those that selectors choose."""

    resource: Resource
    namespace: str = ""
    labels: str = ""
    fields: str = ""

    @property
    def path(self) -> str:
        """Where they are."""
        return self.resource.path(self.namespace)

    @property
    def query(self) -> dict[str, str]:
        """Give the selectors as the API server reads them."""
        given = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in given.items() if value}

    def __str__(self) -> str:
        """Read as people write it."""
        kind = ".".join(part for part in (self.resource.plural, self.resource.group) if part)
        chosen = " ".join(part for part in (self.namespace, self.labels, self.fields) if part)
        return f"{kind} ({chosen})" if chosen else kind


LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS = Resource("", "v1", "events", "Event")
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
