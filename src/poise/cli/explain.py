"""`poise explain`: why an item is where it is, why not elsewhere, and what would move it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from poise.cli.common import (
    Output,
    asks_server,
    at_option,
    choose,
    emit,
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
    from poise.decide.explain import Explanation
    from poise.jobs.entries import Told
    from poise.jobs.what_if import WhatIf


@click.command(
    epilog="""\b
Examples:
  poise explain routers.yaml router5
  poise explain shop.yaml cart                  a workload: its quota, and who got the extra replica
  poise explain routers.yaml router5 --drain gnmic-1
  poise explain orders 12 --server http://127.0.0.1:7878        a job of a server, as it is now
  poise explain --kube web deployment shop/cart        an object of a ring of a cluster"""
)
@click.argument("file", type=click.Path(allow_dash=True))
@click.argument("item")
@click.argument("name", required=False)
@only_option
@server_option("Explain a job of this server, named in the place of FILE")
@kube_options("Explain an object of the ring of a cluster that is named in the place of FILE")
@what_if_options
@at_option
@output_option
def explain(
    file: str,
    item: str,
    name: str | None,
    only: str | None,
    server: str | None,
    at: str | None,
    output: Output,
    place: Place | None,
    **flags: tuple[str, ...],
) -> None:
    """Say why ITEM of the document in FILE is where the plan puts it.

    ITEM is a target, an object's key, a partition's number, or a workload. FILE may be - for standard input. With a
    server FILE is the NAME or KIND/NAME of a job; where only POISE_SERVER names the server, a file is still a file.
    With --kube FILE is the NAME or NAMESPACE/NAME of a ring, and ITEM one of its objects: GROUP/KIND/NAMESPACE/NAME,
    KIND/NAMESPACE/NAME, or KIND and then NAMESPACE/NAME.
    """
    from poise.cli.render import render_explanation

    what_if = imagined(flags)
    if place is not None:
        _of_cluster(place, file, [item, name] if name else [item], what_if, output, elsewhere=bool(only or at))
        return
    if name is not None:
        raise click.UsageError(f"Got unexpected extra argument ({name}); KIND and NAME apart need --kube")
    if server is not None and asks_server([file]):
        if only:
            raise click.UsageError("--only is for files: name the job in the place of FILE")
        kind, job, told = _of_server(server, file, item, at, what_if)
    else:
        kind, job, told = _of_file(file, item, only, at, what_if)
    if output == "table":
        click.echo(render_explanation(kind, job, told))
    else:
        emit(told, output)


def _of_cluster(
    place: Place, ring: str, words: list[str], what_if: WhatIf | None, output: Output, *, elsewhere: bool
) -> None:
    from poise.cli.kube_get import explain_of_ring, show_explanation

    if elsewhere:
        raise click.UsageError("--only and --at are for documents, not for --kube")
    kind, name, told = explain_of_ring(place, ring, words, what_if)
    show_explanation(kind, name, told, output)


def _of_file(
    file: str, item: str, only: str | None, at: str | None, what_if: WhatIf | None
) -> tuple[str, str, Explanation | Told]:
    from poise.jobs.planning import explain_document

    documents = choose(read_documents([file]), only)
    if len(documents) != 1:
        raise click.UsageError(f"{file} has {len(documents)} documents: choose one with --only NAME")
    told = explain_document(documents[0], item, moment(at), what_if)
    return documents[0].kind, documents[0].metadata.name, told


def _of_server(
    server: str, name: str, item: str, at: str | None, what_if: WhatIf | None
) -> tuple[str, str, Explanation | Told]:
    """Ask a server; other times are explained here, of the document as the server has it."""
    from poise.cli.remote import Server
    from poise.jobs.planning import explain_document

    with Server(server) as asked:
        job = asked.find(name)
        if at is None:
            return job.kind, job.name, asked.explain(job, item, what_if)
        document, draining = asked.document(job), asked.draining(job)
        return job.kind, job.name, explain_document(document, item, moment(at), what_if, draining=draining)
