"""Values to Structs, with every fault of structure: wrong types, numbers out of range, missing and unknown fields.

Sound input is converted by msgspec alone, which is fast and stops at the first fault. Only where it finds one, the
value is walked beside the types and every fault is noted; what is unsound is filled in, so that the rules across
fields can still judge the rest. A test holds both verdicts side by side.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TypeVar, cast

import msgspec
from msgspec import inspect as types

from poise.documents.faults import Faults, at_key, below, shown
from poise.documents.leaves import bare, fault_of, is_meant, noun, read
from poise.documents.types import type_of
from poise.documents.yaml_values import BROKEN

Shape = TypeVar("Shape")
_LONGEST_GUESS = 64


def build(value: object, shape: type[Shape], faults: Faults, path: str = "$") -> Shape:
    """Turn a value into a Struct or a list of them. After faults it is a stand-in, good only for further checks."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        built = walk(value, type_of(shape), path, faults)
        # A document must never pass because the walk missed what msgspec saw.
        if not faults.count:
            faults.add(path, str(error))
        return cast(Shape, built)  # The walk builds what the type says; only its description is dynamic.


def walk(value: object, expected: types.Type, path: str, faults: Faults) -> object:
    """Build one value of a type, noting every fault on the way."""
    if value is BROKEN:
        faults.spoil(path)
        return stand_in(expected, path)
    match bare(expected):
        case types.StructType() as struct:
            return _walk_struct(value, struct, path, faults)
        case types.ListType() as listed:
            return _walk_list(value, listed, path, faults)
        case types.DictType() as mapping:
            return _walk_dict(value, mapping, path, faults)
        case types.UnionType(types=kinds):
            return _walk_union(value, kinds, path, faults)
        case types.CustomType() | types.AnyType():
            return value
    fault = fault_of(value, expected)
    if fault is None:
        return read(value, expected)
    faults.spoil(path, fault)
    return stand_in(expected, path)


def _walk_struct(value: object, expected: types.StructType, path: str, faults: Faults) -> object:
    if not isinstance(value, dict):
        faults.spoil(path, f"expected a mapping, got {shown(value)}")
        return stand_in(expected, path)
    fields = {field.encode_name: field for field in expected.fields}
    built: dict[str, object] = {}
    for key, entry in value.items():
        if key in fields:
            built[fields[key].name] = walk(entry, fields[key].type, below(path, key), faults)
        else:
            faults.add(below(path, key), "unknown field" if faults.full else _unknown(key, list(fields)))
    for key, field in fields.items():
        if field.required and key not in value:
            faults.spoil(below(path, key), "required field is missing")
            built[field.name] = stand_in(field.type, below(path, key))
    return expected.cls(**built)


def _unknown(key: str, fields: list[str]) -> str:
    close = get_close_matches(key, fields, n=1) if len(key) <= _LONGEST_GUESS else []
    return f'unknown field; did you mean "{close[0]}"?' if close else "unknown field"


def _walk_list(value: object, expected: types.ListType, path: str, faults: Faults) -> object:
    if not isinstance(value, list):
        faults.spoil(path, f"expected a list, got {shown(value)}")
        return []
    if expected.max_length is not None and len(value) > expected.max_length:
        faults.spoil(path, f"expected at most {expected.max_length:,} entries, got {len(value):,}")
        return []
    return [walk(entry, expected.item_type, f"{path}[{place}]", faults) for place, entry in enumerate(value)]


def _walk_dict(value: object, expected: types.DictType, path: str, faults: Faults) -> object:
    if not isinstance(value, dict):
        faults.spoil(path, f"expected a mapping, got {shown(value)}")
        return {}
    built: dict[str, object] = {}
    for key, entry in value.items():
        where = at_key(path, key)
        fault = fault_of(key, expected.key_type)
        if fault is not None:
            faults.spoil(where, f"the key: {fault}")
        item = walk(entry, expected.value_type, where, faults)
        if fault is None:
            built[key] = item
    return built


def _walk_union(value: object, kinds: tuple[types.Type, ...], path: str, faults: Faults) -> object:
    """Walk the one alternative that the value can be meant as; where there is none, name them all."""
    for kind in kinds:
        if is_meant(value, kind):
            return walk(value, kind, path, faults)
    nouns = [noun(kind) for kind in kinds if not isinstance(kind, types.NoneType)]
    faults.spoil(path, f"expected {' or '.join(nouns)}, got {shown(value)}")
    return stand_in(types.UnionType(kinds), path)


def stand_in(expected: types.Type, path: str) -> object:
    """Make a value for a place that has no sound one; a text is as unique as its path, so none is a duplicate."""
    match bare(expected):
        case types.StructType(cls=cls, fields=fields):
            return cls(**{field.name: stand_in(field.type, path) for field in fields if field.required})
        case types.UnionType(types=kinds):
            return _stand_in_of(kinds, path)
        case types.ListType():
            return []
        case types.DictType():
            return {}
        case types.IntType(ge=least) | types.FloatType(ge=least):
            return least or 0
        case types.LiteralType(values=values):
            return values[0]
        case types.BoolType():
            return False
        case types.DateTimeType():
            return read("1970-01-01T00:00:00Z", expected)
    return f"\0{path}"


def _stand_in_of(kinds: tuple[types.Type, ...], path: str) -> object:
    """Prefer a container, so that a source that is given but unsound counts as given; else None."""
    for kind in kinds:
        if isinstance(kind, types.StructType | types.ListType | types.DictType):
            return stand_in(kind, path)
    return None if any(isinstance(kind, types.NoneType) for kind in kinds) else stand_in(kinds[0], path)
