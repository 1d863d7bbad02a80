"""One request as its handler sees it: names from the path, checked parameters, the body, conditions and pages."""

from __future__ import annotations

import base64
import binascii
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeVar
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec
from msgspec import UNSET, UnsetType

from poise.documents.faults import shown
from poise.errors import Fault, InvalidSpec, invalid
from poise.model.ownership import Line
from poise.serve.facade import ABSENT
from poise.serve.problems import Refused

LIMIT, LIMIT_MAX = 100, 1_000
_TAG = re.compile(r'(?:W/)?"([^"]*)"|(\d{1,18})')

Entry = TypeVar("Entry")


class Who(msgspec.Struct, frozen=True):
    """Who asks, and what they may do; `set` is the only one that a member speaks to."""

    name: str
    role: str
    set: str = ""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A request that has passed every check of its form."""

    names: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    who: Who
    secure: bool


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler answers; a value is written as JSON, bytes as they are."""

    value: object = None
    status: int = 200
    headers: dict[str, str] = {}
    media: str = "application/json"


class Page(msgspec.Struct, frozen=True, rename={"go_on": "continue"}):
    """A part of a list; `continue` asks for the next one, and is absent on the last."""

    items: Sequence[object]
    go_on: str | UnsetType = UNSET


def path_names(raw: Mapping[str, str]) -> dict[str, str]:
    """Decode the names of a path, each on its own: a name may hold a slash, written %2F."""
    try:
        return {key: unquote_to_bytes(value).decode() for key, value in raw.items()}
    except UnicodeDecodeError:
        raise invalid("path", "expected UTF-8 in percent-encoding") from None


def query_values(raw: bytes, known: Iterable[str]) -> dict[str, str]:
    """Read the parameters; an unknown one, or one that is said twice, is refused: it would be passed over silently."""
    allowed = list(known)
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError:
        raise invalid("?", "expected parameters in percent-encoded UTF-8, 100 at most") from None
    values: dict[str, str] = {}
    faults = []
    for key, value in pairs:
        if key not in allowed:
            faults.append(Fault(f"?{_name(key)}", _unknown(key, allowed)))
        elif key in values:
            faults.append(Fault(f"?{key}", "given twice"))
        values[key] = value
    if faults:
        raise InvalidSpec(*faults)
    return values


def _name(key: str) -> str:
    return shown(key)[1:-1]


def _unknown(key: str, known: list[str]) -> str:
    close = get_close_matches(key[:64], known, n=1)
    return f"unknown parameter; did you mean {close[0]}?" if close else "unknown parameter"


def flag(ask: Ask, key: str) -> bool:
    """Read a parameter that is true or false."""
    value = ask.query.get(key, "false")
    if value not in ("true", "false"):
        raise invalid(f"?{key}", f"expected true or false, got {shown(value)}")
    return value == "true"


def paged(ask: Ask, entries: Iterable[Entry], name: Callable[[Entry], str | int]) -> Page:
    """Cut one page out of a list, in the order of its names; entries that come and go between pages do no harm."""
    limit = _limit(ask.query.get("limit"))
    ordered = sorted(entries, key=lambda entry: _rank(name(entry)))
    begin = 0
    if (token := ask.query.get("continue")) is not None:
        begin = bisect_right(ordered, _rank(_last(token)), key=lambda entry: _rank(name(entry)))
    part = ordered[begin : begin + limit]
    more = begin + limit < len(ordered)
    return Page(part, _token(name(part[-1])) if more else UNSET)


def story_page(ask: Ask, read: Callable[[int | None, int, bool], Sequence[Line]]) -> Page:
    """Cut one page out of a journal: `read` gives so many lines after a number, oldest or newest first."""
    limit, last = _limit(ask.query.get("limit")), None
    if (token := ask.query.get("continue")) is not None:
        text = _last(token)
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise invalid("?continue", "expected what the page before said")
        last = int(text)
    lines = read(last, limit + 1, flag(ask, "newest"))
    return Page(lines[:limit], _token(lines[limit - 1].number) if len(lines) > limit else UNSET)


def _rank(name: str | int) -> tuple[int, int, str]:
    """Put numbers before names, and in their own order: 2 comes before 10."""
    number = str(name)
    return (0, int(number), number) if number.isascii() and number.isdigit() and len(number) < 19 else (1, 0, number)


def _limit(given: str | None) -> int:
    if given is None:
        return LIMIT
    if not (given.isascii() and given.isdigit() and 1 <= int(given[:9]) <= LIMIT_MAX and len(given) < 9):
        raise invalid("?limit", f"expected a whole number from 1 to {LIMIT_MAX}, got {shown(given)}")
    return int(given)


def _token(last: str | int) -> str:
    return base64.urlsafe_b64encode(str(last).encode()).decode().rstrip("=")


def _last(token: str) -> str:
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise invalid("?continue", "expected what the page before said") from None


def wanted_revision(ask: Ask, current: Callable[[], int]) -> int | None:
    """Read the condition of a write: the revision that must be there, ABSENT for none, None where all are welcome."""
    if (said := ask.headers.get("if-match")) is not None:
        return _matching(said, current)
    if (said := ask.headers.get("if-none-match")) is not None:
        if said.strip() != "*":
            raise invalid("If-None-Match", "expected *, which means: only if there is none")
        return ABSENT
    return None


def _matching(said: str, current: Callable[[], int]) -> int:
    """Choose the tag that can match; `*` and a list need to know what is there."""
    if said.strip() == "*":
        return current() or _no_match("there is none yet")
    tags = [part.strip() for part in said.split(",") if part.strip()]
    found = [_TAG.fullmatch(tag) for tag in tags]
    if not found or not all(found):
        raise invalid("If-Match", f'expected revisions such as "7", or *, got {shown(said)}')
    # A weak tag never matches a condition of a write, and a tag that is no number is none of ours.
    texts = [(match[1] or match[2] or "") for tag, match in zip(tags, found, strict=True) if match and tag[0] != "W"]
    revisions = {int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < 19}
    if len(revisions) == 1:
        return revisions.pop() or _no_match("revisions start at 1")
    there = current() if revisions else 0
    return there if there in revisions else _no_match("none of the revisions is the present one")


def _no_match(why: str) -> int:
    raise Refused(412, f"If-Match: {why}")
