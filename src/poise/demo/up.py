"""`poise up --demo`: what is asked for on the command line becomes a folder, an address and a set of processes."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import sys
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import msgspec

from poise import clock
from poise.demo.folder import Folder, Kept
from poise.demo.names import COLLECTORS, FLEET, GATEWAY, MARKET, ORDERS, ROUTERS, SHARDS, SPOT, WORKERS
from poise.demo.parts import Part
from poise.demo.ports import address_of, choose_ports, listener_of, unusual, written
from poise.demo.supervisor import SERVER_LOG, Supervisor
from poise.demo.words import Asked
from poise.errors import InvalidSpec, PoiseError
from poise.serve.settings import LISTEN, ServeSettings, open_sockets, read_settings

_WELCOME = f"""\
poise: the demo answers on {{address}}
  {ORDERS:15} 64 partitions on six worker processes, {WORKERS[0]} to {WORKERS[-1]}
  {ROUTERS:15} 60 targets on four collector processes; the routers are made up
  {GATEWAY:15} 40 objects on a ring of three controller processes
  {FLEET:15} 200 workloads divided over five clusters; the clusters are made up
  {SPOT:15} a replayed trace of interruptions: simulated, nothing of it runs
Open the page: the strip on top suggests what to break, one click each.
In another terminal: {{poise}} top {ORDERS}{{server}}
{{again}}; logs are in {{logs}}. Ctrl-C ends all of it."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for; `db` of None is a store in the demo's folder, `given` are further documents as text."""

    folder: Path
    fresh: bool = False
    db: str | None = None
    listen: str = LISTEN
    insecure: bool = False
    hosts: tuple[str, ...] = ()
    given: str = ""


def run_demo(wanted: Wanted) -> None:
    """Run the demo until a signal comes; every refusal is one line, and then nothing has been started."""
    settings = read_settings(listen=wanted.listen, insecure=wanted.insecure, hosts=wanted.hosts)
    with Folder(wanted.folder, fresh=wanted.fresh) as folder, closing(_take_address(settings)) as listening:
        before, port = folder.read(), int(listening.getsockname()[1])
        kept = Kept(choose_ports(COLLECTORS, before.ports), before.done)
        folder.write(kept)
        address = address_of(settings, port)
        make_server = partial(_server, wanted, folder, kept, written(settings.host, port))
        supervisor = Supervisor(_parts(folder, kept, address), folder, kept, tell)
        welcome = partial(_welcome, address, folder, again=bool(before.ports))
        asyncio.run(supervisor.run(make_server, listening, welcome))
    say("poise: the demo has ended; nothing of it runs any more")


def _take_address(settings: ServeSettings) -> socket.socket:
    """Take the address before anything starts; one that is taken gets a line that says by whom, and what to do."""
    try:
        return open_sockets(settings)[0]
    except InvalidSpec as error:
        if os.strerror(errno.EADDRINUSE) not in str(error):
            raise
        by, where = listener_of(settings.port), written(settings.host, settings.port)
        cure = f"end that, or take any free port: --listen {written(settings.host, 0)}"
        raise PoiseError(f"{where} is taken{f' by {by}' if by else ' by another program'}: {cure}") from None


def _server(wanted: Wanted, folder: Folder, kept: Kept, listen: str, first: bool) -> Part:
    """Make a server; only the first one of a demo writes documents."""
    asked = Asked(
        db=wanted.db or folder.store,
        listen=listen,
        insecure=wanted.insecure,
        hosts=wanted.hosts,
        sink=str(folder.sink),
        ports=kept.ports,
        given=wanted.given,
    )
    arguments = ["served", msgspec.json.encode(asked).decode(), *(["--first"] if first else [])]
    return Part(SERVER_LOG, "served", arguments, folder.log(SERVER_LOG))


def _parts(folder: Folder, kept: Kept, address: str) -> list[Part]:
    """Name all processes beside the server; collectors first, since they are ready soonest."""
    where = ("--server", address)
    collectors = {name: ("collector", name, str(port)) for name, port in kept.ports.items()}
    workers = {name: ("worker", ORDERS, name, *where, "--sink", str(folder.sink)) for name in WORKERS}
    shards = {name: ("worker", GATEWAY, name, *where) for name in SHARDS}
    market = {MARKET: ("replayer", *where)}
    every = {**collectors, **workers, **shards, **market}
    return [Part(name, each[0], each, folder.log(name)) for name, each in every.items()]


def _welcome(address: str, folder: Folder, *, again: bool) -> None:
    goes_on = f"This goes on where it ended in {folder.path} (--fresh starts clean)"
    told = goes_on if again else f"All of it lives in {folder.path}"
    logs, flag = folder.path / "logs", f" --server {address}" if unusual(address) else ""
    say(_WELCOME.format(address=address, again=told, logs=logs, poise=_command(), server=flag))


def _command() -> str:
    """Say how this command was called, as it can be typed again."""
    called = sys.argv[0]
    if called.endswith("__main__.py"):
        return "python -m poise"
    return "poise" if shutil.which("poise") == called else called


def tell(text: str) -> None:
    """Tell of an event, with its time."""
    say(f"{clock.now().astimezone():%H:%M:%S}  {text}")


def say(text: str) -> None:
    """Say something on standard error; a terminal that was closed is no reason to stop cleaning up."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
