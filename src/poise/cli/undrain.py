"""`poise undrain`: a member takes its share again."""

from __future__ import annotations

import click

from poise.cli.common import SERVER, Output, server_option
from poise.cli.drain import member_arguments, member_jobs, one_member, ring_member
from poise.cli.kube_options import Place, asking_options, kube_options


@click.command(
    epilog="""\b
Examples:
  poise undrain w1
  poise undrain w1 --job orders
  poise undrain --kube web web-0        an instance of a ring of a cluster"""
)
@member_arguments
@server_option(default=SERVER)
@kube_options("Take back an instance of a ring of a cluster")
@asking_options
def undrain(
    names: tuple[str, ...], jobs: tuple[str, ...], server: str, yes: bool, output: Output, place: Place | None
) -> None:
    """Take MEMBER back into service: it gets its fair share again, by the fewest moves."""
    if place is not None:
        from poise.cli.kube_orders import Answering, undrain_instance

        undrain_instance(place, *ring_member(names, jobs), Answering(yes, output))
        return
    from poise.cli.remote import Server

    member = one_member(names)
    with Server(server) as asked:
        for job in member_jobs(asked, member, jobs):
            asked.drain(job, member, draining=False)
            click.echo(f"{member} takes part in {job} again", err=True)
