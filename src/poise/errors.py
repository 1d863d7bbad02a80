"""Every error that Poise raises on purpose.

PoiseError
├── InvalidSpec     the input breaks a rule; carries every fault with its place; nothing was changed
├── BrokenPlan      the independent checker refuses a plan; a fault of Poise itself, shown instead of the plan
├── Conflict        someone else wrote first; observe again, never retry the same write
└── Unavailable     the store cannot be asked; keep what is proven, and ask again later
"""

from __future__ import annotations

import msgspec


class Fault(msgspec.Struct, frozen=True, order=True):
    """One broken rule: where it stands and what is wrong there."""

    path: str
    message: str
    source: str = ""

    def __str__(self) -> str:
        """Read as one line: `routers.yaml, document 2: $.spec.capacity: expected >= 1, got 0`."""
        return ": ".join(part for part in (self.source, self.path, self.message) if part)


class PoiseError(Exception):
    """The root of the tree: whatever is below it is shown to people as one line, never as a traceback."""


class InvalidSpec(PoiseError, ValueError):
    """The input breaks a rule. Mend the named places and try again; nothing was changed."""

    def __init__(self, *faults: Fault) -> None:
        """Carry all the faults that were found, not only the first."""
        super().__init__("\n".join(map(str, faults)))
        self.faults = faults


class BrokenPlan(PoiseError):
    """A plan breaks a law. It is not shown and not carried out; please report it with the document."""


class Conflict(PoiseError):
    """Someone else wrote first. Observe again; never retry the same write."""


class Unavailable(PoiseError):
    """The store cannot be asked, or did not answer. What was being written may or may not be there: observe again."""


def invalid(path: str, message: str) -> InvalidSpec:
    """Make the error of a single fault."""
    return InvalidSpec(Fault(path, message))
