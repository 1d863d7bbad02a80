"""`poise worker`: makes a worker of any program."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import socket
import sys
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

if TYPE_CHECKING:
    from poise.hold.member import Member, OnBeat
    from poise.hold.works import Callback

_KILL_PART = 0.25  # Of the time between the end of acting and the end of the lease; the rest is for the kill itself.


@click.command(
    epilog="""\b
Examples:
  poise worker orders --name w1 -- python consume.py
  poise worker orders --db sqlite:///poise.db | jq ."""
)
@click.argument("job", metavar="SET")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option("--name", metavar="ID", help="The name of this member, the same after a restart.  [default: HOST-PID]")
@click.option("--db", default="sqlite:///poise.db", show_default=True, metavar="URL", help="The store.")
@click.option(
    "--on-exit",
    type=click.Choice(["release", "keep"]),
    default="release",
    show_default=True,
    help="Give the items to others, or have them kept for this name's restart.",
)
@click.option(
    "--margin",
    "margin_s",
    type=float,
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Stop acting so long before a lease ends.",
)
@click.option(
    "--stop",
    "stop_s",
    type=float,
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the command takes to stop.",
)
def worker(
    job: str,
    command: tuple[str, ...],
    name: str | None,
    db: str,
    on_exit: Literal["release", "keep"],
    margin_s: float,
    stop_s: float,
) -> None:
    """Run COMMAND for every item of SET that this member holds.

    Each child has POISE_SET, POISE_ITEM, POISE_EPOCH and POISE_MEMBER in its environment and a process group of its
    own. It gets SIGTERM when its item must be released, and its group SIGKILL before the lease can end. A child that
    ends by itself is started again. Without a COMMAND, gains and losses are printed as JSON lines.
    """
    if on_exit == "keep" and name is None:
        raise click.UsageError("--on-exit keep needs --name: the items are kept for that name")
    if command and shutil.which(command[0]) is None:
        raise click.UsageError(f"{command[0]}: no such command")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="poise: %(message)s")
    wanted = _Wanted(db, job, name or f"{socket.gethostname()}-{os.getpid()}", on_exit, margin_s, stop_s)
    try:
        asyncio.run(_work(wanted, command))
    except asyncio.CancelledError:
        raise click.Abort from None


class _Wanted(NamedTuple):
    """Who this worker is, and how it leaves."""

    db: str
    job: str
    name: str
    on_exit: Literal["release", "keep"]
    margin_s: float
    stop_s: float

    def member(self, on_gain: Callback, on_loss: Callback, on_beat: OnBeat | None = None) -> Member:
        """Make the member."""
        from poise.hold.member import Member

        return Member(
            self.db,
            set=self.job,
            name=self.name,
            on_gain=on_gain,
            on_loss=on_loss,
            margin_s=self.margin_s,
            stop_s=self.stop_s,
            on_exit=self.on_exit,
            on_beat=on_beat,
        )


async def _work(wanted: _Wanted, command: tuple[str, ...]) -> None:
    """Hold items until a signal comes, then drain; a second signal ends the drain."""
    stopping = asyncio.Event()
    this = asyncio.current_task()
    assert this is not None

    def stop() -> None:
        if stopping.is_set():
            this.cancel()
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    await (_run(wanted, command, stopping) if command else _print(wanted, stopping))


async def _run(wanted: _Wanted, command: tuple[str, ...], stopping: asyncio.Event) -> None:
    """Run a child for every item; without a watchdog nothing may run."""
    from poise.hold.children import Children, WatchdogGone

    environment = {"POISE_SET": wanted.job, "POISE_MEMBER": wanted.name}
    kill_after_s = min(wanted.margin_s, wanted.stop_s) * _KILL_PART
    async with Children(command, environment, kill_after_s=kill_after_s, stop_s=wanted.stop_s) as children:
        member = wanted.member(children.start, children.stop, children.renew)
        _say(wanted.name, f"watchdog {children.watchdog_pid}")
        async with member:
            _say(wanted.name, f"member of {wanted.job}, incarnation {member.incarnation}")
            ends = [asyncio.create_task(event.wait()) for event in (stopping, children.gone)]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()
            if children.gone.is_set():
                raise WatchdogGone("the watchdog has ended, and so do its children and this worker")


async def _print(wanted: _Wanted, stopping: asyncio.Event) -> None:
    """Print gains and losses as JSON lines; when nobody reads them any more, leave."""

    def tell(event: str, item: str, epoch: int) -> None:
        line = {"event": event, "set": wanted.job, "item": item, "epoch": epoch, "member": wanted.name}
        try:
            click.echo(json.dumps(line))
        except BrokenPipeError:
            stopping.set()

    async def gain(item: str, epoch: int) -> None:
        tell("gained", item, epoch)

    async def lose(item: str, epoch: int) -> None:
        tell("lost", item, epoch)

    async with wanted.member(gain, lose) as member:
        _say(wanted.name, f"member of {wanted.job}, incarnation {member.incarnation}")
        await stopping.wait()


def _say(name: str, text: str) -> None:
    click.echo(f"poise: {name}: {text}", err=True)
