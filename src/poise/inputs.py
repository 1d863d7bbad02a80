"""Checks on the arguments of the library: a wrong one is InvalidSpec with its path, never a wrong answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import eq
from typing import TypeVar

import msgspec

from poise.errors import InvalidSpec, invalid

Made = TypeVar("Made", bound=msgspec.Struct)


def text_names(path: str, names: Iterable[str]) -> list[str]:
    """List the names as they come, duplicates too; an empty name or something that is no text is InvalidSpec."""
    listed = _listed(path, names)
    if not _all_text(listed):
        raise faulty_name(path, listed)
    return listed


def unique_names(path: str, names: Iterable[str]) -> list[str]:
    """List the names as they come; a duplicate, an empty name or something that is no text is InvalidSpec."""
    listed = _listed(path, names)
    if not _all_text(listed) or len(set(listed)) != len(listed):
        raise faulty_name(path, listed)
    return listed


def sorted_names(path: str, names: Iterable[str]) -> list[str]:
    """Put unique names in bytewise order, which for text is the order of its characters.

    Sorted, a duplicate stands beside its twin, so no set of a million names is built.
    """
    listed = _listed(path, names)
    if not _all_text(listed):
        raise faulty_name(path, listed)
    ordered = sorted(listed)
    if any(map(eq, ordered, ordered[1:])):
        raise faulty_name(path, listed)
    return ordered


def _listed(path: str, names: Iterable[str]) -> list[str]:
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise invalid(path, f"expected a list of names, got {names!r:.40}")
    return list(names)


def _all_text(listed: list[str]) -> bool:
    """Tell whether every name is text, not empty, and such that UTF-8 can hold it."""
    try:
        plain = all(map(str.isascii, listed))
        return (plain or is_utf8("".join(listed))) and "" not in listed
    except TypeError:
        return False


def mapping(path: str, value: object) -> None:
    """Refuse what is no mapping."""
    if not isinstance(value, Mapping):
        raise invalid(path, f"expected a mapping, got {type(value).__name__}")


def as_struct(path: str, given: Made | Mapping[str, object], kind: type[Made]) -> Made:
    """Take a value as it is, or make it of a plain mapping such as JSON gives."""
    if isinstance(given, kind):
        return given
    if not isinstance(given, Mapping):
        raise invalid(path, f"expected a {kind.__name__} or a mapping, got {type(given).__name__}")
    try:
        return msgspec.convert(dict(given), kind)
    except msgspec.ValidationError as error:
        raise invalid(path, f"expected a {kind.__name__}: {error}") from None


def text(path: str, value: object) -> str:
    """Return a text that UTF-8 can hold, which may be empty."""
    if not isinstance(value, str):
        raise invalid(path, f"expected text, got {type(value).__name__}")
    if not is_utf8(value):
        raise invalid(path, "expected text that UTF-8 can hold")
    return value


def is_name(value: object) -> bool:
    """Tell whether a value is text that may name something."""
    return isinstance(value, str) and value != "" and is_utf8(value)


def is_utf8(text: str) -> bool:
    """Tell whether UTF-8 can hold the text: half a surrogate pair cannot be hashed or written."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def faulty_name(path: str, listed: list[str]) -> InvalidSpec:
    """Name the first fault of a list that is known to have one."""
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
        shown = f"{value!r:.40}" if isinstance(value, bool | float | str) else type(value).__name__
        raise invalid(path, f"expected a whole number, got {shown}")
    if value < least:
        # Python refuses to write out a number of thousands of digits.
        shown = f"{value}" if value > -(10**20) else "a number of more than 20 digits"
        raise invalid(path, f"expected >= {least}, got {shown}")
    return value
