"""The rules of guards: windows that can be read. They are read by the code that will obey them."""

from __future__ import annotations

from poise.documents.faults import Faults
from poise.errors import InvalidSpec
from poise.model import Guards
from poise.move.windows import Window, check_window


def check_guards(guards: Guards, faults: Faults) -> None:
    """Note each schedule, duration and time zone that cannot be read."""
    for place, window in enumerate(guards.windows):
        try:
            given = Window(window.schedule, window.duration, window.timezone)
            check_window(given, path=f"$.spec.guards.windows[{place}]")
        except InvalidSpec as error:
            for fault in error.faults:
                faults.rule(fault.path, fault.message)
