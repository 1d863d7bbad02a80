"""What can happen to a world, one Struct a verb, and the script in which people write it down.

    events:
    - {join: [pod-3, pod-4], note: a second rack}
    - {add: 50}
    - {leave: pod-0}

A file of this kind is read like a document: every fault at once, each with its path.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from poise.documents.faults import Faults, below, shown
from poise.documents.json_values import json_value
from poise.documents.structure import build
from poise.documents.text import read_text
from poise.documents.yaml_values import BROKEN, yaml_values
from poise.model.common import Capacity, Count, ItemName, Line, Name, Value, Weight, WorkloadName

EVENTS_MAX = 100_000
_NAMED_MAX = 3
Some = Annotated[int, Meta(ge=1, le=1_000_000)]


class Event(Value, frozen=True, kw_only=True):
    """One thing that happens; the note is for people."""

    note: Line = ""


class Join(Event, frozen=True, kw_only=True):
    """Members join, or come back from a drain; a weight and a capacity are those of each."""

    join: list[Name]
    weight: Weight | None = None
    capacity: Capacity | None = None


class Leave(Event, frozen=True, kw_only=True):
    """Members are gone at once."""

    leave: list[Name]


class Drain(Event, frozen=True, kw_only=True):
    """Members give up what they hold but do not leave yet."""

    drain: list[Name]


class Add(Event, frozen=True, kw_only=True):
    """New items, by name or so many of them; in a ReplicaDivision new workloads with their replicas."""

    add: Some | list[ItemName] | dict[WorkloadName, Count]


class Remove(Event, frozen=True, kw_only=True):
    """Items or workloads go, by name or the last so many of them."""

    remove: Some | list[ItemName]


class Scale(Event, frozen=True, kw_only=True):
    """Workloads get another number of replicas."""

    scale: dict[WorkloadName, Count]


class Reweigh(Event, frozen=True, kw_only=True):
    """Members get another weight."""

    weight: dict[Name, Weight]


# The order matters: a join may also say a weight, so that verb stands last.
VERBS: dict[str, type[Event]] = {
    "join": Join,
    "leave": Leave,
    "drain": Drain,
    "add": Add,
    "remove": Remove,
    "scale": Scale,
    "weight": Reweigh,
}


def verb_of(event: Event) -> str:
    """Name the verb of an event."""
    return next(verb for verb, kind in VERBS.items() if type(event) is kind)


def say(event: Event) -> str:
    """Say an event in a few words: `join pod-3`, `add 50`, `scale cart to 9`."""
    verb = verb_of(event)
    given: object = getattr(event, verb)
    if isinstance(given, dict):
        words = [f"{name} to {number}" if verb != "add" else f"{name} with {number}" for name, number in given.items()]
        return f"{verb} {_some(words)}"
    return f"{verb} {_some(given) if isinstance(given, list) else given}"


def _some(words: list[str]) -> str:
    """Name the first few; a list of a thousand is a number."""
    head = ", ".join(words[:_NAMED_MAX])
    return head if len(words) <= _NAMED_MAX else f"{head} and {len(words) - _NAMED_MAX:,} more"


def load_script(text: bytes | str, source: str) -> list[Event]:
    """Read a script, YAML or JSON; InvalidSpec with every fault of its structure."""
    faults = Faults(source)
    checked = read_text(text, source)
    value = json_value(checked)
    values = [value] if value is not None else [each for each in yaml_values(checked, faults) if each is not None]
    faults.leave()
    if len(values) != 1:
        faults.raise_any()
        faults.add("", f"expected one document with a list of events, got {len(values)}")
    events = [] if len(values) != 1 or values[0] is BROKEN else _read_events(values[0], faults)
    faults.raise_any()
    return events


def _read_events(value: object, faults: Faults) -> list[Event]:
    listed = value.get("events") if isinstance(value, dict) else None
    if not isinstance(listed, list) or not isinstance(value, dict):
        faults.add("$", "expected a mapping with a list of events: {events: [{join: pod-3}]}")
        return []
    for key in value:
        if key != "events":
            faults.add(below("$", key), "unknown field; a script has only events")
    if len(listed) > EVENTS_MAX:
        faults.add("$.events", f"expected at most {EVENTS_MAX:,} events, got {len(listed):,}")
        return []
    read = [_read_event(entry, faults, f"$.events[{place}]") for place, entry in enumerate(listed)]
    return [event for event in read if event is not None]


def _read_event(entry: object, faults: Faults, path: str) -> Event | None:
    if entry is BROKEN:
        return None
    if not isinstance(entry, dict) or not any(verb in entry for verb in VERBS):
        faults.add(path, f"expected a mapping with one of {', '.join(VERBS)}, got {shown(entry)}")
        return None
    verb = next(verb for verb in VERBS if verb in entry)
    # One name stands for a list of it. As a type of its own (text with a pattern, or a list) it would be simpler, but
    # msgspec 0.22 then crashes when Python ends.
    if verb not in ("scale", "weight") and isinstance(entry[verb], str):
        entry = {**entry, verb: [entry[verb]]}
    return build(entry, VERBS[verb], faults, path)
