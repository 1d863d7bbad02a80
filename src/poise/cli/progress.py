"""Following what a server does: one line that is redrawn on a terminal, plain lines where none is."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click

from poise.errors import PoiseError, Unavailable

if TYPE_CHECKING:
    from poise.cli.remote import Server

_Verb = TypeVar("_Verb", bound=Callable[..., object])
TIMEOUT_S = 600.0
_LOOK_S = 1.0  # So often it is looked without an event: leases end in silence.
_LINE_S = 1.0  # So often a line is written where it cannot be redrawn.
_BAR = 20


class Seen(NamedTuple):
    """How far it is: a sentence, whether that is the end, and how much is done of how much."""

    text: str
    is_end: bool
    done: int = 0
    total: int = 0


def waiting_options(verb: _Verb) -> _Verb:
    """Say whether and how long to wait."""
    verb = click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(0),
        default=TIMEOUT_S,
        show_default=True,
        metavar="SECONDS",
        help="Wait no longer than this, and end with 1; the server goes on.",
    )(verb)
    return click.option("--no-wait", is_flag=True, help="Do not wait until it is done.")(verb)


def follow(server: Server, look: Callable[[], Seen], timeout_s: float) -> str:
    """Look again at every change until the end, and answer the last sentence; a server that is away is waited for."""
    last_s = time.monotonic() + timeout_s
    news, line = server.news(), Line()
    seen = Seen("", is_end=False)
    try:
        while True:
            try:
                seen = look()
            except Unavailable as error:
                seen = seen._replace(text=str(error), is_end=False)
            line.show(seen)
            if seen.is_end:
                return seen.text
            left_s = last_s - time.monotonic()
            if left_s <= 0:
                raise PoiseError(f"not done after {timeout_s:g} s: {seen.text}; the server goes on with it")
            news.wait(min(left_s, _LOOK_S))
    finally:
        line.clear()
        news.end()


class Line:
    """The line of progress on standard error."""

    def __init__(self) -> None:
        """Look where it is written."""
        self._live = sys.stderr.isatty()
        self._text, self._at_s = "", 0.0

    def show(self, seen: Seen) -> None:
        """Show how far it is; the end itself is told by whoever asked."""
        if self._live:
            width = os.get_terminal_size(sys.stderr.fileno()).columns
            click.echo("\r\x1b[2K" + f"{_bar(seen)}{seen.text}"[: max(10, width - 1)], err=True, nl=False)
        elif not seen.is_end and seen.text != self._text and time.monotonic() - self._at_s >= _LINE_S:
            self._text, self._at_s = seen.text, time.monotonic()
            click.echo(seen.text, err=True)

    def clear(self) -> None:
        """Leave no half line behind."""
        if self._live:
            click.echo("\r\x1b[2K", err=True, nl=False)


def _bar(seen: Seen) -> str:
    """Draw how much is done; without a number there is no bar."""
    if not seen.total:
        return ""
    full = _BAR * min(seen.done, seen.total) // seen.total
    return f"[{'#' * full}{'.' * (_BAR - full)}] "
