"""The rules of guards: windows that can be read. They are read by the code that will obey them."""

from __future__ import annotations

from poise.documents.faults import Faults
from poise.errors import InvalidSpec
from poise.model import Guards
from poise.move.windows import check_window


def check_guards(guards: Guards, faults: Faults) -> None:
    """Note each schedule, duration and time zone that cannot be read."""
    for place, window in enumerate(guards.windows):
        try:
            check_window(window, path=f"$.spec.guards.windows[{place}]")
        except InvalidSpec as error:
            for fault in error.faults:
                faults.rule(fault.path, fault.message)
