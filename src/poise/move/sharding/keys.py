"""The key of an object: what the ring or the balanced planner is asked about. Owner and owned share the owner's key."""

from __future__ import annotations

import re
from collections.abc import Mapping

from poise.errors import invalid

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

_PART = re.compile(r"\.([A-Za-z_][\w-]*)|\[(\d{1,9})\]|\['([^'\]]+)'\]")


def object_key(group: str, kind: str, namespace: str, name: str) -> str:
    """Name an object: `group/Kind/namespace/name`; the parts that it does not have are empty."""
    return f"{group}/{kind}/{namespace}/{name}"


def ring_key(
    own_key: str, namespace: str, labels: Mapping[str, str], *, source: str = "object", label: str = ""
) -> str:
    """Give the key of a root: its own name, its namespace, or the value of a label; what it lacks is its own name."""
    match source:
        case "namespace":
            return namespace or own_key
        case "label":
            return labels.get(label) or own_key
        case _:
            return own_key


def path_key(own_key: str, path: str, body: Json) -> str:
    """Give the key that a JSONPath finds in a root; where it finds no plain value the key is its own name."""
    found = body
    for step in json_path(path):
        if isinstance(found, dict) and isinstance(step, str):
            found = found.get(step)
        elif isinstance(found, list) and isinstance(step, int):
            found = found[step] if step < len(found) else None
        else:
            return own_key
    match found:
        case bool():
            return "true" if found else "false"
        case str() | int() | float():
            return str(found) or own_key
        case _:
            return own_key


def json_path(path: str) -> list[str | int]:
    """Read a JSONPath of one value, such as `{.spec.tenant}` or `{.metadata.annotations['a.b/c']}`."""
    inner = path.removeprefix("{").removesuffix("}")
    steps: list[str | int] = []
    at = 0
    while at < len(inner):
        match = _PART.match(inner, at)
        if match is None:
            raise invalid("$.key.jsonPath", f"expected a path of names and numbers, got {path!r}")
        name, number, quoted = match.groups()
        steps.append(int(number) if number is not None else name if name is not None else quoted)
        at = match.end()
    if not steps or len(inner) + 2 != len(path):
        raise invalid("$.key.jsonPath", f"expected a path such as {{.spec.tenant}}, got {path!r}")
    return steps
