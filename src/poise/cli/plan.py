"""`poise plan`: what would move, why, and the proof that it is the least possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from poise.cli.common import (
    Output,
    at_option,
    choose,
    emit,
    files_argument,
    imagined,
    moment,
    only_option,
    output_option,
    read_documents,
    what_if_options,
)

if TYPE_CHECKING:
    from poise.jobs.entries import Planned


@click.command(
    epilog="""\b
Examples:
  poise plan routers.yaml
  poise plan routers.yaml --drain gnmic-1        what would a drain move?
  poise plan shop.yaml --replicas cart=9 -o json
  cat routers.yaml | poise plan -f -"""
)
@files_argument
@only_option
@what_if_options
@at_option
@output_option
@click.option("--all", "everything", is_flag=True, help="Print every move, however many there are.")
@click.option("--detailed-exitcode", is_flag=True, help="End with 2 where something would change.")
def plan(
    files: tuple[str, ...],
    more: tuple[str, ...],
    only: str | None,
    at: str | None,
    output: Output,
    everything: bool,
    detailed_exitcode: bool,
    **flags: tuple[str, ...],
) -> int:
    """Show the plan of every document in the files; nothing is changed.

    Every plan is checked by a second, independent implementation before it is shown. The last line of a plan is its
    certificate: the moves made, and the fewest possible, computed from the facts alone.
    """
    from poise.cli.main import CHANGES, OK
    from poise.jobs import plan_document

    what_if = imagined(flags)
    documents = choose(read_documents([*files, *more]), only)
    if what_if is not None and len(documents) != 1:
        raise click.UsageError(f"a what-if needs one document and there are {len(documents)}: choose with --only NAME")
    now = moment(at)
    planned = [plan_document(document, now, what_if) for document in documents]
    show(planned, output, everything=everything)
    return CHANGES if detailed_exitcode and any(each.pending for each in planned) else OK


def show(planned: list[Planned], output: Output, *, everything: bool) -> None:
    """Print plans that the checker found sound; refuse the others."""
    from poise.cli.render import render
    from poise.errors import BrokenPlan

    broken = [f"{each.entry.kind} {each.entry.name}: {fault}" for each in planned for fault in each.faults]
    if broken:
        raise BrokenPlan("the plan breaks a law and is not shown: " + "; ".join(broken[:5]))
    if output == "table":
        click.echo("\n\n".join(render(each, everything=everything) for each in planned))
    else:
        emit([each.entry for each in planned], output)
