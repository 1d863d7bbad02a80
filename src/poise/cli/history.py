"""`poise history`: the story of an item, or of a whole set, from the journal."""

from __future__ import annotations

import click

from poise.cli.common import Output, emit, output_option


@click.command(
    epilog="""\b
Examples:
  poise history orders 12 --db poise.db
  poise history orders --db postgresql://127.0.0.1/poise -o json > orders.journal"""
)
@click.argument("set_name", metavar="SET")
@click.argument("item", required=False)
@click.option("--db", "url", required=True, metavar="URL", help="The store: a file, sqlite:///… or postgresql://…")
@output_option
def history(set_name: str, item: str | None, url: str, output: Output) -> None:
    """Print every transition of ITEM, or of all items of SET, in order.

    With -o json the output is a journal that `poise verify` reads.
    """
    from poise.stores.open import open_store
    from poise.stores.reading import read_journal

    store = open_store(url)
    try:
        lines = list(read_journal(store, set_name, item))
    finally:
        store.close()
    if output != "table":
        emit(lines, output)
        return
    for line in lines:
        what = f"{line.item or set_name} {line.transition}"
        who = f" {line.member}" if line.member else ""
        click.echo(f"{line.number:>6}  {line.at_s:>14.3f}  {what}{who}  epoch {line.epoch}  {line.reason}".rstrip())
