"""The independent checker of a plan of items: it reads a plan and the facts, and names every broken law.

It shares no planning code: shares are filled by repeated clamping instead of sorted levels, choices are judged by
"nobody better had room" instead of being made again, and the ring is walked key by key.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction

import msgspec
import xxhash

from poise.decide.arrays import np
from poise.decide.plan import Move, Plan
from poise.decide.scores import hashes, scores_on
from poise.errors import invalid

_NEVER = 2**62  # A queue position that is never reached: the member does not fill.


class _Facts(msgspec.Struct, frozen=True):
    """What the checker knows: who is live and what may be held."""

    items: list[str]
    live: list[str]
    held: dict[str, str | None]
    limits: dict[str, int | None]
    weights: dict[str, int]
    debt: dict[str, Fraction]
    seed: str


def check(
    plan: Plan,
    items: Iterable[str],
    members: Iterable[str],
    current: Mapping[str, str | None],
    *,
    capacity: int | Mapping[str, int] | None = None,
    weights: Mapping[str, int] | None = None,
    draining: Iterable[str] = (),
    debt: Mapping[str, int | Fraction | float] | None = None,
    seed: str = "",
    policy: str = "sticky",
    tokens: int | Mapping[str, int] = 100,
) -> list[str]:
    """Say every broken law of a plan as a sentence; an empty list means that it is sound."""
    if policy not in ("sticky", "hashed", "ring"):
        raise invalid("$.policy", f"expected sticky, hashed or ring, got {policy!r}")
    listed, leaving = list(items), set(draining)
    live = sorted(member for member in members if member not in leaving)
    even = -(-len(listed) // len(live)) if live and policy == "hashed" else None
    own = capacity if isinstance(capacity, Mapping) else dict.fromkeys(live, capacity) if capacity is not None else {}
    facts = _Facts(
        items=listed,
        live=live,
        held={item: current.get(item) for item in listed},
        limits={member: own.get(member, even) for member in live},
        weights={member: (weights or {}).get(member, 1) for member in live},
        debt={member: Fraction((debt or {}).get(member, 0)) for member in live},
        seed=seed,
    )
    faults = _whole(plan, facts) or _told(plan, facts)
    if faults:
        return faults  # Where the plan contradicts itself the laws below would be judged on sand.
    match policy:
        case "sticky":
            return _even(plan, facts) or _kept(plan, facts) + _placed(plan, facts)
        case "hashed":
            return _bounded(plan, facts) + _chosen(sorted(listed), plan, facts.live, _rooms(plan, facts))
        case _:
            return _on_ring(plan, facts, tokens)


def _whole(plan: Plan, facts: _Facts) -> list[str]:
    """Judge that every item stands exactly once, at a live member or in the list of the unassigned."""
    known, alive = set(facts.items), set(facts.live)
    faults = [f"{item} is in the plan but not among the items" for item in plan.assignment if item not in known]
    faults += [f"{item} is missing from the plan" for item in facts.items if item not in plan.assignment]
    faults += [
        f"{item} is assigned to {member}, which is not a live member"
        for item, member in plan.assignment.items()
        if member is not None and member not in alive
    ]
    nowhere = sorted(item for item, member in plan.assignment.items() if member is None)
    if nowhere != plan.unassigned:
        faults.append(f"unassigned lists {plan.unassigned}, the assignment leaves {nowhere}")
    loads = Counter(plan.assignment.values())
    faults += [f"loads lists {member}, which is not a live member" for member in sorted(set(plan.loads) - alive)]
    faults += [
        f"loads say {plan.loads.get(member)} for {member}, the assignment says {loads[member]}"
        for member in facts.live
        if plan.loads.get(member) != loads[member]
    ]
    return faults


def _told(plan: Plan, facts: _Facts) -> list[str]:
    """Judge that the moves and the certificate say what the assignment does."""
    wanted = {
        item: (holder, plan.assignment[item]) for item, holder in facts.held.items() if holder != plan.assignment[item]
    }
    told = {move.item: (move.source, move.target) for move in plan.moves}
    faults = [f"moves lists {item} twice" for item, times in Counter(map(_item, plan.moves)).items() if times > 1]
    faults += [f"{move.item} moves without a reason" for move in plan.moves if not move.reason]
    faults += [
        f"{item} goes {_arrow(wanted.get(item))}, moves says {_arrow(told.get(item))}"
        for item in sorted(set(wanted) | set(told))
        if wanted.get(item) != told.get(item)
    ]
    made = sum(source is not None for source, _ in wanted.values())
    loads = [plan.loads[member] for member in facts.live] or [0]
    seen = {"moves": (plan.certificate.moves, made), "spread": (plan.certificate.spread, max(loads) - min(loads))}
    return faults + [f"the certificate says {name} {a}, the plan has {b}" for name, (a, b) in seen.items() if a != b]


def _item(move: Move) -> str:
    return move.item


def _arrow(pair: tuple[str | None, str | None] | None) -> str:
    return "nowhere new" if pair is None else f"{pair[0]} -> {pair[1]}"


def _shares(facts: _Facts) -> dict[str, Fraction]:
    """Fill by repeated clamping: whoever is over its limit gets the limit, and the others share what is left."""
    left, shares = Fraction(len(facts.items)), {member: Fraction(0) for member in facts.live}
    free = {member: weight for member, weight in facts.weights.items() if weight} or dict.fromkeys(facts.live, 1)
    while free:
        total = sum(free.values())
        full = {
            member: Fraction(limit)
            for member, weight in free.items()
            if (limit := facts.limits[member]) is not None and left * weight >= limit * total
        }
        if not full:
            return shares | {member: left * weight / total for member, weight in free.items()}
        shares |= full
        left -= sum(full.values())
        free = {member: weight for member, weight in free.items() if member not in full}
    return shares


def _even(plan: Plan, facts: _Facts) -> list[str]:
    """Judge evenness, the fewest moves, and who got the ceilings."""
    shares = _shares(facts)
    floors = {member: share.numerator // share.denominator for member, share in shares.items()}
    split = {member for member, share in shares.items() if share.denominator > 1}
    faults = [
        f"{member} holds {load}, its share is {shares[member]}: neither floor nor ceiling"
        for member, load in plan.loads.items()
        if not floors[member] <= load <= floors[member] + (member in split)
    ]
    if len(plan.unassigned) != len(facts.items) - sum(shares.values()):
        faults.append(f"{len(plan.unassigned)} are unassigned, {sum(shares.values())} of {len(facts.items)} fit")
    before = Counter(facts.held.values())
    spare = int(sum(shares.values())) - sum(floors.values())
    above = {member for member in split if before[member] > floors[member]}
    gone = sum(count for member, count in before.items() if member is not None and member not in floors)
    fewest = gone + sum(max(0, before[m] - floors[m]) for m in facts.live) - min(spare, len(above))
    if plan.certificate.moves_min != fewest:
        faults.append(f"the certificate says fewest {plan.certificate.moves_min}, the facts say {fewest}")
    if plan.certificate.moves != fewest:
        faults.append(f"{plan.certificate.moves} moves are made, {fewest} would do")
    first = sorted(split, key=lambda m: (m not in above, -facts.debt[m], -_score(facts.seed, m), m))[:spare]
    raised = {member for member in split if plan.loads[member] > floors[member]}
    if not faults and raised != set(first):
        faults.append(f"the ceilings went to {sorted(raised)}, they belong to {sorted(first)}")
    return faults


def _kept(plan: Plan, facts: _Facts) -> list[str]:
    """Judge that whoever left a live member has a lower score there than all who stayed."""
    alive = set(facts.live)
    left: dict[str, list[str]] = {}
    for move in plan.moves:
        if move.source is not None and move.source in alive:
            left.setdefault(move.source, []).append(move.item)
    stayed: dict[str, list[str]] = {member: [] for member in left}
    for item, member in plan.assignment.items():
        if member in stayed and facts.held[item] == member:
            stayed[member].append(item)
    faults = []
    for member, gone in left.items():
        best = max((_score(item, member), item) for item in gone)
        worst = min(((_score(item, member), item) for item in stayed[member]), default=None)
        if worst is not None and best[0] > worst[0]:
            faults.append(f"{best[1]} left {member}, but {worst[1]}, which stayed, has the lower score there")
    return faults


def _placed(plan: Plan, facts: _Facts) -> list[str]:
    """Judge the placing of what had to move, then of what is new, on the room that was left."""
    uprooted = sorted(move.item for move in plan.moves if move.source is not None)
    fresh = sorted(item for item, holder in facts.held.items() if holder is None)
    arrived = Counter(plan.assignment[item] for item in uprooted + fresh)
    return _chosen(uprooted + fresh, plan, facts.live, {member: arrived[member] for member in facts.live})


def _rooms(plan: Plan, facts: _Facts) -> dict[str, int]:
    rooms = {member: facts.limits[member] for member in facts.live}
    return {member: plan.loads[member] + 1 if room is None else room for member, room in rooms.items()}


def _bounded(plan: Plan, facts: _Facts) -> list[str]:
    """Judge the capacities of policy `hashed`, and its bound on the moves."""
    faults = [
        f"{member} holds {load}, over its capacity {limit}"
        for member, load in plan.loads.items()
        if (limit := facts.limits[member]) is not None and load > limit
    ]
    before, room = Counter(facts.held.values()), _rooms(plan, facts)
    stays = sum(min(before[member], room[member]) for member in facts.live)
    fewest = sum(count for member, count in before.items() if member is not None) - stays
    if plan.certificate.moves_min != fewest:
        faults.append(f"the certificate says fewest {plan.certificate.moves_min}, the facts say {fewest}")
    return faults


def _chosen(queue: list[str], plan: Plan, live: list[str], room: dict[str, int]) -> list[str]:
    """Judge that no item of the queue would have found room at a member with a better score when its turn came."""
    if not queue or not live:
        return []
    hashed, doors = hashes(queue), hashes(live)
    number = {member: index for index, member in enumerate(live)}
    target = np.array([number.get(plan.assignment[item] or "", -1) for item in queue])
    mine, taken_by = np.zeros(len(queue), np.uint64), [np.flatnonzero(target == index) for index in range(len(live))]
    for taken, door in zip(taken_by, doors, strict=True):
        mine[taken] = scores_on(hashed[taken], door)
    faults = []
    for index, (member, taken, door) in enumerate(zip(live, taken_by, doors, strict=True)):
        scored = scores_on(hashed, door)
        if len(taken) > room[member]:
            faults.append(f"{member} takes {len(taken)}, its room is {room[member]}")
        filled = int(taken[room[member] - 1]) if 0 < room[member] <= len(taken) else _NEVER if room[member] else -1
        better = (scored > mine) | (target == -1) | ((scored == mine) & (index < target))
        passed = np.flatnonzero(better & (target != index) & (np.arange(len(queue)) < filled))
        faults += [f"{queue[at]} prefers {member}, which had room at its turn" for at in passed[:3].tolist()]
    return faults


def _on_ring(plan: Plan, facts: _Facts, tokens: int | Mapping[str, int]) -> list[str]:
    """Walk the ring key by key."""
    each = tokens if isinstance(tokens, Mapping) else dict.fromkeys(facts.live, tokens)
    laid = sorted((_hash(f"{member}#{index}"), member) for member in facts.live for index in range(each[member]))
    points = [point for point, _ in laid]
    faults, fewest = [], 0
    for item, holder in facts.held.items():
        owner = laid[bisect_left(points, _hash(item)) % len(laid)][1] if laid else None
        fewest += holder is not None and holder != owner
        if plan.assignment[item] != owner:
            faults.append(f"{item} is at {plan.assignment[item]}, its next token is {owner}'s")
    if plan.certificate.moves_min != fewest:
        faults.append(f"the certificate says fewest {plan.certificate.moves_min}, the facts say {fewest}")
    return faults


def _hash(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode())


def _score(item: str, member: str) -> int:
    x = (_hash(item) ^ _hash(member)) * 0x9E3779B97F4A7C15 % 2**64
    return (x ^ (x >> 32)) * 0xD6E8FEB86659FD93 % 2**64
