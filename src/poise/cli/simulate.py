"""`poise simulate`: one world, several policies, side by side."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import click

from poise.cli.common import (
    Output,
    choose,
    emit,
    files_argument,
    only_option,
    output_option,
    read_bytes,
    read_documents,
)

if TYPE_CHECKING:
    from poise.sim.events import Event
    from poise.sim.replay import Replay
    from poise.sim.summary import Summary
    from poise.sim.worlds import World

# The names are here too, so that a shell can complete them without importing the planners.
POLICIES = ("sticky", "hashed", "ring", "modulo", "fleet", "exact", "weighted", "name-order")
EVENTS, SEED = 200, 0
_SEED_MAX = 2**63 - 1
_PATIENCE_S = 1.0
_WIDTH = 110


@click.command(
    epilog="""\b
Examples:
  poise simulate routers.yaml
  poise simulate routers.yaml --script growth.yaml --report growth.html
  poise simulate shop.yaml --events 500 --seed 7 --policy fleet --policy exact -o json"""
)
@files_argument
@only_option
@click.option("--script", metavar="EVENTS", help="Replay the events of this file.")
@click.option("--events", type=click.IntRange(0, 100_000), help=f"Draw so many random events.  [default: {EVENTS}]")
@click.option("--seed", type=click.IntRange(0, _SEED_MAX), help=f"Draw them with this seed.  [default: {SEED}]")
@click.option(
    "--policy", "policies", type=click.Choice(POLICIES), multiple=True, help="Only this policy (repeat for several)."
)
@click.option("--report", "page", type=click.Path(path_type=Path), metavar="HTML", help="Also write a page with plots.")
@output_option
def simulate(
    files: tuple[str, ...],
    more: tuple[str, ...],
    only: str | None,
    script: str | None,
    events: int | None,
    seed: int | None,
    policies: tuple[str, ...],
    page: Path | None,
    output: Output,
) -> None:
    """Replay joins, leaves and growth under several policies, and compare what they move.

    FILE is one TargetPool, PartitionSet or ShardRing (policies sticky, hashed, ring, modulo) or one ReplicaDivision
    (fleet, exact, weighted, name-order). Nothing is changed. The same seed gives the same events everywhere.
    """
    from poise.sim.reading import world_of
    from poise.sim.replay import replay
    from poise.sim.summary import summarise

    if script is not None and (events is not None or seed is not None):
        raise click.UsageError("--script says what happens, --events and --seed draw it: use one or the other")
    if page is not None:
        _check_place(page)
    documents = choose(read_documents([*files, *more]), only)
    if len(documents) != 1:
        raise click.UsageError(f"one document at a time and there are {len(documents)}: choose with --only NAME")
    world = world_of(documents[0])
    chosen = _chosen(world, policies)
    happens = _read_script(world, script) if script is not None else _draw(world, events, seed)
    drawn = None if script is not None else seed or SEED
    with _progress(len(happens)) as progress:
        played = replay(world, happens, chosen, seed=drawn, progress=progress)
    if page is not None:
        _write_page(page, played)
    if output == "table":
        click.echo(_text(played))
    else:
        emit(summarise(played), output)
    if page is not None:
        click.echo(f"report written to {page}", err=True)


def _chosen(world: World, policies: tuple[str, ...]) -> list[str]:
    """Check that the policies are for this kind; without any, take all that are."""
    from poise.sim.replay import policies_of

    known = policies_of(world)
    for policy in policies:
        if policy not in known:
            raise click.UsageError(f"--policy {policy} is not for a {world.kind}: choose from {', '.join(known)}")
    return [policy for policy in known if policy in policies or not policies]


def _read_script(world: World, script: str) -> list[Event]:
    from poise.sim.events import load_script
    from poise.sim.replay import check_events

    source = "standard input" if script == "-" else script
    events = load_script(read_bytes(script), source)
    check_events(world, events, source)
    return events


def _draw(world: World, events: int | None, seed: int | None) -> list[Event]:
    from poise.sim.chance import random_events

    return list(random_events(world, EVENTS if events is None else events, seed or SEED))


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None] | None]:
    """Show a bar on a terminal, once the run turns out to be long; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield None
        return
    begun = time.monotonic()
    bar = click.progressbar(length=total, label="events", file=sys.stderr)

    def tell(done: int) -> None:
        if time.monotonic() - begun >= _PATIENCE_S:
            bar.update(done - bar.pos)

    try:
        yield tell
    finally:
        if bar.pos:
            bar.render_finish()  # Also gives the cursor back where the run was interrupted.


def _text(played: Replay) -> str:
    """Write what was played, the table, what it says in words, and what could surprise."""
    from poise.sim.findings import finding, notes
    from poise.sim.report import setting
    from poise.sim.summary import summarise

    summary = summarise(played)
    lines = [f"{played.kind} {played.name}   {setting(played)}", "", *_table(summary), ""]
    lines += fill(finding(summary), _WIDTH).splitlines()
    lines += [line for note in notes(summary) for line in fill(f"note: {note}", _WIDTH).splitlines()]
    return "\n".join(lines)


def _table(summary: Summary) -> list[str]:
    """Align one row a policy below the headings: names to the left, numbers to the right."""
    from poise.sim.findings import columns, title

    shown = columns(summary)
    rows = [["policy", *(column.heading for column in shown)]]
    rows += [[title(name), *(column.text(each) for column in shown)] for name, each in summary.policies.items()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "   ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


def _check_place(page: Path) -> None:
    """Refuse a place that cannot take a report before any time is spent on it."""
    place = page.resolve()
    # A link of /dev may lead to a regular file that someone is writing, and a rename would cut that off.
    if page.absolute().is_relative_to("/dev") or (place.exists() and not place.is_file()):
        raise click.ClickException(f"{page}: cannot be written: not a regular file")
    if not place.parent.is_dir():
        raise click.ClickException(f"{page}: cannot be written: there is no such folder")


def _write_page(page: Path, played: Replay) -> None:
    """Write the page whole or not at all: beside its place first, then renamed into it."""
    from poise.sim.report import report

    place = page.resolve()
    beside = place.with_name(f".{place.name[:200]}.{os.getpid()}.part")
    try:
        try:
            beside.write_text(report(played), encoding="utf-8")
            beside.replace(place)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise click.ClickException(f"{page}: cannot be written: {error.strerror}") from None
