"""The bytes of a file, as text that is safe to parse; or one fault with its place."""

from __future__ import annotations

import re

from poise.errors import Fault, InvalidSpec

BYTES_MAX = 16 * 1024 * 1024
_TAG_LINES_MAX = 100
# What YAML does not allow in a file; half a surrogate pair is refused earlier, since UTF-8 cannot hold it.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ufffd\U00010000-\U0010ffff]")


def read_text(given: bytes | str, source: str) -> str:
    """Decode a file. The size is judged first, so that a huge file costs nothing."""
    raw = _encoded(given, source)
    if len(raw) > BYTES_MAX:
        raise _refusal(source, "", f"larger than {BYTES_MAX // 1024**2} MiB: split it into several files")
    try:
        text = raw.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        where = f"line {line}, byte {error.start + 1}"
        raise _refusal(source, where, f"0x{raw[error.start]:02x} is not UTF-8 text") from None
    if found := _FORBIDDEN.search(text):
        raise _refusal(source, place(text, found.start()), f"the character U+{ord(found[0]):04X} is not allowed")
    # The parser compares every %TAG line with all the ones before it, so many of them take for ever.
    if text.count("%TAG") > _TAG_LINES_MAX:
        raise _refusal(source, place(text, text.index("%TAG")), "%TAG directives are not allowed")
    return text


def _encoded(given: bytes | str, source: str) -> bytes:
    if isinstance(given, bytes):
        return given
    try:
        return given[: BYTES_MAX + 1].encode()
    except UnicodeEncodeError as error:
        raise _refusal(source, place(given, error.start), "half of a surrogate pair is no text") from None


def place(text: str, position: int) -> str:
    """Say where a character stands, counted from 1."""
    line_start = text.rfind("\n", 0, position) + 1
    return f"line {text.count(chr(10), 0, position) + 1}, column {position - line_start + 1}"


def _refusal(source: str, where: str, message: str) -> InvalidSpec:
    return InvalidSpec(Fault(where, message, source))
