"""From columns to values: everything that a database gives is checked before it is believed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec

from poise.errors import Unavailable
from poise.model.ownership import MemberRow, OwnerState, Row

Kind = TypeVar("Kind")
Truth = int | bool  # SQLite gives whole numbers for truth values.

# The columns of a row and of a member in their order. A set has thousands of rows: checking them all by one call, and
# naming the fields here, takes a third less than checking each by its names.
_RowRead = tuple[
    str,  # id
    OwnerState,
    Truth,  # confirmed
    str | None,  # owner
    int | None,  # owner_incarnation
    str | None,  # target
    int,  # epoch
    float,  # lease_until_s
    float,  # granted_s
    float | None,  # deadline_s
    str,  # offers
    float,  # since_s
    str,  # reason
    int,  # plan
    Truth,  # retiring
    int,  # revision
]
_MemberRead = tuple[str, int, str, float, int, int, Literal["stop", "restart"] | None, Truth]


def rows_of(found: Sequence[Sequence[object]]) -> dict[str, Row]:
    """Make rows of their columns."""
    return {
        item: Row(
            id=item,
            state=state,
            confirmed=bool(confirmed),
            owner=owner,
            owner_incarnation=owner_incarnation,
            target=target,
            epoch=epoch,
            lease_until_s=lease_until_s,
            granted_s=granted_s,
            deadline_s=deadline_s,
            offers=_offers(offers) if offers != "{}" else {},
            since_s=since_s,
            reason=reason,
            plan=plan,
            retiring=bool(retiring),
            revision=revision,
        )
        for (
            item,
            state,
            confirmed,
            owner,
            owner_incarnation,
            target,
            epoch,
            lease_until_s,
            granted_s,
            deadline_s,
            offers,
            since_s,
            reason,
            plan,
            retiring,
            revision,
        ) in made(found, list[_RowRead])
    }


def members_of(found: Sequence[Sequence[object]]) -> dict[str, MemberRow]:
    """Make members of their columns."""
    return {
        name: MemberRow(
            name=name,
            incarnation=incarnation,
            process=process,
            lease_until_s=lease_until_s,
            weight=weight,
            seq=seq,
            leaving=leaving,
            draining=bool(draining),
        )
        for name, incarnation, process, lease_until_s, weight, seq, leaving, draining in made(found, list[_MemberRead])
    }


def _offers(text: str) -> dict[str, int]:
    return made(from_json(text), dict[str, int])


def to_json(value: object) -> str:
    """Write a value as a text."""
    return msgspec.json.encode(value).decode()


def from_json(text: object) -> object:
    """Read a text; it is not checked yet."""
    decoded: object = msgspec.json.decode(str(text))
    return decoded


def made(read: object, kind: type[Kind]) -> Kind:
    """Check what the database gave."""
    try:
        return msgspec.convert(read, kind)
    except msgspec.ValidationError as error:
        raise Unavailable(f"the store holds something that Poise did not write: {error}") from error
