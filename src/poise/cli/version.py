"""`poise version`."""

from __future__ import annotations

import click

from poise import __version__


@click.command()
def version() -> None:
    """Print the version."""
    click.echo(f"poise {__version__}")
