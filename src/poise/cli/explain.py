"""`poise explain`: why an item is where it is, why not elsewhere, and what would move it."""

from __future__ import annotations

import click

from poise.cli.common import (
    Output,
    at_option,
    choose,
    emit,
    imagined,
    moment,
    only_option,
    output_option,
    read_documents,
    what_if_options,
)


@click.command(
    epilog="""\b
Examples:
  poise explain routers.yaml router5
  poise explain shop.yaml cart                  a workload: its quota, and who got the extra replica
  poise explain routers.yaml router5 --drain gnmic-1"""
)
@click.argument("file", type=click.Path(allow_dash=True))
@click.argument("item")
@only_option
@what_if_options
@at_option
@output_option
def explain(file: str, item: str, only: str | None, at: str | None, output: Output, **flags: tuple[str, ...]) -> None:
    """Say why ITEM of the document in FILE is where the plan puts it.

    ITEM is a target, an object's key, a partition's number, or a workload. FILE may be - for standard input.
    """
    from poise.cli.render import render_explanation
    from poise.jobs import explain_document

    documents = choose(read_documents([file]), only)
    if len(documents) != 1:
        raise click.UsageError(f"{file} has {len(documents)} documents: choose one with --only NAME")
    told = explain_document(documents[0], item, moment(at), imagined(flags))
    if output == "table":
        click.echo(render_explanation(documents[0].kind, documents[0].metadata.name, told))
    else:
        emit(told, output)
