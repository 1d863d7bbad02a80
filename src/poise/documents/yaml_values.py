"""YAML text to plain values, straight from the parser's events.

No tree of nodes is built: it would take ten times the memory, and its C code recurses until the process dies on deep
input. Aliases, tags, duplicate keys and keys that are no text are faults with their path.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import yaml

from poise.documents.faults import Faults, below, shown
from poise.documents.scalars import NUMBER_LENGTH_MAX, TooLong, plain

if TYPE_CHECKING:
    from yaml import Mark
    from yaml._yaml import Mark as CMark

DEPTH_MAX = 64
VALUES_MAX = 3_000_000

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # A build of PyYAML without libyaml: slower, with the same events.
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]  # Only events are taken from either.


class Broken:
    """Stands where the text has no usable value; its fault is noted already."""


BROKEN: Final = Broken()
_NO_KEY: Final = Broken()


class _Stop(Exception):
    """The rest of the file cannot be read; the fault is noted already."""


class _Mapping:
    """A mapping that is being read, with the key whose value comes next (BROKEN: that value is dropped)."""

    __slots__ = ("key", "values")

    def __init__(self) -> None:
        self.values: dict[str, object] = {}
        self.key: str | Broken = _NO_KEY


def yaml_values(text: str, faults: Faults) -> Iterator[object]:
    """Yield the value of each document in turn; after a syntax error nothing more follows."""
    reader = _Reader(faults)
    parser = _Loader(text)
    try:
        while (event := parser.get_event()) is not None:
            if reader.take(event):
                yield reader.root
    except _Stop:
        return
    except yaml.MarkedYAMLError as error:
        told = ", ".join(part for part in (error.context, error.problem) if part)
        faults.add(_place(error.problem_mark or error.context_mark), _one_line(told or "no YAML"))
    except yaml.YAMLError as error:
        faults.add("", _one_line(str(error)))
    finally:
        parser.dispose()


class _Reader:
    """Builds values from events on a stack of its own, so that depth is a number and not a crash."""

    def __init__(self, faults: Faults) -> None:
        self.root: object = None
        self._faults = faults
        self._stack: list[_Mapping | list[object]] = []
        self._number = 0
        self._values = 0
        self._keys: dict[str, str] = {}

    def take(self, event: yaml.Event) -> bool:
        """Take one event; True when it ended a document."""
        if isinstance(event, yaml.ScalarEvent):
            self._place(self._scalar(event), event)
        elif isinstance(event, yaml.MappingStartEvent):
            self._open(_Mapping(), event)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._open([], event)
        elif isinstance(event, yaml.CollectionEndEvent):
            ended = self._stack.pop()
            self._place(ended.values if isinstance(ended, _Mapping) else ended, event)
        else:
            return self._take_rare(event)
        return False

    def _take_rare(self, event: yaml.Event) -> bool:
        if isinstance(event, yaml.AliasEvent):
            told = f"aliases are not allowed, got {shown(f'*{event.anchor}')}: write the value out{_on(event)}"
            self._faults.add(self._path(), told)
            self._place(BROKEN, event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._number += 1
            self._faults.enter(self._number)
        return isinstance(event, yaml.DocumentEndEvent)

    def _scalar(self, event: yaml.ScalarEvent) -> object:
        if event.tag is not None:
            return self._refuse_tag(event)
        if not event.implicit[0]:
            return event.value
        try:
            return plain(event.value)
        except TooLong:
            self._faults.add(self._path(), f"a number of more than {NUMBER_LENGTH_MAX} digits{_on(event)}")
            return BROKEN

    def _refuse_tag(self, event: yaml.NodeEvent) -> Broken:
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        self._faults.add(self._path(), f"tags are not allowed, got {shown(event.tag)}{_on(event)}")
        return BROKEN

    def _open(self, container: _Mapping | list[object], event: yaml.CollectionStartEvent) -> None:
        if event.tag is not None:
            self._refuse_tag(event)
        if len(self._stack) >= DEPTH_MAX:
            raise self._stop(event, f"nested more than {DEPTH_MAX} levels deep")
        self._stack.append(container)

    def _place(self, value: object, event: yaml.Event) -> None:
        """Put a finished value where it belongs: into a list, or as the next key or value of a mapping."""
        self._values += 1
        if self._values > VALUES_MAX:
            raise self._stop(event, f"more than {VALUES_MAX:,} values: split the file into several")
        if not self._stack:
            self.root = value
            return
        holder = self._stack[-1]
        if isinstance(holder, list):
            holder.append(value)
        elif holder.key is _NO_KEY:
            holder.key = self._key(value, holder, event)
        else:
            if isinstance(holder.key, str):
                holder.values[holder.key] = value
            holder.key = _NO_KEY

    def _key(self, value: object, holder: _Mapping, event: yaml.Event) -> str | Broken:
        if not isinstance(value, str):
            if value is not BROKEN:
                hint = "" if isinstance(value, list | dict) else " (put it in quotes)"
                self._faults.add(self._path(), f"expected a key of text, got {shown(value)}{hint}{_on(event)}")
            return BROKEN
        if value in holder.values:
            self._faults.add(below(self._path(), value), f"duplicate key{_on(event)}")
            return BROKEN
        return self._keys.setdefault(value, value)  # A key that comes 100,000 times is kept once.

    def _path(self) -> str:
        """Name the place that the next value goes to."""
        path = "$"
        for holder in self._stack:
            if isinstance(holder, list):
                path = f"{path}[{len(holder)}]"
            elif isinstance(holder.key, str):
                path = below(path, holder.key)
        return path

    def _stop(self, event: yaml.Event, message: str) -> _Stop:
        self._faults.add(_place(event.start_mark), message)
        return _Stop()


def _on(event: yaml.Event) -> str:
    return f" ({_place(event.start_mark)})"


def _place(mark: Mark | CMark | None) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
