"""The guards of a job as people read them: what each allows, whether it holds something back now, and until when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

import msgspec

from poise.jobs.entries import CapacityEntry, ItemsEntry, Waits
from poise.model import ReplicaDivision
from poise.model.common import Guards, MoveGuards, Window
from poise.move.guards import in_window
from poise.serve.page.pictures.seen import Look
from poise.serve.page.rendering import counted, seconds_text

_IMAGINED = {True: "moves would be held back until someone resumes", False: "moves would go on"}


class GuardLine(msgspec.Struct, frozen=True):
    """One guard: its name, what it says, whether it is open, and when it opens if that is known."""

    name: str
    text: str
    is_open: bool = True
    opens: datetime | None = None
    holds: int = 0


def guard_lines(seen: Look, paused: bool | None = None) -> list[GuardLine]:
    """List the guards of a job, or with `paused` as they would be; those that hold something back come first."""
    document = seen.stored.document
    if isinstance(document, ReplicaDivision):
        lines = [_pause(seen, paused)]
    else:
        lines = [_pause(seen, paused), *_declared(document.spec.guards, seen)]
    held = Counter(waits.code for waits in _waiting(seen))
    until = {waits.code: waits.until for waits in _waiting(seen) if waits.until is not None}
    told = [_with(line, held[line.name], until.get(line.name)) for line in lines]
    known = {line.name for line in lines}
    told += [
        GuardLine(code, _reason(seen, code), is_open=False, opens=until.get(code), holds=number)
        for code, number in held.items()
        if code not in known
    ]
    return sorted(told, key=lambda line: line.is_open)


def _with(line: GuardLine, holds: int, until: datetime | None) -> GuardLine:
    if not holds:
        return line
    return msgspec.structs.replace(line, holds=holds, is_open=False, opens=line.opens or until)


def _waiting(seen: Look) -> list[Waits]:
    """List what waits in the plan."""
    entry = None if seen.planned is None else seen.planned.entry
    if isinstance(entry, ItemsEntry):
        return [move.waits for move in entry.moves if move.waits is not None]
    if isinstance(entry, CapacityEntry):
        return [each.waits for each in entry.workloads.values() if each.waits is not None]
    return []


def _reason(seen: Look, code: str) -> str:
    return next((waits.reason for waits in _waiting(seen) if waits.code == code), code)


def _pause(seen: Look, paused: bool | None) -> GuardLine:
    if paused is not None:
        return GuardLine("pause", _IMAGINED[paused], is_open=not paused)
    if seen.summary.paused:
        return GuardLine("pause", "moves are held back until someone resumes", is_open=False)
    return GuardLine("pause", "not paused")


def _declared(guards: Guards, seen: Look) -> Iterator[GuardLine]:
    """Tell of the guards that stand in the document."""
    if guards.windows:
        yield _windows(guards.windows, seen.now)
    if guards.cooldown_seconds:
        yield GuardLine("cooldown", f"{seconds_text(guards.cooldown_seconds)} between one action and the next")
    if isinstance(guards, MoveGuards):
        yield _limits(guards, seen)
    elif guards.budgets:
        yield GuardLine("budget", _budgets(guards))


def _windows(windows: list[Window], now: datetime) -> GuardLine:
    state = in_window(windows, now)
    text = "; ".join(f"{each.schedule} for {each.duration} ({each.timezone})" for each in windows[:3])
    more = f" and {len(windows) - 3} more" if len(windows) > 3 else ""
    return GuardLine("window", f"{text}{more}", is_open=state.open, opens=None if state.open else state.opens_at)


def _limits(guards: MoveGuards, seen: Look) -> GuardLine:
    """Tell how many moves may be in flight at once, and what budgets say."""
    limits = (
        (guards.moves_in_flight_max, "in flight at once"),
        (guards.per_source_max, "from one member"),
        (guards.per_target_max, "to one member"),
    )
    parts = [f"at most {most:,} {what}" for most, what in limits if most is not None]
    parts += [_budgets(guards)] if guards.budgets else []
    text = "; ".join(parts) or "no limit"
    return GuardLine("budget", f"{counted(seen.summary.moves_in_flight, 'move')} in flight; {text}")


def _budgets(guards: Guards) -> str:
    return "; ".join(
        f"{each.limit} in {seconds_text(each.window_seconds)} a {each.scope}" for each in guards.budgets[:3]
    )
