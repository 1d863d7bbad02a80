"""Descriptions of the types of documents, with the choices of a field in the order in which they are declared."""

from __future__ import annotations

from typing import Literal, get_args, get_origin

from msgspec import inspect, structs

_TYPES: dict[object, inspect.Type] = {}


def type_of(shape: object) -> inspect.Type:
    """Describe a type, once for all the values that break it."""
    if shape not in _TYPES:
        described = inspect.type_info(shape)
        _keep_order(described, shape)
        _TYPES[shape] = described
    return _TYPES[shape]


def _keep_order(described: inspect.Type, declared: object) -> None:
    """Undo the sorting of choices: people write the usual one first, and expect to read it first."""
    match described:
        case inspect.LiteralType():
            described.values = _choices(declared)
        case inspect.UnionType(types=kinds):
            for kind in kinds:
                _keep_order(kind, declared)
        case inspect.ListType(item_type=inner) | inspect.DictType(value_type=inner) | inspect.Metadata(type=inner):
            _keep_order(inner, declared)
        case inspect.StructType(cls=cls, fields=fields):
            for field, info in zip(fields, structs.fields(cls), strict=True):
                _keep_order(field.type, info.type)


def _choices(declared: object) -> tuple[str, ...]:
    """Find the values of the Literal within a declared type."""
    if get_origin(declared) is Literal:
        return get_args(declared)
    return next((found for part in get_args(declared) if (found := _choices(part))), ())
