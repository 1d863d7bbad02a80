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
import uuid
from contextlib import AbstractContextManager, closing, nullcontext
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from poise.cli.common import said_server, server_option
from poise.errors import Fault, InvalidSpec, NotFound

if TYPE_CHECKING:
    from poise.hold.http_link import HttpLink
    from poise.hold.member import Member, OnBeat
    from poise.hold.settings import Settings
    from poise.hold.works import Callback
    from poise.stores.base import Store

_KILL_PART = 0.25  # Of the time between the end of acting and the end of the lease; the rest is for the kill itself.
_CLOSE_S = 2.0


@click.command(
    epilog="""\b
Examples:
  poise worker orders --name w1 --server http://127.0.0.1:7878 -- python consume.py
  poise worker orders --name w1 -- python consume.py        on the file poise.db, without a server
  poise worker orders --db sqlite:///poise.db | jq .        prints gains and losses"""
)
@click.argument("job", metavar="SET")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option("--name", metavar="ID", help="The name of this member, the same after a restart.  [default: HOST-PID]")
@server_option("Speak to this server over HTTP")
@click.option(
    "--db", metavar="URL", help="Speak to this store.  [default, where no server is named: sqlite:///poise.db]"
)
@click.option(
    "--coordinate/--no-coordinate",
    default=None,
    help="Take part in planning: one of those who do is elected. A server plans by itself.  [default: with --db]",
)
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
    metavar="SECONDS",
    help="Stop acting so long before a lease ends.  [default: the set's marginSeconds]",
)
@click.option(
    "--stop",
    "stop_s",
    type=float,
    metavar="SECONDS",
    help="How long the command takes to stop.  [default: the set's stopSeconds]",
)
def worker(
    job: str,
    command: tuple[str, ...],
    name: str | None,
    server: str | None,
    db: str | None,
    coordinate: bool | None,
    on_exit: Literal["release", "keep"],
    margin_s: float | None,
    stop_s: float | None,
) -> None:
    """Run COMMAND for every item of SET that this member holds.

    Each child has POISE_SET, POISE_ITEM, POISE_EPOCH and POISE_MEMBER in its environment and a process group of its
    own. It gets SIGTERM when its item must be released, and its group SIGKILL before the lease can end. A child that
    ends by itself is started again. Without a COMMAND, gains and losses are printed as JSON lines.

    While the server or the store does not answer, work goes on until its leases end. A server that asks for a token
    gets the one in POISE_TOKEN.
    """
    where = _where(server, db)
    if coordinate and where.server:
        raise click.UsageError("--coordinate needs --db: a server plans by itself")
    if on_exit == "keep" and name is None:
        raise click.UsageError("--on-exit keep needs --name: the items are kept for that name")
    if command and shutil.which(command[0]) is None:
        raise click.UsageError(f"{command[0]}: no such command")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="poise: %(message)s")
    name = name or f"{socket.gethostname()}-{os.getpid()}"
    try:
        wanted = _Wanted(job, name, coordinate is not False, on_exit, margin_s, stop_s)
        asyncio.run(_work(where, wanted, command))
    except asyncio.CancelledError:
        raise click.Abort from None


class _Where(NamedTuple):
    """The address of a server or of a store."""

    url: str
    server: bool


def _where(server: str | None, db: str | None) -> _Where:
    """Choose between two addresses; one that is only in the environment gives way to one that is said."""
    if db is None:
        return _Where(server, True) if server is not None else _Where("sqlite:///poise.db", False)
    if server is not None and said_server():
        raise click.UsageError("--server and --db exclude each other: a worker speaks to one of them")
    return _Where(db, False)


class _Wanted(NamedTuple):
    """Who this worker is, whether it plans, and how it leaves."""

    job: str
    name: str
    coordinate: bool
    on_exit: Literal["release", "keep"]
    margin_s: float | None
    stop_s: float | None

    def settings(self) -> Settings:
        """Give what is said of this member, checked."""
        from poise.hold.settings import Settings, read_settings

        return read_settings(Settings(set=self.job, name=self.name, margin_s=self.margin_s, stop_s=self.stop_s))

    def member(
        self, where: Store | HttpLink, on_gain: Callback, on_loss: Callback, on_beat: OnBeat | None = None
    ) -> Member:
        """Make the member."""
        from poise.hold.member import Member

        return Member(
            where,
            set=self.job,
            name=self.name,
            on_gain=on_gain,
            on_loss=on_loss,
            margin_s=self.margin_s,
            stop_s=self.stop_s,
            on_exit=self.on_exit,
            on_beat=on_beat,
        )


async def _work(where: _Where, wanted: _Wanted, command: tuple[str, ...]) -> None:
    """Hold items until a signal comes, then drain; a second signal ends the drain."""
    from poise.stores.open import open_store

    wanted.settings()
    stopping = asyncio.Event()
    this = asyncio.current_task()
    assert this is not None

    def stop() -> None:
        if stopping.is_set():
            this.cancel()
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    if where.server:
        link, wanted = await _registered(where.url, wanted)
        await _hold(link, wanted, command, stopping)
        return
    with closing(await asyncio.to_thread(open_store, where.url, make=False)) as store:
        wanted = await asyncio.to_thread(_complete, store, where.url, wanted)
        with _planning(store, wanted):
            await _hold(store, wanted, command, stopping)


async def _hold(where: Store | HttpLink, wanted: _Wanted, command: tuple[str, ...], stopping: asyncio.Event) -> None:
    await (_run(where, wanted, command, stopping) if command else _print(where, wanted, stopping))


async def _registered(url: str, wanted: _Wanted) -> tuple[HttpLink, _Wanted]:
    """Register with a server, whose answer says what the set promises; the member registers as the same process."""
    from poise.hold.http_link import HttpLink
    from poise.hold.settings import check_inequality, pace_of

    settings = wanted.settings()
    link = HttpLink(url, wanted.job, wanted.name, uuid.uuid4().hex)
    try:
        registered = await link.register(lambda terms: check_inequality(terms, settings))
    except BaseException as error:
        await link.close(_CLOSE_S)
        if isinstance(error, NotFound):
            hint = f"write it with: poise apply FILE --server {url}"
            raise InvalidSpec(Fault("", f"there is no set {wanted.job!r} at {url}; {hint}")) from None
        raise
    pace = pace_of(settings, registered.terms)
    return link, wanted._replace(margin_s=pace.margin_s, stop_s=pace.stop_s)


def _complete(store: Store, db: str, wanted: _Wanted) -> _Wanted:
    """Take from the set what was not said."""
    from poise.hold.settings import pace_of

    job = store.transact(wanted.job, lambda tx: tx.job())
    if job is None:
        raise InvalidSpec(Fault("", f"there is no set {wanted.job!r} in {db}; write it with: poise up FILE --db {db}"))
    pace = pace_of(wanted.settings(), job.terms)
    return wanted._replace(margin_s=pace.margin_s, stop_s=pace.stop_s)


def _planning(store: Store, wanted: _Wanted) -> AbstractContextManager[object]:
    """Take part in the election of this set; several processes may have one name, so the process is named, too."""
    from poise.jobs.coordination import Coordination

    if not wanted.coordinate:
        return nullcontext()
    return Coordination(store, f"{wanted.name} {uuid.uuid4().hex[:8]}", only=wanted.job)


async def _run(where: Store | HttpLink, wanted: _Wanted, command: tuple[str, ...], stopping: asyncio.Event) -> None:
    """Run a child for every item; without a watchdog nothing may run."""
    from poise.errors import WatchdogGone
    from poise.hold.children import Children

    environment = {"POISE_SET": wanted.job, "POISE_MEMBER": wanted.name}
    assert wanted.margin_s is not None, "the set has been asked"
    assert wanted.stop_s is not None, "the set has been asked"
    kill_after_s = min(wanted.margin_s, wanted.stop_s) * _KILL_PART
    async with Children(command, environment, kill_after_s=kill_after_s, stop_s=wanted.stop_s) as children:
        member = wanted.member(where, children.start, children.stop, children.renew)
        _say(wanted.name, f"watchdog {children.watchdog_pid}")
        async with member:
            _say(wanted.name, f"member of {wanted.job}, incarnation {member.incarnation}")
            ends = [asyncio.create_task(event.wait()) for event in (stopping, children.gone)]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()
            if children.gone.is_set():
                raise WatchdogGone("the watchdog has ended, and so do its children and this worker")


async def _print(where: Store | HttpLink, wanted: _Wanted, stopping: asyncio.Event) -> None:
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

    async with wanted.member(where, gain, lose) as member:
        _say(wanted.name, f"member of {wanted.job}, incarnation {member.incarnation}")
        await stopping.wait()


def _say(name: str, text: str) -> None:
    click.echo(f"poise: {name}: {text}", err=True)
