"""What has just happened, in sentences: from the step that was taken and what is so now."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction

import msgspec

from poise.demo.documents import GRACE_S
from poise.demo.names import FLEET, ORDERS, ROUTERS
from poise.demo.taking import DIVISION, POOL, SET
from poise.demo.words import PartSeen, Taken
from poise.serve.facade import ItemView, JobsApi, MemberView

_JOBS = {"drain-collector": (POOL, ROUTERS), "change-weight": (DIVISION, FLEET)}
_ENOUGH_S = 30.0  # After so long a step is over, whatever else happens.


class Sight(msgspec.Struct, frozen=True):
    """What is so now in the job that a step concerns."""

    members: Mapping[str, MemberView]
    items: Mapping[str, ItemView]


class Told(msgspec.Struct, frozen=True):
    """How far a step has come. `settled_s`: so long it took until all was well; `over`: there is no more to see."""

    text: str
    settled_s: float | None = None
    over: bool = False


def look(api: JobsApi, taken: Taken) -> Sight:
    """Read what is so now."""
    kind, name = _JOBS.get(taken.step, (SET, ORDERS))
    items = {} if kind == DIVISION else {each.item: each for each in api.items(kind, name, member=None, state=None)}
    return Sight({each.name: each for each in api.members(kind, name)}, items)


def tell(taken: Taken, sight: Sight, part: PartSeen | None, now: datetime) -> Told:
    """Say how far a step has come."""
    if taken.over:
        return Told(taken.text, taken.settled_s, over=True)
    match taken.step:
        case "kill-worker":
            return _killed(taken, sight, part, now)
        case "freeze-worker":
            return _frozen(taken, sight, part, now)
        case "drain-collector":
            return _drained(taken, sight, now)
        case "change-weight":
            return _weighed(taken, sight, now)
        case "restart-server":
            return _restarted(taken, sight)


def _killed(taken: Taken, sight: Sight, part: PartSeen | None, now: datetime) -> Told:
    who, count = taken.subject, _many(len(taken.epochs), "partition")
    settled_s = _settled_s(taken, sight)
    if settled_s is None:
        return Told(f"{who} was killed {_ago(taken, now)}. {_waiting(taken, sight)}")
    healed = f"Healed in {settled_s:.1f} s: the {count} of {who} have new owners, each at a higher epoch."
    if part is None or part.state != "running":
        return Told(f"{healed} {who} is started again{_in(part, now)}.", settled_s)
    held = _load(sight, who)
    if not held:
        return Told(f"{healed} {who} is back, and its share is on its way.", settled_s)
    return Told(f"{healed} {who} is back and holds {held} again.", settled_s, _is_calm(taken, sight, now))


def _frozen(taken: Taken, sight: Sight, part: PartSeen | None, now: datetime) -> Told:
    who, count = taken.subject, _many(len(taken.epochs), "partition")
    settled_s = _settled_s(taken, sight)
    if settled_s is None:
        return Told(f"{who} is frozen since {_span(taken, now)} and believes that it works. {_waiting(taken, sight)}")
    healed = f"Healed in {settled_s:.1f} s: the {count} of {who} have new owners."
    if part is not None and part.state == "frozen":
        return Told(
            f"{healed} It does not know yet, and wakes up{_in(part, now)} in the middle of its work.", settled_s
        )
    if not taken.late:
        return Told(f"{healed} {who} has woken up.", settled_s, (now - taken.at).total_seconds() > _ENOUGH_S)
    refused = f"its {_many(taken.late, 'late write')} carried old epochs, and the sink refused every one"
    calm = _is_calm(taken, sight, now)
    held = _load(sight, who)
    share = f"with {held}" if held else "and waits for its share"
    return Told(f"{healed} When {who} woke up, {refused}. It takes part again {share}.", settled_s, calm)


def _drained(taken: Taken, sight: Sight, now: datetime) -> Told:
    who, count = taken.subject, _many(len(taken.epochs), "router")
    if taken.back:
        return Told(f"{who or 'Nobody'} is back in service and takes routers again.", 0.0, over=True)
    left = _load(sight, who)
    if left:
        return Told(f"{who} is drained since {_span(taken, now)}: {left} of its {count} are still to leave.")
    moved = [each.since for item, each in sight.items.items() if item in taken.epochs and each.since is not None]
    settled_s = taken.settled_s or _after(taken, moved)
    text = f"{who} is empty after {settled_s:.1f} s and may be stopped. Each of its {count} ended there before it began"
    return Told(f"{text} elsewhere.", settled_s, over=True)


def _weighed(taken: Taken, sight: Sight, now: datetime) -> Told:
    who, (before, after) = taken.subject, taken.weights
    weights = {name: each.weight for name, each in sight.members.items()}
    total = sum(each.load for each in sight.members.values())
    exact = Fraction(total * weights.get(who, 0), sum(weights.values()) or 1)
    held = _load(sight, who)
    moved = sum(max(0, each.load - taken.counts.get(name, 0)) for name, each in sight.members.items())
    text = f"{who} weighs {after} instead of {before}: it has {held} replicas, {taken.counts.get(who, 0)} before; its "
    text += f"exact share is {_mixed(exact)}. {moved} of {total} replicas moved."
    there = abs(held - exact) < 1
    settled_s = taken.settled_s or ((now - taken.at).total_seconds() if there else None)
    return Told(text, settled_s, there)


def _restarted(taken: Taken, sight: Sight) -> Told:
    if taken.back_at is None:
        return Told("The server ends and starts again. Workers and collectors go on: their leases outlast it.")
    took_s = (taken.back_at - taken.at).total_seconds()
    same = sum(item in sight.items and sight.items[item].epoch == epoch for item, epoch in taken.epochs.items())
    text = f"The server was restarted in {took_s:.1f} s. {same} of {len(taken.epochs)} partitions kept owner and "
    if same == len(taken.epochs):
        return Told(f"{text}epoch: nothing was lost, and nothing moved for it.", took_s, over=True)
    return Told(f"{text}epoch; the others were granted anew, since leases ended.", took_s, over=True)


def _settled_s(taken: Taken, sight: Sight) -> float | None:
    """Give how long it took until every item had an owner again; once known it stays, whatever moves later."""
    if taken.settled_s is not None:
        return taken.settled_s
    found = [each for item, each in sight.items.items() if item in taken.epochs]
    if any(each.member is None or each.epoch <= taken.epochs[each.item] for each in found):
        return None
    return _after(taken, [each.since for each in found if each.since is not None])


def _after(taken: Taken, moments: list[datetime]) -> float:
    return max(0.0, (max(moments, default=taken.at) - taken.at).total_seconds())


def _waiting(taken: Taken, sight: Sight) -> str:
    """Say what the items of somebody silent wait for."""
    member, count = sight.members.get(taken.subject), len(taken.epochs)
    lease_s = member.lease_s if member is not None and member.lease_s is not None else 0.0
    if lease_s > 0:
        return f"Its {_many(count, 'partition')} wait for its lease to end in {_whole(lease_s)} s, then they move."
    left = sum(each.epoch <= taken.epochs[each.item] for each in sight.items.values() if each.item in taken.epochs)
    return f"Its lease is over: after {GRACE_S} s of grace its partitions move; {left} of {count} still wait."


def _is_calm(taken: Taken, sight: Sight, now: datetime) -> bool:
    """Say whether all members hold alike again, or enough time has passed to stop looking."""
    loads = [each.load for each in sight.members.values() if each.state == "active"]
    even = max(loads, default=0) - min(loads, default=0) <= 1
    return even or (now - taken.at).total_seconds() > 2 * _ENOUGH_S


def _load(sight: Sight, name: str) -> int:
    found = sight.members.get(name)
    return found.load if found is not None else 0


def _in(part: PartSeen | None, now: datetime) -> str:
    if part is None or part.until is None:
        return ""
    return f" in {_whole((part.until - now).total_seconds())} s"


def _ago(taken: Taken, now: datetime) -> str:
    return f"{_span(taken, now)} ago"


def _span(taken: Taken, now: datetime) -> str:
    return f"{max(0, int((now - taken.at).total_seconds()))} s"


def _whole(span_s: float) -> int:
    """Round up: what is left is never 0 while it is left."""
    return max(1, -int(-span_s // 1))


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _mixed(exact: Fraction) -> str:
    """Write a fraction as people do: 231 2/3."""
    whole, rest = divmod(exact.numerator, exact.denominator)
    return f"{whole} {rest}/{exact.denominator}" if rest else f"{whole}"
