"""The OpenAPI 3.1 document, made from the rows of the API and the Structs that they answer with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from types import UnionType
from typing import get_args

import msgspec

from poise import __version__
from poise.model import KINDS
from poise.serve.call import Call, Listed, Shown
from poise.serve.calls.login import FORM
from poise.serve.door import COOKIE
from poise.serve.problems import PROBLEM_JSON, Problem

Json = dict[str, object]
_REF = "#/components/schemas/{name}"
# What may happen to any request before its handler sees it, or because the store is away.
_ANY = (400, 408, 421, 431, 503)
_WHY = {
    400: "the request breaks a rule; `errors` names every place",
    401: "a token is needed, or it is not known",
    403: "the role, or the origin, does not allow this",
    404: "there is no such thing",
    405: "this cannot be done here",
    408: "the request took longer than 30 s",
    409: "something else is true by now: observe again",
    412: "the condition does not hold: somebody else was first",
    413: "the body is larger than 8 MiB",
    415: "the body is of another type",
    421: "the Host is none of this server's",
    431: "the headers are larger than 64 kB",
    503: "the store cannot be asked, or too many ask; come again after Retry-After",
}
_ROLES = (
    "Each call names its role: viewer reads, operator does everything, member speaks for its own set; open needs no "
    "token. A server on loopback without tokens asks for none at all."
)
_HEADERS = {
    "ETag": "the revision, quoted",
    "Location": "where it is",
    "Set-Cookie": "the session",
    "Retry-After": "seconds",
}


def describe(calls: Iterable[Call]) -> Json:
    """Describe an API."""
    rows = list(calls)
    shapes = list(dict.fromkeys(shape for call in rows for shape in _shapes(call)))
    schemas, components = msgspec.json.schema_components(shapes, schema_hook=_hook, ref_template=_REF)
    known = dict(zip(map(repr, shapes), schemas, strict=True))
    paths: dict[str, Json] = {}
    for call in rows:
        paths.setdefault(call.path, {})[call.method.lower()] = _operation(call, known)
    document: Json = {
        "openapi": "3.1.0",
        "info": {
            "title": "Poise",
            "version": __version__,
            "description": "Which member holds what, why, and what moves next. Paths take names percent-encoded.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": _ROLES},
                "session": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "made by POST /login"},
            },
        },
    }
    portable = _portable(document)
    assert isinstance(portable, dict), "a mapping stays one"
    return portable


def _shapes(call: Call) -> Iterator[object]:
    yield Problem
    for shape in (call.body, *(shown.shape for shown in call.answers.values())):
        if shape is not None:
            yield from _alternatives(shape.of if isinstance(shape, Listed) else shape)


def _alternatives(shape: object) -> tuple[object, ...]:
    """Take a union apart: the generator of schemas wants its Structs one by one."""
    return get_args(shape) if isinstance(shape, UnionType) else (shape,)


def _hook(_kind: type) -> Json:
    """Describe what is taken as it is, such as the configuration of a collector."""
    return {"description": "anything"}


def _operation(call: Call, known: dict[str, Json]) -> Json:
    operation: Json = {
        "summary": call.does,
        "operationId": call.handle.__name__,
        "tags": [_tag(call.path)],
        "parameters": [*_path_parameters(call), *_query_parameters(call), *_header_parameters(call)],
        "responses": {str(status): response for status, response in _responses(call, known)},
        "security": _security(call),
        "x-poise-role": call.role,
    }
    if call.members is not None:
        operation["x-poise-members"] = call.members.does
    if call.body is not None:
        media = {each: {"schema": _schema(call.body, known)} for each in call.body_media}
        operation["requestBody"] = {"required": call.body_needed, "content": media}
    return operation


def _security(call: Call) -> list[Json]:
    """Name the role that a token or the session of one must have; a server without tokens asks for none."""
    return [{}] if call.role == "open" else [{"token": [call.role]}, {"session": [call.role]}, {}]


def _tag(path: str) -> str:
    parts = [part for part in path.split("/") if part and part != "v1" and not part.startswith("{")]
    return parts[1] if parts[0] == "jobs" and len(parts) > 1 else parts[0]


def _path_parameters(call: Call) -> list[Json]:
    names = re.findall(r"{(\w+)}", call.path)
    return [{"name": name, "in": "path", "required": True, "schema": _path_schema(name)} for name in names]


def _path_schema(name: str) -> Json:
    return {"type": "string", "enum": list(KINDS)} if name == "kind" else {"type": "string", "minLength": 1}


def _query_parameters(call: Call) -> list[Json]:
    return [{"name": each.name, "in": "query", "description": each.does, "schema": each.schema} for each in call.query]


def _header_parameters(call: Call) -> list[Json]:
    told = []
    if call.conditional:
        told += [("If-Match", "write only over this revision"), ("If-None-Match", "*: write only if there is none")]
    if call.streams:
        told += [("Last-Event-ID", "the last event that was seen")]
    return [{"name": name, "in": "header", "description": why, "schema": {"type": "string"}} for name, why in told]


def _responses(call: Call, known: dict[str, Json]) -> Iterator[tuple[int, Json]]:
    for status, shown in call.answers.items():
        yield status, _shown(shown, known)
    barred = (401, 403) if call.role != "open" else (401, 403) if call.method != "GET" else (401,)
    bodies = (413, 415) if call.body is not None else (413,)
    for status in sorted({*_ANY, *barred, *bodies, *call.refusals} - call.answers.keys()):
        yield status, _refusal(status, known, page=FORM in call.body_media)


def _shown(shown: Shown, known: dict[str, Json]) -> Json:
    response: Json = {"description": shown.does}
    if shown.headers:
        response["headers"] = _headers(shown.headers)
    if shown.shape is not None:
        response["content"] = {shown.media: {"schema": _schema(shown.shape, known)}}
    return response


def _schema(shape: object, known: dict[str, Json]) -> Json:
    if not isinstance(shape, Listed):
        found = [known[repr(each)] for each in _alternatives(shape)]
        return {"anyOf": found} if len(found) > 1 else found[0]
    items = {"type": "array", "items": _schema(shape.of, known)}
    token = {"type": "string", "description": "asks for the next page; absent on the last"}
    return {"type": "object", "properties": {"items": items, "continue": token}, "required": ["items"]}


def _refusal(status: int, known: dict[str, Json], *, page: bool) -> Json:
    """Describe a refusal; to a form of the page it may be told by the page."""
    content: Json = {PROBLEM_JSON: {"schema": known[repr(Problem)]}}
    if page:
        content["text/html"] = {"schema": {"type": "string"}}
    response: Json = {"description": _WHY.get(status, HTTPStatus(status).phrase), "content": content}
    if status == 503:
        response["headers"] = _headers(("Retry-After",))
    return response


def _headers(names: Iterable[str]) -> Json:
    return {name: {"description": _HEADERS[name], "schema": {"type": "string"}} for name in names}


def _portable(value: object) -> object:
    """Write patterns as JSON Schema has them: there `$` is the very end of a text, and `\\Z` means nothing."""
    if isinstance(value, dict):
        return {
            key: _pattern(inner) if key == "pattern" and isinstance(inner, str) else _portable(inner)
            for key, inner in value.items()
        }
    return [_portable(each) for each in value] if isinstance(value, list | tuple) else value


def _pattern(text: str) -> str:
    return re.sub(r"\\Z$", "$", text)
