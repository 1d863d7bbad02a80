"""`poise resume`: the moves of a job go on."""

from __future__ import annotations

import click

from poise.cli.common import SERVER, server_option


@click.command(
    epilog="""\b
Examples:
  poise resume orders"""
)
@click.argument("job")
@server_option(default=SERVER)
def resume(job: str, server: str) -> None:
    """Let the moves of JOB go on."""
    from poise.cli.remote import Server

    with Server(server) as asked:
        found = asked.find(job)
        asked.pause(found, paused=False)
        click.echo(f"{found} goes on", err=True)
