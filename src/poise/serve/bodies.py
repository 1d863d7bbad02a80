"""Bodies to values: JSON by msgspec, and where something is wrong every fault with its path."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from poise.documents import load
from poise.documents.faults import Faults
from poise.documents.structure import build
from poise.errors import Fault, InvalidSpec, invalid
from poise.model import Document

Shape = TypeVar("Shape")


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a call that needs none: absent, or an empty object."""


def read_json(body: bytes, shape: type[Shape]) -> Shape:
    """Read a body as a Struct; InvalidSpec with all of its faults."""
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.ValidationError:
        faults = Faults("")
        built = build(_plain(body), shape, faults)
        faults.raise_any()
        return built
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed(error) from None


def read_document(body: bytes, kind: str, name: str) -> Document:
    """Read the document of a job whose address names it."""
    _plain(body)
    try:
        document = load(body, "body")[0]
    except InvalidSpec as error:
        raise InvalidSpec(*(Fault(fault.path or "$", fault.message) for fault in error.faults)) from None
    faults = [
        Fault(path, f"expected {wanted} as in the address, got {got}")
        for path, wanted, got in (("$.kind", kind, document.kind), ("$.metadata.name", name, document.metadata.name))
        if wanted != got
    ]
    if faults:
        raise InvalidSpec(*faults)
    return document


def _plain(body: bytes) -> object:
    """Read any JSON; the reader of documents would also take YAML, which is not meant here."""
    try:
        value: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed(error) from None
    return value


def _malformed(error: Exception) -> InvalidSpec:
    told = "nested too deep" if isinstance(error, RecursionError) else str(error)
    return invalid("$", f"no JSON: {told[:1].lower()}{told[1:]}")
