"""The verbs of a client over objects in memory: versions, conflicts and watches as the API server has them.

Time is the loop's. Every request takes as long as a test says, and what it writes is there after half of that.
"""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from math import floor
from typing import TypeVar

import httpx2
import msgspec

from poise.errors import Conflict, NotFound
from poise.kube import Client, Meta, ObjectRef
from poise.kube.client import bound_s
from poise.kube.objects import ListMeta, Page, WatchLine, decode
from poise.kube.patches import guarded
from poise.kube.resources import Selection

Shape = TypeVar("Shape")
Document = dict[str, object]
Place = tuple[str, str, str]
_NO_NETWORK = httpx2.AsyncClient()  # Nothing is ever sent by it.
_SERVED = [
    {"name": name, "kind": kind, "namespaced": True, "verbs": ["list", "watch"]}
    for name, kind in (("secrets", "Secret"), ("configmaps", "ConfigMap"))
]


def loop_s() -> float:
    """Read the clock of the loop, in steps that floats add and subtract exactly."""
    return floor(asyncio.get_running_loop().time() * 1024) / 1024


class Asked(msgspec.Struct, frozen=True):
    """One request: its verb, what it is about, when it was sent, and how long it might take."""

    verb: str
    name: str
    sent_at_s: float
    bound_s: float


class Change(msgspec.Struct, frozen=True):
    """One object before and after a write; None where there is none."""

    place: Place
    version: int
    old: Document | None
    new: Document | None


class MemoryApi(Client):
    """Serves Leases, Secrets, ConfigMaps and whatever else is created. Watches of `deaf` resources tell nothing."""

    def __init__(self, takes_s: Callable[[str, ObjectRef], float] = lambda _verb, _ref: 0.0) -> None:
        """Let a request take so long; times are those of the loop that runs."""
        super().__init__(_NO_NETWORK, namespace="ns")
        self.stored: dict[Place, Document] = {}
        self.asked: list[Asked] = []
        self.refused: list[str] = []
        self.deaf: set[str] = set()
        self.most_at_once: Counter[str] = Counter()
        self._under_way: Counter[str] = Counter()
        self._takes_s, self._changes, self._version = takes_s, list[Change](), 100
        self._bell = asyncio.Event()

    # What tests ask.

    def get_now(self, ref: ObjectRef, shape: type[Shape]) -> Shape:
        """Read without a request."""
        return decode(msgspec.json.encode(self._there(ref)), shape)

    def all_now(self, plural: str, shape: type[Shape]) -> list[Shape]:
        """Read all of one resource without a request."""
        return [decode(msgspec.json.encode(each), shape) for place, each in self.stored.items() if place[0] == plural]

    def put_now(self, ref: ObjectRef, body: object) -> None:
        """Write over whatever is there, as somebody else whose request nobody waits for."""
        place, plain = _place(ref), _plain(body)
        before = self.stored.get(place)
        meta = _meta(plain)
        meta |= {"name": ref.name, "namespace": ref.namespace}
        meta["uid"] = f"u{self._version}" if before is None else _meta(before)["uid"]
        self._write(place, plain)

    def drop_now(self, ref: ObjectRef) -> None:
        """Delete as somebody else."""
        self._write(_place(ref), None)

    def hear(self, plural: str) -> None:
        """Let watches of a resource tell all that they kept to themselves."""
        self.deaf.discard(plural)
        self._ring()

    # The verbs.

    async def read(self, path: str, shape: type[Shape]) -> Shape:
        """Say which resources there are."""
        assert path == "/api/v1", path
        return decode(msgspec.json.encode({"resources": _SERVED}), shape)

    async def get(self, ref: ObjectRef, shape: type[Shape]) -> Shape:
        """Read one object."""
        return await self._request("get", ref, lambda: self._there(ref), shape)

    async def page(self, chosen: Selection, shape: type[Shape], *, limit: int = 500, after: str = "") -> Page[Shape]:
        """Read all that is chosen, whatever the limit."""
        del limit, after
        found = [copy.deepcopy(each) for place, each in self.stored.items() if _is_chosen(chosen, place, each)]
        items = [decode(msgspec.json.encode(each), shape) for each in found]
        return Page(ListMeta(str(self._version)), items)

    @asynccontextmanager
    async def watch(
        self, chosen: Selection, shape: type[Shape], version: str, *, idle_s: float = 90.0, watch_s: int = 300
    ) -> AsyncIterator[AsyncIterator[WatchLine[Shape]]]:
        """Tell every change after a version, for ever."""
        del idle_s, watch_s
        yield self._lines(chosen, shape, int(version))

    async def create(self, ref: ObjectRef, body: object, shape: type[Shape]) -> Shape:
        """Create, unless there is one of that name."""

        def write() -> Document:
            if _place(ref) in self.stored:
                raise Conflict(f"{ref} already exists")
            self.put_now(ref, body)
            return self._there(ref)

        return await self._request("create", ref, write, shape)

    async def replace(self, ref: ObjectRef, body: object, shape: type[Shape]) -> Shape:
        """Put over exactly the version that is named."""
        return await self._request("replace", ref, lambda: self._over(ref, _plain(body), {}), shape)

    async def merge(self, ref: ObjectRef, meta: Meta, change: Mapping[str, object], shape: type[Shape]) -> Shape:
        """Change fields of exactly what was seen."""

        def write() -> Document:
            patch = _plain(guarded(meta, change))
            return self._over(ref, _merged(self._there(ref), patch), _meta(patch))

        return await self._request("merge", ref, write, shape)

    async def apply(
        self, ref: ObjectRef, body: object, shape: type[Shape], *, manager: str = "poise", force: bool = False
    ) -> Shape:
        """Apply fields; uid and version are tested where they are said."""
        del manager, force

        def write() -> Document:
            patch = _plain(body)
            return self._over(ref, _merged(self._there(ref), patch), _meta(patch))

        return await self._request("apply", ref, write, shape)

    async def delete(self, ref: ObjectRef, *, uid: str, version: str = "") -> None:
        """Delete exactly this, in this version where one is named."""

        def write() -> Document:
            self._check(ref, {"uid": uid} | ({"resourceVersion": version} if version else {}))
            self._write(_place(ref), None)
            return {"metadata": {}}

        await self._request("delete", ref, write, dict)

    # How it works.

    async def _request(self, verb: str, ref: ObjectRef, do: Callable[[], Document], shape: type[Shape]) -> Shape:
        takes_s = self._takes_s(verb, ref)
        self.asked.append(Asked(verb, ref.name, loop_s(), min(self.request_s, bound_s())))
        self._under_way[verb] += 1
        self.most_at_once[verb] = max(self.most_at_once[verb], self._under_way[verb])
        try:
            await asyncio.sleep(takes_s / 2)
            body = msgspec.json.encode(do())
            await asyncio.sleep(takes_s / 2)
        except (Conflict, NotFound):
            self.refused.append(verb)
            raise
        finally:
            self._under_way[verb] -= 1
        return decode(body, shape)

    def _there(self, ref: ObjectRef) -> Document:
        if _place(ref) not in self.stored:
            raise NotFound(str(ref))
        return self.stored[_place(ref)]

    def _over(self, ref: ObjectRef, body: Document, named: Document) -> Document:
        """Write over what is there, where it is what the body, or the patch, names."""
        self._check(ref, named or _meta(body))
        self._write(_place(ref), body)
        return self._there(ref)

    def _check(self, ref: ObjectRef, named: Mapping[str, object]) -> None:
        found = _meta(self._there(ref))
        if any(named.get(name, found[name]) != found[name] for name in ("uid", "resourceVersion")):
            raise Conflict(f"{ref} is another one, or another version")

    def _write(self, place: Place, body: Document | None) -> None:
        self._version += 1
        old = self.stored.pop(place, None)
        if body is not None:
            self.stored[place] = copy.deepcopy(body)
            _meta(self.stored[place])["resourceVersion"] = str(self._version)
        self._changes.append(Change(place, self._version, old, self.stored.get(place)))
        self._ring()

    def _ring(self) -> None:
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()

    async def _lines(
        self, chosen: Selection, shape: type[Shape], version: int
    ) -> AsyncGenerator[WatchLine[Shape], None]:
        told = 0
        while True:
            while told == len(self._changes) or chosen.resource.plural in self.deaf:
                await self._bell.wait()
            change = self._changes[told]
            told += 1
            line = _line(chosen, change) if change.version > version else None
            if line is not None:
                yield WatchLine(line[0], decode(msgspec.json.encode(line[1]), shape))


def _line(chosen: Selection, change: Change) -> tuple[str, Document] | None:
    """Tell a change as a filtered watch does: what leaves the filter is deleted, with its old labels."""
    was = change.old is not None and _is_chosen(chosen, change.place, change.old)
    if change.new is not None and _is_chosen(chosen, change.place, change.new):
        return ("MODIFIED" if was else "ADDED"), change.new
    if change.old is None or not was:
        return None
    return "DELETED", _merged(change.old, {"metadata": {"resourceVersion": str(change.version)}})


def _is_chosen(chosen: Selection, place: Place, document: Document) -> bool:
    label, _, value = chosen.labels.partition("=")
    labels = _meta(document).get("labels", {})
    assert isinstance(labels, dict), "labels are a mapping"
    return (
        place[0] == chosen.resource.plural
        and chosen.namespace in ("", place[1])
        and (not label or labels.get(label) == value)
        and chosen.fields in ("", f"metadata.name={place[2]}")
    )


def _place(ref: ObjectRef) -> Place:
    return ref.resource.plural, ref.namespace, ref.name


def _plain(body: object) -> Document:
    return msgspec.json.decode(msgspec.json.encode(body), type=Document)


def _meta(document: Document) -> Document:
    meta = document.setdefault("metadata", {})
    assert isinstance(meta, dict), "metadata is a mapping"
    return meta


def _merged(document: Document, change: Document) -> Document:
    """Merge a change; None removes a field."""
    made = dict(document)
    for name, value in change.items():
        old = made.get(name)
        if value is None:
            made.pop(name, None)
        elif isinstance(value, dict):
            made[name] = _merged(old if isinstance(old, dict) else {}, value)
        else:
            made[name] = value
    return made
