"""`poise history --kube`: the Events of a ring, and since when its conditions are what they are."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

import click
import msgspec

from poise.cli.common import Output, emit, paint
from poise.cli.kube_options import Place, ask, find_ring, wrong

if TYPE_CHECKING:
    from poise.kube import Client


class RingEvent(msgspec.Struct, frozen=True, rename="camel"):
    """One thing that happened to a ring or its instances; `count` times since `first`."""

    at: datetime | None
    type: str
    reason: str
    message: str
    count: int = 1
    first: datetime | None = None
    source: str = ""


def show_history(place: Place, ring: str, instance: str | None, output: Output) -> None:
    """Print the Events of a ring, or those that name one instance, oldest first; then what its status tells."""
    told = ask(place, lambda client: _told(client, place, ring))
    if instance is not None:
        # The name as a whole word: web-1 is not told of web-10.
        named = re.compile(rf"(?<![\w.-]){re.escape(instance)}(?![\w-]|\.\w)")
        told = [each for each in told if named.search(each.message)]
        if not told:
            raise wrong(f"nothing is told of {instance!r}; Events are kept for about an hour")
    if output != "table":
        emit(told, output)
        return
    for each in told:
        click.echo(_line(each))
    if not told:
        click.echo("Nothing is told of this ring; Events are kept for about an hour.")


def _line(each: RingEvent) -> str:
    from poise.cli.render import printable

    at = f"{each.at:%Y-%m-%d %H:%M:%SZ}" if each.at else "unknown time       "
    colour = "yellow" if each.type == "Warning" else "green"
    times = f" ({each.count} times since {each.first:%Y-%m-%d %H:%M:%SZ})" if each.count > 1 and each.first else ""
    return f"{at}  {paint(f'{each.reason:18}', colour)}  {printable(each.message)}{times}"


async def _told(client: Client, place: Place, ring: str) -> list[RingEvent]:
    """Read the Events, and the conditions as what is true since."""
    from poise.jobs.sharder.reading import moment_of, shown_status
    from poise.kube import Selection
    from poise.kube.objects import KubeValue
    from poise.kube.resources import EVENTS

    class Seen(KubeValue, frozen=True):
        reason: str = ""
        message: str = ""
        type: str = "Normal"
        count: int | None = None
        first_timestamp: str | None = None
        last_timestamp: str | None = None
        event_time: str | None = None
        reporting_instance: str = ""

    custom = await find_ring(client, place, ring)
    meta = custom.metadata
    fields = f"involvedObject.kind=ShardRing,involvedObject.name={meta.name},involvedObject.uid={meta.uid}"
    found, _ = await client.list_all(Selection(EVENTS, meta.namespace, fields=fields), Seen)
    told = [
        RingEvent(
            moment_of(each.last_timestamp or each.event_time),
            each.type,
            each.reason,
            each.message,
            each.count or 1,
            moment_of(each.first_timestamp),
            each.reporting_instance,
        )
        for each in found
    ]
    told += [
        RingEvent(
            moment_of(each.last_transition_time),
            "Condition",
            f"{each.type}={each.status}",
            f"{each.reason}: {each.message}",
        )
        for each in shown_status(custom).conditions
    ]
    return sorted(told, key=lambda each: (0.0 if each.at is None else each.at.timestamp(), each.type == "Condition"))
