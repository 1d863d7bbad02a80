"""Why is this item here, why not there, what would move it: read from a plan and its facts, without planning again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import islice, takewhile

import msgspec

from poise.decide.arrays import np
from poise.decide.balance import quotas
from poise.decide.plan import Move, Plan
from poise.decide.rendezvous import even_capacity, limits
from poise.decide.ring import Ring
from poise.decide.scores import hashes, score, scores_on
from poise.errors import invalid

_KEEPS = {True: "holds it and keeps it", False: "not asked: what fits stays"}
_NO_ROOM = "no member has room"  # How a plan ends the reason of an item that nobody takes.
_COUNTED_MAX = 100_000  # Above this, who else wanted a place is not counted: the answer must come at once.


class Alternative(msgspec.Struct, frozen=True, rename="camel"):
    """One member as seen by one item.

    By scores the highest comes first and `distance` is empty; on a ring the nearest comes first and `score` is empty.
    """

    rank: int
    member: str
    score: str
    load: int
    share: str
    verdict: str
    distance: str = ""


class Explanation(msgspec.Struct, frozen=True, rename="camel"):
    """Where an item goes and why, the ranked alternatives, and what would move it."""

    item: str
    source: str | None
    member: str | None
    because: list[str]
    alternatives: list[Alternative]
    would_move: list[str]


def explain(
    plan: Plan,
    item: str,
    members: Iterable[str],
    current: Mapping[str, str | None],
    *,
    capacity: int | Mapping[str, int] | None = None,
    weights: Mapping[str, int] | None = None,
    draining: Iterable[str] = (),
    policy: str = "sticky",
    tokens: int | Mapping[str, int] = 100,
) -> Explanation:
    """Explain one item of a plan that was made from these facts."""
    if item not in plan.assignment:
        raise invalid("$.item", f"{item!r} is not among the {len(plan.assignment)} items")
    leaving = set(draining)
    live = sorted(member for member in members if member not in leaving)
    if policy == "ring":
        return _on_ring(
            plan, item, Ring({m: tokens[m] if isinstance(tokens, Mapping) else tokens for m in live}), current
        )
    if policy == "hashed":
        most = limits(live, capacity, even_capacity(len(plan.assignment), live))
        room = {member: Fraction(limit or 0) for member, limit in zip(live, most, strict=True)}
    else:
        loads = [plan.loads[member] for member in live]
        allowed = quotas(len(plan.assignment), live, loads, capacity=capacity, weights=weights, debt=None, seed="")
        room = dict(zip(live, allowed.shares.fractions(), strict=True))
    return _by_score(plan, item, room, current.get(item), policy)


def _by_score(plan: Plan, item: str, share: Mapping[str, Fraction], source: str | None, policy: str) -> Explanation:
    """Explain an item that goes by scores: what it prefers, and why it is not there.

    Only a sticky source lets go of what is over its share and is then closed; elsewhere it is a member like any other.
    """
    target, releases = plan.assignment[item], source if policy == "sticky" else None
    scores = {member: score(item, member) for member in share}
    ranked = sorted(share, key=lambda member: (-scores[member], member))
    best = ranked.index(target) if target is not None else len(ranked)
    stays = source == target is not None and policy == "sticky"
    rows = [
        Alternative(
            rank=rank + 1,
            member=member,
            score=f"{scores[member]:016x}",
            load=plan.loads[member],
            share=str(share[member]),
            verdict=_KEEPS[rank == best] if stays else _verdict(member, releases, rank - best, plan.loads[member]),
        )
        for rank, member in enumerate(ranked)
    ]
    # A member without a share is closed whatever happens, so it is neither full nor able to have more room.
    preferred = [member for member in ranked[:best] if member != releases and share[member]]
    if target is None:
        because = [*_why_it_moves(plan, item, None), f"{_NO_ROOM} for it" if share else "there is no member to take it"]
    elif stays:
        because = _why_it_stays(plan, target, share[target])
    else:
        because = [*_why_it_moves(plan, item, source), _why_there(plan, target, ranked[:best], preferred)]
    if stays and target is not None:
        would = _what_uproots(plan, item, target, [member for member in ranked if member != target])
    else:
        would = _what_keeps(plan, item, releases) + _what_attracts(plan, item, source, preferred[:1], policy)
    return Explanation(item, source, target, because, rows, would)


def _verdict(member: str, source: str | None, behind: int, load: int) -> str:
    """Say what became of a member that stands so many ranks behind the chosen one."""
    if behind == 0:
        return "chosen"
    if member == source:
        return "lets it go: over its share"
    if behind < 0:
        return f"no room: full with {load}" if load else "takes nothing"
    return "lower score"


def _why_it_stays(plan: Plan, member: str, share: Fraction) -> list[str]:
    because = [f"it is on {member} already, and {member} holds {plan.loads[member]} of its share {share}"]
    left = [move.item for move in plan.moves if move.source == member]
    if left:
        leave = f"1 leaves {member}: its" if len(left) == 1 else f"{len(left)} leave {member}: their"
        because.append(f"{leave} score there is lower")
    return because


def _why_it_moves(plan: Plan, item: str, source: str | None) -> list[str]:
    """Give the reasons of its moves; that it then finds no room is said elsewhere, and only where there are members."""
    reasons = [move.reason.removesuffix(_NO_ROOM).removesuffix("; ") for move in plan.moves if move.item == item]
    return [*filter(None, reasons)] or ([f"it is on {source}"] if source else [])


def _why_there(plan: Plan, target: str, above: Sequence[str], preferred: Sequence[str]) -> str:
    """Name those that were full at its turn; others above the target let it go, or take nothing."""
    if not above:
        return f"{target} has the highest score for it, and room"
    if not preferred:
        return f"{target} is the best of those with room"
    full = ", ".join(f"{member} ({plan.loads[member]})" for member in preferred)
    return f"{target} is the best of those with room; full at its turn: {full}"


def _what_uproots(plan: Plan, item: str, member: str, others: Sequence[str]) -> list[str]:
    """Count how many would leave before it; say where it would like to go."""
    beside = _held_by(plan, member)
    lower = int(np.count_nonzero(scores_on(hashes(beside), hashes([member])[0]) < score(item, member)))
    after = f", after {lower} with a lower score there" if lower else ", as the first to go"
    would = [f"it would leave if {member} had to give up {lower + 1} of its {len(beside)}{after}"]
    then = f"; it prefers {others[0]} then" if others else ""
    return [*would, f"{_once_gone(plan, member)}{then}"]


def _held_by(plan: Plan, member: str) -> list[str]:
    """List what a member holds: `index` and `islice` leap from one to the next, so the others cost no Python step."""
    names, holders = iter(plan.assignment), list(plan.assignment.values())
    held: list[str] = []
    start = 0
    with suppress(ValueError):  # The search ends where no more is found.
        while True:
            position = holders.index(member, start)
            held += islice(names, position - start, position - start + 1)
            start = position + 1
    return held


def _once_gone(plan: Plan, member: str) -> str:
    would = "move" if len(plan.loads) > 1 else "be nowhere"
    return f"it would {would} if {member} were drained or gone"


def _what_keeps(plan: Plan, item: str, source: str | None) -> list[str]:
    """Say when a live source that is over its share would have kept it: those with a higher score come first."""
    left = [move.item for move in plan.moves if move.source == source]
    if source not in plan.loads or item not in left:
        return []
    higher = sum(score(name, source) > score(item, source) for name in left)
    return [f"it would stay if {source} could keep {_more(higher)}"]


def _more(others: int) -> str:
    return f"{others + 1} more" if others else "one more"


def _what_attracts(plan: Plan, item: str, source: str | None, first: Sequence[str], policy: str) -> list[str]:
    """Say how much room the preferred member would need: whoever comes earlier and wants it too is served first."""
    target = plan.assignment[item]
    would = ["it would be placed if a member joined that has room at its turn"]
    if target is not None:
        would = [_once_gone(plan, target)]
    for member in first:
        ahead = _ahead(plan, item, member, policy)
        goes = "it would stay" if member == source else f"it would go to {member}"
        if ahead is None:
            would.insert(0, f"{goes} if {member} had room at its turn")
        else:
            earlier = "1 that comes before it wants" if ahead == 1 else f"{ahead} that come before it want"
            too = f" ({earlier} {member} too)" if ahead else ""
            would.insert(0, f"{goes} if {member} had room for {_more(ahead)}{too}")
    return would


def _ahead(plan: Plan, item: str, member: str, policy: str) -> int | None:
    """Count the items that are placed before this one, elsewhere, and like the member better than where they are."""
    queue = list(plan.assignment) if policy == "hashed" else _queue(plan.moves, plan)
    if len(queue) > _COUNTED_MAX:
        return None
    earlier = takewhile(lambda name: name != item, sorted(queue) if policy == "hashed" else queue)
    return sum(
        (held := plan.assignment[name]) != member and (held is None or score(name, member) > score(name, held))
        for name in earlier
    )


def _queue(moves: Sequence[Move], plan: Plan) -> list[str]:
    """List what was placed in the order in which it was: first what had a member, then what is new."""
    uprooted = [move.item for move in moves if move.source is not None]
    lost = set(uprooted)
    fresh = [move.item for move in moves if move.source is None]
    return uprooted + sorted(fresh + [name for name in plan.unassigned if name not in lost])


def _on_ring(plan: Plan, item: str, ring: Ring, current: Mapping[str, str | None]) -> Explanation:
    """Explain a key of a ring: the next token clockwise, and who follows."""
    order, target, source = ring.successors(item), plan.assignment[item], current.get(item)
    total = sum(ring.tokens.values())
    rows = [
        Alternative(
            rank=rank,
            member=member,
            score="",
            distance=f"{ring.distance(item, member):016x}",
            load=plan.loads[member],
            share=str(Fraction(len(plan.assignment) * ring.tokens[member], total)),
            verdict="next token clockwise" if rank == 1 else f"takes over after {order[rank - 2]}",
        )
        for rank, member in enumerate(order, 1)
    ]
    because = [*_why_it_moves(plan, item, source if source != target else None)]
    because.append(f"the next token clockwise is {target}'s" if target else "the ring has no member with a token")
    heir = f"it would go to {order[1]} if {target} left" if len(order) > 1 else f"it would be nowhere if {target} left"
    would = [heir, "it would move if a member joined with a token in between"]
    return Explanation(
        item, source, target, because, rows, would if target else ["it would be placed if a member joined"]
    )
