"""The guards that every job shares: pause, windows, cooldown, burst hold and budgets, asked in this order."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum

import msgspec

from poise.inputs import whole
from poise.instants import first_second, instant, span
from poise.model.common import Budget, Window
from poise.move.budgets import Allowance, Started, allowed_moves, check_budget
from poise.move.refusal import Code, Refusal
from poise.move.windows import WindowState, choose_windows, in_window, parse_duration, parse_window

__all__ = [
    "Allowance",
    "Budget",
    "Code",
    "GuardFacts",
    "Pause",
    "Refusal",
    "Started",
    "Watched",
    "Window",
    "WindowState",
    "allowed_moves",
    "burst_hold",
    "check_budget",
    "choose_windows",
    "cooldown",
    "in_window",
    "judge",
    "parse_duration",
    "parse_window",
    "watch_total",
]

COOLDOWN_S = 10
STABLE_S = 60


class Pause(StrEnum):
    """Whether people stopped the job: its moves, or also what restores a minimum."""

    OFF = "off"
    MOVES = "moves"
    ALL = "all"


class Watched(msgspec.Struct, frozen=True):
    """The total of a workload, since when it stands, and whether a jump that led here still counts."""

    total: int
    since_s: float
    jumped: bool = False


class GuardFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All that the guards need to know about one workload at one instant."""

    now_s: float
    pause: Pause = Pause.OFF
    windows: list[Window] = msgspec.field(default_factory=list)
    cooldown_s: float = COOLDOWN_S
    last_action_s: float | None = None
    total: Watched | None = None
    budgets: list[Budget] = msgspec.field(default_factory=list)
    ledger: list[Started] = msgspec.field(default_factory=list)
    replicas: int | dict[str, int] = 0
    workload: str = ""
    namespace: str = ""
    restores_minimum: bool = False


def judge(action: str, facts: GuardFacts) -> Refusal | None:
    """Judge one action under all guards: None, or the first guard that refuses, with every reason.

    `until` is the first second at which all guards would allow it if nothing else happened. An action that restores
    the minimum on-demand passes windows and a pause of moves; only migrations are held after a burst.
    """
    if action == "none":
        return None
    refusals = [refusal for guard in _GUARDS if (refusal := guard(action, facts)) is not None]
    if not refusals:
        return None
    until = None if any(refusal.until is None for refusal in refusals) else _all_clear(refusals, facts)
    return Refusal(refusals[0].code, until, "; ".join(refusal.reason for refusal in refusals))


def cooldown(last_action_s: float | None, cooldown_s: float, now_s: float) -> Refusal | None:
    """Refuse until `cooldown_s` after the last disruptive action."""
    span("$.cooldown_s", cooldown_s)
    instant("$.now_s", now_s)
    if last_action_s is None or now_s >= instant("$.last_action_s", last_action_s) + cooldown_s:
        return None
    reason = f"cooldown of {cooldown_s:g} s after the last action"
    return Refusal(Code.COOLDOWN, first_second(last_action_s + cooldown_s), reason)


def watch_total(seen: Watched | None, total: int, now_s: float) -> Watched:
    """Note the total; a jump is |T' - T| > T/2 with T > 0, and counts until the total has been stable for 60 s.

    A total that did not change leaves what was noted as it is: nothing idle writes.
    """
    whole("$.total", total)
    instant("$.now_s", now_s)
    if seen is None:
        return Watched(total, now_s)
    if total == seen.total:
        return seen
    jumped = seen.total > 0 and 2 * abs(total - seen.total) > seen.total
    return Watched(total, now_s, jumped=jumped or burst_hold(seen, now_s) is not None)


def burst_hold(seen: Watched | None, now_s: float) -> Refusal | None:
    """Refuse migrations after a jump of the total, until it has been stable for 60 s."""
    instant("$.now_s", now_s)
    if seen is None or not seen.jumped or now_s >= instant("$.total.since_s", seen.since_s) + STABLE_S:
        return None
    reason = f"the total jumped, to {seen.total}, and is not yet stable for {STABLE_S} s"
    return Refusal(Code.BURST_HOLD, first_second(seen.since_s + STABLE_S), reason)


def _judge_pause(_action: str, facts: GuardFacts) -> Refusal | None:
    if facts.pause is Pause.OFF or (facts.pause is Pause.MOVES and facts.restores_minimum):
        return None
    return Refusal(Code.PAUSE, None, "paused until someone resumes it")


def _judge_window(_action: str, facts: GuardFacts) -> Refusal | None:
    state = in_window(facts.windows, facts.now_s)
    if state.open or facts.restores_minimum:
        return None
    if state.window is None:
        return Refusal(Code.WINDOW, None, "outside of its windows, and none ever opens")
    opens = f"{state.window.schedule} {state.window.timezone} for {state.window.duration}"
    return Refusal(Code.WINDOW, state.opens_at, f"outside of its windows, next: {opens}")


def _judge_cooldown(_action: str, facts: GuardFacts) -> Refusal | None:
    return cooldown(facts.last_action_s, facts.cooldown_s, facts.now_s)


def _judge_burst(action: str, facts: GuardFacts) -> Refusal | None:
    refusal = burst_hold(facts.total, facts.now_s)
    return refusal if action.startswith("migrate-") else None


def _judge_budget(_action: str, facts: GuardFacts) -> Refusal | None:
    allowance = allowed_moves(
        facts.budgets,
        facts.ledger,
        facts.now_s,
        facts.replicas,
        workload=facts.workload,
        namespace=facts.namespace,
    )
    return allowance.refusal


_GUARDS: tuple[Callable[[str, GuardFacts], Refusal | None], ...] = (
    _judge_pause,
    _judge_window,
    _judge_cooldown,
    _judge_burst,
    _judge_budget,
)


def _all_clear(refusals: list[Refusal], facts: GuardFacts) -> datetime | None:
    """Find the first second that suits all: the other guards stay open once they are, windows close again."""
    latest = max(refusal.until for refusal in refusals if refusal.until is not None)
    if facts.restores_minimum:
        return latest
    state = in_window(facts.windows, latest)
    return latest if state.open else state.opens_at
