"""What the API server refuses, in Poise's own errors: the edge at which HTTP ends."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from poise.errors import (
    Conflict,
    Fault,
    Forbidden,
    InvalidSpec,
    NotFound,
    Overloaded,
    PatchRefused,
    PoiseError,
    Unavailable,
    VersionGone,
)
from poise.kube.objects import Status
from poise.kube.resources import Resource

JSON_PATCH = "application/json-patch+json"
_TOLD_MAX = 300
_RETRY_AFTER_MAX_S = 300.0


class Request(msgspec.Struct, frozen=True):
    """What was asked for, in the words of the API server's rights: enough to say which right is missing."""

    verb: str
    resource: Resource
    namespace: str
    subject: str
    content_type: str = ""
    subresource: str = ""

    @property
    def right(self) -> str:
        """The resource as rights name it: `deployments/status`."""
        return "/".join(part for part in (self.resource.plural, self.subresource) if part)


def failure(request: Request, code: int, headers: Mapping[str, str], said: Status) -> PoiseError:
    """Translate one refusal."""
    told = f"{request.verb} {request.subject}: {said.message or f'status {code}'}"
    match code:
        case 401:
            return _forbidden(request, "the API server does not accept the credentials")
        case 403:
            return _forbidden(request, said.message)
        case 404:
            return NotFound(told)
        case 409:
            return Conflict(told)
        case 410:
            return VersionGone(told)
        case 400 | 413 | 415 | 422:
            return _refused(request, said, told)
    retry_after_s = retry_after(headers, said)
    if code == 429 or (code == 503 and retry_after_s is not None):
        return Overloaded(told, retry_after_s)
    return Unavailable(told)


def _forbidden(request: Request, told: str) -> Forbidden:
    return Forbidden(request.verb, request.resource.group, request.right, request.namespace, told)


def _refused(request: Request, said: Status, told: str) -> PoiseError:
    """Part a failed test, another object under the same name, and a document that breaks a rule."""
    causes = said.details.causes
    if said.code == 422 and not causes and request.content_type == JSON_PATCH:
        return PatchRefused(f"{request.verb} {request.subject}: a test failed, nothing was written")
    # A patch that names the uid of an earlier object of that name is refused as a change of the uid.
    if causes and all(cause.field == "metadata.uid" for cause in causes):
        return Conflict(told)
    faults = dict.fromkeys(Fault(_path(cause.field), cause.message, request.subject) for cause in causes)
    return InvalidSpec(*faults or [Fault("", told)])


def _path(field: str) -> str:
    """Write the place of a fault as Poise does; the API server says nothing, or `<nil>`, where it is the whole."""
    plain = field.strip("<>")
    return "$" if plain in ("", "nil") else f"$.{plain}"


def read_status(body: bytes) -> Status:
    """Read what came instead of an object; something that is no Status, such as a proxy's page, is its text."""
    try:
        return msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = " ".join(body[:_TOLD_MAX].decode(errors="replace").split())
        return Status(message="".join(sign for sign in text if sign.isprintable()))


def retry_after(headers: Mapping[str, str], said: Status) -> float | None:
    """Read for how long the server asks to be left alone, in seconds; a date or nonsense counts as not said."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit() and len(text) <= 9:
        return min(float(text), _RETRY_AFTER_MAX_S)
    told_s = said.details.retry_after_seconds
    return min(float(told_s), _RETRY_AFTER_MAX_S) if told_s > 0 else None
