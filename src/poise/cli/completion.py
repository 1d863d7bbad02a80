"""`poise completion`: the script that teaches a shell the verbs and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash:  poise completion bash > ~/.local/share/bash-completion/completions/poise
    zsh:   poise completion zsh > "${fpath[1]}/_poise"
    fish:  poise completion fish > ~/.config/fish/completions/poise.fish
    """
    from poise.cli.main import poise

    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(poise, {}, "poise", "_POISE_COMPLETE")
    click.echo(made.source_template % made.source_vars())
