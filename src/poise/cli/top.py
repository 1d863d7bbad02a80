"""`poise top`: the jobs of a server, or one of them, as a picture in a terminal that lives."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from poise.cli.common import SERVER, server_option

if TYPE_CHECKING:
    from poise.cli.ink import Ink
    from poise.cli.pictures import Frame, Picture, Shape
    from poise.cli.watching import Eyes, JobSeen
    from poise.serve.facade import JobSummary

Seen = TypeVar("Seen")
_CLOCK_S = 1.0  # So often a picture is drawn without a change: its times go on.
_WIDTH = 80


@click.command(
    epilog="""\b
Examples:
  poise top                     every job in a line, what is wrong first
  poise top orders              who holds what, what moves and why, live
  poise top ReplicaDivision/shop
  poise top orders --once       one picture, for a file or a pipe
\b
Keys: q quits; p or space, arrows and page keys turn long lists."""
)
@click.argument("job", required=False, metavar="[JOB]")
@server_option(default=SERVER)
@click.option("--once", is_flag=True, help="Print one picture and end; so it is where there is no terminal.")
def top(job: str | None, server: str, once: bool) -> None:
    """Watch the jobs of a server, or one JOB (NAME or KIND/NAME), in a terminal.

    The picture is the one of the page: members with their load between floor and ceiling, items as cells by state,
    moves in flight and waiting with their reasons, the plan with its certificate, and the last events. It is drawn for
    80 columns and more. Signs and words say everything that colours say; NO_COLOR leaves them out. A connection that
    is lost is shown, and taken up again.
    """
    from poise.cli.watching import Eyes

    is_live = not once and _is_terminal()
    with Eyes(server, hurries=is_live) as eyes:
        if job is None:
            _show(eyes, eyes.jobs, _draw_jobs, is_live=is_live)
        else:
            found = eyes.find(job)
            _show(eyes, lambda: eyes.look(found), _draw_job, is_live=is_live)


def _is_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _draw_jobs(seen: list[JobSummary], shape: Shape, frame: Frame) -> Picture:
    from poise.cli.pictures import jobs_picture

    return jobs_picture(seen, shape, frame)


def _draw_job(seen: JobSeen, shape: Shape, frame: Frame) -> Picture:
    from poise.cli.pictures import job_picture

    return job_picture(seen, shape, frame)


def _show(
    eyes: Eyes, look: Callable[[], Seen], draw: Callable[[Seen, Shape, Frame], Picture], *, is_live: bool
) -> None:
    """Show one picture, or one after the other."""
    from poise import clock
    from poise.cli.pictures import Frame, Shape

    seen, is_terminal = look(), _is_terminal()
    if is_live:
        _live(eyes, look, draw, seen)
        return
    width = shutil.get_terminal_size((_WIDTH, 24)).columns if is_terminal or "COLUMNS" in os.environ else _WIDTH
    frame = Frame(width=max(40, width), ink=_ink(colour=is_terminal))
    for line in draw(seen, Shape(eyes.url, clock.now()), frame).lines:
        click.echo(line, color=is_terminal)


def _ink(*, colour: bool) -> Ink:
    from poise.cli.ink import Ink

    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    return Ink(unicode=encoding.startswith("utf"), colour=colour and not os.environ.get("NO_COLOR"))


def _live(eyes: Eyes, look: Callable[[], Seen], draw: Callable[[Seen, Shape, Frame], Picture], first: Seen) -> None:
    """Draw at every change, every key and every second until somebody quits or the job is gone."""
    from poise import clock
    from poise.cli.pictures import Frame, Shape
    from poise.cli.screen import Screen
    from poise.cli.watching import Watch

    ink, offset, taken = _ink(colour=True), 0, clock.now()
    with Screen() as screen:
        watch = Watch(eyes, look, first, screen.wake)
        try:
            while not screen.ended and not watch.ended:
                taken = taken if watch.trouble else clock.now()
                width, height = screen.size()
                shape = Shape(eyes.url, taken, watch.trouble)
                picture = draw(watch.seen, shape, Frame(width, height, offset, ink))
                screen.draw(picture.lines)
                for key in screen.wait(_CLOCK_S):
                    if key == "quit":
                        return
                    offset = _turned(key, min(offset, picture.offset_max), picture.offset_max, height // 2)
        finally:
            watch.stop()
    if watch.ended:
        click.echo(f"poise: {watch.ended}; it was there a moment ago", err=True)


def _turned(key: str, offset: int, offset_max: int, page: int) -> int:
    """Turn a long list by a line or a page; past its end a page begins again."""
    if key == "page" and offset >= offset_max:
        return 0
    steps = {"up": -1, "down": 1, "page": page, "back": -page}
    return max(0, min(offset_max, offset + steps[key]))
