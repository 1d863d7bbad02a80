"""Where targets come from: a list, a file that is watched, or an HTTP list that is polled. Every fault is one reason.

The drop guard: a file or an HTTP list that loses more than its share at once is held back until it recovers, or until
people say so by changing the document. The last good list is kept in the store.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from poise.documents import BYTES_MAX, load_targets
from poise.errors import InvalidSpec, PoiseError
from poise.jobs.pool.delivery import PodFault, fetch
from poise.model.target_pool import Target, Targets

if TYPE_CHECKING:
    import httpx2

LISTED = "list"
FILE_S = 1.0  # How often a file is looked at.
_FETCH_S = 30.0
_OK = 200


class SourceFault(PoiseError):
    """The source of targets gives no list. The last good one stays in force."""


class Held(msgspec.Struct, frozen=True):
    """A list that was held back: how many targets it lost, of how many, and the document's revision at that time."""

    revision: int
    lost: int
    of: int

    def __str__(self) -> str:
        """Say what people can do."""
        return (
            f"held back: the source lost {self.lost} of {self.of} targets at once; "
            "it is obeyed when they return, or when the document is changed"
        )


class LastList(msgspec.Struct, frozen=True):
    """The last good list, as the store keeps it; `held` while the source shows another one that is not obeyed."""

    targets: list[Target]
    origin: str = ""
    held: Held | None = None


def guard(last: LastList | None, fresh: list[Target], origin: str, *, percent: int, revision: int) -> LastList:
    """Obey a list, or hold it back: lost·100 > percent·before, unless the document has changed since it was held.

    A list in the document itself, and a source that the document did not name before, are what people say.
    """
    obeyed = LastList(fresh, origin)
    if last is None or origin == LISTED or last.origin != origin:
        return obeyed
    names = {target.name for target in fresh}
    lost = sum(target.name not in names for target in last.targets)
    if lost * 100 <= percent * len(last.targets):
        return obeyed
    if last.held is not None and revision > last.held.revision:
        return obeyed
    since = last.held.revision if last.held is not None else revision
    return LastList(last.targets, origin, Held(since, lost, len(last.targets)))


class Source:
    """One source as the document names it; a changed document makes a new one."""

    def __init__(self, spec: Targets, client: httpx2.AsyncClient, folder: Path) -> None:
        """Read relative paths from this folder."""
        self._spec, self._client, self._folder = spec, client, folder
        self._stamp: tuple[int, int, int] | None = None

    @property
    def origin(self) -> str:
        """Name the source: another name is another source, and not the same one with other targets."""
        if self._spec.listed is not None:
            return LISTED
        return f"http {self._spec.http.url}" if self._spec.http is not None else f"file {self._spec.file}"

    @property
    def every_s(self) -> float | None:
        """Say how often to read; None where only a change of the document changes the list."""
        if self._spec.http is not None:
            return float(self._spec.http.interval_seconds)
        return FILE_S if self._spec.file is not None else None

    async def read(self) -> list[Target] | None:
        """Read the list; None where it has not changed."""
        spec = self._spec
        if spec.listed is not None:
            return spec.listed
        if spec.file is not None:
            return await asyncio.to_thread(self._read_file, self._folder / spec.file)
        if spec.http is not None:
            return await self._read_http(spec.http.url)
        raise SourceFault("a ConfigMap is known on Kubernetes only: give a list, a file or an HTTP list")

    def _read_file(self, path: Path) -> list[Target] | None:
        """Read a file that has another time, size or identity than before."""
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp == self._stamp:
                return None
            with path.open("rb") as file:
                text = file.read(BYTES_MAX + 1)
        except OSError as error:
            self._stamp = None
            raise SourceFault(f"{path} cannot be read: {error.strerror}") from None
        self._stamp = None  # Until it was understood, it is read again and its fault is reported again.
        targets = _parse(text, str(path))
        self._stamp = stamp
        return targets

    async def _read_http(self, url: str) -> list[Target]:
        try:
            status, text = await fetch(self._client, "GET", url, _FETCH_S, most=BYTES_MAX)
        except PodFault as fault:
            raise SourceFault(f"the list of targets: {fault}") from None
        if status != _OK:
            raise SourceFault(f"the list of targets answered {status}")
        return await asyncio.to_thread(_parse, text, "the list of targets")


def _parse(text: bytes, source: str) -> list[Target]:
    """Read JSON or YAML in the shape of a document's targets; of many faults the first is told."""
    try:
        return load_targets(text, source)
    except InvalidSpec as error:
        more = f" (and {len(error.faults) - 1} more)" if len(error.faults) > 1 else ""
        raise SourceFault(f"{str(error.faults[0])[:300]}{more}") from None
