"""Rings of a cluster as people read them: one in a line, or one with its instances, drains and conditions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from poise import clock
from poise.cli.common import paint
from poise.cli.render import columns, count, natural, printable, wrapped
from poise.cli.told import day_text
from poise.jobs.sharder.orders import read_orders
from poise.jobs.sharder.reading import ShownCondition, ShownStatus, moment_of, shown_status
from poise.jobs.sharder.snapshot import RingSnapshot
from poise.kube.objects import Custom

_LINES_MAX = 6
_WELL = {"Ready": "True", "Balanced": "True", "Progressing": "False", "Drained": "True"}


def rings_table(rings: Sequence[Custom], *, everywhere: bool) -> str:
    """Show every ring in a line."""
    if not rings:
        return "There is no ring" + ("" if everywhere else " in this namespace (all of them: -A)")
    head = ("NAMESPACE", "NAME", "POLICY", "READY", "OBJECTS", "NO OWNER", "DRAINS", "HOW IT IS")
    rows = [_row(each) for each in rings]
    first = 0 if everywhere else 1
    return "\n".join(columns([row[first:] for row in (head, *rows)], indent=""))


def _row(custom: Custom) -> tuple[str, ...]:
    status = shown_status(custom)
    instances = f"{status.ready or 0} of {len(status.instances)}"
    numbers = (str(sum(status.objects.values())), _number(status.unassigned), _number(status.drains_pending))
    return (
        custom.metadata.namespace,
        custom.metadata.name,
        _policy(custom),
        instances,
        *numbers,
        health(custom, status),
    )


class _Chosen(msgspec.Struct, frozen=True):
    policy: str = "ring"


def _policy(custom: Custom) -> str:
    try:
        return printable(msgspec.json.decode(custom.spec or b"{}", type=_Chosen).policy)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "?"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def health(custom: Custom, status: ShownStatus) -> str:
    """Say in a few words how a ring is, what is wrong first."""
    if not status.observed_generation:
        return paint("no operator has looked at it yet", "yellow")
    ready, balanced = status.condition("Ready"), status.condition("Balanced")
    stale = "; its newest document is not read yet" if custom.metadata.generation > status.observed_generation else ""
    if ready.status != "True":
        return paint(f"{ready.reason}: {_cut(ready.message)}{stale}", "yellow")
    paused = "; paused" if read_orders(custom.metadata.annotations).paused else ""
    if balanced.status != "True":
        return paint(f"{balanced.reason}: {_cut(balanced.message)}{stale}", "yellow")
    return paint(f"as it should be{paused}{stale}", "green")


def _cut(message: str) -> str:
    return printable(message if len(message) <= 90 else message[:89] + "…")


def ring_view(custom: Custom) -> str:
    """Show one ring: its health, its instances, what drains, what nobody holds, and its conditions."""
    status, meta = shown_status(custom), custom.metadata
    lines = [f"ShardRing {meta.namespace}/{meta.name}   {health(custom, status)}"]
    lines += _instances(custom, status)
    if status.drains_pending:
        since = moment_of(status.oldest_drain_since)
        oldest = f", the oldest since {day_text(since, clock.now())}" if since else ""
        lines.append(f"  drains   {count(status.drains_pending, 'object')} asked for{oldest}")
    if status.unassigned:
        lines.append(f"  {paint('!! no owner', 'yellow')}   {count(status.unassigned, 'object')}")
    rows = [_condition(each) for each in status.conditions]
    return "\n".join([*lines, *columns(rows, indent="  ")])


def _condition(each: ShownCondition) -> tuple[str, str, str]:
    well = _WELL.get(each.type, each.status) == each.status
    return each.type, paint(f"{each.status} {each.reason}", "green" if well else "yellow"), printable(each.message)


def _instances(custom: Custom, status: ShownStatus) -> list[str]:
    drained = read_orders(custom.metadata.annotations).drained
    if not status.instances:
        return ["  no instance has come yet"]
    head = ("instance", "state", "objects", "tokens")
    rows = [
        (
            each.name,
            f"{each.state}, drained" if each.name in drained else each.state,
            str(status.objects.get(each.name, 0)),
            _number(each.tokens),
        )
        for each in sorted(status.instances, key=lambda each: natural(each.name))
    ]
    return columns([head, *rows], indent="  ")


def objects_view(seen: RingSnapshot, *, everything: bool) -> str:
    """Show who holds what, one instance after the other, by the labels of the objects whose keys decide."""
    held: dict[str, list[str]] = {each.name: [] for each in seen.instances}
    unowned = []
    for root in sorted(seen.roots, key=lambda root: natural(root.key)):
        known = seen.known[root.uid]
        name = printable(f"{known.kind.resource.kind} {known.meta.namespace}/{known.meta.name}".replace(" /", " "))
        follows = f" (+{seen.followers[root.uid]})" if seen.followers[root.uid] else ""
        aim = f" -> {root.marks.drain or 'nobody'}" if root.marks.drain is not None else ""
        if root.marks.shard is None:
            unowned.append(name)
        else:
            held.setdefault(root.marks.shard, []).append(f"{name}{follows}{aim}")
    states = {each.name: f"{each.state.value}{', drained' if each.drained else ''}" for each in seen.instances}
    order = sorted(held, key=natural)
    heads = columns([(name, states.get(name, "no Lease"), f"{len(held[name])}:") for name in order], indent="  ")
    roots = count(len(seen.roots), "object")
    lines = [f"ShardRing {seen.namespace}/{seen.name}   {roots} on {count(len(seen.instances), 'instance')}"]
    for name, told in zip(order, heads, strict=True):
        lines += _few(wrapped(told, held[name]), everything=everything)
    if unowned:
        lines += _few(wrapped(f"  {paint('!! no owner', 'yellow')}", unowned), everything=everything)
    return "\n".join([*lines, *(f"  note   {printable(note)}" for note in seen.notes)])


def _few(lines: list[str], *, everything: bool) -> list[str]:
    if everything or len(lines) <= _LINES_MAX + 1:
        return lines
    return [*lines[:_LINES_MAX], f"    … {len(lines) - _LINES_MAX} more lines (all of them: --all, or -o json)"]


def members_view(seen: RingSnapshot) -> str:
    """Show the instances of a ring with what they hold, give away and get."""
    roots = [root for root in seen.roots if root.marks.shard is not None]
    moving = [root for root in roots if root.marks.drain is not None]
    holds, leaves = (Counter(root.marks.shard for root in some) for some in (roots, moving))
    comes = Counter(root.marks.drain for root in moving)
    head = ("instance", "state", "keys", "objects", "leaving", "coming", "tokens", "")
    rows = [
        (
            each.name,
            f"{each.state.value}, drained" if each.drained else each.state.value,
            *(str(number) for number in (holds[each.name], each.objects, leaves[each.name], comes[each.name])),
            str(each.tokens),
            printable(each.note),
        )
        for each in sorted(seen.instances, key=lambda each: natural(each.name))
    ]
    lines = [f"ShardRing {seen.namespace}/{seen.name}   {count(len(seen.instances), 'instance')}"]
    return "\n".join([*lines, *(columns([head, *rows], indent="  ") if rows else ["  no instance has come yet"])])
