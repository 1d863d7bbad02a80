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

_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a member says about itself.

    `margin_s`: how long before its lease ends a member stops acting. `stop_s`: how long its work takes to stop.
    `write_s`: how long a write may be under way. `store_step_s`: how far the store's clock may jump ahead.
    """

    set: Name
    name: Name
    margin_s: _Seconds = 1.0
    stop_s: _Seconds = 1.0
    write_s: _Seconds = 0.0
    store_step_s: _Seconds = 0.0
    weight: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 1
    on_exit: Literal["release", "keep"] = "release"
    on_hang: Literal["raise", "exit"] = "raise"

    @property
    def patience_s(self) -> float:
        """Give how long work may take to stop once its time is over: it must be gone before the lease ends."""
        return min(self.stop_s, self.margin_s) or self.stop_s

    @property
    def leaving(self) -> Literal["stop", "restart"]:
        """Say how a member of these settings leaves."""
        return "restart" if self.on_exit == "keep" else "stop"


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
    faults = []
    acting_s = terms.lease_s - settings.margin_s
    if acting_s <= terms.lease_s / BEATS_PER_LEASE:
        most_s = terms.lease_s * (1 - 1 / BEATS_PER_LEASE)
        message = f"expected < {most_s:g}, or a lease of {terms.lease_s:g} s ends before the next heartbeat"
        faults.append(Fault("$.margin_s", f"{message}, got {settings.margin_s:g}"))
    busy_s = acting_s * (1 + clock_rate_error) + settings.stop_s + settings.write_s + settings.store_step_s
    if busy_s > terms.lease_s + terms.grace_s:
        message = f"work may last {busy_s:g} s, and is given to others after {terms.lease_s + terms.grace_s:g} s"
        cure = "raise margin_s or the set's graceSeconds, or stop faster"
        faults.append(Fault("$.stop_s", f"{message} (lease {terms.lease_s:g}, grace {terms.grace_s:g}): {cure}"))
    if faults:
        raise InvalidSpec(*faults)
