"""How a server is addressed, and how its refusals and silences are told: one translation for members and the CLI."""

from __future__ import annotations

import ipaddress
import os
import ssl
from typing import TYPE_CHECKING, Literal, Self, TypedDict
from urllib.parse import quote, urlsplit

import msgspec

from poise.errors import Conflict, Fault, InvalidSpec, NotFound, PoiseError, Unavailable, invalid

if TYPE_CHECKING:
    import httpx2

TOKEN = "POISE_TOKEN"
Role = Literal["viewer", "operator", "member"]
_TEXT_MAX = 300


class Options(TypedDict):
    """What every client of an address is made with."""

    base_url: str
    headers: dict[str, str]
    verify: ssl.SSLContext | bool
    trust_env: bool


class Address(msgspec.Struct, frozen=True):
    """Where a server answers, and the token that is sent there."""

    url: str
    token: str = ""

    @classmethod
    def read(cls, url: str, token: str | None = None) -> Self:
        """Check an address; without a token, take the one of the environment."""
        said = token if token is not None else os.environ.get(TOKEN, "")
        if not said.isascii() or not said.isprintable():
            raise invalid("$.token", "expected printable ASCII")
        try:
            parts = urlsplit(url)
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            good = False
        if not good or parts.query or parts.fragment or parts.username is not None or not url.isprintable():
            raise invalid("$.server", f"expected an address such as http://127.0.0.1:7878, got {url[:80]!r}")
        return cls(url.rstrip("/"), said.strip())

    def options(self) -> Options:
        """Say how a client is made: with its token, the system's certificates, and no proxy to this machine itself.

        The certificates are those of OpenSSL, so SSL_CERT_FILE names others.
        """
        secure = self.url.startswith("https:")
        return Options(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.token}"} if self.token else {},
            verify=ssl.create_default_context() if secure else False,
            trust_env=not _is_here(urlsplit(self.url).hostname or ""),
        )


class Problem(msgspec.Struct, frozen=True):
    """A refusal as a server tells it."""

    title: str
    status: int
    detail: str
    errors: list[Fault] = []
    incarnation: int | None = None
    seq: int | None = None


def is_server(text: str) -> bool:
    """Tell the address of a server from that of a store."""
    return text.lower().startswith(("http://", "https://"))


def written(*names: str) -> str:
    """Write a path of names; each may hold anything, a slash included."""
    return "".join(f"/{_segment(name)}" for name in names)


def _segment(name: str) -> str:
    quoted = quote(name, safe="")
    # A segment of dots alone would be taken for a way upwards.
    return quoted.replace(".", "%2E") if set(name) == {"."} else quoted


def problem_of(response: httpx2.Response) -> Problem | None:
    """Read a refusal; None where it is none of Poise's."""
    if not response.headers.get("content-type", "").startswith("application/problem+json"):
        return None
    try:
        return msgspec.json.decode(response.content, type=Problem)
    except msgspec.DecodeError:
        return None


def refusal(address: Address, needed: Role, response: httpx2.Response) -> PoiseError:
    """Translate a refusal; `needed` is the role that this call asks for."""
    problem, status = problem_of(response), response.status_code
    if status == 503:
        return Unavailable(f"{address.url}: {problem.detail if problem else 'not now'}")
    if problem is None:
        return strange(address, response)
    match status:
        case 400:
            return InvalidSpec(*(problem.errors or [Fault("", problem.detail)]))
        case 401:
            told = f"the token in {TOKEN} is not known" if address.token else f"needs a token; set {TOKEN}"
            return PoiseError(f"{address.url}: {told} (role {needed})")
        case 403:
            return PoiseError(f"{address.url}: {problem.detail}: this needs the role {needed}")
        case 404:
            return NotFound(problem.detail)
        case 409 | 412:
            return Conflict(problem.detail)
    return PoiseError(f"{address.url}: {problem.title[:1].lower()}{problem.title[1:]}: {problem.detail}")


def strange(address: Address, response: httpx2.Response) -> PoiseError:
    """Tell of an answer that no Poise server gives."""
    return PoiseError(
        f"{address.url} does not answer as a Poise server: {response.status_code} for {response.url.path}"
    )


def failure(address: Address, error: Exception) -> Unavailable:
    """Translate the lack of an answer: what was being written may or may not be there."""
    import httpx2

    if isinstance(error, httpx2.TimeoutException):
        return Unavailable(f"{address.url} did not answer in time")
    reason = str(error)[:_TEXT_MAX] or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        reason = "its certificate is not trusted; SSL_CERT_FILE names a file of those that are"
    return Unavailable(f"{address.url} cannot be reached: {reason}")


def _is_here(host: str) -> bool:
    """Tell whether a host is this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
