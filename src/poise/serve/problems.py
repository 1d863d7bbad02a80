"""The one shape of every refusal: problem+json (RFC 9457), with the path of each fault."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus

import msgspec
from msgspec import UNSET, UnsetType
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from poise.errors import BrokenPlan, Conflict, Fault, InvalidSpec, NotFound, PoiseError, Unavailable

PROBLEM_JSON = "application/problem+json"
RETRY_S = 2
_DETAIL_MAX = 2_000
_ERRORS_MAX = 100

# The statuses of our own wording; every other one is named by its phrase alone.
_TITLES = {
    400: ("invalid", "The request breaks a rule"),
    401: ("no-token", "A token is needed"),
    403: ("forbidden", "This is not allowed"),
    404: ("not-found", "There is no such thing"),
    405: ("method", "This cannot be done here"),
    408: ("slow", "The request took too long"),
    409: ("conflict", "Something else is true by now"),
    412: ("overtaken", "Somebody else was first"),
    413: ("too-large", "The body is too large"),
    415: ("media-type", "The body is no JSON"),
    421: ("host", "This server has another name"),
    431: ("headers", "The headers are too large"),
    500: ("fault", "A fault of Poise itself"),
    503: ("unavailable", "Not now"),
}


class ProblemError(msgspec.Struct, frozen=True):
    """One fault: where it stands and what is wrong there."""

    path: str
    message: str


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal. A superseded process also hears the incarnation that is, a late heartbeat the newest number."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[ProblemError]
    incarnation: int | UnsetType = UNSET
    seq: int | UnsetType = UNSET


class Refused(HTTPException):
    """A request that the HTTP layer itself refuses; nothing was changed."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        faults: Iterable[Fault] = (),
        headers: Mapping[str, str] | None = None,
        incarnation: int | UnsetType = UNSET,
        seq: int | UnsetType = UNSET,
    ) -> None:
        """Carry what the problem will say."""
        super().__init__(status, detail, headers)
        self.faults = tuple(faults)
        self.incarnation, self.seq = incarnation, seq


def busy(detail: str) -> Refused:
    """Ask to come again in a moment."""
    return Refused(503, detail, headers={"Retry-After": str(RETRY_S)})


def refusal_of(error: Exception) -> Refused:
    """Translate an error into a refusal; whatever nobody meant to raise is told without its text."""
    match error:
        case Refused():
            return error
        case HTTPException():
            detail = error.detail if error.status_code not in (404, 405) else _TITLES[error.status_code][1]
            return Refused(error.status_code, detail, headers=error.headers)
        case InvalidSpec():
            count = len(error.faults)
            return Refused(400, f"{count} fault{'s' if count != 1 else ''}: {error}", faults=error.faults)
        case NotFound():
            return Refused(404, str(error))
        case Unavailable():
            return busy(f"the store cannot be asked: {error}")
        case Conflict():
            return Refused(409, str(error))
        case BrokenPlan():
            return Refused(500, f"the plan breaks a law and is not shown; please report it: {error}")
        case PoiseError():
            return Refused(409, str(error))
    return Refused(500, "an unexpected fault; the server's log names it")


def problem_response(error: Exception) -> Response:
    """Answer with the problem of an error."""
    refused = refusal_of(error)
    status = refused.status_code
    name, title = _TITLES.get(status, ("", HTTPStatus(status).phrase))
    problem = Problem(
        type=f"urn:poise:problem:{name}" if name else "about:blank",
        title=title,
        status=status,
        detail=refused.detail[:_DETAIL_MAX],
        errors=[ProblemError(fault.path, fault.message) for fault in refused.faults[:_ERRORS_MAX]],
        incarnation=refused.incarnation,
        seq=refused.seq,
    )
    return Response(msgspec.json.encode(problem), status, refused.headers, PROBLEM_JSON)


async def on_error(_request: Request, error: Exception) -> Response:
    """Answer for Starlette's own refusals (no such path) and for errors that are meant."""
    return problem_response(error)
