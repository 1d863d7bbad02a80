"""What `poise get` shows again and again: data as text, and a picture that is drawn anew when it is another one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import click

from poise.cli.common import Output


def data_text(data: object, output: Output) -> str:
    """Write data; many documents of YAML are parted as in a file."""
    import msgspec

    if output == "json":
        return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    from poise.documents import write_yaml

    plain = msgspec.to_builtins(data)
    if isinstance(data, list):
        return "---\n".join(write_yaml(each) for each in plain).rstrip("\n")
    return write_yaml(plain).rstrip("\n")


def draw_on(draw: Callable[[], str], wait: Callable[[], object], output: Output) -> None:
    """Draw until Ctrl-C whatever is another picture after each wait; who is away is waited for."""
    from poise.errors import Unavailable

    live, before, away = sys.stdout.isatty() and output == "table", "", False
    try:
        while True:
            try:
                text, away = draw(), False
            except Unavailable as error:
                if not before:
                    raise
                if not away:
                    click.echo(f"poise: {error}; trying again", err=True)
                text, away = before, True
            if text != before:
                _redraw(text, before, output, live=live)
                before = text
            wait()
    except KeyboardInterrupt:
        return


def _redraw(text: str, before: str, output: Output, *, live: bool) -> None:
    """Draw the picture on a terminal; elsewhere print lines that are new, or the whole data once more."""
    if live:
        height = os.get_terminal_size(sys.stdout.fileno()).lines
        click.echo("\x1b[H\x1b[2J" + "\n".join(text.splitlines()[: max(1, height - 1)]))
    elif output == "table":
        known = set(before.splitlines())
        click.echo("\n".join(line for line in text.splitlines() if line not in known))
    else:
        click.echo(("---\n" if output == "yaml" and before else "") + text)
    sys.stdout.flush()
