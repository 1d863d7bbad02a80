"""`poise undrain`: a member takes its share again."""

from __future__ import annotations

import click

from poise.cli.common import SERVER, server_option
from poise.cli.drain import member_arguments, member_jobs


@click.command(
    epilog="""\b
Examples:
  poise undrain w1
  poise undrain w1 --job orders"""
)
@member_arguments
@server_option(default=SERVER)
def undrain(member: str, jobs: tuple[str, ...], server: str) -> None:
    """Take MEMBER back into service: it gets its fair share again, by the fewest moves."""
    from poise.cli.remote import Server

    with Server(server) as asked:
        for job in member_jobs(asked, member, jobs):
            asked.drain(job, member, draining=False)
            click.echo(f"{member} takes part in {job} again", err=True)
