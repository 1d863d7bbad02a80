"""`poise resume`: the moves of a job go on."""

from __future__ import annotations

import click

from poise.cli.common import SERVER, Output, server_option
from poise.cli.kube_options import Place, asking_options, kube_options


@click.command(
    epilog="""\b
Examples:
  poise resume orders
  poise resume --kube web"""
)
@click.argument("job")
@server_option(default=SERVER)
@kube_options("Let a ring of a cluster go on")
@asking_options
def resume(job: str, server: str, yes: bool, output: Output, place: Place | None) -> None:
    """Let the moves of JOB go on."""
    if place is not None:
        from poise.cli.kube_orders import Answering, pause_ring

        pause_ring(place, job, "", Answering(yes, output))
        return
    from poise.cli.remote import Server

    with Server(server) as asked:
        found = asked.find(job)
        asked.pause(found, paused=False)
        click.echo(f"{found} goes on", err=True)
