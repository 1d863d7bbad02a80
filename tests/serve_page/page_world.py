"""A real server with one job of each kind and members that speak, and what every page of it must keep to."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from html.parser import HTMLParser
from urllib.parse import quote

import httpx2
from tests.serve.live_server import LiveServer

from poise.jobs.dividing import divide_stored

HOSTILE = ['<b onmouseover="x()">&amp;</b>', "שלום/עולם", "🚀 rocket", "x" * 253, "a?b#c%2Fd", "'\"><script>1</script>"]
LONELY = {"kind": "PartitionSet", "metadata": {"name": "lonely"}, "spec": {"partitions": 2}}
SET = {"kind": "PartitionSet", "metadata": {"name": "orders"}, "spec": {"partitions": 12, "leaseSeconds": 3600}}
RING = {
    "kind": "ShardRing",
    "metadata": {"name": "web"},
    "spec": {"policy": "balanced", "leaseSeconds": 3600, "objects": HOSTILE},
}
POOL = {
    "kind": "TargetPool",
    "metadata": {"name": "core"},
    "spec": {
        "pods": {"endpoints": [{"name": "gnmic-0", "url": "http://127.0.0.1:9"}, {"name": "gnmic-1"}]},
        "targets": {"list": [{"name": "router/1", "address": "10.0.0.1:57400"}, {"name": "router/2"}]},
        "delivery": {"kind": "pull"},
    },
}
DIVISION = {
    "kind": "ReplicaDivision",
    "metadata": {"name": "shop"},
    "spec": {
        "clusters": [{"name": "east", "weight": 2}, {"name": "west"}],
        "workloads": [{"name": "cart", "replicas": 7}, {"name": "team/search", "replicas": 4}],
    },
}
SPLIT = {
    "kind": "CapacitySplit",
    "metadata": {"name": "services"},
    "spec": {
        "workloads": [{"name": "api", "replicas": 10, "spotPercentage": 70, "minOnDemand": 1}],
        "guards": {"windows": [{"schedule": "0 2 31 12 *", "duration": "1h"}]},
    },
    "status": {"workloads": {"api": {"spot": 5, "onDemand": 5, "readyOnDemand": 5}}},
}
JOBS = {
    "PartitionSet": "/jobs/PartitionSet/orders",
    "ShardRing": "/jobs/ShardRing/web",
    "TargetPool": "/jobs/TargetPool/core",
    "ReplicaDivision": "/jobs/ReplicaDivision/shop",
    "CapacitySplit": "/jobs/CapacitySplit/services",
}
# Nobody runs the engine of the pool here, so it has no items yet.
ITEMS = {
    "PartitionSet": "3",
    "ShardRing": HOSTILE[0],
    "ReplicaDivision": "team/search",
    "CapacitySplit": "api",
}
_VOID = {"meta", "link", "input", "img", "br", "hr", "col", "source"}


def fill(server: LiveServer, client: httpx2.Client) -> None:
    """Write a job of each kind, and let members come to the two sets."""
    for document in (SET, LONELY, RING, POOL, DIVISION, SPLIT):
        server.put(document, client)
    for name in ("w1", "w2", "w3"):
        speak(client, "orders", name)
    for name in ("web-0", "web-1"):
        speak(client, "web", name)
    server.cycle("orders")
    server.cycle("web")
    divide_stored(server.store, "shop", datetime.now(UTC))


def speak(client: httpx2.Client, name: str, member: str) -> None:
    """Register a member and let it say that it lives."""
    path = f"/v1/sets/{name}/members/{member}"
    incarnation = client.post(path, json={"process": member[:100]}).json()["incarnation"]
    assert client.put(path, json={"incarnation": incarnation, "seq": 1}).status_code == 200


def item_path(kind: str) -> str:
    """Give the page of an item of a kind."""
    return f"{JOBS[kind]}/items/{quote(ITEMS[kind], safe='')}"


def every_page() -> list[str]:
    """List a page of every sort."""
    return [
        "/",
        "/events",
        *JOBS.values(),
        *(f"{path}/items" for path in JOBS.values()),
        *(item_path(kind) for kind in ITEMS),
        "/jobs/PartitionSet/orders?drain=w1",
        "/jobs/ReplicaDivision/shop?weight=east:1&replicas=cart:9",
        "/jobs/CapacitySplit/services?pause=moves",
    ]


class Seen(HTMLParser):
    """Reads a page as strictly as a browser never would: every element is closed, and nothing runs from within."""

    def __init__(self, text: str) -> None:
        """Read all of it."""
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.ids: Counter[str] = Counter()
        self.addresses: list[str] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        if self._open:
            self.faults.append(f"never closed: {self._open}")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Check an element, and wait for its end."""
        self._check(tag, dict(attrs))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Check an element that ends at once."""
        self._check(tag, dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        """Close the innermost element, which must be this one."""
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()} closes something else")

    def handle_data(self, data: str) -> None:
        """Keep the texts."""
        self.texts.append(data)

    @property
    def text(self) -> str:
        """Give all that is said, with single spaces."""
        return re.sub(r"\s+", " ", "".join(self.texts))

    def _check(self, tag: str, attrs: dict[str, str | None]) -> None:
        inline = [name for name in attrs if name.startswith("on") or name == "style"]
        if inline:
            self.faults.append(f"<{tag}> has {inline}")
        if tag == "style" or (tag == "script" and not attrs.get("src")):
            self.faults.append(f"<{tag}> stands in the page")
        if identity := attrs.get("id"):
            self.ids[identity] += 1
        self.addresses += [
            attrs[name] or "" for name in ("src", "href", "action", "hx-get", "data-src") if name in attrs
        ]


def check_page(text: str) -> Seen:
    """Say of a page that it is well formed, that its ids are its own, and that it asks nobody else for anything."""
    seen = Seen(text)
    assert not seen.faults, seen.faults[:5]
    assert not [name for name, count in seen.ids.items() if count > 1], seen.ids
    strange = [each for each in seen.addresses if not re.match(r"[/#?](?!/)|$", each)]
    assert not strange, strange
    return seen


def field(text: str, name: str) -> str:
    """Read a hidden field of the form on a page."""
    found = re.search(rf'name="{name}" value="([^"]*)"', text)
    assert found, f"no field {name}"
    return found[1]


def marks(text: str) -> dict[str, str]:
    """Read what the form of a preview carries."""
    return {"revision": field(text, "revision"), "digest": field(text, "digest")}
