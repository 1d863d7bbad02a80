"""The rules of the shard contract by their names, and what a check found of each. Pure.

The numbers and names are those of docs/shard-contract.md; a test keeps both the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

import msgspec

Outcome = Literal["passed", "failed", "not observed"]

RULES: dict[str, str] = {
    "unique-holder": "the holder of the Lease is <instance>_<id>, with another id in every process",
    "lease-upkeep": "the Lease says ring and duration, and is renewed well within its duration",
    "lease-with-version": "every write of the Lease names the version that it was decided on",
    "wait-for-holder": "a Lease that somebody else holds is taken only when that hold has run out",
    "wait-when-named": "where there is no Lease but objects carry the name, two durations are waited",
    "act-as-holder": "nothing is written before the Lease is held",
    "list-after-acquiring": "objects are listed anew, with no resourceVersion, once the Lease is held",
    "fence-inherited": "after a sharder's hold, or no Lease, epochs are raised before the first work",
    "take-up-gains": "what it is given is reconciled",
    "confirm-gains": "work on a new object begins after a renewal that was sent since it was seen",
    "only-own-objects": "nothing is written for objects that others have, nobody has, or it gave away",
    "stop-when-drained": "no reconcile of an object begins once its hand-over has begun",
    "resume-when-kept": "a request that is taken back before it was answered is forgotten",
    "handover-after-reconcile": "an object is handed over when its running reconcile has ended",
    "children-before-root": "children are handed over first, the root last",
    "handover-form": "one write changes the owner: the next one with epoch + 1, or nobody; drain goes",
    "empty-drain": "an empty drain value is answered by removing shard and drain together",
    "handover-with-version": "a hand-over names the version that it was decided on",
    "no-write-after-loss": "who cannot renew writes nothing once its Lease has run out",
    "release-on-exit": "on SIGTERM running work ends, then the Lease is released, then the process ends",
}


class Finding(msgspec.Struct, frozen=True):
    """What one act says about one rule; a broken rule comes with what was seen."""

    rule: str
    outcome: Outcome
    seen: str = ""


class RuleResult(msgspec.Struct, frozen=True):
    """One rule after all acts."""

    name: str
    says: str
    outcome: Outcome
    seen: tuple[str, ...] = ()


class Report(msgspec.Struct, frozen=True):
    """What a check found."""

    ring: str
    command: tuple[str, ...]
    seconds: float
    conforms: bool
    rules: tuple[RuleResult, ...]


def passed(rule: str, seen: str = "") -> Finding:
    """Note that a rule was kept where it could have been broken."""
    return Finding(rule, "passed", seen)


def failed(rule: str, seen: str) -> Finding:
    """Note that a rule was broken, and how that was seen."""
    return Finding(rule, "failed", seen)


def unseen(rule: str, why: str) -> Finding:
    """Note why nothing can be said about a rule."""
    return Finding(rule, "not observed", why)


def gather(findings: Iterable[Finding], wanted: Collection[str] = ()) -> tuple[RuleResult, ...]:
    """Make one result a rule: broken once is broken, kept once is kept. `wanted` are shown, and all that are broken."""
    found: dict[str, list[Finding]] = {name: [] for name in RULES}
    for each in findings:
        found[each.rule].append(each)
    results = (_result(name, each) for name, each in found.items())
    return tuple(each for each in results if not wanted or each.name in wanted or each.outcome == "failed")


def _result(name: str, findings: list[Finding]) -> RuleResult:
    for outcome in ("failed", "passed"):
        chosen = [each for each in findings if each.outcome == outcome]
        if chosen:
            seen = dict.fromkeys(each.seen for each in chosen if each.seen)
            return RuleResult(name, RULES[name], chosen[0].outcome, tuple(seen))
    why = dict.fromkeys(each.seen for each in findings if each.seen)
    return RuleResult(name, RULES[name], "not observed", tuple(why))
