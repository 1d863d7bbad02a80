"""`poise history`: the story of an item, or of a whole set, from the journal."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from poise.cli.common import Output, emit, output_option, said_server, server_option
from poise.cli.kube_options import Place, kube_options
from poise.errors import Fault, InvalidSpec

if TYPE_CHECKING:
    from poise.model.ownership import Line


@click.command(
    epilog="""\b
Examples:
  poise history orders 12 --db poise.db
  poise history orders --db postgresql://127.0.0.1/poise -o json > orders.journal
  poise history orders 12 --server http://127.0.0.1:7878
  poise history --kube web                  what happened to the instances of a ring of a cluster"""
)
@click.argument("set_name", metavar="SET")
@click.argument("item", required=False)
@server_option("Ask this server; then ITEM is needed")
@click.option(
    "--db", "url", metavar="URL", help="Read this store.  [default, where no server is named: sqlite:///poise.db]"
)
@kube_options("Tell the Events of the ring of a cluster that is named in the place of SET, or of its instance ITEM")
@output_option
def history(
    set_name: str, item: str | None, server: str | None, url: str | None, output: Output, place: Place | None
) -> None:
    """Print every transition of ITEM, or of all items of SET, in order.

    With -o json the output is a journal that `poise verify` reads. At a server SET is the NAME or KIND/NAME of a job.
    With --kube it is a ring, and what is told are its Events and since when its conditions hold: no object has a story.
    """
    if place is not None:
        if url is not None:
            raise click.UsageError("--db and --kube exclude each other: ask one of them")
        from poise.cli.kube_history import show_history

        show_history(place, set_name, item, output)
        return
    if url is not None and server is not None and said_server():
        raise click.UsageError("--server and --db exclude each other: ask one of them")
    if url is None and server is not None:
        lines = _of_server(server, set_name, item)
    else:
        lines = _of_store(url or "sqlite:///poise.db", set_name, item)
    if output != "table":
        emit(lines, output)
        return
    for line in lines:
        what = f"{line.item or set_name} {line.transition}"
        who = f" {line.member}" if line.member else ""
        epoch = f"  epoch {line.epoch}" if line.epoch else ""
        click.echo(f"{line.number:>6}  {line.at_s:>14.3f}  {what}{who}{epoch}  {line.reason}".rstrip())


def _of_server(url: str, name: str, item: str | None) -> list[Line]:
    from poise.cli.remote import Server

    if item is None:
        raise click.UsageError("a server tells the story of one ITEM; the whole journal is in its store: --db URL")
    with Server(url) as server:
        job = server.find(name)
        lines = server.history(job, item)
        if not lines:
            raise InvalidSpec(Fault("", f"{job.kind} {job.name} has no item {item!r}"))
        return lines


def _of_store(url: str, set_name: str, item: str | None) -> list[Line]:
    from poise.stores.open import open_store
    from poise.stores.reading import read_journal

    with closing(open_store(url, make=False)) as store:
        lines = list(read_journal(store, set_name, item))
        if not lines:
            raise InvalidSpec(Fault("", _unknown(store.sets(), set_name, item)))
        return lines


def _unknown(names: list[str], set_name: str, item: str | None) -> str:
    """Say what is wrong with a question that has no answer."""
    if set_name in names:
        return f"{set_name} has no item {item!r}"
    return f"there is no set {set_name!r}" + (f"; there is {', '.join(names[:8])}" if names else "")
