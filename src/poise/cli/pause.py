"""`poise pause`: the moves of a job are held back."""

from __future__ import annotations

import click

from poise.cli.common import SERVER, server_option


@click.command(
    epilog="""\b
Examples:
  poise pause orders                nothing that is well moves
  poise pause orders --all          not even what nobody holds is given to anybody
  poise resume orders"""
)
@click.argument("job")
@click.option("--all", "everything", is_flag=True, help="Hold back also the recovery of items that nobody holds.")
@server_option(default=SERVER)
def pause(job: str, everything: bool, server: str) -> None:
    """Hold the moves of JOB back until `poise resume`; the server keeps it, also over a restart.

    Members go on with what they hold. What loses its owner still gets a new one, unless --all is said.
    """
    from poise.cli.remote import Server

    with Server(server) as asked:
        found = asked.find(job)
        asked.pause(found, paused=True, everything=everything)
        how = "nothing moves, and nothing is recovered" if everything else "only what nobody holds is given to somebody"
        click.echo(f"{found} is paused: {how}", err=True)
