"""A server process with a job of each kind, names that mean harm, and members that speak only when they are told to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal
from urllib.parse import quote

import httpx2
import msgspec
from tests.serve_process import ServedFolder, await_met

LONG = "x" * 253
LONG_NAME = "-".join(["member"] * 36) + "-1"  # 253 characters that a member may be called by.
LONG_JOB = "-".join(["lonely"] * 36) + "-1"
HOSTILE = [
    '<img src=x onerror="window.hacked=1">',
    "'\"><script>window.hacked=1</script>",
    "{{ 7 * 7 }} {% raw %}",
    "שלום/עולם",
    "سطر من اليمين 123 <",
    "👩‍🚀🚀 rocket",
    "a?b#c%2Fd&e=f",
    LONG,
]
WORKLOADS = ["cart", "team/search", LONG_NAME]
OWN = {"leaseSeconds": 3600}
ORDERS = {
    "kind": "PartitionSet",
    "metadata": {"name": "orders"},
    "spec": {"partitions": 24, **OWN, "guards": {"movesInFlightMax": None, "perSourceMax": None, "perTargetMax": None}},
}
LONELY = {"kind": "PartitionSet", "metadata": {"name": LONG_JOB}, "spec": {"partitions": 2}}
RING = {
    "kind": "ShardRing",
    "metadata": {"name": "web"},
    "spec": {"policy": "balanced", **OWN, "objects": HOSTILE},
}
POOL = {
    "kind": "TargetPool",
    "metadata": {"name": "core"},
    "spec": {
        "pods": {"endpoints": [{"name": "gnmic-0"}, {"name": "gnmic-1"}]},
        "targets": {"list": [{"name": name} for name in HOSTILE]},
        "goneAfterSeconds": 3600,
        "delivery": {"kind": "pull"},
    },
}
DIVISION = {
    "kind": "ReplicaDivision",
    "metadata": {"name": "shop"},
    "spec": {
        "clusters": [{"name": "east", "weight": 2}, {"name": "west"}, {"name": LONG_NAME}],
        "workloads": [{"name": name, "replicas": 7} for name in WORKLOADS],
    },
}
SPLIT = {
    "kind": "CapacitySplit",
    "metadata": {"name": "services"},
    "spec": {
        "workloads": [{"name": name, "replicas": 10, "spotPercentage": 70, "minOnDemand": 1} for name in WORKLOADS],
        "guards": {"windows": [{"schedule": "0 2 31 12 *", "duration": "1h"}]},
    },
    "status": {"workloads": {name: {"spot": 5, "onDemand": 5, "readyOnDemand": 5} for name in WORKLOADS}},
}
DOCUMENTS = (ORDERS, LONELY, RING, POOL, DIVISION, SPLIT)
JOBS = {
    "PartitionSet": "/jobs/PartitionSet/orders",
    "ShardRing": "/jobs/ShardRing/web",
    "TargetPool": "/jobs/TargetPool/core",
    "ReplicaDivision": "/jobs/ReplicaDivision/shop",
    "CapacitySplit": "/jobs/CapacitySplit/services",
}
EVERY_PAGE = [
    "/",
    "/events",
    "/events?kind=PartitionSet&job=orders",
    *JOBS.values(),
    f"/jobs/PartitionSet/{LONG_JOB}",
    *(f"{path}/items" for path in JOBS.values()),
    "/jobs/PartitionSet/orders/items/3",
    *(f"{JOBS[kind]}/items/{quote(HOSTILE[0], safe='')}" for kind in ("ShardRing", "TargetPool")),
    *(f"{JOBS[kind]}/items/team%2Fsearch" for kind in ("ReplicaDivision", "CapacitySplit")),
    "/jobs/PartitionSet/orders?drain=w1",
    "/jobs/PartitionSet/orders?add=w9",
    "/jobs/ShardRing/web?remove=web-0",
    "/jobs/TargetPool/core?drain=gnmic-0",
    "/jobs/ReplicaDivision/shop?weight=east:1&replicas=cart:9",
    "/jobs/CapacitySplit/services?replicas=cart:20",
]
ERRORS = {
    "/jobs/PartitionSet/none": 404,
    "/jobs/Nonsense/orders": 404,
    "/jobs/PartitionSet/orders/items/999": 404,
    "/nowhere": 404,
    "/jobs/PartitionSet/orders?drian=w1": 400,
    "/jobs/PartitionSet/orders?remove=nobody": 400,
}


class Hold(msgspec.Struct, frozen=True):
    """An item as a member speaks of it."""

    item: str
    epoch: int
    state: str = "held"


class _Answer(msgspec.Struct, frozen=True):
    granted: list[Hold] = []
    release: list[Hold] = []


class Speaker:
    """A member over HTTP that holds what it is granted and lets go of what it is asked for, whenever it speaks."""

    def __init__(self, client: httpx2.Client, job: str, name: str, *, weight: int = 1) -> None:
        """Register; it has said nothing yet."""
        self._client, self._path, self.weight = client, f"/v1/sets/{job}/members/{name}", weight
        response = client.post(self._path, json={"process": name[:100]})
        assert response.status_code in (200, 201), response.text
        self._incarnation: int = response.json()["incarnation"]
        self._seq = 0
        self.holds: list[Hold] = []
        self.said: list[Hold] = []
        self.moved = 0

    def speak(self, leaving: Literal["stop"] | None = None) -> None:
        """Say what it holds, and hear what it is to hold."""
        self._seq += 1
        said = {
            "incarnation": self._incarnation,
            "seq": self._seq,
            "weight": self.weight,
            "holds": [msgspec.to_builtins(each) for each in self.holds],
            "leaving": leaving,
        }
        response = self._client.put(self._path, json=said)
        assert response.status_code == 200, response.text
        told = msgspec.json.decode(response.content, type=_Answer)
        self.moved += len(told.release)
        self.said = self.holds
        self.holds = [*told.granted, *(Hold(each.item, each.epoch, "released") for each in told.release)]


class World:
    """What stands on one server, and the members that were brought to life there."""

    def __init__(self, served: ServedFolder, token: str = "") -> None:
        """Ask that server, with a token where it needs one."""
        self.served, self.url = served, served.url
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.client = httpx2.Client(base_url=served.url, headers=headers, timeout=30)
        self.speakers: dict[str, Speaker] = {}

    def put(self, *documents: Mapping[str, object]) -> None:
        """Write documents."""
        for document in documents:
            assert isinstance(document["metadata"], dict)
            path = f"/v1/jobs/{document['kind']}/{document['metadata']['name']}"
            response = self.client.put(path, json=document)
            assert response.status_code in (200, 201), response.text

    def join(self, job: str, *names: str) -> None:
        """Bring members to life."""
        for name in names:
            self.speakers[name] = Speaker(self.client, job, name)

    def speak(self) -> None:
        """Let everybody speak once."""
        for each in self.speakers.values():
            each.speak()

    def held(self, kind: str, name: str) -> dict[str, str | None]:
        """Ask who holds what."""
        told = self.client.get(f"/v1/jobs/{kind}/{name}/items", params={"limit": "1000"}).json()["items"]
        return {each["item"]: each.get("member") if each["state"] == "Assigned" else None for each in told}

    def is_settled(self, kind: str, name: str) -> bool:
        """Let everybody speak, and tell whether each item is held and its holder has said so."""
        self.speak()
        known = {(hold.item, who) for who, each in self.speakers.items() for hold in each.said if hold.state == "held"}
        held = self.held(kind, name)
        return bool(held) and all((item, who) in known for item, who in held.items())

    def is_shared(self, kind: str, name: str, loads: Mapping[str, int]) -> bool:
        """Let everybody speak, and tell whether each holds just so much."""
        return self.is_settled(kind, name) and Counter(self.held(kind, name).values()) == Counter(loads)

    def draining(self, kind: str, name: str) -> list[str]:
        """Ask who is being drained."""
        told = self.client.get(f"/v1/jobs/{kind}/{name}/members").json()["items"]
        return sorted(each["name"] for each in told if each.get("draining"))

    def settle(self, kind: str, name: str, within_s: float = 60.0) -> None:
        """Wait until all items are held."""
        await_met(lambda: self.is_settled(kind, name), within_s)

    def pull(self) -> bool:
        """Let the pods of the pool fetch their targets, and tell whether all of them are held."""
        for pod in ("gnmic-0", "gnmic-1"):
            self.client.get(f"/v1/pools/core/pods/{pod}/targets")
        held = self.held("TargetPool", "core")
        return len(held) == len(HOSTILE) and all(held.values())

    def fill(self) -> None:
        """Bring a job of each kind to rest."""
        self.put(*DOCUMENTS)
        self.join("orders", "w1", "w2", "w3")
        self.join("web", "web-0", LONG_NAME)
        self.settle("PartitionSet", "orders")
        self.settle("ShardRing", "web")
        await_met(self.pull, 60)
