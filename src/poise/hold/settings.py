"""The settings of a member, held against what its set promises before it asks for anything.

Law: (lease - margin)·(1 + clock rate error) + time to stop + longest write in flight + largest forward step of the
store's clock <= lease + grace. Where it holds, work of a silent member has ended before anybody else may begin.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from poise.errors import Fault, InvalidSpec, invalid
from poise.model.common import Name
from poise.model.ownership import Terms

CLOCK_RATE_ERROR = 0.0005  # What a clock that is being corrected may run wrong: 500 parts in a million.
BEATS_PER_LEASE = 3
CANCEL_AT, HUNG_AT, EXIT_AT = 0.5, 0.7, 0.8  # Parts of the room before the lease ends: what does not stop by then.

_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a member says about itself.

    `margin_s`: how long before its lease ends a member stops acting. `stop_s`: how long its work takes to stop.
    `write_s`: how long a write may be under way. `store_step_s`: how far the store's clock may jump ahead.
    A margin or a time to stop of None is the one that the set's document says.
    """

    set: Name
    name: Name
    margin_s: _Seconds | None = None
    stop_s: _Seconds | None = None
    write_s: _Seconds = 0.0
    store_step_s: _Seconds = 0.0
    weight: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 1
    on_exit: Literal["release", "keep"] = "release"
    on_hang: Literal["raise", "exit"] = "raise"

    @property
    def leaving(self) -> Literal["stop", "restart"]:
        """Say how a member of these settings leaves."""
        return "restart" if self.on_exit == "keep" else "stop"


class Pace(msgspec.Struct, frozen=True):
    """The lengths that a member keeps: `margin_s` before its lease ends it stops acting, and that takes `stop_s`."""

    margin_s: float
    stop_s: float

    @property
    def room_s(self) -> float:
        """Give how long there is between the end of acting and the end of the lease."""
        return self.margin_s or self.stop_s

    @property
    def cancel_s(self) -> float:
        """Give how long work may take to stop before it is cancelled."""
        return min(self.stop_s, self.room_s * CANCEL_AT)

    @property
    def hung_s(self) -> float:
        """Give how long work may take to stop before nobody waits for it any more; the rest of the room is to go."""
        return self.cancel_s + self.room_s * (HUNG_AT - CANCEL_AT)


def pace_of(settings: Settings, terms: Terms) -> Pace:
    """Take what a member says of itself, else what its set says."""
    return Pace(
        terms.margin_s if settings.margin_s is None else settings.margin_s,
        terms.stop_s if settings.stop_s is None else settings.stop_s,
    )


def read_settings(settings: Settings) -> Settings:
    """Check what was given, field by field."""
    for field in msgspec.structs.fields(Settings):
        try:
            msgspec.convert(getattr(settings, field.name), field.type)
        except msgspec.ValidationError as error:
            raise invalid(f"$.{field.name}", str(error)[0].lower() + str(error)[1:]) from None
    return settings


def check_inequality(terms: Terms, settings: Settings, *, clock_rate_error: float = CLOCK_RATE_ERROR) -> None:
    """Refuse settings under which two members could act at once, or none ever could."""
    faults, pace = [], pace_of(settings, terms)
    acting_s = terms.lease_s - pace.margin_s
    if acting_s <= terms.lease_s / BEATS_PER_LEASE:
        most_s = terms.lease_s * (1 - 1 / BEATS_PER_LEASE)
        message = f"expected < {most_s:g}, or a lease of {terms.lease_s:g} s ends before the next heartbeat"
        faults.append(Fault("$.margin_s", f"{message}, got {pace.margin_s:g}"))
    busy_s = acting_s * (1 + clock_rate_error) + pace.stop_s + settings.write_s + settings.store_step_s
    if busy_s > terms.lease_s + terms.grace_s:
        message = f"work may last {busy_s:g} s, and is given to others after {terms.lease_s + terms.grace_s:g} s"
        cure = "raise margin_s or the set's graceSeconds, or stop faster"
        faults.append(Fault("$.stop_s", f"{message} (lease {terms.lease_s:g}, grace {terms.grace_s:g}): {cure}"))
    if faults:
        raise InvalidSpec(*faults)
