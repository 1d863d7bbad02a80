"""Why an object is where it is: its key, its place, its labels, who would take over, and what it waits for. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from poise.decide.explain import Explanation, explain
from poise.decide.ring import Ring
from poise.decide.scores import hashes
from poise.errors import Fault, InvalidSpec
from poise.jobs.sharder.foresight import Facts, facts_of, plan_facts
from poise.jobs.sharder.selecting import own_key
from poise.jobs.sharder.snapshot import RingSnapshot
from poise.jobs.sharder.view import Known
from poise.jobs.what_if import WhatIf
from poise.model.sharding import Marks, SeenObject, Standing
from poise.observe.leases import Health

_LISTED_MAX = 5


class ObjectExplanation(Explanation, frozen=True, rename="camel", kw_only=True):
    """The explanation of an object: beside that of its key, what its labels say and who would take over.

    `root` is the object whose key decides: itself, or the owner at the top. `heir` would take over if who holds it
    failed.
    """

    object: str
    root: str
    key: str
    heir: str | None = None
    shard: str | None = None
    epoch: int | None = None
    drain: str | None = None
    drain_until: datetime | None = None
    drain_since: datetime | None = None


def find_object(seen: RingSnapshot, kind: str, namespace: str, name: str, group: str | None = None) -> SeenObject:
    """Find one object of a ring by its kind as people write it; InvalidSpec where there is none, or more than one."""
    wanted = kind.lower()
    found = [
        uid
        for uid, known in seen.known.items()
        if (known.meta.namespace, known.meta.name) == (namespace, name)
        and wanted in _words(known)
        and group in (None, known.kind.resource.group)
    ]
    if len(found) == 1:
        return seen.objects[found[0]]
    what = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
    if found:
        groups = ", ".join(sorted(shown_object(seen.known[uid]) for uid in found))
        raise _unknown(f"{what} is more than one object of the ring {seen.name}: say {groups}")
    raise _unknown(_missing(seen, what, wanted, name))


def _words(known: Known) -> tuple[str, ...]:
    resource = known.kind.resource
    words = (resource.kind.lower(), resource.plural.lower())
    return (*words, *(f"{word}.{resource.group}" for word in words)) if resource.group else words


def _missing(seen: RingSnapshot, what: str, kind: str, name: str) -> str:
    """Say what is wrong with a name that is not there: its kind, its namespace, or itself."""
    kinds = {word for known in seen.known.values() for word in _words(known)}
    if seen.known and kind not in kinds:
        there = ", ".join(sorted({known.kind.resource.kind for known in seen.known.values()}))
        return f"the ring {seen.name} has no object of the kind {kind!r}; there are {there}"
    elsewhere = sorted(shown_object(known) for known in seen.known.values() if known.meta.name == name)
    hint = f"; there is {', '.join(elsewhere[:_LISTED_MAX])}" if elsewhere else ""
    return f"the ring {seen.name} has no object {what}{hint}"


def _unknown(told: str) -> InvalidSpec:
    return InvalidSpec(Fault("", told))


def shown_object(known: Known) -> str:
    """Name an object as its own key does: `apps/Deployment/shop/cart`."""
    return own_key(known.kind.resource, known.meta)


def explain_object(
    seen: RingSnapshot, each: SeenObject, what_if: WhatIf | None = None, tokens: int | None = None
) -> ObjectExplanation:
    """Explain one object by its root."""
    uid = seen.rooted.get(each.uid)
    root = seen.objects.get(uid or "")
    if root is None:
        raise _unknown(f"{_shown(seen, each)} is controlled by an object that is not there: it waits for that one")
    if not root.selected:
        told = "is in a namespace that the ring does not select, or is only controlled and has no owner of the ring"
        raise _unknown(f"{_shown(seen, each)} {told}: nobody is given it")
    facts = facts_of(seen, what_if, tokens)
    known = explain_key(root.key, facts)
    marks = each.marks
    heir = heir_of(seen, root.key, known.member) if what_if is None else None
    return ObjectExplanation(
        **{
            name: getattr(known, name)
            for name in Explanation.__struct_fields__
            if name not in ("because", "would_move")
        },
        because=[*_about(seen, each, root), *known.because],
        would_move=known.would_move if what_if is not None else [*_heritage(known.member, heir), *_others(known)],
        object=_shown(seen, each),
        root=_shown(seen, root),
        key=root.key,
        heir=heir,
        shard=marks.shard,
        epoch=marks.epoch,
        drain=marks.drain,
        drain_until=None if marks.drain_until is None else _moment(marks.drain_until),
        drain_since=seen.drain_since.get(root.uid),
    )


def explain_key(key: str, facts: Facts) -> Explanation:
    """Explain where a key goes, by the plan of everything."""
    if key in facts.kept:
        return _kept(key, facts)
    if key in facts.waiting:
        late = facts.waiting[key]
        because = [f"the next token clockwise is {late}'s, which is late: it is given to nobody until that is settled"]
        return Explanation(
            key, None, None, because, [], [f"it would be placed if {late} came back or were proven dead"]
        )
    known = explain(
        plan_facts(facts),
        key,
        facts.sharing,
        facts.free,
        draining=facts.drained,
        policy="sticky" if facts.policy == "balanced" else facts.policy,
        tokens=facts.takers | dict.fromkeys(facts.drained, 1),
    )
    if facts.policy != "ring":
        return known
    token = f"key {key} has the token {int(hashes([key])[0]):016x} on the ring"
    return msgspec.structs.replace(known, because=[token, *known.because])


def _kept(key: str, facts: Facts) -> Explanation:
    holder = facts.kept[key]
    if holder in facts.late:
        because = [f"{holder} holds it and is late: nothing moves until it is back or proven dead"]
        return Explanation(key, holder, holder, because, [], [f"it would move if {holder} were proven dead"])
    if holder in facts.drained:
        because = [f"{holder} holds it and is drained, and nobody is there to take it"]
        return Explanation(key, holder, holder, because, [], ["it would move if an instance joined"])
    because = [f"{holder} holds it; its place is with an instance that is late, so it stays"]
    return Explanation(key, holder, holder, because, [], ["it would move if that instance came back"])


def heir_of(seen: RingSnapshot, key: str, holder: str | None) -> str | None:
    """Say who would be given a key if who has it failed; None where nobody could."""
    if holder is None or holder not in seen.members:
        return None
    facts = facts_of(seen, WhatIf(remove=[holder]))
    if facts.policy == "ring":
        owner = Ring(facts.takers).owner(key)
        return facts.waiting.get(key, owner)
    return plan_facts(facts).assignment.get(key)


def _others(known: Explanation) -> list[str]:
    """Leave out what is said of the heir already."""
    return [line for line in known.would_move if not line.endswith((f"if {known.member} left", "were drained or gone"))]


def _heritage(holder: str | None, heir: str | None) -> list[str]:
    if holder is None:
        return []
    return [
        f"if {holder} failed, {heir} would take it over" if heir else f"if {holder} failed, nobody could take it over"
    ]


def _about(seen: RingSnapshot, each: SeenObject, root: SeenObject) -> list[str]:
    """Say what is known of the object itself, before what the planner says of its key."""
    told = []
    if each.uid != root.uid:
        told.append(f"it follows {_shown(seen, root)}, which controls it: owner and owned share an instance")
    elif root.key != _shown(seen, root):
        told.append(f"its key is {root.key!r}, as the ring's spec.key says")
    told.append(labels_told(each.marks))
    if more := seen.followers[root.uid] + len(seen.by_key.get(root.key, [root])) - 1:
        told.append(f"{more} more object{' shares' if more == 1 else 's share'} its key: they go together")
    told += _drain_told(seen, root)
    if each.uid != root.uid and (each.marks.shard, each.marks.epoch) != (root.marks.shard, root.marks.epoch):
        told.append(
            f"its labels are not those of its root ({labels_told(root.marks)}): nobody acts on it until they are"
        )
    told += _holder_told(seen, root.marks.shard)
    if seen.orders.paused:
        told.append("the ring is paused")
    if seen.report.vanished:
        told.append("the brake holds: nothing is taken from instances that vanished")
    return told


def labels_told(marks: Marks) -> str:
    """Say the labels of an object in words."""
    if marks.shard is None:
        return "no label gives it to an instance" + (f"; its last epoch was {marks.epoch}" if marks.epoch else "")
    return f"its labels give it to {marks.shard}, epoch {'unreadable' if marks.epoch is None else marks.epoch}"


def _drain_told(seen: RingSnapshot, root: SeenObject) -> list[str]:
    marks = root.marks
    if marks.drain is None or marks.shard is None:
        return []
    aim = f"for {marks.drain}" if marks.drain else "for nobody"
    since = seen.drain_since.get(root.uid)
    known = f" since {since:%Y-%m-%d %H:%M:%SZ}" if since else ""
    until = f"; to be handed over by {_moment(marks.drain_until):%H:%M:%SZ}" if marks.drain_until else ""
    return [f"{marks.shard} is asked to hand it over, {aim},{known or ' at a time that is not known'}{until}"]


def _holder_told(seen: RingSnapshot, holder: str | None) -> list[str]:
    if holder is None:
        return []
    found = next((each for each in seen.instances if each.name == holder), None)
    if found is None:
        return [f"{holder} has no Lease"]
    note = f" ({found.note})" if found.note else ""
    if found.drained:
        return [f"{holder} is {found.state.value} and drained{note}"]
    lost = seen.standings.get(holder) is Standing.LOST or found.state is not Health.READY
    return [f"{holder} is {found.state.value}{note}"] if lost or note else []


def _shown(seen: RingSnapshot, each: SeenObject) -> str:
    known = seen.known.get(each.uid)
    return each.key if known is None else shown_object(known)


def _moment(unix_s: int) -> datetime:
    return datetime.fromtimestamp(min(unix_s, 253_402_300_799), UTC)
