"""Documents to plain values and to YAML text, such that reading them gives the same documents."""

from __future__ import annotations

import re

import msgspec
import yaml

from poise.model import Document

try:
    from yaml import CSafeDumper as _Dumper
except ImportError:  # A build of PyYAML without libyaml: slower, with the same text.
    from yaml import SafeDumper as _Dumper  # type: ignore[assignment]  # Both write the same values.


def dump(document: Document) -> dict[str, object]:
    """Give a document as plain values: what is at its default is left out, and so is a status that says nothing."""
    spec, status = _plain(document.spec), _plain(document.status)
    kept: dict[str, object] = {
        "apiVersion": document.api_version,
        "kind": document.kind,
        "metadata": _plain(document.metadata),
        "spec": spec,
    }
    if status:
        kept["status"] = _with_states(document.status, status)
    return kept


def _plain(value: msgspec.Struct) -> dict[str, object]:
    """List the fields of a Struct that differ from their defaults."""
    plain: dict[str, object] = msgspec.to_builtins(value)
    for field in msgspec.structs.fields(value):
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if getattr(value, field.name) == default:
            plain.pop(field.encode_name, None)
    return plain


def _with_states(status: msgspec.Struct, plain: dict[str, object]) -> dict[str, object]:
    """Show the state of every member, also where it is the default: people look for it."""
    for field in msgspec.structs.fields(status):
        rows = getattr(status, field.name)
        if isinstance(rows, list) and rows:
            shown = msgspec.to_builtins(rows)
            plain[field.encode_name] = [
                {**dict(list(row.items())[:1]), "state": one.state, **row} for one, row in zip(rows, shown, strict=True)
            ]
    return plain


class _Writer(_Dumper):
    """Writes YAML that versions 1.1 and 1.2 read alike, without aliases, which documents do not allow."""

    def ignore_aliases(self, data: object) -> bool:
        """Write every value out."""
        del data
        return True


# Text that 1.1 leaves plain and 1.2 takes for a number must be quoted.
_Writer.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z|0o[0-7]+\Z|0x[0-9a-fA-F]+\Z"),
    list("-+.0123456789"),
)


def write_yaml(values: object) -> str:
    """Write plain values as YAML text; a list of documents is one value each, parted by ---."""
    return yaml.dump(values, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=120)
