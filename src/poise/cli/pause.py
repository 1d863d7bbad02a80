"""`poise pause`: the moves of a job are held back."""

from __future__ import annotations

import click

from poise.cli.common import SERVER, Output, server_option
from poise.cli.kube_options import Place, asking_options, kube_options


@click.command(
    epilog="""\b
Examples:
  poise pause orders                nothing that is well moves
  poise pause orders --all          not even what nobody holds is given to anybody
  poise resume orders
  poise pause --kube web            a ring of a cluster: shows the plan, and asks"""
)
@click.argument("job")
@click.option("--all", "everything", is_flag=True, help="Hold back also the recovery of items that nobody holds.")
@server_option(default=SERVER)
@kube_options("Pause a ring of a cluster")
@asking_options
def pause(job: str, everything: bool, server: str, yes: bool, output: Output, place: Place | None) -> None:
    """Hold the moves of JOB back until `poise resume`; the server keeps it, also over a restart.

    Members go on with what they hold. What loses its owner still gets a new one, unless --all is said. With --kube the
    pause is kept on the ring.
    """
    if place is not None:
        from poise.cli.kube_orders import Answering, pause_ring

        pause_ring(place, job, "all" if everything else "moves", Answering(yes, output))
        return
    from poise.cli.remote import Server

    with Server(server) as asked:
        found = asked.find(job)
        asked.pause(found, paused=True, everything=everything)
        how = "nothing moves, and nothing is recovered" if everything else "only what nobody holds is given to somebody"
        click.echo(f"{found} is paused: {how}", err=True)
