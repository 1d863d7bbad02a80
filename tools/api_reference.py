"""Write the generated part of docs/api.md from the description that the server gives: `python tools/api_reference.py`.

What stands above the marker is written by hand and kept. A test compares the page with what this would write.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from poise.model import KINDS
from poise.serve.calls import CALLS
from poise.serve.openapi import describe

PAGE = Path(__file__).parent.parent / "docs" / "api.md"
MARKER = "<!-- From here on: written by tools/api_reference.py. -->\n"
_REF = "#/components/schemas/"
_PROBLEM = "application/problem+json"
_LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "min_length": "at least {} long",
    "max_length": "at most {} long",
}


class Schema(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A shape, as far as the page tells it."""

    ref: str = msgspec.field(default="", name="$ref")
    type: str = ""
    description: str = ""
    enum: list[object] = []
    any_of: list[Schema] = []
    items: Schema | None = None
    properties: dict[str, Schema] = {}
    additional_properties: Schema | bool = True
    required: list[str] = []
    default: object = UNSET
    minimum: int | float | UnsetType = UNSET
    maximum: int | float | UnsetType = UNSET
    min_length: int | UnsetType = UNSET
    max_length: int | UnsetType = UNSET


class Media(msgspec.Struct, frozen=True):
    """A body of one media type."""

    schema: Schema


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of the path, the query or a header."""

    name: str
    place: str = msgspec.field(name="in")
    schema: Schema
    description: str = ""


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """What a request or an answer carries."""

    description: str = ""
    required: bool = False
    content: dict[str, Media] = {}
    headers: dict[str, object] = {}


class Operation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One call."""

    summary: str
    role: str = msgspec.field(name="x-poise-role")
    members: str = msgspec.field(name="x-poise-members", default="")
    parameters: list[Parameter]
    responses: dict[int, Body]
    request_body: Body | None = None


class Components(msgspec.Struct, frozen=True):
    """The shapes by their names."""

    schemas: dict[str, Schema]


class Description(msgspec.Struct, frozen=True):
    """The OpenAPI document."""

    paths: dict[str, dict[str, Operation]]
    components: Components


def reference(openapi: bytes) -> str:
    """Write the reference of an API: its calls, then the shapes that they speak of."""
    api = msgspec.json.decode(openapi, type=Description)
    operations = [
        (method, path, operation) for path, methods in api.paths.items() for method, operation in methods.items()
    ]
    everywhere = set.intersection(*({code for code in each.responses if code >= 400} for _, _, each in operations))
    lines = ["## Calls", "", *_index(operations), *_refusals(operations[0][2], everywhere)]
    for method, path, operation in operations:
        lines += _operation(method, path, operation, everywhere)
    lines += ["## Shapes", "", _about_kinds(), ""]
    kinds = _reached(KINDS, api.components.schemas)
    for name in sorted(api.components.schemas.keys() - kinds):
        lines += _shape(name, api.components.schemas[name])
    return "\n".join(lines).rstrip() + "\n"


def _index(operations: list[tuple[str, str, Operation]]) -> Iterator[str]:
    yield from ("| call | role | does |", "|---|---|---|")
    for method, path, operation in operations:
        link = f"[`{method.upper()} {path}`](#{_anchor(f'{method} {path}')})"
        yield f"| {link} | {_role(operation)} | {_cell(operation.summary)} |"
    yield ""


def _role(operation: Operation) -> str:
    return f"{operation.role}, member" if operation.members else operation.role


def _anchor(heading: str) -> str:
    """Name a heading as the pages of a repository do: small letters and digits, blanks become dashes."""
    kept = [char for char in heading.lower() if char.isalnum() or char in " -_"]
    return "".join(kept).replace(" ", "-")


def _refusals(example: Operation, everywhere: set[int]) -> Iterator[str]:
    yield "Any call may be refused with one of these; further refusals stand beside the call."
    yield ""
    yield from ("| status | when |", "|---|---|")
    for status in sorted(everywhere):
        yield f"| {status} | {_cell(example.responses[status].description)} |"
    yield ""


def _operation(method: str, path: str, operation: Operation, everywhere: set[int]) -> Iterator[str]:
    members = f", and `member`: {operation.members}" if operation.members else ""
    yield from (f"### {method.upper()} {path}", "", f"{operation.summary}. Role: `{operation.role}`{members}.", "")
    if operation.parameters:
        yield from ("| parameter | in | what |", "|---|---|---|")
        for each in operation.parameters:
            yield f"| `{each.name}` | {each.place} | {_cell(_told(each.schema, each.description))} |"
        yield ""
    if operation.request_body is not None:
        wish = "" if operation.request_body.required else " May be left out."
        yield from (f"Body: {_content(operation.request_body)}.{wish}", "")
    yield from ("| answer | what | body |", "|---|---|---|")
    for status, body in operation.responses.items():
        if status not in everywhere:
            headers = f" (header {', '.join(f'`{name}`' for name in body.headers)})" if body.headers else ""
            yield f"| {status} | {_cell(body.description)}{headers} | {_content(body) or 'none'} |"
    yield ""


def _content(body: Body) -> str:
    shapes = list(dict.fromkeys(_type(media.schema) for media in body.content.values()))
    media = ", ".join(f"`{name}`" for name in body.content if name not in ("application/json", _PROBLEM))
    return _cell(" or ".join(shapes)) + (f" as {media}" if media and len(body.content) == 1 else "")


def _about_kinds() -> str:
    kinds = ", ".join(f"`{kind}`" for kind in KINDS)
    return f"The fields of the documents ({kinds}) are described in [documents](documents.md)."


def _reached(names: Iterable[str], schemas: dict[str, Schema]) -> set[str]:
    """Name every shape that the documents are made of."""
    found: set[str] = set()
    coming = list(names)
    while coming:
        name = coming.pop()
        if name not in found:
            found.add(name)
            coming += _refs(schemas[name])
    return found


def _refs(schema: Schema) -> Iterator[str]:
    if schema.ref:
        yield schema.ref.removeprefix(_REF)
    inner = [*schema.any_of, *schema.properties.values(), schema.items, schema.additional_properties]
    for each in inner:
        if isinstance(each, Schema):
            yield from _refs(each)


def _shape(name: str, schema: Schema) -> Iterator[str]:
    yield from (f"### {name}", "")
    if schema.description:
        yield from (schema.description, "")
    if not schema.properties:
        return
    yield from ("| field | what | default |", "|---|---|---|")
    for field, inner in schema.properties.items():
        fallback = "required" if field in schema.required else _default(inner.default)
        yield f"| `{field}` | {_cell(_told(_bare(inner), inner.description))} | {_cell(fallback)} |"
    yield ""


def _bare(schema: Schema) -> Schema:
    """Leave the default to its own column."""
    return msgspec.structs.replace(schema, default=UNSET)


def _default(value: object) -> str:
    return "absent" if value is UNSET else f"`{msgspec.json.encode(value).decode()}`"


def _told(schema: Schema, meaning: str) -> str:
    limits = [
        text.format(value)
        for field, text in _LIMITS.items()
        if (value := getattr(schema, field)) is not UNSET and (field, value) != ("min_length", 1)
    ]
    fallback = "" if schema.default is UNSET else f"default {_default(schema.default)}"
    return "; ".join(part for part in (_type(schema), " and ".join(limits), meaning, fallback) if part)


def _type(schema: Schema) -> str:
    """Say in words what a value is."""
    if schema.ref:
        return _named(schema.ref.removeprefix(_REF))
    if schema.any_of:
        return _either([_type(each) for each in schema.any_of])
    if schema.enum:
        return " or ".join(f"`{value}`" for value in schema.enum)
    if schema.type == "array":
        return f"list of {_type(schema.items)}" if schema.items else "list"
    if schema.properties:
        fields = (f"`{name}`: {_type(each)}" for name, each in schema.properties.items())
        return f"an object of {', '.join(fields)}"
    if isinstance(schema.additional_properties, Schema):
        return f"mapping to {_type(schema.additional_properties)}"
    return {"object": "an object", "": "anything"}.get(schema.type, schema.type)


def _either(names: list[str]) -> str:
    """List alternatives; the five kinds together are called what they are."""
    kinds = [_named(kind) for kind in KINDS]
    if set(kinds) <= set(names):
        names = ["a [document](documents.md)", *(name for name in names if name not in kinds)]
    return " or ".join(dict.fromkeys(names))


def _named(name: str) -> str:
    """Link a shape: what a document is made of is told on the page of its kind."""
    kind = next((each for each in KINDS if name.startswith(each)), None)
    return f"[{name}](#{name.lower()})" if kind is None else f"[{name}](documents.md#{kind.lower()})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def renew(page: str, openapi: bytes) -> str:
    """Give the page with its generated part made anew."""
    prose, marker, _ = page.partition(MARKER)
    if not marker:
        raise ValueError("the page has no marker")
    return f"{prose}{MARKER}\n{reference(openapi)}"


def main() -> None:
    """Write the page, where it is not current."""
    page = PAGE.read_text()
    current = renew(page, msgspec.json.encode(describe(CALLS)))
    if current != page:
        PAGE.write_text(current)
    sys.stdout.write(f"{PAGE.name}: {'written' if current != page else 'current'}\n")


if __name__ == "__main__":
    main()
