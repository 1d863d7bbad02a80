"""Rules that several kinds have: unique names, exactly one source, bounds, moments."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from poise.documents.faults import Faults, shown

_FIRST, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


def unique(path: str, names: Sequence[Hashable], faults: Faults, *, field: str = ".name") -> None:
    """Note each entry that repeats an earlier one: `$.spec.pods.endpoints[3].name: duplicate of [1]`."""
    if len(set(names)) == len(names):
        return
    first: dict[Hashable, int] = {}
    for place, name in enumerate(names):
        if first.setdefault(name, place) != place:
            faults.rule(f"{path}[{place}]{field}", f"duplicate of [{first[name]}]")


def exactly_one(path: str, given: Mapping[str, object], faults: Faults) -> None:
    """Note that none, or more than one, of several sources is given."""
    present = [name for name, value in given.items() if value is not None]
    if len(present) != 1:
        message = f"expected exactly one of {', '.join(given)}, got {' and '.join(present) or 'none'}"
        faults.rule(path, message, *(f"{path}.{name}" for name in given))


def at_most(path: str, low: str, high: str, values: tuple[float, float | None], faults: Faults) -> None:
    """Note that one field is above another that bounds it."""
    value, most = values
    if most is not None and value > most:
        faults.rule(f"{path}.{low}", f"expected <= {shown(most)}, the {high}, got {shown(value)}", f"{path}.{high}")


def in_calendar(moments: Iterable[tuple[str, datetime | None]], faults: Faults) -> None:
    """Note each moment that no clock of ours can have shown."""
    for path, moment in moments:
        if moment is not None and not _FIRST <= moment < _LAST:
            faults.rule(path, f"expected a time from 1970 to 8999, got {moment.isoformat()}")
