"""What a sharder would move: the plan of a ring as it is, or as a what-if, with the reasons and the proof. Pure.

Law: where no guard holds it back, the assignment is the one that the sharder itself aims for. Keys that are with
instances that are late stay there; a key whose place is late stays where it is, or waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from poise.decide.balance import rebalance
from poise.decide.plan import Move, Plan
from poise.decide.plan_check import check
from poise.decide.ring import Ring, plan_ring
from poise.errors import invalid
from poise.jobs.entries import ItemsEntry, ItemsView, Planned, PlannedMove, Unassigned, Waits
from poise.jobs.sharder.homes import key_places
from poise.jobs.sharder.orders import PAUSED_ANNOTATION
from poise.jobs.sharder.snapshot import RingSnapshot
from poise.jobs.waiting import Gate
from poise.jobs.what_if import WhatIf, check_members, check_undrains, refuse, refuse_drains
from poise.model.sharding import LABEL_MAX, Standing

_NOUN = "instance"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of a ring and who may have them.

    `free` can be planned, None where nobody has the key; `kept` stays whatever is planned; `waiting` is with nobody and
    belongs to an instance that is late. `takers` are candidates with their tokens; `drained` give all away.
    """

    policy: str
    free: dict[str, str | None]
    kept: dict[str, str]
    waiting: dict[str, str]
    takers: dict[str, int]
    drained: list[str]
    late: list[str]
    known: list[str]

    @property
    def sharing(self) -> list[str]:
        """Everybody that a plan knows as there."""
        return [*self.takers, *self.drained]


def facts_of(seen: RingSnapshot, what_if: WhatIf | None = None, tokens: int | None = None) -> Facts:
    """Read the facts of a ring; `tokens` is what an instance that a what-if adds would have."""
    wish = what_if or WhatIf()
    if what_if is not None:
        _check(seen, wish)
    gone = set(wish.remove)
    usual = seen.ring.spec.tokens if tokens is None else tokens
    standings = {name: standing for name, standing in seen.standings.items() if name not in gone}
    standings |= dict.fromkeys(wish.add, Standing.READY)
    members = {name: count for name, count in seen.members.items() if name not in gone} | dict.fromkeys(wish.add, usual)
    drained = ((seen.orders.drained | set(wish.drain)) - set(wish.undrain)) & members.keys()
    ready = [name for name in sorted(members) if standings.get(name) is Standing.READY]
    takers = {name: members[name] for name in ready if name not in drained}
    late = [name for name in sorted(members) if name not in ready]
    current, frozen = key_places(seen.roots, standings)
    kept = {key: place for key, place in current.items() if key in frozen and place is not None}
    free = {key: place for key, place in current.items() if key not in kept}
    waiting: dict[str, str] = {}
    if not takers:
        # Nobody can take anything: whoever answers for a key keeps it.
        kept |= {key: place for key, place in free.items() if place in ready and place is not None}
    elif seen.ring.spec.policy == "ring" and late:
        places = _places_of_late(free, takers, {name: members[name] for name in late if name not in drained})
        kept |= {key: held for key in places if (held := free[key]) in ready and held is not None}
        waiting = {key: place for key, place in places.items() if key not in kept}
    return Facts(
        policy=seen.ring.spec.policy,
        free={key: place for key, place in free.items() if key not in kept and key not in waiting},
        kept=kept,
        waiting=waiting,
        takers=takers,
        drained=[name for name in ready if name in drained],
        late=late,
        known=sorted({*seen.members, *(place for place in current.values() if place)}),
    )


def _check(seen: RingSnapshot, wish: WhatIf) -> None:
    """Refuse what makes no sense for a ring."""
    refuse(wish, ["replicas", "weights"], "a ring knows neither replicas nor weights: say --tokens with --add")
    check_members(wish, seen.members.keys(), _NOUN)
    too_long = [name for name in wish.add if len(name) > LABEL_MAX]
    if too_long:
        raise invalid("$.add", f"the name of an instance stands in labels: at most {LABEL_MAX} characters")
    late = [name for name in seen.members if seen.standings.get(name) is not Standing.READY]
    refuse_drains(wish, late, "is late: nothing moves from it until it is back or proven dead")
    check_undrains(wish, seen.members.keys(), seen.orders.drained, _NOUN)


def _places_of_late(free: Iterable[str], takers: Mapping[str, int], late: Mapping[str, int]) -> dict[str, str]:
    """Name the keys whose next token is that of an instance that is late, with that instance."""
    keys = list(free)
    owners = Ring({**takers, **late}).owners(keys)
    return {key: owner for key, owner in zip(keys, owners, strict=True) if owner is not None and owner in late}


def plan_facts(facts: Facts) -> Plan:
    """Plan the free keys as the sharder does."""
    if facts.policy == "balanced":
        return rebalance(facts.free, facts.sharing, facts.free, draining=facts.drained)
    tokens = facts.takers | dict.fromkeys(facts.drained, 1)
    return plan_ring(facts.free, tokens, facts.free, draining=facts.drained)


def check_facts(plan: Plan, facts: Facts) -> list[str]:
    """Hold a plan to the laws, by the independent checker."""
    return check(
        plan,
        facts.free,
        facts.sharing,
        facts.free,
        draining=facts.drained,
        policy="sticky" if facts.policy == "balanced" else facts.policy,
        tokens=facts.takers | dict.fromkeys(facts.drained, 1),
    )


def plan_snapshot(seen: RingSnapshot, what_if: WhatIf | None = None, tokens: int | None = None) -> Planned:
    """Plan a ring as it is, or as a what-if: moves with what they wait for, loads, and the certificate."""
    facts = facts_of(seen, what_if, tokens)
    plan = plan_facts(facts)
    stays = {**facts.kept, **{key: place for key, place in plan.assignment.items() if place is not None}}
    entry = ItemsEntry(
        kind=seen.ring.kind,
        name=seen.name,
        moves=_held_back(seen, facts, plan.moves),
        assignment=dict(sorted({**plan.assignment, **facts.kept, **dict.fromkeys(facts.waiting)}.items())),
        unassigned=_unassigned(facts, plan),
        loads=dict(sorted(plan.loads.items())),
        certificate=plan.certificate,
    )
    before = Counter(place for place in facts.free.values() if place is not None)
    view = ItemsView(
        noun=_NOUN,
        policy=facts.policy,
        members_before=len({*before, *facts.known}) or len(plan.loads) + len(facts.late),
        members_after=len(plan.loads) + len(facts.late),
        loads_before=before,
        stays=sum(stays.get(key) == place for key, place in {**facts.free, **facts.kept}.items() if place is not None),
    )
    return Planned(entry, check_facts(plan, facts), bool(plan.moves), view, _notes(seen, facts))


def _held_back(seen: RingSnapshot, facts: Facts, moves: Iterable[Move]) -> list[PlannedMove]:
    """Say what holds each move back: the brake, a pause, or that too many are under way."""
    gate = Gate(seen.ring.spec.guards, seen.now.timestamp())
    held = gate.hold(moves, alive=set(facts.sharing), items=len(facts.free))
    if seen.report.vanished:
        waits = Waits("brake", None, "the brake holds: too many instances vanished at once")
        return [move if move.source is None else msgspec.structs.replace(move, waits=waits) for move in held]
    if not seen.orders.paused:
        return held
    waits = Waits("pause", None, "paused until someone resumes it")
    alive = set(facts.sharing)
    return [
        msgspec.structs.replace(move, waits=waits) if move.source in alive or seen.orders.paused == "all" else move
        for move in held
    ]


def _unassigned(facts: Facts, plan: Plan) -> list[Unassigned]:
    nobody = "no instance can be given it" if facts.late or facts.drained else "there is no instance to hold it"
    found = [Unassigned(key, nobody) for key in plan.unassigned]
    return found + [
        Unassigned(key, f"its place is {late}, which is late") for key, late in sorted(facts.waiting.items())
    ]


def _notes(seen: RingSnapshot, facts: Facts) -> list[str]:
    """Say what a plan does not show by itself."""
    late = Counter(place for place in facts.kept.values() if place in facts.late)
    notes = [
        f"{name} is late and keeps what it holds ({late[name]}): nothing moves from or to it" for name in facts.late
    ]
    if facts.drained and not facts.takers:
        notes.append("nobody is there to take what the drained instances hold: they keep it")
    under_way = sum(root.marks.drain is not None and root.marks.shard is not None for root in seen.roots)
    if under_way:
        notes.append(f"{_count(under_way, 'object')} being handed over, counted where they go")
    if following := sum(seen.followers[root.uid] for root in seen.roots):
        notes.append(f"{_count(following, 'more object')} controlled by these, which go where their owners go")
    if len(seen.roots) > len(seen.by_key):
        notes.append(f"{len(seen.by_key)} keys stand for {len(seen.roots)} objects: those of one key move together")
    if seen.orders.paused:
        notes.append(f"the ring is paused ({PAUSED_ANNOTATION}: {seen.orders.paused})")
    return [*notes, *seen.notes]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{' is' if number == 1 else 's are'}"
