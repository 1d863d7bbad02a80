"""`poise up`: the server, with its share of the jobs and the API."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from poise.cli.common import read_documents

if TYPE_CHECKING:
    from poise.model import Document


@click.command(
    epilog="""\b
Examples:
  poise up --demo
  poise up examples/orders.yaml
  poise up --db postgresql://127.0.0.1/poise --listen 127.0.0.1:7879
  poise up --listen 0.0.0.0:7878 --tokens tokens.txt --tls-cert cert.pem --tls-key key.pem"""
)
@click.argument("files", nargs=-1, metavar="[FILE...]")
@click.option("--db", default="sqlite:///poise.db", show_default=True, metavar="URL", help="The store.")
@click.option("--listen", metavar="HOST:PORT", help="Where to answer.  [default: 127.0.0.1:7878]")
@click.option("--name", metavar="NAME", help="The name of this server among those of one store.  [default: HOST-PID]")
@click.option("--tokens", metavar="FILE", help="Who may do what: lines of a name, a role and the SHA-256 of a token.")
@click.option("--insecure", is_flag=True, help="Let everybody in who reaches the address.")
@click.option("--tls-cert", metavar="FILE", help="A certificate; read again when it changes.")
@click.option("--tls-key", metavar="FILE", help="Its key.")
@click.option("--host", "hosts", metavar="NAME", multiple=True, help="A name by which this server is asked for.")
@click.option("--pods-ca", metavar="FILE", help="Whom to believe that they are pods.  [default: the system's]")
@click.option("--pods-cert", metavar="FILE", help="A certificate to show to pods that ask for one.")
@click.option("--pods-key", metavar="FILE", help="Its key.")
@click.option("--demo", is_flag=True, help="Also start sample workers and collectors, and a guide through them.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default="poise-demo",
    metavar="PATH",
    help="Where the demo keeps everything, its store too.  [default: poise-demo]",
)
@click.option("--fresh", is_flag=True, help="Start the demo clean, not where it ended.")
def up(
    files: tuple[str, ...],
    db: str,
    listen: str | None,
    name: str | None,
    tokens: str | None,
    insecure: bool,
    tls_cert: str | None,
    tls_key: str | None,
    hosts: tuple[str, ...],
    pods_ca: str | None,
    pods_cert: str | None,
    pods_key: str | None,
    demo: bool,
    folder: Path,
    fresh: bool,
) -> None:
    """Write the documents of FILES into the store, run its jobs, and answer on HTTP until a signal comes.

    Several servers may run on one PostgreSQL store: all of them answer, and the jobs are shared out over them. Jobs
    that are in the store already go on, whether or not a FILE names them. A second signal ends at once.

    With --demo five jobs run with real processes on this machine; a strip on the page guides through them.
    """
    if demo:
        _refuse_with_demo({"--name": name, "--tokens": tokens, "--tls-cert": tls_cert, "--tls-key": tls_key})
        _refuse_with_demo({"--pods-ca": pods_ca, "--pods-cert": pods_cert, "--pods-key": pods_key})
        _run_demo(files, db if _is_said("db") else None, listen, insecure, hosts, folder, fresh)
        return
    if fresh or _is_said("folder"):
        raise click.UsageError("--fresh and --folder are for the demo: say --demo, too")
    from poise.serve.settings import open_sockets, pods_context, read_settings
    from poise.stores.open import open_store

    documents = [each for file in files for each in _watched(file)]
    settings = read_settings(
        listen=listen,
        tokens=tokens,
        insecure=insecure,
        tls_cert=tls_cert,
        tls_key=tls_key,
        hosts=hosts,
        environ=os.environ,
    )
    pods = pods_context(pods_ca, pods_cert, pods_key)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="poise: %(message)s")
    for chatty in ("httpx2", "httpcore2", "uvicorn", "poise.member"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    sockets = open_sockets(settings)
    with closing(sockets[0]), closing(open_store(db)) as store:
        from poise.serve.server import run_server, spare_the_collector

        address = f"{settings.scheme}://{settings.host}:{sockets[0].getsockname()[1]}"
        told = f"poise: answers on {address}; Ctrl-C ends it"

        async def serve() -> None:
            ended, this = asyncio.Event(), asyncio.current_task()
            assert this is not None

            def end() -> None:
                if ended.is_set():
                    os._exit(130)  # Twice means now: leases tell the others.
                ended.set()

            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, end)
            server = name or f"{socket.gethostname()}-{os.getpid()}"
            say = partial(click.echo, told, err=True)
            await run_server(store, server, documents, settings, sockets, ended, say, pods=pods)

        spare_the_collector()
        asyncio.run(serve())


def _is_said(option: str) -> bool:
    """Say whether an option was given, and not only has its default."""
    source = click.get_current_context().get_parameter_source(option)
    return source is click.core.ParameterSource.COMMANDLINE


def _refuse_with_demo(options: dict[str, str | None]) -> None:
    """Refuse what a demo has no use for: it is local and open, and its own processes bring no tokens."""
    said = [flag for flag, value in options.items() if value is not None]
    if said:
        raise click.UsageError(f"{said[0]} is not for the demo, which is local and open: leave it out")


def _run_demo(
    files: tuple[str, ...],
    db: str | None,
    listen: str | None,
    insecure: bool,
    hosts: tuple[str, ...],
    folder: Path,
    fresh: bool,
) -> None:
    """Hand over to the demo, whose server is a process of its own."""
    import msgspec

    from poise.demo.up import Wanted, run_demo

    if fresh and db is not None:
        raise click.UsageError("--fresh and --db exclude each other: the demo deletes only what it keeps in its folder")
    given = "---\n".join(map(_text, (each for file in files for each in _watched(file))))
    wanted = Wanted(folder=folder, fresh=fresh, db=db, insecure=insecure, hosts=hosts, given=given)
    listen = listen or os.environ.get("POISE_LISTEN")
    run_demo(msgspec.structs.replace(wanted, listen=listen) if listen else wanted)


def _text(document: Document) -> str:
    import msgspec

    from poise.documents import dump

    return msgspec.json.encode(dump(document)).decode() + "\n"


def _watched(file: str) -> list[Document]:
    """Read documents; a pool's file of targets is watched by the server, wherever that was started."""
    import msgspec

    from poise.model import TargetPool

    documents = read_documents([file], with_targets=False)
    for place, document in enumerate(documents):
        if isinstance(document, TargetPool) and document.spec.targets.file is not None:
            path = str((Path(file).parent / document.spec.targets.file).resolve())
            targets = msgspec.structs.replace(document.spec.targets, file=path)
            spec = msgspec.structs.replace(document.spec, targets=targets)
            documents[place] = msgspec.structs.replace(document, spec=spec)
    return documents
