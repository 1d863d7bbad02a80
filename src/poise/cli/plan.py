"""`poise plan`: what would move, why, and the proof that it is the least possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from poise.cli.common import (
    Output,
    asks_server,
    at_option,
    choose,
    emit,
    files_argument,
    imagined,
    moment,
    only_option,
    output_option,
    read_documents,
    server_option,
    what_if_options,
)
from poise.cli.kube_options import Place, kube_options

if TYPE_CHECKING:
    from poise.jobs.entries import Planned
    from poise.jobs.what_if import WhatIf


@click.command(
    epilog="""\b
Examples:
  poise plan routers.yaml
  poise plan routers.yaml --drain gnmic-1        what would a drain move?
  poise plan shop.yaml --replicas cart=9 -o json
  cat routers.yaml | poise plan -f -
  poise plan orders --drain w1 --server http://127.0.0.1:7878        a job of a server, as it is now
  poise plan --kube web --add web-3        a ring of a cluster: what would move if web-3 joined?"""
)
@files_argument
@only_option
@server_option("Plan jobs of this server, named in the place of files")
@kube_options("Plan rings of a cluster, named in the place of files")
@what_if_options
@click.option(
    "--tokens", type=click.IntRange(1, 10_000), metavar="N", help="With --kube: the tokens of what --add names."
)
@at_option
@output_option
@click.option("--all", "everything", is_flag=True, help="Print every move, however many there are.")
@click.option("--detailed-exitcode", is_flag=True, help="End with 2 where something would change.")
def plan(
    files: tuple[str, ...],
    more: tuple[str, ...],
    only: str | None,
    server: str | None,
    at: str | None,
    output: Output,
    everything: bool,
    detailed_exitcode: bool,
    tokens: int | None,
    place: Place | None,
    **flags: tuple[str, ...],
) -> int:
    """Show the plan of every document in the files, or of jobs of a server; nothing is changed.

    Every plan is checked by a second, independent implementation before it is shown. The last line of a plan is its
    certificate: the moves made, and the fewest possible, computed from the facts alone. With a server an argument is
    the NAME or KIND/NAME of a job, and no argument means all of them; where only POISE_SERVER names the server, an
    argument that is a file is that file. With --kube an argument is the NAME or NAMESPACE/NAME of a ring.
    """
    from poise.cli.main import CHANGES, OK

    what_if = imagined(flags)
    if tokens is not None and place is None:
        raise click.UsageError("--tokens needs --kube")
    if place is not None:
        planned = _plan_rings(place, files, what_if, tokens, elsewhere=bool(more or only or at))
    elif server is not None and asks_server([*files, *more]):
        planned = _plan_jobs(server, files, more, only, at, what_if)
    else:
        planned = _plan_files([*files, *more], only, at, what_if)
    show(planned, output, everything=everything)
    return CHANGES if detailed_exitcode and any(each.pending for each in planned) else OK


def _plan_rings(
    place: Place, names: tuple[str, ...], what_if: WhatIf | None, tokens: int | None, *, elsewhere: bool
) -> list[Planned]:
    """Plan rings of a cluster."""
    from poise.cli.kube_get import plan_rings

    if elsewhere:
        raise click.UsageError("-f, --only and --at are for documents, not for --kube")
    return plan_rings(place, names, what_if, tokens)


def _plan_files(files: list[str], only: str | None, at: str | None, what_if: WhatIf | None) -> list[Planned]:
    """Plan documents of files."""
    from poise.jobs.planning import plan_document

    documents = choose(read_documents(files), only)
    if what_if is not None and len(documents) != 1:
        raise click.UsageError(f"a what-if needs one document and there are {len(documents)}: choose with --only NAME")
    now = moment(at)
    return [plan_document(document, now, what_if) for document in documents]


def _plan_jobs(
    server: str,
    names: tuple[str, ...],
    files: tuple[str, ...],
    only: str | None,
    at: str | None,
    what_if: WhatIf | None,
) -> list[Planned]:
    """Plan jobs of a server, all of them where none is named; at another time they are planned here."""
    from poise.cli.remote import Job, Server
    from poise.jobs.planning import plan_document

    if files or only:
        raise click.UsageError("-f and --only are for files; what a server makes of one: poise apply FILE --dry-run")
    with Server(server) as asked:
        jobs = [asked.find(name) for name in names] or [Job(each.kind, each.name) for each in asked.jobs()]
        if what_if is not None and len(jobs) != 1:
            raise click.UsageError(f"a what-if needs one job and there are {len(jobs)}: name it")
        if at is None:
            return [asked.plan(job, what_if) for job in jobs]
        return [plan_document(asked.document(job), moment(at), what_if, draining=asked.draining(job)) for job in jobs]


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
