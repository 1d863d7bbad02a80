"""A server as the verbs ask it: documents, plans, items and members over HTTP, and news of every change."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import msgspec

from poise.decide.explain import Explanation
from poise.documents import dump
from poise.errors import Fault, InvalidSpec, NotFound, PoiseError
from poise.hold.http_words import Address, Role, failure, refusal, strange, written
from poise.jobs.entries import CapacityEntry, DivisionEntry, ItemsEntry, ItemsView, Planned, Told
from poise.jobs.partitions import SetView
from poise.model import KINDS, Document
from poise.model.ownership import Line
from poise.serve.facade import ItemView, JobSummary, MemberView, Stoppable

if TYPE_CHECKING:
    import httpx2

    from poise.jobs.what_if import WhatIf

Answer = TypeVar("Answer")
_ANSWER_S, _SILENCE_S, _AGAIN_S = 35.0, 45.0, 1.0  # A server cuts a request off after 30 s, and pings every 15 s.
_PAGE = 1_000
_JSON = {"Content-Type": "application/json"}


class Job(msgspec.Struct, frozen=True, order=True):
    """Which job is meant."""

    kind: str
    name: str

    def __str__(self) -> str:
        """Read as people write it."""
        return f"{self.kind}/{self.name}"

    def path(self, *more: str) -> str:
        """Give the address of something of this job."""
        return written("v1", "jobs", self.kind, self.name, *more)


class Found(msgspec.Struct, frozen=True):
    """A document as the server has it, and its revision."""

    document: dict[str, object]
    tag: str


class _Page(msgspec.Struct, frozen=True, rename={"go_on": "continue"}):
    """A part of a list."""

    items: list[msgspec.Raw]
    go_on: str = ""


class _Around(msgspec.Struct, frozen=True):
    """What a plan over HTTP says beyond its entry."""

    kind: str
    pending: bool
    notes: list[str] = []
    view: SetView | None = None


class Server:
    """Asks one server while its block runs; every failure is an error of ours with the address in it."""

    def __init__(self, url: str) -> None:
        """Prepare; nothing is asked yet."""
        self._address = Address.read(url)
        self.url = self._address.url

    def __enter__(self) -> Self:
        """Make the client."""
        import httpx2

        self._client = httpx2.Client(**self._address.options(), timeout=_ANSWER_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the connections."""
        self._client.close()

    # Jobs.

    def jobs(self) -> list[JobSummary]:
        """List every job."""
        return self.pages(written("v1", "jobs"), JobSummary)

    def find(self, text: str, kinds: tuple[str, ...] = tuple(KINDS)) -> Job:
        """Find the job of a NAME or KIND/NAME."""
        kind, slash, name = text.partition("/")
        if slash:
            return Job(kind_of(kind), name)
        found = [Job(each.kind, each.name) for each in self.jobs() if each.kind in kinds]
        named = [job for job in found if job.name == text]
        if len(named) == 1:
            return named[0]
        if named:
            raise wrong(f"{text} is more than one job: say {' or '.join(map(str, named))}")
        there = f"; there is {', '.join(map(str, found[:8]))}" if found else ""
        raise wrong(f"there is no job {text!r} at {self.url}{there}")

    def summary(self, job: Job) -> JobSummary:
        """Look at one job in a line."""
        found = next((each for each in self.jobs() if (each.kind, each.name) == (job.kind, job.name)), None)
        if found is None:
            raise wrong(f"there is no {job.kind} {job.name!r} at {self.url}")
        return found

    def get(self, job: Job) -> Found:
        """Read a document, spec and status, as the server writes it."""
        response = self._ask("GET", job.path())
        return Found(self._read(response, dict[str, object]), response.headers.get("etag", ""))

    def document(self, job: Job) -> Document:
        """Read a document to plan it here."""
        from poise.documents import load

        return load(msgspec.json.encode(self.get(job).document), self.url)[0]

    def find_document(self, job: Job) -> Found | None:
        """Read a document, or None where there is none."""
        try:
            return self.get(job)
        except InvalidSpec:
            return None

    def put(self, document: Document, tag: str) -> Found:
        """Create or change a job, on the condition that it still is what was looked at; no tag: that it is new."""
        headers = {"If-Match": tag} if tag else {"If-None-Match": "*"}
        response = self._ask("PUT", job_of(document).path(), dump(document), headers=headers)
        return Found(self._read(response, dict[str, object]), response.headers.get("etag", ""))

    def try_put(self, document: Document) -> tuple[Planned, str]:
        """Plan what a put would lead to, and the tag that it was planned upon."""
        response = self._ask("PUT", job_of(document).path(), dump(document), query={"dryRun": "true"})
        return self._planned(response), response.headers.get("etag", "")

    def plan(self, job: Job, what_if: WhatIf | None = None) -> Planned:
        """Plan a job as it is, or as a what-if."""
        if what_if is None:
            return self._planned(self._ask("GET", job.path("plan")))
        return self._planned(self._ask("POST", job.path("plan"), what_if, needed="viewer"))

    def pause(self, job: Job, *, paused: bool, everything: bool = False) -> None:
        """Hold moves back, or let them go on."""
        self._ask("POST", job.path("pause" if paused else "resume"), {"all": True} if everything else {})

    # Items and members.

    def items(self, job: Job, state: str | None = None) -> list[ItemView]:
        """List the items of a job, all or those in one state."""
        return self.pages(job.path("items"), ItemView, {"state": state} if state else {})

    def members(self, job: Job) -> list[MemberView]:
        """List the members of a job."""
        return self.pages(job.path("members"), MemberView)

    def draining(self, job: Job) -> list[str]:
        """Name the members that are drained; the status of a ring does not say it."""
        return [each.name for each in self.members(job) if each.draining]

    def drain(self, job: Job, member: str, *, draining: bool) -> MemberView:
        """Take a member out of service, or back into it."""
        verb = "drain" if draining else "undrain"
        return self._read(self._ask("POST", job.path("members", member, verb), {}), MemberView)

    def stoppable(self, job: Job, member: str) -> Stoppable:
        """Ask whether a member may stop."""
        return self._read(self._ask("GET", job.path("members", member, "stoppable")), Stoppable)

    def explain(self, job: Job, item: str, what_if: WhatIf | None = None) -> Explanation | Told:
        """Ask why an item is where it is, or would be."""
        path = job.path("items", item, "explain")
        response = self._ask("GET", path) if what_if is None else self._ask("POST", path, what_if, needed="viewer")
        counted = "alternatives" not in self._read(response, dict[str, msgspec.Raw])
        return self._read(response, Told) if counted else self._read(response, Explanation)

    def history(self, job: Job, item: str) -> list[Line]:
        """Read the story of an item."""
        return self.pages(job.path("items", item, "history"), Line)

    def pages(self, path: str, kind: type[Answer], only: dict[str, str] | None = None) -> list[Answer]:
        """Read a list to its end."""
        found: list[Answer] = []
        query = {"limit": str(_PAGE), **(only or {})}
        while True:
            response = self._ask("GET", path, query=query)
            page = self._read(response, _Page)
            try:
                found += [msgspec.json.decode(each, type=kind) for each in page.items]
            except msgspec.DecodeError:
                raise strange(self._address, response) from None
            if not page.go_on:
                return found
            query["continue"] = page.go_on

    # The wire.

    def _ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        needed: Role | None = None,
    ) -> httpx2.Response:
        import httpx2

        content = None if body is None else msgspec.json.encode(body)
        sent = {**(_JSON if body is not None else {}), **(headers or {})}
        try:
            response = self._client.request(method, path, content=content, params=query, headers=sent)
        except (httpx2.RequestError, OSError) as error:
            raise failure(self._address, error) from None
        if response.status_code < 300:
            return response
        raise _for_people(refusal(self._address, needed or ("viewer" if method == "GET" else "operator"), response))

    def _read(self, response: httpx2.Response, kind: type[Answer]) -> Answer:
        try:
            return msgspec.json.decode(response.content, type=kind)
        except msgspec.DecodeError:
            raise strange(self._address, response) from None

    def _planned(self, response: httpx2.Response) -> Planned:
        """Read a plan as the planner made it, so that it is printed like one that was made here."""
        around = self._read(response, _Around)
        if around.kind == "ReplicaDivision":
            return Planned(self._read(response, DivisionEntry), [], around.pending, None, around.notes)
        if around.kind == "CapacitySplit":
            return Planned(self._read(response, CapacityEntry), [], around.pending, None, around.notes)
        view: ItemsView | None = around.view
        return Planned(self._read(response, ItemsEntry), [], around.pending, view, around.notes)

    def news(self) -> News:
        """Begin to listen for changes."""
        return News(self._address)


class News:
    """Says when something has changed, by the server's stream of events; a lost stream is taken up again."""

    def __init__(self, address: Address) -> None:
        """Listen in a thread that ends with the process."""
        self._address = address
        self._changed, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._listen, name="poise-news", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Wait for a change, or for the timeout; what comes at the same moment is one change."""
        if self._changed.wait(timeout_s):
            self._ended.wait(0.05)
        self._changed.clear()

    def end(self) -> None:
        """Stop listening."""
        self._ended.set()

    def _listen(self) -> None:
        import httpx2

        timeout = httpx2.Timeout(_ANSWER_S, read=_SILENCE_S)
        with httpx2.Client(**self._address.options(), timeout=timeout) as client:
            while not self._ended.is_set():
                try:
                    with client.stream("GET", "/v1/events") as response:
                        self._changed.set()  # Something may have been missed before the stream began.
                        for line in response.iter_lines() if response.status_code == 200 else ():
                            if line.startswith("data:"):
                                self._changed.set()
                            if self._ended.is_set():
                                return
                except (httpx2.RequestError, OSError):
                    pass
                self._ended.wait(_AGAIN_S)


def _for_people(error: PoiseError) -> PoiseError:
    """Say of a name that is not there what is said of other wrong arguments."""
    return wrong(str(error)) if isinstance(error, NotFound) else error


def wrong(text: str) -> InvalidSpec:
    """Refuse what was asked for."""
    return InvalidSpec(Fault("", text))


def job_of(document: Document) -> Job:
    """Name the job of a document."""
    return Job(document.kind, document.metadata.name)


def kind_of(text: str) -> str:
    """Read a kind as people write it: in any case, also in the plural."""
    found = _kinds().get(text.lower())
    if found is None:
        raise wrong(f"there is no kind {text!r}; the kinds are {', '.join(KINDS)}")
    return found


def is_kind(text: str) -> bool:
    """Tell a kind from a name."""
    return text.lower() in _kinds()


def _kinds() -> dict[str, str]:
    return {word: kind for kind in KINDS for word in (kind.lower(), f"{kind.lower()}s")}
