"""The query of a job's page: what is imagined or asked for stands in the address, so that it can be sent to others.

`?drain=worker-b&undrain=c&add=x&remove=y&weight=e:2&replicas=cart:9` imagines; each may stand there several times.
`?pause=moves`, `?pause=all` and `?resume=yes` ask for what a what-if does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from urllib.parse import parse_qsl, urlencode

import msgspec

from poise.documents.faults import shown
from poise.errors import Fault, InvalidSpec, invalid
from poise.jobs.what_if import WhatIf

DONE = ("drain", "undrain", "pause", "resume", "change")
_PAIRS_MAX = 100
_NAMES = ("drain", "undrain", "add", "remove")
_NUMBERS = ("weight", "replicas")
# A form has one field for the name and one for the number; the address says them in one word.
_HALVES = {"weight_of": "weight", "weight_is": "weight", "replicas_of": "replicas", "replicas_are": "replicas"}
_KNOWN = (*_NAMES, *_NUMBERS, *_HALVES, "pause", "resume", "done")

Pairs = Sequence[tuple[str, str]]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the address of a page asks to see; nothing is done by asking."""

    drain: tuple[str, ...] = ()
    undrain: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    weight: dict[str, int] = {}
    replicas: dict[str, int] = {}
    pause: str = ""
    resume: bool = False
    done: str = ""

    @property
    def is_any(self) -> bool:
        """Tell whether something is asked for beyond the job as it is."""
        return bool(self.pairs())

    @property
    def what_if(self) -> WhatIf | None:
        """Give the part that a plan can imagine."""
        if not (self.drain or self.undrain or self.add or self.remove or self.weight or self.replicas):
            return None
        return WhatIf(
            add=list(self.add),
            remove=list(self.remove),
            drain=list(self.drain),
            weights=dict(self.weight),
            replicas=dict(self.replicas),
            undrain=list(self.undrain),
        )

    def pairs(self) -> list[tuple[str, str]]:
        """Say it as the pairs of a query, always in the same order."""
        said = [(key, name) for key in _NAMES for name in getattr(self, key)]
        said += [(key, f"{name}:{number}") for key in _NUMBERS for name, number in getattr(self, key).items()]
        said += [("pause", self.pause)] if self.pause else []
        return said + ([("resume", "yes")] if self.resume else [])

    @property
    def query(self) -> str:
        """Say it as a query."""
        return urlencode(self.pairs())

    def without(self, key: str, value: str) -> str:
        """Give the query that is left when one pair is taken out."""
        return urlencode([pair for pair in self.pairs() if pair != (key, value)])


def read_pairs(raw: bytes) -> list[tuple[str, str]]:
    """Read a query or a form."""
    try:
        return parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_PAIRS_MAX)
    except ValueError:
        raise invalid("?", f"expected parameters in percent-encoded UTF-8, {_PAIRS_MAX} at most") from None


def read_wish(pairs: Pairs) -> Wish:
    """Read what is asked for; a parameter that nobody knows would be passed over silently, so it is refused."""
    faults = [Fault(f"?{shown(key)[1:-1]}", _unknown(key)) for key, _ in pairs if key not in _KNOWN]
    if faults:
        raise InvalidSpec(*faults)
    said = _joined(pairs)
    pause, resume, done = (_last(said, key) for key in ("pause", "resume", "done"))
    if pause not in ("", "moves", "all"):
        raise invalid("?pause", f"expected moves or all, got {shown(pause)}")
    if resume not in ("", "yes"):
        raise invalid("?resume", f"expected yes, got {shown(resume)}")
    return Wish(
        drain=_each(said, "drain"),
        undrain=_each(said, "undrain"),
        add=_each(said, "add"),
        remove=_each(said, "remove"),
        weight=_numbers(said, "weight"),
        replicas=_numbers(said, "replicas"),
        pause=pause,
        resume=resume == "yes",
        done=done if done in DONE else "",
    )


def is_plain(pairs: Pairs) -> bool:
    """Tell whether an address says everything in one word and nothing that is empty; a form's own does not."""
    return all(value and key not in _HALVES for key, value in pairs)


def _unknown(key: str) -> str:
    close = get_close_matches(key[:64], _KNOWN, n=1)
    return f"unknown parameter; did you mean {close[0]}?" if close else "unknown parameter"


def _joined(pairs: Pairs) -> list[tuple[str, str]]:
    """Join the halves that a form sends apart; a form whose field is empty means nothing by it."""
    said = [(key, value.strip()) for key, value in pairs if key not in _HALVES and value.strip()]
    halves = {key: value.strip() for key, value in pairs if key in _HALVES}
    for name, number, key in (("weight_of", "weight_is", "weight"), ("replicas_of", "replicas_are", "replicas")):
        whose, much = halves.get(name, ""), halves.get(number, "")
        if whose and much:
            said.append((key, f"{whose}:{much}"))
        elif whose or much:
            raise invalid(f"?{key}", "choose a name and give a number" if much else f"give the number for {whose}")
    return said


def _each(pairs: Pairs, key: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for name, value in pairs if name == key))


def _last(pairs: Pairs, key: str) -> str:
    return next((value for name, value in reversed(pairs) if name == key), "")


def _numbers(pairs: Pairs, key: str) -> dict[str, int]:
    """Read NAME:N; what stands last about a name counts, so that a form can change what the address said."""
    found: dict[str, int] = {}
    for value in _each(pairs, key):
        name, colon, number = value.rpartition(":")
        if not colon or not name or not number.isascii() or not number.isdigit() or len(number) > 12:
            raise invalid(f"?{key}", f"expected NAME:N with a whole number N >= 0, got {shown(value)}")
        found[name] = int(number)
    return found
