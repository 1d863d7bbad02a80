"""Every error that Poise raises on purpose.

PoiseError
├── InvalidSpec     the input breaks a rule; carries every fault with its place; nothing was changed
├── BrokenPlan      the independent checker refuses a plan; a fault of Poise itself, shown instead of the plan
├── Conflict        someone else wrote first; observe again, never retry the same write
│   ├── Fenced      a sink has seen a larger epoch; stop, the item belongs to somebody else
│   ├── PatchRefused  a test within a patch failed; the object is not what the patch was made for
│   └── Replaced    a newer process of this name has registered; stop, and do not register again
├── Unavailable     the store cannot be asked; keep what is proven, and ask again later
│   └── Overloaded  it answers that it has too much to do; it may say for how long to wait
├── NotFound        there is no such job, item or member; nothing was changed
├── Forbidden       the right to do this is missing; grant the named verb on the named resource
├── VersionGone     what happened since that version is no longer known; list again
├── NotHeld         this member may not act on the item now; ask again after its next gain
├── Hung            work did not stop in time; end this process before its lease is over
├── MemberEnded     the member is over; leave its block, which tells why
└── WatchdogGone    nobody guards the children any more; they are ended, and so is the worker
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


class Overloaded(Unavailable):
    """It has too much to do, and did nothing. Wait as long as it says, or longer each time."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        """Carry how long it asks to be left alone; None where it does not say."""
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotFound(PoiseError, LookupError):
    """There is nothing of that name. Look at what there is, and ask again."""


class Forbidden(PoiseError):
    """The right to do this is missing, or a policy forbids it. Grant what is named; nothing was changed."""

    def __init__(self, verb: str, group: str, resource: str, namespace: str = "", told: str = "") -> None:
        """Carry what was asked for, and what the server told; an empty namespace is the whole cluster."""
        where = f"in the namespace {namespace}" if namespace else "in the whole cluster"
        lines = (f'may not {verb} {resource} of the group "{group}" {where}', told)
        super().__init__(": ".join(line for line in lines if line))
        self.verb, self.group, self.resource, self.namespace, self.told = verb, group, resource, namespace, told


class VersionGone(PoiseError):
    """What happened since that version is no longer known. List again, and go on from there."""


class Fenced(Conflict):
    """The sink has seen a larger epoch: somebody else owns the item by now. Stop; never try this write again."""

    def __init__(self, item: str, epoch: int, seen: int) -> None:
        """Carry what was tried, and what the sink has seen."""
        super().__init__(f"item {item}: epoch {epoch} is over, {seen} has begun")
        self.item, self.epoch, self.seen = item, epoch, seen


class PatchRefused(Conflict):
    """A test within a patch failed, and nothing was written. Stop: the object is not what the patch was made for."""


class Replaced(Conflict):
    """A newer process of this name has registered. This one stops, and does not register again by itself."""


class NotHeld(PoiseError, LookupError):
    """This member may not act on the item now: it does not have it, or its time is over."""


class Hung(PoiseError):
    """Work did not stop in time. The member has stopped speaking for it; end this process before the lease is over."""


class MemberEnded(PoiseError):
    """The member has ended before its block did; the error that it ended with comes when the block is left."""


class WatchdogGone(PoiseError):
    """The watchdog has ended. Its children are ended too, and so must be this worker."""


def invalid(path: str, message: str) -> InvalidSpec:
    """Make the error of a single fault."""
    return InvalidSpec(Fault(path, message))
