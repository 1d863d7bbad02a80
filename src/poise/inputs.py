"""Checks on the arguments of the library: a wrong one is InvalidSpec with its path, never a wrong answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from poise.errors import InvalidSpec, invalid


def unique_names(path: str, names: Iterable[str]) -> list[str]:
    """List the names; a duplicate, an empty name or something that is no text is InvalidSpec."""
    listed = list(names)
    if isinstance(names, str):
        raise invalid(path, f"expected a list of names, got the text {names!r}")
    if set(map(type, listed)) - {str} or "" in listed or len(set(listed)) != len(listed):
        raise _faulty_name(path, listed)
    try:
        "".join(listed).encode()
    except UnicodeEncodeError:
        raise _faulty_name(path, listed) from None
    return listed


def _faulty_name(path: str, listed: list[str]) -> InvalidSpec:
    seen: dict[str, int] = {}
    for position, name in enumerate(listed):
        place = f"{path}[{position}]"
        if not isinstance(name, str):
            return invalid(place, f"expected a name, got {type(name).__name__}")
        if not name:
            return invalid(place, "a name may not be empty")
        if name in seen:
            return invalid(place, f"duplicate of [{seen[name]}]")
        if any("\ud800" <= character <= "\udfff" for character in name):
            return invalid(place, "a name must be text that UTF-8 can hold")
        seen[name] = position
    raise AssertionError("called for a list without a fault")


def whole(path: str, value: object, *, least: int = 0) -> int:
    """Return a whole number that is not below `least`; a float, NaN, bool or text is InvalidSpec."""
    if type(value) is not int:
        shown = f"{value!r}" if isinstance(value, int | float | str) else type(value).__name__
        raise invalid(path, f"expected a whole number, got {shown}")
    if value < least:
        raise invalid(path, f"expected >= {least}, got {value}")
    return value


def whole_each(path: str, values: Mapping[str, int], known: Iterable[str]) -> dict[str, int]:
    """Check a mapping name -> whole number; a name that is not among the known ones is InvalidSpec."""
    names = set(known)
    for name, value in values.items():
        if name not in names:
            raise invalid(f"{path}[{name!r}]", "no such name here")
        whole(f"{path}[{name!r}]", value)
    return dict(values)
