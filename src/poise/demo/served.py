"""The server of the demo: an ordinary server, with the demo's jobs, its strip on the page and its steps."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from poise import clock
from poise.demo.documents import documents, endpoints
from poise.demo.guide import Guide
from poise.demo.line import Line
from poise.demo.names import ROUTERS, SERVER
from poise.demo.ports import address_of, unusual
from poise.demo.routes import demo_routes
from poise.demo.sink import Sink
from poise.demo.words import Answers, Asked, Loaded
from poise.documents import load
from poise.errors import Conflict, PoiseError
from poise.jobs.stored import put_document, read_document
from poise.model import Document, TargetPool
from poise.serve.facade import JobsApi
from poise.serve.server import Extras, run_server, spare_the_collector
from poise.serve.settings import ServeSettings, read_settings
from poise.stores.base import Store
from poise.stores.open import open_store

_END_S = 8.0  # However it ends, it ends.


async def serve_demo(store: Store, asked: Asked, line_fd: int, listening: socket.socket) -> None:
    """Serve until the parent asks to end, or is gone."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, _end, ended)
    line = await Line.open(line_fd, lambda: _end(ended))
    settings = read_settings(listen=asked.listen, insecure=asked.insecure, hosts=asked.hosts)
    await run_demo(store, settings, listening, line, Sink(Path(asked.sink)), ended)


def _end(ended: asyncio.Event) -> None:
    """End in order, or after a while without it."""
    if not ended.is_set():
        ended.set()
        late = threading.Timer(_END_S, os._exit, (1,))
        late.daemon = True
        late.start()


async def run_demo(
    store: Store, settings: ServeSettings, listening: socket.socket, line: Line, sink: Sink, ended: asyncio.Event
) -> None:
    """Run the server with the strip on its page and the steps beside it."""
    tasks = list[asyncio.Task[None]]()

    def extras(api: JobsApi) -> Extras:
        guide = Guide(api, line, sink, unusual(address_of(settings)))
        tasks.extend(asyncio.create_task(each) for each in (line.listen(), guide.watch()))
        return Extras(demo_routes(guide), guide.strip)

    await run_server(store, SERVER, [], settings, [listening], ended, lambda: line.say(Answers()), extras)
    for task in tasks:
        task.cancel()


def put_first(store: Store, ports: Mapping[str, int], given: Sequence[Document]) -> None:
    """Write the jobs of the demo where they are not there yet; those that are go on as people left them."""
    for document in documents(ports):
        try:
            put_document(store, document, clock.now(), if_match=0)
        except Conflict:
            _move_collectors(store, document, ports)
    for document in given:
        put_document(store, document, clock.now())


def _move_collectors(store: Store, document: Document, ports: Mapping[str, int]) -> None:
    """Tell a pool of an earlier start where its collectors listen now, and change nothing else of it."""
    if not isinstance(document, TargetPool):
        return
    stored = read_document(store, document.kind, ROUTERS, clock.now())
    pool = stored.document
    assert isinstance(pool, TargetPool)
    now = {each.name: each for each in endpoints(ports)}
    kept = [
        msgspec.structs.replace(each, url=now[each.name].url) if each.name in now else each
        for each in pool.spec.pods.endpoints or []
    ]
    pods = msgspec.structs.replace(pool.spec.pods, endpoints=kept)
    put_document(store, msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, pods=pods)), clock.now())


def _await_turn(descriptor: int) -> None:
    """Say that this process could begin, and wait until it may: another server may still have to end."""
    line = socket.socket(fileno=descriptor)
    line.sendall(msgspec.json.encode(Loaded()) + b"\n")
    line.recv(1, socket.MSG_PEEK)
    line.detach()


def main(arguments: list[str]) -> None:
    """Run the server; what prevents it is one line."""
    parser = argparse.ArgumentParser(prog="served")
    parser.add_argument("asked")
    parser.add_argument("--listening", type=int, required=True)
    parser.add_argument("--line", type=int, required=True)
    parser.add_argument("--first", action="store_true")
    options = parser.parse_args(arguments)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s poise: %(message)s")
    for chatty in ("httpx2", "httpcore2", "uvicorn", "poise.member"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    asked = msgspec.json.decode(options.asked, type=Asked)
    listening = socket.socket(fileno=options.listening)
    listening.setblocking(False)
    _await_turn(options.line)
    try:
        with closing(open_store(asked.db)) as store:
            if options.first:
                put_first(store, asked.ports, load(asked.given, "given") if asked.given else [])
            spare_the_collector()
            asyncio.run(serve_demo(store, asked, options.line, listening))
    except PoiseError as error:
        sys.stderr.write(f"poise: {error}\n")
        sys.exit(1)
