"""The ways to a pod: what is sent, how it is read back, and what a bad answer means. Credentials are filled in here.

gnmic: `POST /api/v1/config/apply` replaces everything, `GET /api/v1/config/targets` and `GET /api/v1/targets` read back
what is configured and what still streams. http: `PUT <endpoint>/targets` and `GET <endpoint>/targets`, where a target
is listed until it is no longer collected. pull has no calls: see pull.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeVar

import msgspec

from poise.errors import PoiseError
from poise.jobs.pool.references import Unresolved, references, resolve, seal
from poise.jobs.pool.settings import Pace
from poise.jobs.pool.steps import Content, Sight
from poise.model.target_pool import Delivery, Target

if TYPE_CHECKING:
    import ssl

    import httpx2

_Shape = TypeVar("_Shape")
_BYTES_MAX = 64 * 2**20
_REASON_MAX = 300
_OK, _BROKEN = range(200, 300), 500


class PodFault(PoiseError):
    """A pod did not do what it was asked. `refused`: it answered, and said no; else the outcome is unknown.

    `broken`: the fault is its own (5xx), and not that of what it was sent.
    """

    def __init__(self, reason: str, *, refused: bool = False, broken: bool = False) -> None:
        """Carry one clear reason."""
        super().__init__(reason)
        self.refused, self.broken = refused, broken


class Packet(msgspec.Struct, frozen=True):
    """A document for a pod, with references where credentials belong."""

    content: Content
    body: object
    references: frozenset[tuple[str, str]] = frozenset()

    def seal(self) -> str:
        """Digest the credentials as they are now; empty where there are none."""
        return seal(self.references) if self.references else ""


def pack(delivery: Delivery, targets: Iterable[Target]) -> Packet:
    """Make the document of a pod: its targets, with the pool's subscriptions and outputs for a gNMIc collector."""
    listed = sorted(targets, key=lambda target: target.name)
    body = _gnmic(delivery, listed) if delivery.kind == "gnmic" else [msgspec.to_builtins(each) for each in listed]
    digest = blake2b(msgspec.json.encode(body, order="sorted"), digest_size=16).hexdigest()
    found = frozenset(references(body))
    return Packet(Content(digest, {each.name: each.address or "" for each in listed}), body, found)


def _gnmic(delivery: Delivery, targets: list[Target]) -> dict[str, object]:
    """Write sections by name; without targets an empty document, which resets everything."""
    if not targets:
        return {}
    sections: dict[str, object] = {"targets": {each.name: _gnmic_target(each) for each in targets}}
    named = {"subscriptions": delivery.subscriptions, "outputs": delivery.outputs}
    return sections | {name: section for name, section in named.items() if section}


def _gnmic_target(target: Target) -> dict[str, object]:
    """Labels are what gNMIc calls event tags; what the target's own config says goes first."""
    told: dict[str, object] = {"name": target.name, "address": target.address or target.name}
    if target.labels:
        told["event-tags"] = target.labels
    return told | target.config


class _Listed(msgspec.Struct):
    name: str
    address: str = ""


_CONFIGURED = msgspec.json.Decoder(dict[str, _Listed])
_LIVE = msgspec.json.Decoder(list[_Listed])
_NAMES = msgspec.json.Decoder(list[_Listed | str])


class Courier:
    """Carries documents to one pod and reads back what it has."""

    def __init__(self, client: httpx2.AsyncClient, kind: str, url: str, pace: Pace) -> None:
        """Speak to the pod at this address."""
        self._client, self._kind, self._url, self.pace = client, kind, url.rstrip("/"), pace

    @property
    def nothing(self) -> Packet:
        """Give the document that takes everything from a pod of this kind."""
        return pack(Delivery("gnmic" if self._kind == "gnmic" else "http"), ())

    async def close(self) -> None:
        """Close the connections to the pod."""
        await self._client.aclose()

    async def look(self) -> Sight:
        """Read back what the pod has, all of it within one time."""
        try:
            async with asyncio.timeout(self.pace.answer_s):
                return await self._read_back()
        except TimeoutError:
            raise PodFault(f"reading back was not answered within {self.pace.answer_s:g} s") from None

    async def _read_back(self) -> Sight:
        """Ask for what it is configured to collect, what still streams, and its health where it tells it."""
        if self._kind != "gnmic":
            found = _read(_NAMES, await self._ask("GET", "/targets"), "GET /targets")
            told = {each if isinstance(each, str) else each.name: _address(each) for each in found}
            return Sight(told, frozenset(told))
        status, _ = await self._call("GET", "/api/v1/healthz")
        configured = _read(_CONFIGURED, await self._ask("GET", "/api/v1/config/targets"), "config/targets")
        live = _read(_LIVE, await self._ask("GET", "/api/v1/targets"), "targets")
        unhealthy = "" if status in _OK else f"healthz answered {status}"
        addresses = {name: each.address for name, each in configured.items()}
        return Sight(addresses, frozenset(each.name for each in live), unhealthy)

    async def apply(self, packet: Packet) -> None:
        """Send a document; only here do credentials take the place of their references."""
        try:
            body = await asyncio.to_thread(_encode, packet)
        except Unresolved as error:
            raise PodFault(str(error)) from None
        method, path = ("POST", "/api/v1/config/apply") if self._kind == "gnmic" else ("PUT", "/targets")
        await self._ask(method, path, body, quoted=not packet.references)

    async def _ask(self, method: str, path: str, body: bytes | None = None, *, quoted: bool = True) -> bytes:
        """Expect success; whatever else was answered is a refusal, with the collector's own words where these cannot
        quote a credential.
        """
        status, answer = await self._call(method, path, body)
        if status not in _OK:
            told = _told(answer) if quoted else ""
            raise PodFault(
                f"{method} {path} answered {status}{f': {told}' if told else ''}",
                refused=True,
                broken=status >= _BROKEN,
            )
        return answer

    async def _call(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        limit_s = self.pace.answer_s if body is None else self.pace.apply_s
        headers = {"content-type": "application/json"} if body is not None else {}
        return await fetch(self._client, method, f"{self._url}{path}", limit_s, content=body, headers=headers)


async def fetch(
    client: httpx2.AsyncClient,
    method: str,
    url: str,
    limit_s: float,
    *,
    content: bytes | None = None,
    headers: dict[str, str] | None = None,
    most: int = _BYTES_MAX,
) -> tuple[int, bytes]:
    """Ask and read the whole answer, within a time and a size; an error is one clear reason without the address."""
    import httpx2

    chunks, size = [], 0
    what = method
    try:
        what = f"{method} {httpx2.URL(url).path}"
        async with asyncio.timeout(limit_s), client.stream(method, url, content=content, headers=headers) as answer:
            async for chunk in answer.aiter_bytes():
                chunks.append(chunk)
                size += len(chunk)
                if size > most:
                    raise PodFault(f"{what} answered more than {most} bytes")
            return answer.status_code, b"".join(chunks)
    except (TimeoutError, httpx2.TimeoutException):
        raise PodFault(f"{what} was not answered within {limit_s:g} s") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError) as error:
        raise PodFault(f"{what} failed: {_brief(error)}") from None


def open_client(context: ssl.SSLContext) -> httpx2.AsyncClient:
    """Open a client for one pod or source: sharing one, every request would look at the connections of all.

    Proxies of the environment are not for collectors, and a redirect is not followed.
    """
    import httpx2

    return httpx2.AsyncClient(verify=context, trust_env=False, timeout=None)


def _encode(packet: Packet) -> bytes:
    return msgspec.json.encode(resolve(packet.body) if packet.references else packet.body)


def _read(decoder: msgspec.json.Decoder[_Shape], answer: bytes, what: str) -> _Shape:
    try:
        return decoder.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PodFault(f"{what}: not what a collector answers: {str(error)[:_REASON_MAX]}") from None


def _address(listed: _Listed | str) -> str:
    return "" if isinstance(listed, str) else listed.address


def _told(answer: bytes) -> str:
    """Quote an answer on one line, without what could forge another."""
    text = answer[:_REASON_MAX].decode(errors="replace")
    return "".join(char if char.isprintable() else " " for char in text).strip()


def _brief(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip()[:_REASON_MAX]
