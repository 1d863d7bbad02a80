"""Planning items, whatever they are: targets on pods and objects on instances go through the same steps."""

from __future__ import annotations

from collections import Counter

import msgspec

from poise.decide.balance import rebalance
from poise.decide.explain import Explanation, explain
from poise.decide.plan import Plan
from poise.decide.plan_check import check
from poise.decide.rendezvous import plan_hashed
from poise.decide.ring import plan_ring
from poise.errors import Fault, InvalidSpec
from poise.jobs.entries import ItemsEntry, ItemsView, Planned, Unassigned
from poise.jobs.waiting import Gate
from poise.jobs.what_if import WhatIf, check_members, check_undrains, refuse, refuse_drains


class ItemFacts(msgspec.Struct, frozen=True):
    """What is known of a job of items. A waiting member is late: it keeps what it holds and gets nothing new.

    A drained member may be late or gone: it is drained again when it comes back.
    """

    kind: str
    name: str
    noun: str
    policy: str
    items: list[str]
    members: list[str]
    current: dict[str, str]
    draining: list[str] = []
    waiting: list[str] = []
    known: list[str] = []
    capacity: dict[str, int] = {}
    weights: dict[str, int] = {}
    tokens: dict[str, int] = {}
    tokens_each: int = 100


def imagine(facts: ItemFacts, what_if: WhatIf) -> ItemFacts:
    """Give the facts of a what-if."""
    refuse(what_if, ["replicas"], f"a {facts.kind} counts no replicas")
    if facts.policy in ("hashed", "ring"):
        refuse(what_if, ["weights"], f"policy {facts.policy} knows no weights")
    check_members(what_if, facts.members, facts.noun)
    refuse_drains(what_if, facts.waiting, "is late: nothing moves from it until it is back or proven dead")
    check_undrains(what_if, facts.members, facts.draining, facts.noun)
    gone, back = set(what_if.remove), set(what_if.undrain)
    drained = dict.fromkeys([*facts.draining, *what_if.drain])
    return msgspec.structs.replace(
        facts,
        members=[member for member in [*facts.members, *what_if.add] if member not in gone],
        draining=[member for member in drained if member not in gone and member not in back],
        waiting=[member for member in facts.waiting if member not in gone],
        weights=facts.weights | what_if.weights,
        known=sorted({*facts.known, *facts.members}),
    )


def plan_items(facts: ItemFacts, gate: Gate) -> Planned:
    """Plan what may move, check it, and say what stays frozen on members that are late."""
    frozen, plan = _frozen(facts), _plan(facts)
    moves = gate.hold(plan.moves, alive=set(facts.members), items=len(facts.items))
    no_room = f"no {facts.noun} has room" if plan.loads else f"there is no {facts.noun} to hold it"
    entry = ItemsEntry(
        kind=facts.kind,
        name=facts.name,
        moves=moves,
        assignment=dict(sorted((plan.assignment | frozen).items())),
        unassigned=[Unassigned(item, no_room) for item in plan.unassigned],
        loads=dict(sorted(plan.loads.items())),
        certificate=plan.certificate,
    )
    # The loads are of those who share: what is frozen on late members is no part of the spread, and is noted instead.
    before = Counter(facts.current[item] for item in facts.items if item in facts.current and item not in frozen)
    after = len(entry.loads) + len(facts.waiting)
    view = ItemsView(
        noun=facts.noun,
        policy=facts.policy,
        members_before=len({*before, *facts.known, *facts.waiting}) or after,
        members_after=after,
        loads_before=before,
        stays=sum(facts.current.get(item) == member for item, member in entry.assignment.items() if member),
    )
    late = Counter(frozen.values())
    notes = [
        f"{member} is late and keeps what it holds ({late[member]}): nothing moves from or to it"
        for member in sorted(facts.waiting)
    ]
    return Planned(entry, _faults(facts, plan), bool(plan.moves), view, notes + gate.notes())


def explain_items(facts: ItemFacts, item: str) -> Explanation:
    """Explain where one item goes."""
    frozen = _frozen(facts)
    if item in frozen:
        because = [f"{frozen[item]} holds it and is late: nothing moves until it is back or proven dead"]
        return Explanation(
            item, frozen[item], frozen[item], because, [], [f"it would move if {frozen[item]} were proven dead"]
        )
    if item not in set(facts.items):
        raise InvalidSpec(Fault("", f"{item!r} is not among the {len(facts.items)} items of {facts.kind} {facts.name}"))
    return explain(
        _plan(facts),
        item,
        _ready(facts),
        facts.current,
        draining=_draining(facts),
        policy="sticky" if facts.policy == "balanced" else facts.policy,
        capacity=facts.capacity or None,
        weights=facts.weights or None,
        tokens=_tokens(facts),
    )


def _ready(facts: ItemFacts) -> list[str]:
    late = set(facts.waiting)
    return [member for member in facts.members if member not in late]


def _draining(facts: ItemFacts) -> list[str]:
    ready = set(_ready(facts))
    return [member for member in facts.draining if member in ready]


def _frozen(facts: ItemFacts) -> dict[str, str]:
    late = set(facts.waiting)
    return {item: facts.current[item] for item in facts.items if facts.current.get(item) in late}


def _tokens(facts: ItemFacts) -> dict[str, int]:
    return {member: facts.tokens.get(member, facts.tokens_each) for member in _ready(facts)}


def _plan(facts: ItemFacts) -> Plan:
    frozen = _frozen(facts)
    items = [item for item in facts.items if item not in frozen]
    match facts.policy:
        case "ring":
            return plan_ring(items, _tokens(facts), facts.current, draining=_draining(facts))
        case "hashed":
            return plan_hashed(
                items, _ready(facts), facts.current, capacity=facts.capacity or None, draining=_draining(facts)
            )
        case _:
            return rebalance(
                items,
                _ready(facts),
                facts.current,
                capacity=facts.capacity or None,
                weights=facts.weights or None,
                draining=_draining(facts),
                seed=f"{facts.kind}/{facts.name}",
            )


def _faults(facts: ItemFacts, plan: Plan) -> list[str]:
    frozen = _frozen(facts)
    return check(
        plan,
        [item for item in facts.items if item not in frozen],
        _ready(facts),
        facts.current,
        capacity=facts.capacity or None,
        weights=facts.weights or None,
        draining=_draining(facts),
        seed=f"{facts.kind}/{facts.name}",
        policy="sticky" if facts.policy == "balanced" else facts.policy,
        tokens=_tokens(facts),
    )
