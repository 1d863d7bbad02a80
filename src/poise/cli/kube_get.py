"""`poise get --kube`, `poise plan --kube` and `poise explain --kube`: rings of a cluster, and nothing is changed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from poise.cli.common import Output, emit
from poise.cli.kube_options import Place, ask, find_ring, list_rings, wrong
from poise.cli.redrawing import data_text, draw_on

if TYPE_CHECKING:
    from poise.jobs.entries import Planned
    from poise.jobs.sharder.explaining import ObjectExplanation
    from poise.jobs.sharder.snapshot import RingSnapshot
    from poise.jobs.what_if import WhatIf
    from poise.kube import Client
    from poise.kube.objects import Custom

_OBJECTS, _MEMBERS = ("objects", "items"), ("members", "instances")
_LOOK_S = 2.0


def get_rings(place: Place, what: Sequence[str], output: Output, *, everything: bool, watch: bool) -> None:
    """Show rings: all in a line each, some in full, or with a word before their names what they hold and by whom."""
    words = [word.lower() for word in what[:1]]
    if words and words[0] in ("shardring", "shardrings", "rings", "ring"):
        what = what[1:]
    if not watch:
        click.echo(_drawn(place, what, output, everything=everything))
        return
    draw_on(lambda: _drawn(place, what, output, everything=everything), lambda: time.sleep(_LOOK_S), output)


def _drawn(place: Place, what: Sequence[str], output: Output, *, everything: bool) -> str:
    from poise.cli.kube_rings import members_view, objects_view, ring_view, rings_table

    word = what[0].lower() if what else ""
    if word in _OBJECTS or word in _MEMBERS:
        looks = snapshots(place, what[1:])
        if output != "table":
            return data_text(
                [_members(custom, seen) if word in _MEMBERS else _objects(seen) for custom, seen in looks], output
            )
        texts = [
            members_view(seen) if word in _MEMBERS else objects_view(seen, everything=everything) for _, seen in looks
        ]
        return "\n\n".join(texts) or "There is no ring in this namespace (all of them: -A)"
    if output != "table":
        documents = [_document(seen) for _, seen in snapshots(place, what)]
        return data_text(documents[0] if len(what) == 1 and output == "json" else documents, output)
    rings = ask(place, lambda client: _rings(client, place, what))
    return "\n\n".join(map(ring_view, rings)) if what else rings_table(rings, everywhere=place.everywhere)


async def _rings(client: Client, place: Place, names: Sequence[str]) -> list[Custom]:
    """Read rings by their names; without any all of them."""
    if not names:
        return await list_rings(client, place)
    return [await find_ring(client, place, name) for name in names]


def snapshots(place: Place, names: Sequence[str]) -> list[tuple[Custom, RingSnapshot]]:
    """Look at rings with all their objects."""
    from poise.jobs.sharder.reading import RingReader

    async def look(client: Client) -> list[tuple[Custom, RingSnapshot]]:
        reader = RingReader(client, scoped=place.scoped)
        return [(each, await reader.snapshot(each)) for each in await _rings(client, place, names)]

    return ask(place, look)


def _document(seen: RingSnapshot) -> dict[str, object]:
    """Write a ring as a document: what `poise plan FILE` plans without a cluster."""
    from poise.documents import dump
    from poise.jobs.sharder.foresight import facts_of
    from poise.model.shard_ring import Instance, ShardRingStatus

    facts = facts_of(seen)
    held = {**facts.kept, **{key: place for key, place in facts.free.items() if place is not None}}
    instances = [Instance(each.name, each.state.value, each.tokens) for each in seen.instances]
    status = ShardRingStatus(instances, dict(sorted(held.items())))
    return dump(msgspec.structs.replace(seen.ring, status=status))


def _members(custom: Custom, seen: RingSnapshot) -> dict[str, object]:
    """Write how a ring stands, for programs."""
    from poise.jobs.sharder.reading import shown_status

    status = shown_status(custom)
    return {
        "kind": seen.ring.kind,
        "namespace": seen.namespace,
        "name": seen.name,
        "summary": status.summary,
        "paused": seen.orders.paused,
        "drains": seen.report.drains,
        "oldestDrainSince": status.oldest_drain_since,
        "unassigned": seen.report.unassigned,
        "conditions": list(status.conditions),
        "members": [
            {
                "name": each.name,
                "state": each.state.value,
                "objects": each.objects,
                "leaving": sum(root.marks.drain is not None and root.marks.shard == each.name for root in seen.roots),
                "coming": sum(root.marks.drain == each.name for root in seen.roots),
                "tokens": each.tokens,
                "drained": each.drained,
                "note": each.note,
            }
            for each in seen.instances
        ],
        "notes": list(seen.notes),
    }


def _objects(seen: RingSnapshot) -> dict[str, object]:
    """Write who holds what, children included, for programs."""
    from poise.jobs.sharder.explaining import shown_object

    objects = [
        {
            "object": shown_object(known),
            "root": shown_object(seen.known[root]) if root is not None and root in seen.known else None,
            "key": seen.objects[root].key if root is not None else None,
            "shard": seen.objects[uid].marks.shard,
            "epoch": seen.objects[uid].marks.epoch,
            "drain": seen.objects[uid].marks.drain,
        }
        for uid, known in seen.known.items()
        for root in (seen.rooted.get(uid),)
    ]
    listed = sorted(objects, key=lambda each: str(each["object"]))
    return {"kind": seen.ring.kind, "namespace": seen.namespace, "name": seen.name, "objects": listed}


def plan_rings(place: Place, names: Sequence[str], what_if: WhatIf | None, tokens: int | None) -> list[Planned]:
    """Plan rings as they are, or one as a what-if."""
    from poise.jobs.sharder.foresight import plan_snapshot

    if tokens is not None and (what_if is None or not what_if.add):
        raise click.UsageError("--tokens says how many tokens an instance of --add would have")
    if what_if is not None and len(names) != 1:
        raise click.UsageError("a what-if needs one ring: name it")
    looks = snapshots(place, names)
    if not looks:
        raise wrong("there is no ring in this namespace: name another with --namespace")
    return [plan_snapshot(seen, what_if, tokens) for _, seen in looks]


def explain_of_ring(
    place: Place, ring: str, words: Sequence[str], what_if: WhatIf | None
) -> tuple[str, str, ObjectExplanation]:
    """Explain one object of a ring, named as `[group/]Kind/namespace/name` or `kind namespace/name`."""
    from poise.jobs.sharder.explaining import explain_object, find_object

    group, kind, namespace, name = read_object(words)
    ((_, seen),) = snapshots(place, [ring])
    if namespace is None:
        cluster_wide = all(not known.kind.resource.namespaced for known in seen.known.values())
        namespace = "" if cluster_wide else place.namespace or seen.namespace
        if any(not known.kind.resource.namespaced and known.meta.name == name for known in seen.known.values()):
            namespace = ""
    each = find_object(seen, kind, namespace, name, group)
    return seen.ring.kind, f"{seen.namespace}/{seen.name}", explain_object(seen, each, what_if)


def read_object(words: Sequence[str]) -> tuple[str | None, str, str | None, str]:
    """Read what people call an object: group, kind, namespace and name; None is what they did not say."""
    parts = [part for word in words for part in word.split("/")]
    if len(words) == 2 and len(parts) in (2, 3):
        kind, *place = parts
        return None, kind, place[0] if len(place) == 2 else None, place[-1]
    match parts if len(words) == 1 else []:
        case [group, kind, namespace, name] if kind and name:
            return group, kind, namespace, name
        case [kind, namespace, name] if kind and name:
            return None, kind, namespace, name
        case [kind, name] if kind and name:
            return None, kind, None, name
    raise wrong(f"expected an object as [GROUP/]KIND/NAMESPACE/NAME or KIND NAMESPACE/NAME, got {' '.join(words)!r}")


def show_explanation(kind: str, name: str, told: ObjectExplanation, output: Output) -> None:
    """Print one explanation."""
    from poise.cli.render import render_explanation

    if output != "table":
        emit(told, output)
        return
    shown = msgspec.structs.replace(told, item=told.object)
    click.echo(render_explanation(kind, name, shown))
