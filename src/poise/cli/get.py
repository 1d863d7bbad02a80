"""`poise get`: the jobs of a server, one of them, its members, or who holds what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from poise.cli.common import SERVER, Output, output_option, server_option
from poise.cli.kube_options import Place, kube_options
from poise.cli.redrawing import data_text, draw_on

if TYPE_CHECKING:
    from poise.cli.remote import Job, Server

# What can be asked of a job, and which kind has it: `poise get targets core-routers`.
_PARTS: dict[str, str | None] = {
    "targets": "TargetPool",
    "partitions": "PartitionSet",
    "objects": "ShardRing",
    "workloads": None,
    "items": None,
    "members": None,
}
_LOOK_S = 5.0  # A watch looks so often also without an event: leases end in silence.


@click.command(
    epilog="""\b
Examples:
  poise get                                 every job in a line
  poise get orders                          one job, its members, and what nobody holds
  poise get PartitionSet/orders -o yaml     spec and status: what `poise plan FILE` plans
  poise get targetpools                     the jobs of one kind
  poise get targets core-routers            targets per pod
  poise get members orders
  poise get orders --watch
  poise get --kube                          every ring of a cluster
  poise get --kube objects web              who has what"""
)
@click.argument("what", nargs=-1, metavar="[NAME | KIND/NAME | KIND | targets NAME]...")
@server_option(default=SERVER)
@kube_options("Show rings of a cluster")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="With --kube: the rings of all namespaces.")
@click.option("-w", "--watch", is_flag=True, help="Show it again whenever something changes, until Ctrl-C.")
@click.option("--all", "everything", is_flag=True, help="Print every line, however many there are.")
@output_option
def get(
    what: tuple[str, ...],
    server: str,
    watch: bool,
    everything: bool,
    output: Output,
    everywhere: bool,
    place: Place | None,
) -> None:
    """Show the jobs of a server.

    With the word targets, partitions, objects, workloads or items: who holds what. With the word members: load and
    state. NAME may be left out there, for all jobs. On a terminal --watch draws the picture anew; elsewhere it prints
    the lines that are new.
    """
    if everywhere and place is None:
        raise click.UsageError("--all-namespaces needs --kube")
    if place is not None:
        from poise.cli.kube_get import get_rings

        get_rings(place._replace(everywhere=everywhere), what, output, everything=everything, watch=watch)
        return
    from poise.cli.remote import Server

    with Server(server) as asked:
        draw = _drawing(asked, what, output, everything=everything)
        if watch:
            _watch(asked, draw, output)
        else:
            click.echo(draw())


def _drawing(server: Server, what: Sequence[str], output: Output, *, everything: bool) -> Callable[[], str]:
    """Understand what is wanted, once; the answer draws it as often as asked."""
    if what and what[0].lower() in _PARTS:
        word = what[0].lower()
        jobs = _named(server, what[1:], _PARTS[word])
        return lambda: _parts(server, jobs, word, output, everything=everything)
    if not what:
        return lambda: _jobs(server, None, output)
    from poise.cli.remote import is_kind, kind_of

    kinds = [kind_of(word) for word in what if is_kind(word)]
    if len(kinds) == len(what):
        return lambda: _jobs(server, kinds, output)
    found = [server.find(word) for word in what]
    return lambda: _one_by_one(server, found, output)


def _named(server: Server, names: Sequence[str], kind: str | None) -> list[Job]:
    from poise.cli.remote import Job
    from poise.model import KINDS

    kinds = (kind,) if kind else tuple(KINDS)
    if names:
        return [server.find(name, kinds) for name in names]
    return [Job(each.kind, each.name) for each in server.jobs() if each.kind in kinds]


def _jobs(server: Server, kinds: list[str] | None, output: Output) -> str:
    from poise.cli.remote import Job
    from poise.cli.views import jobs_table

    jobs = [each for each in server.jobs() if kinds is None or each.kind in kinds]
    if output == "table":
        return jobs_table(jobs)
    return data_text([server.get(Job(each.kind, each.name)).document for each in jobs], output)


def _one_by_one(server: Server, jobs: list[Job], output: Output) -> str:
    """Show jobs in full; one alone is printed as it is, so that its text is a document."""
    if output != "table":
        documents = [server.get(job).document for job in jobs]
        return data_text(documents[0] if len(documents) == 1 and output == "json" else documents, output)
    from poise.cli.views import job_view

    texts = []
    for job in jobs:
        counted = job.kind in ("ReplicaDivision", "CapacitySplit")
        items = server.items(job, None if counted else "Unassigned")
        texts.append(job_view(server.summary(job), server.members(job), items))
    return "\n\n".join(texts)


def _parts(server: Server, jobs: list[Job], word: str, output: Output, *, everything: bool) -> str:
    """Show the items or the members of jobs."""
    from poise.cli.views import items_view, members_view

    if output != "table":
        listed = [
            {"kind": job.kind, "name": job.name, word: server.members(job) if word == "members" else server.items(job)}
            for job in jobs
        ]
        return data_text(listed, output)
    texts = [] if jobs else ["There is no such job yet; write one with: poise apply FILE"]
    for job in jobs:
        members = server.members(job)
        if word == "members":
            texts.append(members_view(job, members))
        else:
            texts.append(items_view(job, members, server.items(job), everything=everything))
    return "\n\n".join(texts)


def _watch(server: Server, draw: Callable[[], str], output: Output) -> None:
    """Draw again at every change; a server that is away is waited for."""
    news = server.news()
    try:
        draw_on(draw, lambda: news.wait(_LOOK_S), output)
    finally:
        news.end()
