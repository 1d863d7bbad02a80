"""Structural schemas (OpenAPI v3) of the documents, generated from their Structs. Pure.

What a schema cannot say is left to the operator, which reads every document by the same rules as the CLI: the form of
keys people choose in mappings, schedules and time zones that nobody could obey, credentials that are written out.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec
from msgspec import inspect as types

from poise.kube.crds.rules import LIST_KEYS, MOMENT, RULES, SET_LISTS, Rule

Schema = dict[str, object]
_EXACT_MAX = 2**53


class Place(NamedTuple):
    """Where a type stands: defaults are filled in for what people want, never in what Poise knows."""

    defaults: bool


def schema_of(kind: types.Type, place: Place) -> Schema:
    """Describe one type as the API server checks it."""
    match kind:
        case types.Metadata(type=inner, extra_json_schema=extra):
            described = (extra or {}).get("description")
            return schema_of(inner, place) | ({"description": described} if described else {})
        case types.StructType():
            return _struct(kind, place)
        case types.UnionType(types=kinds):
            return _union(kinds, place)
        case types.ListType():
            return _list(kind, place)
        case types.DictType(value_type=value):
            return _dict(value, place)
        case types.AnyType() | types.CustomType():
            return {"x-kubernetes-preserve-unknown-fields": True}
    return _leaf(kind)


def _leaf(kind: types.Type) -> Schema:
    match kind:
        case types.IntType(ge=least, le=most):
            # The API server holds bounds as floats; the largest whole numbers are bounded by their format.
            bound = most if most is not None and most <= _EXACT_MAX else None
            return {"type": "integer", "format": "int64"} | _without_none(minimum=least, maximum=bound)
        case types.FloatType(ge=least, le=most):
            bounds = _without_none(minimum=least, maximum=most)
            return {"type": "number"} | bounds | _validations(_fractional(least))
        case types.StrType(min_length=shortest, max_length=longest, pattern=pattern):
            limits = _without_none(minLength=shortest, maxLength=longest)
            return {"type": "string", **limits} | ({"pattern": re2(pattern)} if pattern else {})
        case types.BoolType():
            return {"type": "boolean"}
        case types.LiteralType(values=values):
            return {"type": "string", "enum": list(values)}
        case types.DateTimeType():
            return {"type": "string", "format": "date-time", **_validations((MOMENT,))}
    raise AssertionError(f"documents have no {kind}")


def _struct(kind: types.StructType, place: Place) -> Schema:
    properties = {field.encode_name: _field(field, kind.cls, place) for field in kind.fields}
    required = [field.encode_name for field in kind.fields if field.required]
    described = (kind.cls.__doc__ or "").split("\n")[0]
    return {
        "type": "object",
        "description": described,
        **({"required": required} if required else {}),
        "properties": properties,
        **_validations(RULES.get(kind.cls, ())),
    }


def _field(field: types.Field, holder: type, place: Place) -> Schema:
    schema = schema_of(field.type, place)
    is_key = field.encode_name in LIST_KEYS.get(holder, ())
    # The keys of a list must always be there, also in a status.
    if (place.defaults or is_key) and isinstance(field.default, str | int | float):
        schema["default"] = field.default
    if (holder, field.name) in SET_LISTS:
        schema["x-kubernetes-list-type"] = "set"
    return schema


def _list(kind: types.ListType, place: Place) -> Schema:
    items = schema_of(kind.item_type, place)
    schema: Schema = {"type": "array", **_without_none(maxItems=kind.max_length), "items": items}
    if isinstance(kind.item_type, types.StructType) and (keys := LIST_KEYS.get(kind.item_type.cls)):
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
    return schema


def _dict(value: types.Type, place: Place) -> Schema:
    """Describe a mapping; one of anything at all goes to somebody else as it is."""
    if isinstance(value, types.AnyType | types.CustomType):
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {"type": "object", "additionalProperties": schema_of(value, place)}


def _union(kinds: tuple[types.Type, ...], place: Place) -> Schema:
    """Describe alternatives: null beside one type, a number or text, or one of some words or a mapping."""
    some = [kind for kind in kinds if not isinstance(kind, types.NoneType)]
    nullable: Schema = {"nullable": True} if len(some) < len(kinds) else {}
    if len(some) == 1:
        return schema_of(some[0], place) | nullable
    schemas = [schema_of(kind, place) for kind in some]
    if {schema["type"] for schema in schemas} == {"integer", "string"}:
        merged = {name: value for schema in schemas for name, value in schema.items() if name not in ("type", "format")}
        return merged | {"x-kubernetes-int-or-string": True} | nullable
    words, mapping = sorted(schemas, key=lambda schema: schema["type"] == "object")
    return _words_or_mapping(words, mapping) | nullable


def _words_or_mapping(words: Schema, mapping: Schema) -> Schema:
    """Let a place hold one of some words or a mapping: no schema has both types, so contradictions rule out others.

    Bounds of a type bind only values of it. No text, number or list passes the second alternative, and no mapping the
    first.
    """
    properties = mapping["properties"]
    assert isinstance(properties, dict), "a Struct has fields"
    nothing_else = {"minLength": 1, "maxLength": 0, "minimum": 1, "maximum": 0, "minItems": 1, "maxItems": 0}
    return {
        "description": mapping["description"],
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": properties,
        "anyOf": [
            {"enum": words["enum"]},
            {
                **nothing_else,
                "not": {"enum": [True, False]},
                "minProperties": 1,
                "maxProperties": 1,
                "oneOf": [{"required": [name]} for name in properties],
            },
        ],
    }


def _validations(rules: tuple[Rule, ...]) -> Schema:
    if not rules:
        return {}
    return {"x-kubernetes-validations": [{"rule": rule.says, "message": rule.message} for rule in rules]}


def _fractional(least: float | None) -> tuple[Rule, ...]:
    """Say a lower bound in CEL, too: for a whole number the API server cuts the fraction of the bound off."""
    if least is None or least == int(least):
        return ()
    return (Rule(f"self >= {least}", f"expected >= {least}"),)


def _without_none(**bounds: object) -> Schema:
    return {name: bound for name, bound in bounds.items() if bound is not None}


def re2(pattern: str) -> str:
    """Write a pattern as Go reads it: the end of the text is $, and a character by its number has braces."""
    assert r"\Z" not in pattern.removesuffix(r"\Z"), "the end of the text is at the end"
    return re.sub(r"\\u([0-9a-fA-F]{4})", r"\\x{\1}", pattern.removesuffix(r"\Z") + "$")


def document_schema(shape: type[msgspec.Struct], status: type[msgspec.Struct]) -> Schema:
    """Describe a whole document; `status` is what Kubernetes' own tools look for in it."""
    fields = {field.encode_name: field.type for field in _fields(shape)}
    known = schema_of(fields["status"], Place(defaults=False))
    more = schema_of(types.type_info(status), Place(defaults=False))
    assert isinstance(known["properties"], dict), "a Struct has fields"
    assert isinstance(more["properties"], dict), "a Struct has fields"
    known["properties"] = more["properties"] | known["properties"]
    spec = schema_of(fields["spec"], Place(defaults=True))
    properties: Schema = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": spec,
        "status": known,
    }
    required = ["spec"] if any(field.encode_name == "spec" and field.required for field in _fields(shape)) else []
    return {
        "type": "object",
        "description": (shape.__doc__ or "").split("\n")[0],
        **({"required": required} if required else {}),
        "properties": properties,
        **_validations(RULES.get(shape, ())),
    }


def _fields(shape: type[msgspec.Struct]) -> tuple[types.Field, ...]:
    described = types.type_info(shape)
    assert isinstance(described, types.StructType), "documents are Structs"
    return described.fields
